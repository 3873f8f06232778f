"""One reward: what TRL is given and what lm-eval is given are the same number, bit for bit."""

from __future__ import annotations

import random
import struct

import pytest

from harness.errors import IncompleteError
from harness.schema import Doc, Passage, Rollout, Turn, Verdict
from harness.scoring import TaskScorer, task_scorer
from harness.scoring.process import RolloutText, doc_to_row, process_results
from harness.scoring.rewards import REWARDS
from trainers.rewarding import Rule, as_scorer, played, rule_of, trl_reward

OUTPUTS = 10_000
PIECES = [
    "<answer>", "</answer>", "<page>", "</page>", "<think>", "</think>", "<substep>", "</substep>",
    "<reflection>", "</reflection>", "<|begin_of_query|>", "<|end_of_query|>",
    "<|begin_of_documents|>", "<|end_of_documents|>", "\\boxed{42}", "\\boxed{", "}", "42", "041",
    "the depot foreman", "depot", "57", "page 57", "따라서 정답은 42입니다.", "생각해 보자.",
    "So the answer is 42.", "答案是42。", "\n", " ", "assistant", "```python\nx = 1\n```",
    "$x^2$", "\ud800", "\u0000", "😀", "a" * 60, "no no no no no no no no no no no no ",
    "<answer> the depot foreman </answer>\n<page> 57 </page>", "<answer></answer>", "yes",
]  # fmt: skip


def outputs(n, seed=0):
    rng = random.Random(seed)
    for i in range(n):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(0, 9)))
        searches = rng.randrange(3)
        turns = (Turn("model", text[: len(text) // 2]), Turn("environment", "<documents>"),
                 Turn("model", text[len(text) // 2 :]))  # fmt: skip
        finish = rng.choice(["stop", "stop", "stop", "length", "context"])
        yield i, Rollout(
            f"d{i}", 0, turns, text, finish,
            completion_tokens=rng.choice([0, 3, 64, 65, 127, 128, 400, 9_000, 40_000]),
            searches=searches,
        ), rng  # fmt: skip


def doc(i, rng):
    answer = rng.choice(["42", "the depot foreman", "yes"])
    meta = {"gold_page": 57, "supporting_pages": [57], "kind": rng.choice(["integer", "number"])}
    return Doc(f"d{i}", "Who inspects it?", (answer,), (Passage("p", "x", page=57),), meta=meta)


def verdicts(rng):
    values = {
        "answer_correct": rng.random() < 0.5,
        "page_correct": rng.random() < 0.5,
        "oracle": rng.choice([0.0, 0.4, 0.5, 0.6, 1.0]),
    }
    return Verdict("given", values)


def bits(value):
    return struct.pack("<d", value)


def test_trl_and_lm_eval_get_bit_equal_rewards_over_ten_thousand_outputs():
    compared = dict.fromkeys(REWARDS, 0)
    names = list(REWARDS)
    for i, rollout, rng in outputs(OUTPUTS):
        item, said = doc(i, rng), verdicts(rng)

        def judge(_doc, _rollout, said=said):
            return said

        for name in names:
            own = TaskScorer("given", lambda *_: None, judge, "given")
            rule = Rule(name, REWARDS[name], own)
            (ours,) = trl_reward(rule)(
                prompts=[item.id], completions=[rollout.answer], doc=[item], rollout=[rollout]
            )
            theirs = process_results(as_scorer(rule.reward), judge)(
                doc_to_row(item), [RolloutText(rollout.answer, rollout, None)]
            )["reward"]
            assert bits(ours) == bits(theirs), (name, rollout)
            compared[name] += 1
    assert set(compared.values()) == {OUTPUTS}


def test_the_outputs_are_adversarial_enough_to_tell_rewards_apart():
    values = {name: set() for name in REWARDS}
    for i, rollout, rng in outputs(300, seed=1):
        item, said = doc(i, rng), verdicts(rng)
        for name, reward in REWARDS.items():
            values[name].add(reward(item, rollout, (said,)))
    assert all(len(found) > 1 for found in values.values())


def test_a_rollout_that_failed_or_a_silent_judge_is_never_zero():
    item = doc(0, random.Random(0))
    failed = Rollout("d0", 0, (), "", "error", error="down")
    with pytest.raises(IncompleteError):
        trl_reward(rule_of("railway", "rag"))(
            prompts=["d0"], completions=[""], doc=[item], rollout=[failed]
        )
    silent = TaskScorer("x", lambda *_: None, lambda *_: Verdict("j", None), "x")
    ended = Rollout("d0", 0, (), "<answer> a </answer>", completion_tokens=3)
    with pytest.raises(IncompleteError):
        trl_reward(Rule("railway", REWARDS["railway"], silent))(
            prompts=["d0"], completions=[""], doc=[item], rollout=[ended]
        )
    score = process_results(as_scorer(REWARDS["railway"]), silent.judge)
    assert score(doc_to_row(item), [RolloutText(ended.answer, ended, None)]) == {}


def test_terms_and_reasons_of_a_rollout_are_kept():
    item = Doc("d", "Who?", ("the depot foreman",), (Passage("p", "x", page=57),),
               meta={"gold_page": 57, "supporting_pages": [57]})  # fmt: skip
    text = "<answer> the depot foreman </answer>\n<page> 57 </page>"
    rollout = Rollout("d", 1, (Turn("model", text),), text, completion_tokens=20)
    rule = rule_of("railway", "rag")
    said = rule.verdicts(item, rollout)
    row = played(rule, item, rollout, said, rule.reward(item, rollout, said), step=4)
    assert row.reward == 2.0 and row.step == 4 and row.tokens == 20
    assert row.terms["answer_accuracy"] == 1 and row.judged is True and row.contained is True
    assert played(rule, item, Rollout("d", 0, (), "no", completion_tokens=1), (), 0.0, 0).reasons
    assert task_scorer("rag").metrics.keys() >= row.terms.keys()
