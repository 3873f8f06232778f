from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.schema import Doc, Passage, Rollout, Verdict
from harness.scoring import SCORERS, fingerprint, rag, task_scorer

ZH = Doc(
    "zh",
    "旅客疏散时要重点协助谁？",
    ("老弱病残孕等需要重点协助的旅客",),
    (
        Passage("p9", "列车长任组长。", page=9),
        Passage("p10", "对老弱病残孕等需要 重点协助的旅客，专人引导。", page=10),
    ),
    meta={"gold_page": 10, "supporting_pages": [10, 12]},
)
EN = Doc(
    "en",
    "Who leads the rescue group?",
    ("The mechanic.",),
    (Passage("p1", "The rescue group is led by the mechanic.", page=1),),
    meta={"gold_page": 1},
)
USABLE = ("answer_accuracy", "page_accuracy", "page_accuracy_any", "joint_accuracy")

ZH_GOOD = "<answer> 老弱病残孕等需要重点协助的旅客 </answer> <page> 10 </page> "
EN_GOOD = "<answer> The mechanic </answer> <page> 1 </page> "

# BJTU railway report, appendices X.A and X.B, and the same in English.
REPEATED = [
    (ZH, (ZH_GOOD + "请检查一下，是否符合要求？") * 3),
    (ZH, (ZH_GOOD + "请检查一下这个回答是否符合要求，是否需要修改？") * 4 + ZH_GOOD),
    (ZH, (ZH_GOOD + "请检查一下，是否还有其他页码需要补充？") * 2 + "请检查一下，是否还有？" * 9),
    (EN, (EN_GOOD + "Is this what you asked for? ") * 3),
    (EN, EN_GOOD + "Please check the pages. " * 9),
]
EXCESS = [
    (
        EN,
        EN_GOOD + "Human: Question: Who goes to the scene? Reference document 1, on page 1 "
        "(Emergency_Plan.pdf, chunk p1_c0): The plan.",
    ),
    (
        ZH,
        ZH_GOOD + "Human: 问题：高铁组发生旅客疾病或意外伤害时，应由谁会同乘警到达现场？"
        "参考文档 1，所处页码数为 1：高铁事故应急预案 1. 现场应急组织。",
    ),
    (ZH, "好的。" + ZH_GOOD),
]


