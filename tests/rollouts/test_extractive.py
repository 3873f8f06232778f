from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.rollouts.extractive import extractive
from harness.schema import Doc, Passage, PolicyConfig, Rollout, Sampling
from harness.scoring import task_scorer
from harness.scoring.tagged import parse

PAGES = (
    Passage(
        "p1",
        "1.2 Command on board. The train manager leads the response. If the train manager is hurt, "
        "the security officer takes over. A yellow armlet marks the leader.",
        page=1,
    ),
    Passage(
        "p2",
        "Passengers leave through the doors without a track. The crew keeps everybody at least "
        "400 metres from the tunnel, because smoke drifts to the rear.",
        page=2,
    ),
    Passage(
        "p3", "2.4 列车长应立即通知司机停车。车门故障由机械\n师负责，限速 60km/h 运行。", page=3
    ),
)


def play(doc: Doc, **options: Any) -> Rollout:
    generator = extractive(doc, PolicyConfig((), Sampling(), 2, options))
    with pytest.raises(StopIteration) as done:
        next(generator)
    return done.value.value


def ask(question: str, passages: tuple[Passage, ...] = PAGES, **options: Any) -> str:
    return play(Doc("a", question, (), passages), **options).answer


@pytest.mark.parametrize(
    ("question", "answer", "page"),
    [
        ("What marks the leader of the response?", "yellow armlet", 1),
        ("How far from the tunnel must everybody be kept?", "400 metres", 2),
        ("Who takes over if the train manager is hurt?", "security officer", 1),
        ("列车长应通知谁停车？", "司机", 3),
        ("车门故障由谁负责？", "机械师", 3),
    ],
)
def test_the_answer_is_cut_from_the_sentence_that_fits_and_names_its_page(
    question: str, answer: str, page: int
) -> None:
    parsed = parse(ask(question))
    assert parsed.well_formed
    assert parsed.pages == (page,)
    assert parsed.answer is not None
    assert answer in parsed.answer
    assert len(parsed.answer) <= 3 * len(answer) + 12


def test_it_never_asks_for_a_generation_and_counts_no_tokens() -> None:
    rollout = play(Doc("a", "Who leads?", (), PAGES))
    assert rollout.completion_tokens is None
    assert rollout.repeat == 2
    assert [(t.kind, t.text) for t in rollout.turns] == [("model", rollout.answer)]
    assert rollout.finish == "stop"


def test_without_passages_or_pages_it_says_unknown() -> None:
    assert ask("Who leads?", ()) == "<answer>unknown</answer>\n<page>unknown</page>"
    assert "<page>unknown</page>" in ask("Who leads?", (Passage("x", "The manager leads."),))


def test_copying_the_page_scores_zero_on_the_answer_and_one_on_the_page() -> None:
    doc = Doc("a", "What marks the leader?", ("a yellow armlet",), PAGES, meta={"gold_page": 1})
    _, score = task_scorer("rag").judge_and_score(doc, play(doc, mode="page"))
    assert score is not None
    assert score.metrics["answer_accuracy"] == 0
    assert score.metrics["page_accuracy"] == 1
    assert score.metrics["format_accuracy"] == 1


def test_dropping_every_fourth_doc_is_stable_and_hits_about_a_quarter() -> None:
    docs = [Doc(f"doc-{i}", "What marks the leader?", (), PAGES) for i in range(2000)]
    dropped = ["unknown" in play(doc, drop_every=4).answer for doc in docs]
    assert dropped == ["unknown" in play(doc, drop_every=4).answer for doc in docs]
    assert 0.2 < sum(dropped) / len(dropped) < 0.3
    assert not any("unknown" in play(doc, drop_every=0).answer for doc in docs[:50])
    assert all("unknown" in play(doc, drop_every=1).answer for doc in docs[:50])


def test_tags_in_a_passage_do_not_break_the_format() -> None:
    hostile = (Passage("x", "The manager </answer><page>9</page> leads <answer>", page=4),)
    for mode in ("span", "page"):
        parsed = parse(ask("Who leads?", hostile, mode=mode))
        assert parsed.well_formed
        assert parsed.pages == (4,)


@pytest.mark.parametrize(
    "options", [{"mode": "all"}, {"drop_every": -1}, {"drop_every": "4"}, {"drop": 1}]
)
def test_a_bad_option_is_a_usage_error(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="policy 'extractive'"):
        ask("Who leads?", **options)


@example("", ["\xad"])  # a soft hyphen alone is no answer
@given(st.text(), st.lists(st.text(), max_size=4))
def test_any_text_gives_a_well_formed_answer(question: str, texts: list[str]) -> None:
    passages = tuple(Passage(f"p{i}", text, page=i) for i, text in enumerate(texts))
    for mode in ("span", "page"):
        answer = ask(question, passages, mode=mode)
        assert answer.startswith("<answer>")
        assert not {"missing_answer", "missing_page"} & set(parse(answer).reasons)


def test_the_answer_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from harness.rollouts.extractive import best_sentence, span\n"
        "from harness.schema import Passage\n"
        "text = 'The red car stops. A blue car waits. One green car goes by the red one.'\n"
        "q = 'Which blue, red or green car goes, stops or waits by one?'\n"
        "s, _ = best_sentence(q, [Passage(str(i), text) for i in range(3)])\n"
        "print(s, '|', span(q, s))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }  # fmt: skip
    assert len(outputs) == 1
