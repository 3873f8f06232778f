"""The published tables load, hold the figures of their sources, and claim no more than those do."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from harness import paths
from harness.catalog import catalog
from harness.errors import ConfigError
from harness.report.counts import decimals, distinguishable, figure, fit, infer_count, interval
from harness.report.printed import beside, markdown
from harness.report.published import PublishedTable, load, load_all
from harness.report.samples import COLUMNS as SEVERAL_SAMPLES
from harness.scoring import task_scorer

FOLDER = Path(__file__).parents[2] / "baselines" / "published"

SHAPES = {  # rows, columns
    "bookmark_aime": (1, 8),
    "korean_table1": (3, 7),
    "korean_table2": (3, 7),
    "qwen3_report": (4, 7),
    "r1_searcher_figure6": (13, 1),
    "r1_searcher_table1": (4, 3),
    "r1_searcher_table2": (30, 8),
    "r1_searcher_table3": (2, 10),
    "r1_searcher_table4": (4, 10),
    "r1_searcher_table5": (3, 10),
    "r1_searcher_table6": (2, 10),
    "r1_searcher_table7": (3, 10),
    "railway_table1": (3, 4),
    "railway_table2": (4, 9),
    "search_agents_r1_searcher_pp": (1, 7),
    "search_agents_research": (5, 8),
    "search_agents_search_r1": (5, 8),
    "search_agents_zerosearch": (3, 8),
}
LLAMA, QWEN = "Llama-3.1-8B-Instruct", "Qwen-2.5-7B-Base"


@pytest.fixture(scope="module")
def tables() -> dict[str, PublishedTable]:
    return load_all(FOLDER)


def cells_of(table: PublishedTable, *columns: str) -> list[str]:
    return [table.cell(row.name, column) for row in table.rows for column in columns]


def test_every_published_table_is_present_with_its_rows_and_columns(tables):
    assert {k: (len(t.rows), len(t.columns)) for k, t in tables.items()} == SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_every_cell_is_a_figure_or_a_printed_dash(tables, name):
    for row in tables[name].rows:
        for cell in row.cells:
            assert cell == "-" or fit(cell, 100) is not None


@pytest.mark.parametrize("name", SHAPES)
def test_every_table_names_its_source_and_its_metrics_and_no_address(tables, name):
    table = tables[name]
    assert table.source["paper"] and table.protocol["metrics"]
    assert "http" not in (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "row", "column", "cell"),
    [
        ("railway_table1", "Qwen3-8B / top-5", "railway.answer_recall_published", "0.316"),
        ("railway_table1", "Qwen3-8B / top-1", "railway.output_tokens", "267.0"),
        ("railway_table2", "Qwen3-8B", "railway_rag_top1.output_tokens", "267.00"),
        (
            "railway_table2",
            "Qwen3-8B-SFT-RL / LoRA on 100, GRPO on 390",
            "railway_rag_top5.answer_accuracy",
            "0.6044",
        ),
        ("r1_searcher_table1", "Stage 2 / 2WikiMultiHopQA", "difficult.samples", "2500"),
        ("r1_searcher_table2", "GPT-4o-mini / Naive Generation", "musique.acc_l", ".170"),
        ("r1_searcher_table2", f"{LLAMA} / ReARTeR", "bamboogle.cem_bag", ".438"),
        ("r1_searcher_table2", f"{QWEN} / R1-Searcher RL-Zero", "hotpotqa.cem_bag", ".654"),
        ("r1_searcher_table3", f"{LLAMA} / GRPO", "2wikimultihopqa.f1", "63.0"),
        ("r1_searcher_table6", f"{QWEN} / w. Difficult", "2wikimultihopqa.cem_bag", "64.2"),
        ("r1_searcher_figure6", "QwQ-32B-Preview / Search-o1, online", "bamboogle.cem_bag", "56.0"),
        ("bookmark_aime", "Qwen3-8B / Bookmark SFT", "aime25.output_tokens", "15,702"),
        ("korean_table1", "Qwen3 14B", "mmlu.accuracy", "78.8"),
        ("korean_table2", "SFT + Oracle-Guided Dr.GRPO", "humaneval.pass", "66.46"),
        ("qwen3_report", "Qwen3-8B / non-thinking", "gpqa_diamond.accuracy", "39.3"),
        ("search_agents_research", "ReSearch-Qwen-32B-Instruct", "2wikimultihopqa.em", "44.90"),
        ("search_agents_r1_searcher_pp", "R1-Searcher++", "musique.cem", "32.3"),
    ],
)
def test_cells_are_kept_as_printed(tables, name, row, column, cell):
    assert tables[name].cell(row, column) == cell


def test_the_training_data_of_r1_searcher_stage_2_add_up_to_8148(tables):
    rows = [r for r in tables["r1_searcher_table1"].rows if r.model == "Stage 2"]
    assert sum(int(cell) for row in rows for cell in row.cells if cell != "-") == 8148


@pytest.mark.parametrize("number", range(3, 8))
def test_average_cem_is_the_mean_of_the_three_cells_but_for_one_noted_cell(tables, number):
    for row in tables[f"r1_searcher_table{number}"].rows:
        mean = sum(Decimal(row.cells[i]) for i in (1, 4, 7)) / 3
        off = abs(mean - Decimal(row.cells[9])) > Decimal("0.05")
        assert off == ("average.cem_bag" in row.notes)


def test_figure_6_repeats_the_bamboogle_cells_of_table_2(tables):
    main, figure = tables["r1_searcher_table2"], tables["r1_searcher_figure6"]
    for method in ("ReARTeR", "CR-Planner", "IRCoT", "Self-Ask", "Iter-RetGen", "Standard RAG"):
        name = f"GPT-4o-mini / {method}"
        percent = Decimal(figure.cell(name, "bamboogle.cem_bag"))
        assert Decimal(main.cell(name, "bamboogle.cem_bag")) * 100 == percent


def test_both_korean_tables_agree_where_they_share_rows(tables):
    one, two = tables["korean_table1"], tables["korean_table2"]
    for name in ("Smoothie Qwen3 14B", "SFT"):
        assert one.row(name).cells == two.row(name).cells


# --- counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "n", "k"),
    [
        (".3955", 225, 89),  # cut off: .39556
        ("0.6044", 225, 136),
        ("39.4", 125, None),
        ("46.6", 125, None),
        ("52.8", 125, 66),
        ("76.66", 30, 23),
        ("73.33", 30, 22),
        ("83.3", 30, 25),
        ("1/30", 30, 1),
        ("1/30", 60, None),
        ("41.67%", 30, None),
        ("100", 30, 30),
        ("0.00", 30, 0),
        ("0.0", 30, None),  # 0 or 1
        ("78.8", 14042, None),  # many counts fit
        ("-", 30, None),
        ("", 30, None),
    ],
)
def test_a_count_is_inferred_where_exactly_one_fits(cell, n, k):
    assert infer_count(cell, n) == k


def test_rounding_and_cutting_off_are_told_apart():
    cut, rounded = fit(".3955", 225), fit(".3822", 225)
    assert cut is not None and (cut.rounded, cut.truncated) == ((), (89,))
    assert rounded is not None and (rounded.rounded, rounded.truncated) == ((86,), (86,))


@pytest.mark.parametrize("n", [30, 125, 225])
def test_every_count_is_found_again_from_its_printed_share(n):
    for k in range(n + 1):
        assert infer_count(f"{k / n:.4f}", n, "fraction") == k


def test_aime_cells_of_the_korean_tables_are_multiples_of_one_thirtieth(tables):
    for name in ("korean_table1", "korean_table2"):
        for cell in cells_of(tables[name], "aime24.accuracy", "aime25.accuracy"):
            assert infer_count(cell, 30, "percent") is not None
        assert all(c.single_sample for c in tables[name].columns if c.task.startswith("aime"))


@pytest.mark.parametrize("name", ["railway_table1", "railway_table2"])
def test_railway_shares_are_counts_of_225(tables, name):
    columns = [c.id for c in tables[name].columns if c.kind == "share"]
    for cell in cells_of(tables[name], *columns):
        assert infer_count(cell, 225, "fraction") is not None


def test_an_interval_needs_a_count_and_contains_the_share():
    low, high = interval(".3955", 225) or (1.0, 0.0)
    assert low < 89 / 225 < high
    assert interval("39.4", 125) is None
    assert interval("0.00", 30) == (0.0, pytest.approx(0.1135, abs=1e-4))


def test_where_several_counts_fit_the_interval_spans_them_all():
    low, high = interval("78.8", 14042) or (1.0, 0.0)
    inner = interval("11065/14042", 14042)
    assert inner is not None and low <= inner[0] and inner[1] <= high


@pytest.mark.parametrize(
    ("a", "b", "n", "verdict"),
    [
        ("73.33", "83.3", 30, "not distinguishable"),  # 3 of 30 questions
        (".5467", ".6044", 225, "not distinguishable"),
        (".3867", ".5733", 225, "distinguishable"),
        ("39.4", "44.0", 125, "unknown"),
    ],
)
def test_figures_are_told_apart_only_where_two_unpaired_counts_allow_it(a, b, n, verdict):
    assert distinguishable(a, b, n) == verdict == distinguishable(b, a, n)


# --- boards -----------------------------------------------------------------------------------


def board_row(text: str, *parts: str) -> str:
    return next(x for x in text.splitlines() if x[:1] == "|" and all(p in x for p in parts))


def test_bamboogle_cells_that_are_no_multiples_of_1_in_125_are_flagged(tables):
    text = markdown(tables["r1_searcher_table4"])
    row = board_row(text, LLAMA, "| SFT")
    assert "39.4†" in row and "46.6†" in row
    assert "1/125" in text


def test_steps_of_one_half_are_noted_and_put_the_number_of_questions_in_doubt(tables):
    for number in (3, 4, 7):
        assert any("0.5" in x for x in tables[f"r1_searcher_table{number}"].inconsistencies)
    row = board_row(markdown(tables["r1_searcher_table3"]), "GRPO")
    assert "60.5†" in row and "53.0‡" in row


def test_the_reference_row_carries_no_mark_of_its_own(tables):
    text = markdown(tables["railway_table2"])
    assert "0.5556° = 125/225 [0.490, 0.619]" in board_row(text, "| Qwen3-8B  ")
    assert "**0.6044**≈ = 136/225 [0.539, 0.666]" in board_row(text, "Qwen3-8B-SFT-RL")
    assert "Cut off instead of rounded: 0.3955 = 89/225" in text


def test_the_best_of_a_column_is_bold_and_the_smaller_length_is_the_better(tables):
    row = board_row(markdown(tables["railway_table2"]), "| Qwen3-8B-SFT  ")
    assert "**59.45**" in row and "**0.4044" not in row


def test_the_best_of_two_hundred_questions_is_not_told_from_the_next(tables):
    text = markdown(tables["r1_searcher_table2"])
    assert "**.654**" in board_row(text, "R1-Searcher RL-Zero")
    assert ".648≈° = 324/500" in board_row(text, "R1-Searcher RL ")
    assert "°" not in board_row(text, "Naive Generation", "GPT-4o-mini")


# --- beside measured rows ---------------------------------------------------------------------


def test_rows_find_the_measured_task_and_metric_of_their_columns(tables):
    rows = beside(tables.values(), "railway_rag_top3", ["answer_accuracy", "page_accuracy"])
    assert [r.name.partition(" /")[0] for r in rows] == [
        "Qwen3-8B",
        "Qwen3-8B-Zero",
        "Qwen3-8B-SFT",
        "Qwen3-8B-SFT-RL",
    ]
    last = rows[-1].cells
    assert set(last) == {"answer_accuracy", "page_accuracy"}
    assert last["answer_accuracy"].text() == ".5733 = 129/225 [.508, .636]"
    assert rows[0].n == "225"


def test_rows_that_are_tasks_find_theirs_and_only_the_columns_meant_for_it(tables):
    columns = ["answer_accuracy", "answer_recall_published"]
    rows = [
        r
        for r in beside(tables.values(), "railway_rag_top5", columns)
        if r.table.id == "railway_table1"
    ]
    assert [set(r.cells) for r in rows] == [{"answer_recall_published"}]
    assert rows[0].cells["answer_recall_published"].counts == (71,)


def test_percents_stand_beside_fractions_with_the_digits_that_were_printed(tables):
    rows = beside(tables.values(), "bamboogle", ["em", "cem_bag"])
    shown = {r.cells["cem_bag"].shown for r in rows if "cem_bag" in r.cells}
    assert {".528", ".624", ".504"} <= shown


def test_tables_of_other_settings_never_stand_beside_measured_rows(tables):
    rows = beside(tables.values(), "hotpotqa", ["em", "cem", "acc_l"])
    assert rows and not any(r.table.not_comparable for r in rows)


def test_a_column_that_names_a_task_of_this_harness_names_one_of_its_metrics(tables):
    entries = catalog(paths.TASKS)
    measured = {n: task_scorer(e.metadata["scorer"]).metrics for n, e in entries.items()
                if e.metadata.get("scorer")}  # fmt: skip
    met = 0
    for table in tables.values():
        tasks = {c.task for c in table.columns} | {r.task for r in table.rows}
        met += bool(tasks & set(measured))
        for column in table.columns:
            if column.beside and not table.not_comparable and column.task in measured:
                known = {*measured[column.task], *SEVERAL_SAMPLES}
                assert column.metric in known, (table.id, column.id)
    assert met >= 10


@pytest.mark.parametrize(
    ("cell", "unit", "value", "places"),
    [("15,702", "tokens", 15702, 0), ("41.67%", "", 0.4167, 2), ("1/30", "fraction", 1 / 30, 0),
     (".654", "", 0.654, 3), ("88.1", "percent", 0.881, 1), ("-", "", None, 0)],
)  # fmt: skip
def test_the_number_of_a_cell(cell, unit, value, places):
    assert figure(cell, unit) == pytest.approx(value)
    assert decimals(cell) == places


@pytest.mark.parametrize("name", SHAPES)
def test_a_board_carries_source_protocol_and_inconsistencies(tables, name):
    table, text = tables[name], markdown(tables[name])
    assert table.source["paper"] in text
    assert all(note in text for note in table.protocol.values())
    assert all(note in text for note in table.inconsistencies)


@pytest.mark.parametrize("name", [k for k in SHAPES if k.startswith("search_agents")])
def test_other_settings_are_marked_as_not_comparable(tables, name):
    assert "**Not comparable.**" in markdown(tables[name])


@pytest.mark.parametrize("name", ["korean_table2", "r1_searcher_table2"])
def test_a_board_is_the_same_byte_for_byte_when_made_again(name):
    path = FOLDER / f"{name}.toml"
    assert markdown(load(path)).encode() == markdown(load(path)).encode()


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "Qwen3', 'titel = "Qwen3', "titel: unknown key, did you mean title?"),
        ('metric = "accuracy", label = "MMLU"', 'label = "MMLU"', "columns 2: metric: is missing"),
        ("n = 14042", 'n = "14042"', "columns 2: n: must be a int, is '14042'"),
        ("n = 14042", "n = 0", "columns 2: n: must be above 0"),
        ("n = 14042", "size = 14042", "columns 2: size: unknown key"),
        ('unit = "percent" },', 'unit = "percents" },', "did you mean percent?"),
        ('"58.54", ', "", "row 1: cells: 6 for 7 columns"),
        ('"58.54"', "58.54", "row 1: cells: 58.54 must be quoted"),
        ('reference = "Smoothie', 'reference = "Smoothy', "did you mean Smoothie Qwen3 14B?"),
        ('board = "korean"', 'board = "../korean"', "board: '../korean': small letters"),
        ('id = "korean_table2"', 'id = "korean"', "id: is 'korean', but the file is called"),
        ('model = "SFT"', 'model = "Smoothie Qwen3 14B"', "'Smoothie Qwen3 14B' occurs twice"),
        ("[source]", "[source", "cannot be read"),
        ('arxiv = "', 'arxive = "', "source.arxive: unknown key, did you mean arxiv?"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path, old, new, said):
    path = tmp_path / "korean_table2.toml"
    text = (FOLDER / path.name).read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert said in message and str(path) in message and "\n" not in message


def test_a_folder_without_tables_is_an_error_and_a_new_file_is_found(tmp_path):
    with pytest.raises(ConfigError, match="no published tables"):
        load_all(tmp_path)
    assert load_all(tmp_path / "none") == {}
    shutil.copy(FOLDER / "railway_table1.toml", tmp_path)
    assert list(load_all(tmp_path)) == ["railway_table1"]
