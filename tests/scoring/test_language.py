"""Language consistency: labelled lines, the report's own examples, and the metrics of a run."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.schema import Doc, Rollout
from harness.scoring import task_scorer
from harness.scoring.language import LANGUAGES, consistent, identify, metrics, share, strip
from harness.scoring.table import with_language
from tests.test_evaluate import MODEL, ScriptedEngine, gold

LINES = [
    line.split("\t", 2)
    for line in Path(__file__).with_name("language_lines.tsv").read_text("utf-8").splitlines()
]
DOC = Doc("d", "자동차는 모두 몇 대인가?", ("98",))


def held_out(text):
    """Half of the lines were never looked at while the rules were written."""
    return hashlib.sha256(text.encode()).digest()[-1] % 2 == 1


def confusion(lines):
    return Counter((label, identify(text.replace("\\n", "\n"))) for label, _, text in lines)


@pytest.mark.parametrize("half", [False, True], ids=["tuning", "held out"])
def test_the_labelled_lines_are_identified(half):
    table = confusion([line for line in LINES if held_out(line[2]) is half])
    right = sum(n for (label, found), n in table.items() if label == found)
    assert right / table.total() >= 0.95, table


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_verdict_agrees_with_the_labels(language):
    agree = [
        consistent(text.replace("\\n", "\n"), language) is (label == language)
        for label, _, text in LINES
        if label != "none"
    ]
    assert sum(agree) / len(agree) >= 0.95


def test_there_are_enough_lines_of_every_kind():
    assert len(LINES) >= 300
    assert len({text for _, _, text in LINES}) == len(LINES)
    assert set(LANGUAGES) | {"mixed", "none"} <= {label for label, _, _ in LINES}


# --- the three cases of the report's appendix D ---

ENGLISH_THEN_KOREAN = (
    "<think>\nOkay, let's take the problem step by step. At the base rent every car is taken, and "
    "each rise of 50,000 won leaves one more car unrented, so two rises leave $100 - 2 = 98$ "
    "cars.\n</think>\n임대료가 60만 원이면 98대를 빌려줄 수 있습니다."
)
ANSWER_BEFORE_THE_END = (
    "<think>\n먼저 늘어난 금액을 구하자. 두 번 올렸으므로 두 대가 줄어든다.\n"
    "**최종 답**: \\boxed{98}\n</think>"
)
SEVERAL_BOXES = (
    "<think>\n두 물음을 나누어 풀자.\n</think>\n(1) 답은 \\boxed{98}대이다.\n"
    "(2) 임대료는 \\boxed{\\text{300만 원}}, 수익은 \\boxed{1.2 \\times 10^8}원이다."
)


def measure(answer, language="ko", doc=DOC):
    return metrics(doc, Rollout(doc.id, 0, (), answer), language)


def test_english_thinking_with_a_korean_end_is_seen_apart():
    found = measure(ENGLISH_THEN_KOREAN)
    assert found["language_share_thinking"] == 0.0
    assert found["language_share_answer"] == 1.0
    assert found["language_consistent_answer"] == 1.0
    assert found["language_consistent"] == 0.0


def test_a_final_answer_inside_the_thinking_leaves_no_answer_to_measure():
    found = measure(ANSWER_BEFORE_THE_END)
    assert found["language_consistent_thinking"] == 1.0
    assert "language_share_answer" not in found
    assert found["language_consistent"] == 1.0


def test_several_boxes_are_no_words():
    assert measure(SEVERAL_BOXES)["language_consistent"] == 1.0


# --- the rules ---


def test_one_english_word_fails_strictly_and_not_leniently():
    text = (
        "조건을 하나씩 확인하면서 값을 차례로 대입해 보면 정답은 아흔여덟 대임을 알 수 있다 ok then"
    )
    assert consistent(text, "ko") is False
    assert 0.8 < share(text, "ko") < 1
    assert consistent("가" * 95 + " then x", "ko", "lenient") is True


def test_thinking_that_never_ends_is_measured_as_thinking():
    found = measure("<think>문제를 다시 읽자")
    assert found["language_share_thinking"] == 1.0
    assert "language_share_answer" not in found


def test_the_prompts_language_is_wanted_where_it_is_asked_for():
    assert measure("답은 다섯이다.", "prompt")["language_consistent"] == 1.0
    english = Doc("e", "How many cars are there?", ("98",))
    assert measure("답은 다섯이다.", "auto", english)["language_consistent"] == 0.0
    assert measure("답은 다섯이다.", "prompt", Doc("n", "1 + 1 = ?", ("2",))) == {}


def test_an_output_without_words_gives_no_metric():
    assert measure("\\boxed{98}") == {}
    assert share("$x$ 12", "ko") is None
    assert consistent("", "ko") is None


@given(st.text(max_size=300))
def test_any_text_gives_a_share_that_the_verdict_follows(text):
    for language in LANGUAGES:
        value = share(text, language)
        assert value is None or 0 <= value <= 1
        assert (consistent(text, language) is True) == (value == 1.0)
    assert identify(text) == "none" or strip(text).strip()


@given(st.text(alphabet="가나다라마 바사아자차카타파하.\n", min_size=1))
def test_code_and_formulas_never_change_the_verdict(korean):
    dressed = f"```python\nreturn the_value\n```\n{korean}\n$a + b$ `call me` \\[ \\text{{or}} \\]"
    assert share(dressed, "ko") == share(korean, "ko")


def test_every_task_gets_the_metrics_beside_its_own():
    plain = task_scorer("rag")
    both = with_language(plain, "ko")
    doc = Doc("d", "무엇인가?", ("역장",), meta={"gold_page": 3})
    rollout = Rollout("d", 0, (), "<answer>역장</answer><page>3</page>")
    score = both.judge_and_score(doc, rollout)[1]
    assert score.metrics["language_consistent"] == 1.0
    assert score.metrics["joint_accuracy"] == 1.0
    assert both.fingerprint != plain.fingerprint
    assert set(plain.metrics) < set(both.metrics)
    assert both.judge_and_score(doc, Rollout("d", 0, (), "", "error", error="down")) == ((), None)


def test_a_run_measures_language_without_another_generation(tmp_path):
    def play(**settings):
        engine = ScriptedEngine(gold())
        settings = Settings(out=tmp_path, limit=3, **settings)
        return evaluate(MODEL, settings, engine=engine, progress=Progress(quiet=True)), engine

    plain, _ = play()
    korean, engine = play(language="ko")
    assert engine.calls == 0
    assert korean.run == plain.run
    assert korean.outcome.rescored == 3
    before, after = plain.records[0], korean.records[0]
    assert before.fingerprints["scorer"] == after.fingerprints["scorer"]
    assert [d.mean("language_consistent") for d in before.docs] == [None] * 3
    assert [d.mean("language_consistent") for d in after.docs] == [0.0] * 3
    english, _ = play(language="prompt")
    assert [d.mean("language_consistent") for d in english.records[0].docs] == [1.0] * 3


def test_an_unknown_language_is_refused_in_one_line():
    with pytest.raises(UsageError, match="language=kr: did you mean"):
        with_language(task_scorer("rag"), "kr")