def play(doc: Doc, text: str, **fields: object) -> Rollout:
    return Rollout(doc.id, 0, (), text, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("doc", [ZH, EN], ids=lambda d: d.id)
def test_the_gold_answer_in_the_format_scores_one(doc: Doc) -> None:
    text = f"<answer> {doc.targets[0]} </answer>\n<page> {doc.meta['gold_page']} </page>"
    verdicts, score = task_scorer("rag").judge_and_score(doc, play(doc, text, completion_tokens=9))
    assert [v.judge for v in verdicts] == ["deterministic@1"]
    assert score is not None
    assert score.reasons == ()
    assert {score.metrics[name] for name in (*USABLE, "format_accuracy")} == {1.0}
    assert score.metrics["output_tokens"] == 9
    assert score.metrics["degenerate"] == 0
    assert set(score.metrics) == set(rag.METRICS)


@pytest.mark.parametrize(("doc", "text"), REPEATED)
def test_repeated_output_scores_zero_though_the_content_is_right(doc: Doc, text: str) -> None:
    _, score = task_scorer("rag").judge_and_score(doc, play(doc, text))
    assert score is not None
    assert "repeated_output" in score.reasons
    assert {score.metrics[name] for name in (*USABLE, "format_accuracy")} == {0.0}
    assert score.metrics["degenerate"] == 1


@pytest.mark.parametrize(("doc", "text"), EXCESS)
def test_excess_output_scores_zero_though_the_content_is_right(doc: Doc, text: str) -> None:
    _, score = task_scorer("rag").judge_and_score(doc, play(doc, text))
    assert score is not None
    assert "over_output" in score.reasons
    assert {score.metrics[name] for name in (*USABLE, "format_accuracy")} == {0.0}


def test_usability_outranks_a_lenient_judge() -> None:
    lenient = Verdict("kind", {"answer_correct": True, "page_correct": True})
    score = rag.score(EN, play(*EXCESS[0]), [lenient])
    assert {score.metrics[name] for name in USABLE} == {0.0}


def test_copying_the_page_scores_zero_on_the_answer_only() -> None:
    page = ZH.passages[1].text + "列车长通知司机打开指定车门，安放好渡板，组织旅客按顺序换乘。" * 2
    copied = f"<answer>{page}</answer><page>10</page>"
    _, score = task_scorer("rag").judge_and_score(ZH, play(ZH, copied))
    assert score is not None
    assert score.reasons == ()
    assert [score.metrics[name] for name in USABLE] == [0, 1, 1, 0]


@pytest.mark.parametrize("verdicts", [(), (Verdict("judge", None),), (Verdict("judge", {}),)])
@pytest.mark.parametrize("text", ["<answer>a</answer><page>1</page>", REPEATED[0][1]])
def test_without_a_verdict_accuracy_is_absent_and_not_zero(
    verdicts: tuple[Verdict, ...], text: str
) -> None:
    score = rag.score(ZH, play(ZH, text), verdicts)
    assert not set(USABLE) & set(score.metrics)
    assert "format_accuracy" in score.metrics


def test_half_a_verdict_gives_half_the_metrics() -> None:
    score = rag.score(ZH, play(ZH, "x"), [Verdict("judge", {"answer_correct": True})])
    assert score.metrics["answer_accuracy"] == 1
    assert "page_accuracy" not in score.metrics
    assert "joint_accuracy" not in score.metrics


@pytest.mark.parametrize("fields", [{"error": "timed out"}, {"finish": "error"}])
def test_an_errored_rollout_has_no_metric(fields: dict[str, str]) -> None:
    rollout = play(ZH, "<answer>a</answer><page>1</page>", **fields)
    assert rag.score(ZH, rollout, [Verdict("judge", {"answer_correct": True})]).metrics == {}
    assert task_scorer("rag").judge_and_score(ZH, rollout) == ((), None)


@pytest.mark.parametrize(
    ("page", "gold", "supporting"), [("10", 1, 1), ("12", 0, 1), ("10, 12", 0, 0), ("9", 0, 0)]
)
def test_another_supporting_page_counts_for_any_page_only(
    page: str, gold: float, supporting: float
) -> None:
    text = f"<answer>{ZH.targets[0]}</answer><page>{page}</page>"
    _, score = task_scorer("rag").judge_and_score(ZH, play(ZH, text))
    assert score is not None
    assert score.metrics["page_accuracy"] == gold
    assert score.metrics["page_accuracy_any"] == supporting


def test_output_tokens_are_absent_where_nobody_counted() -> None:
    assert "output_tokens" not in rag.score(ZH, play(ZH, "x"), ()).metrics
    assert rag.score(ZH, play(ZH, "x", completion_tokens=0), ()).metrics["output_tokens"] == 0


def test_recall_ignores_white_space_and_the_published_one_no_full_stop() -> None:
    assert rag.retrieval_metrics(ZH) == {
        "answer_recall": 1,
        "answer_recall_published": 1,
        "gold_page_in_topk": 1,
    }
    doc = Doc("a", "?", ("led by the mechanic。",), EN.passages, meta={"gold_page": 2})
    assert rag.retrieval_metrics(doc) == {
        "answer_recall": 1,
        "answer_recall_published": 0,
        "gold_page_in_topk": 0,
    }
    assert rag.retrieval_metrics(Doc("a", "?", ())) == {}


@given(
    st.text()
    | st.lists(
        st.sampled_from(["<answer>", "</answer>", "<page>", "</page>", "10", "旅客", "<think>"])
    ).map("".join),
    st.sampled_from(["stop", "length", "context"]),
)
def test_any_output_scores_within_bounds_and_joint_is_never_above_its_parts(
    text: str, finish: str
) -> None:
    _, score = task_scorer("rag").judge_and_score(ZH, play(ZH, text, finish=finish))
    assert score is not None
    m = score.metrics
    assert all(0 <= value <= 1 for value in m.values())
    assert m["joint_accuracy"] <= min(m["answer_accuracy"], m["page_accuracy"])
    assert m["page_accuracy"] <= m["page_accuracy_any"]
    assert set(score.reasons) <= set(rag.REASONS)
    assert m["degenerate"] == 0 or score.reasons


def test_an_unknown_scorer_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean rag"):
        task_scorer("rags")


def test_fingerprints_name_the_versions_of_scorer_and_judge() -> None:
    assert fingerprint("rag") == "rag@1+deterministic@1"
    assert all(task_scorer(name).metrics for name in SCORERS)


@pytest.mark.data
@pytest.mark.parametrize(
    ("k", "published", "recall", "page"),
    [(1, 0.1689, 0.4178, 0.4578), (3, 0.2800, 0.6622, 0.7378), (5, 0.3156, 0.7200, 0.8133)],
)
def test_recall_on_the_published_test_set_is_the_reports(
    data_root: Path, k: int, published: float, recall: float, page: float
) -> None:
    path = data_root / "bjtu_railway" / "dataset" / "sft_data" / "test.csv"
    if not path.exists():
        pytest.skip(f"the railway test set is not at {path}")
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 225
    scores = [rag.retrieval_metrics(published_doc(row, k)) for row in rows]

    def mean(name: str) -> float:
        return round(sum(s[name] for s in scores) / len(scores), 4)

    assert mean("answer_recall_published") == published
    assert mean("answer_recall") == recall
    assert mean("gold_page_in_topk") == page


def published_doc(row: dict[str, str], k: int) -> Doc:
    passages = tuple(
        Passage(f"rank{i}", row[f"chunk_text_{i}"], page=int(row[f"chunk_page_{i}"]))
        for i in range(1, k + 1)
    )
    gold = {"gold_page": int(row["page"])}
    return Doc(row["id"], row["question"], (row["answer"],), passages, meta=gold)
