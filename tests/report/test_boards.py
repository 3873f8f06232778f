"""Boards made of records: published rows beside measured ones, and figures without leaks."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from harness import paths
from harness.differences import agreement
from harness.records import DocSamples, RecordSet, Sample, freeze, load_frozen
from harness.report.markdown import board, index, write_boards
from harness.report.published import load_all

TABLES = tuple(load_all(paths.BASELINES / "published").values())
TASK = "railway_rag_top5"


def records(right: int, total: int = 225, leaked=(), **info) -> RecordSet:
    docs = tuple(
        DocSamples(
            f"d{i}", f"p{i % 15}", None, "sha",
            (Sample(0, "x", "stop", {"answer_accuracy": float(i < right)}, (), 5),),
            i in leaked,
        )
        for i in range(total)
    )  # fmt: skip
    about = {
        "fingerprints": {}, "board": "railway_rag", "metric": "answer_accuracy",
        "columns": ["answer_accuracy"], "policy": "single_turn", "retriever": "published", **info,
    }  # fmt: skip
    return RecordSet("mine", TASK, "run", about, docs, total, total, 1)


def task_lines(text: str) -> list[str]:
    return text.partition("## Published tables")[0].splitlines()


def row(text: str, name: str) -> str:
    return next(x for x in task_lines(text) if x.startswith(f"| {name} "))


def shown(*sets: RecordSet) -> str:
    return board("railway_rag", sets, lambda *_: {}, TABLES)


def test_a_measured_row_that_cannot_be_told_from_the_best_published_one_is_marked():
    text = shown(records(130))  # the best printed figure is 136/225
    assert "° [" in row(text, "mine")
    assert "°" not in row(text, "Qwen3-8B-SFT-RL / LoRA on 100, GRPO on 390")


def test_a_published_row_is_set_against_the_best_measured_one():
    text = shown(records(140))
    assert "°" in row(text, "Qwen3-8B-SFT-RL / LoRA on 100, GRPO on 390")
    assert "°" not in row(text, "mine")
    assert "°" not in row(shown(records(225)), "Qwen3-8B-SFT-RL / LoRA on 100, GRPO on 390")


@pytest.mark.parametrize("change", [{"off_protocol": ["temperature"]}, {"retriever": "oracle"}])
def test_a_row_off_protocol_or_with_gold_pages_is_flagged_and_never_the_best(change):
    text = shown(records(225, **change))
    assert "°" not in row(text, "Qwen3-8B-SFT-RL / LoRA on 100, GRPO on 390")
    assert "°" in row(text, "Qwen3-8B-Zero / GRPO on 490")  # near the best published row
    assert row(text, "mine").rstrip(" |").endswith(("off protocol: temperature", "gold pages"))


def test_runs_of_one_retriever_with_other_options_are_told_apart():
    given = ({"encoder": "e5"}, {"encoder": "folder:/models/bge"}, {})
    sets = [records(9, retriever="dense", retriever_options=options) for options in given]
    text = shown(*sets)
    for name in ("dense (encoder=e5)", "dense (encoder=bge)", "dense"):
        assert f"| {name} " in text
        assert f"| {name} " in index({"railway_rag": sets})


def test_every_published_table_is_on_a_board_with_and_without_runs(tmp_path):
    for folder, sets in ((tmp_path / "a", []), (tmp_path / "b", [records(9)])):
        write_boards(folder, sets, lambda *_: {}, TABLES)
        for table in TABLES:
            text = (folder / f"{table.board}.md").read_text(encoding="utf-8")
            assert f"### {table.title}" in text
            assert f"- {table.title}" in (folder / "README.md").read_text(encoding="utf-8")


def test_without_leaks_nothing_is_said_of_leaks():
    assert "test item" not in shown(records(10))


def test_figures_stand_with_and_without_the_items_that_the_prompt_shows():
    text = shown(records(100, leaked={0, 1}))
    assert "test items in the prompt: 2" in row(text, "mine")
    assert "The prompt shows 2 test item(s): d0, d1." in text
    (every,) = [x for x in task_lines(text) if "225 (all)" in x]
    (clean,) = [x for x in task_lines(text) if "223 (without)" in x]
    assert f"{100 / 225:.4f}" in every
    assert f"{98 / 223:.4f}" in clean


def test_a_frozen_baseline_keeps_which_items_the_prompt_shows(tmp_path: Path):
    freeze(records(3, leaked={7}), tmp_path, "b")
    docs = load_frozen(tmp_path, TASK).docs
    assert [d.doc_id for d in docs if d.in_prompt] == ["d7"]


def test_the_index_names_measured_boards_first():
    text = index({"aime": [], "railway_rag": [records(5)]}, TABLES)
    assert text.index("## [railway_rag]") < text.index("## [aime]")


def on_task(task: str, metric: str, board_name: str, rights, repeats: int = 1) -> RecordSet:
    """A record set whose i-th doc has `rights[i]` right samples of `repeats`."""
    docs = tuple(
        DocSamples(
            f"d{i}", None, None, "sha",
            tuple(
                Sample(r, "x", "stop", {metric: float(r < right), "vote": float(r < right)}, (), 5)
                for r in range(repeats)
            ),
        )
        for i, right in enumerate(rights)
    )  # fmt: skip
    about = {"fingerprints": {}, "board": board_name, "metric": metric, "columns": [metric]}
    return RecordSet("mine", task, "run", about, docs, len(docs), len(docs), repeats)


def test_a_board_of_published_tables_shows_what_other_boards_measured_on_their_tasks(tmp_path):
    gsm8k = on_task("gsm8k", "accuracy", "gsm8k", [1] * 30)
    aime = on_task("aime24", "accuracy", "aime", [8] * 30, repeats=16)
    write_boards(tmp_path, [gsm8k, aime, records(5)], lambda *_: {}, TABLES)
    text = (tmp_path / "korean.md").read_text(encoding="utf-8")
    assert "In full on [aime](aime.md), [gsm8k](gsm8k.md)." in text
    (line,) = [x for x in text.splitlines() if x.startswith("| mine ")]
    assert "(16 samples)" in line
    assert "railway" not in text


def test_several_samples_get_a_table_with_both_intervals_and_counts():
    several = on_task("aime25", "accuracy", "aime", [16] * 10 + [8] * 10 + [0] * 10, repeats=16)
    text = board("aime", [several], lambda *_: {}, TABLES)
    assert "Several samples a question:" in text
    (line,) = [x for x in text.splitlines() if x.startswith("| mine ") and "/30" in x]
    cells = [c.strip() for c in line.split("|")]
    assert cells[3:5] == ["30", "16"]
    assert cells[5].startswith(".500 [")
    assert cells[6].startswith("[")
    assert cells[-4:-2] == ["10/30", "10/30"]
    assert cells[-5].startswith(".500")  # a tie of 8 to 8 counts half: (10 + 5) / 30


def test_single_samples_beside_a_mean_of_sixteen_are_marked_and_never_tested():
    several = on_task("aime24", "accuracy", "aime", [16] * 23 + [0] * 7, repeats=16)
    text = board("aime", [several], lambda *_: {}, TABLES)
    measured = text.partition("## Published tables")[0]
    row = next(x for x in measured.splitlines() if x.startswith("| Qwen3 14B "))
    assert ".7666§" in row
    assert "single sample a question" in measured
    mine = next(x for x in measured.splitlines() if x.startswith("| mine "))
    assert "°" not in mine


def test_one_sample_a_question_needs_no_such_table():
    assert "Several samples" not in board(
        "aime", [on_task("aime24", "accuracy", "aime", [1] * 30)], lambda *_: {}, TABLES
    )


def test_an_unscored_sample_leaves_pass_at_k_out_and_says_so():
    whole = on_task("aime24", "accuracy", "aime", [2] * 30, repeats=2)
    first = whole.docs[0]
    broken = replace(first, samples=(first.samples[0], replace(first.samples[1], metrics=None)))
    text = board("aime", [replace(whole, docs=(broken, *whole.docs[1:]))], lambda *_: {}, ())
    assert "maj@n" not in text
    assert "- mine: a sample is unscored or no 0/1, so there is no pass@k." in text


def test_rows_of_one_model_are_told_apart_by_policy_and_its_settings():
    text = shown(
        records(9, policy="rag"),
        records(7, policy="rag", policy_options={"top_k": 3}),
        records(5, policy="naive", policy_options={"tags": False}),
    )
    cells = [line.split("|")[2].strip() for line in task_lines(text) if line.startswith("| mine ")]
    assert cells == ["rag", "rag (top_k=3)", "naive (tags=false)"]


def test_what_went_wrong_is_said_of_the_policy_with_which_it_did():
    wrong = records(2, policy="cot", policy_options={"n": 2})
    bad = replace(
        wrong.docs[0], samples=(replace(wrong.docs[0].samples[0], reasons=("no_answer",)),)
    )
    text = shown(replace(wrong, docs=(bad, *wrong.docs[1:])))
    assert "- mine, cot (n=2), published: no_answer 1 (of 225 samples)" in text


def test_a_sampling_setting_off_protocol_is_flagged_with_its_value():
    sampling = {"fingerprints": {"sampling": '{"max_tokens":64,"temperature":0.0}'}}
    text = shown(records(9, off_protocol=["max_tokens", "policy"], **sampling))
    assert "off protocol: max_tokens=64, policy" in row(text, "mine")


def test_an_overview_marks_figures_whose_rows_have_flags():
    flagged = index({"railway_rag": [records(5, off_protocol=["policy"])]}, TABLES)
    assert " * |" in flagged and "off protocol" in flagged
    clean = index({"railway_rag": [records(5)]}, TABLES)
    assert " * |" not in clean and "off protocol" not in clean


def texts_of(folder: Path) -> str:
    return gzip.decompress((folder / f"{TASK}.jsonl.gz").read_bytes()).decode()


def saying(*texts: str) -> RecordSet:
    docs = tuple(
        DocSamples(f"d{i}", None, None, "sha", (Sample(0, t, "stop", {"m": 0.0}, (), 5),))
        for i, t in enumerate(texts)
    )
    return replace(records(0), docs=docs, selected=len(docs))


def test_a_baseline_without_texts_still_tells_same_from_other_outputs(tmp_path: Path):
    said = saying("a quotation", "another")
    freeze(said, tmp_path, "b", texts=False)
    assert "quotation" not in texts_of(tmp_path)
    kept = load_frozen(tmp_path, TASK)
    found = agreement(saying("a quotation", "changed"), kept)
    assert (found.same, found.total, found.first) == (1, 2, None)
    assert agreement(said, kept).same == agreement(kept, kept).same == 2


def test_a_baseline_without_texts_frozen_again_is_the_same_file(tmp_path: Path):
    freeze(saying("a"), tmp_path / "first", "b", texts=False)
    freeze(load_frozen(tmp_path / "first", TASK), tmp_path / "second", "b")
    assert (
        texts_of(tmp_path / "first").splitlines()[1:]
        == texts_of(tmp_path / "second").splitlines()[1:]
    )
