"""What boards and runs say where two judges ran."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.records import DocSamples, RecordSet, Sample, freeze, load_frozen
from harness.report.judges import audit, section, short, write_disagreements
from harness.report.markdown import board
from harness.schema import Doc, Message, Rollout, Score, Verdict
from harness.store import Store, StoredDoc

LLM = "llm:J/railway@abcd1234"
CODE = "deterministic@1"


def verdict(right, judge=LLM, tokens=7):
    if right is None:
        return Verdict(judge, None, '{"replies": ["?"], "calls": 2}')
    raw = json.dumps({"replies": ["said <b>"], "calls": 1, "prompt_tokens": tokens})
    return Verdict(judge, {"answer_correct": right}, raw)


def records(name, judge, reference, n=160, **info):
    """`judge(i)` and `reference(i)` say whether output i is right."""
    docs = tuple(
        DocSamples(
            f"d{i}", f"p{i % 16}", None, "sha",
            (
                Sample(
                    0, "x", "stop", {"answer_accuracy": float(bool(judge(i)))}, (), 5,
                    (verdict(judge(i)), Verdict(CODE, {"answer_correct": reference(i)})),
                ),
            ),
        )
        for i in range(n)
    )  # fmt: skip
    about = {
        "fingerprints": {}, "board": "b", "metric": "answer_accuracy",
        "columns": ["answer_accuracy"], "policy": "single_turn", "retriever": "bm25", **info,
    }  # fmt: skip
    return RecordSet(name, "task", f"run-{name}", about, docs, n, n, 1)


def even(i):
    return i % 2 == 0


def mostly(i):
    return not even(i) if i % 37 == 0 else even(i)


def lenient(i):
    return mostly(i) or i % 5 == 1


def text(*sets):
    return board("b", sets, lambda *_: {})


def test_two_judges_are_compared_row_by_row():
    (found,) = audit([records("A", mostly, even)])
    (row,) = found.rows
    assert (found.question, found.judge, found.reference) == (
        "answer_correct",
        LLM,
        CODE,
    )
    assert row.found is not None
    assert row.found.n == 160
    assert row.found.judge_only + row.found.reference_only == 5
    assert row.spent == {"calls": 160, "prompt_tokens": 1120, "completion_tokens": 0}
    shown = text(records("A", mostly, even))
    assert f"Judge {LLM} against {CODE}" in shown
    assert "kappa" in shown


def test_a_judge_lenient_to_one_model_is_flagged_on_its_row_only():
    fair, favoured = records("A", mostly, even), records("B", lenient, even)
    shown = text(fair, favoured)
    assert any("not to be trusted" in x for x in shown.splitlines() if "| single_turn" in x)
    assert "**not to be trusted**" in shown
    three = [fair, favoured, records("C", mostly, even)]
    (found,) = audit(three)
    assert [bool(found.flags(s)) for s in three] == [False, True, False]
    assert "lenient, specificity" in found.flags(favoured)[0]


def test_a_judge_that_is_as_lenient_to_all_is_not_flagged():
    assert "not to be trusted" not in text(records("A", lenient, even), records("B", lenient, even))


def test_one_judge_alone_leaves_the_board_as_it_was():
    alone = records("A", mostly, even)
    docs = tuple(
        replace(d, samples=tuple(replace(s, verdicts=s.verdicts[:1]) for s in d.samples))
        for d in alone.docs
    )
    assert audit([replace(alone, docs=docs)]) == []
    assert "kappa" not in text(replace(alone, docs=docs))


def test_unscored_outputs_are_bounded_by_all_wrong_and_all_right():
    (found,) = audit([records("A", lambda i: None if i < 16 else even(i), even)])
    (row,) = found.rows
    assert row.unscored == 16
    assert row.share == pytest.approx((72 / 160, 88 / 160))
    assert ".450 to .550" in "\n".join(section([found], {id(row.records): "A"}))


def test_a_judge_of_which_no_reply_could_be_read_is_shown_and_flagged():
    row = records("A", lambda i: None, even)
    (found,) = audit([row])
    assert (found.rows[0].found, found.rows[0].unscored) == (None, 160)
    assert "no" in found.flags(row)[0]
    assert "none of its replies could be read" in text(row)
    assert ".000 to 1.000" in text(row)


def test_a_judge_that_follows_the_reference_by_chance_is_flagged_on_every_row():
    noise = [records(name, lambda i: i % 3 == 0, even) for name in "AB"]
    (found,) = audit(noise)
    assert all("not shown to tell right from wrong" in found.flags(s)[0] for s in noise)
    assert text(*noise).count("on any row") == 1
    always = records("A", lambda i: True, even)
    assert "kappa 0.00" in audit([always])[0].doubt


@pytest.mark.parametrize("right", [True, False])
def test_a_judge_that_contradicts_a_reference_of_one_opinion_is_flagged(right):
    assert audit([records("A", lambda i: not right, lambda i: right)])[0].doubt == (
        "contradicts deterministic on 160 of 160"
    )
    assert audit([records("A", lambda i: right, lambda i: right)])[0].doubt == ""
    seldom = records("A", lambda i: right != (i % 5 == 0), lambda i: right)
    assert audit([seldom])[0].doubt == "", "a stricter or milder judge may be the better one"


def test_few_outputs_are_no_ground_to_doubt_a_judge():
    """Below 8 clusters there is no interval, and nothing is concluded."""
    assert audit([records("A", lambda i: True, even, n=6)])[0].doubt == ""


def test_a_frozen_baseline_keeps_the_audit_and_not_what_the_judge_said(tmp_path):
    kept = records("A", mostly, even)
    kept = replace(kept, info={**kept.info, "flags": []})
    freeze(kept, tmp_path, "A")
    again = load_frozen(tmp_path, "task")
    (ours,), (theirs,) = audit([kept]), audit([again])
    assert ours.rows[0].found == theirs.rows[0].found
    assert ours.rows[0].spent == theirs.rows[0].spent
    assert "said" not in again.docs[0].samples[0].verdicts[0].raw


def test_names_of_judges_cannot_break_a_board():
    hostile = "llm:a|b\n<script>/x@1"
    s = records("A", mostly, even)
    docs = tuple(
        replace(d, samples=tuple(
            replace(x, verdicts=(replace(x.verdicts[0], judge=hostile), x.verdicts[1]))
            for x in d.samples))
        for d in s.docs
    )  # fmt: skip
    assert "<script>" not in text(replace(s, docs=docs))
    assert short("llm:J/railway@ab") == "J/railway"


def test_disagreements_are_written_one_a_line_and_removed_when_there_are_none(tmp_path):
    info = {"fingerprints": {"dataset": "d"}}
    docs = [
        StoredDoc(Doc(f"d{i}", "q?", ("gold\ud800",)), i, (Message("user", "q"),), "s", "r")
        for i in range(4)
    ]
    with Store.create(tmp_path, {"run_id": "x", "model": "m"}) as store:
        store.put_task("t", info, 4, 1, docs)
        for i in range(4):
            both = (verdict(i % 2 == 0), Verdict(CODE, {"answer_correct": True}))
            store.put_sample("t", "r", Rollout(f"d{i}", 0, (), "out"), both, Score({}), "s")
        path, count = write_disagreements(store)
        lines = path.read_bytes().splitlines()
        assert count == len(lines) == 2
        first = json.loads(lines[0].decode("utf-8", "surrogatepass"))
        assert (first["doc_id"], first["questions"]) == ("d1", ["answer_correct"])
        assert [v["judge"] for v in first["verdicts"]] == [LLM, CODE]
        store.put_task("t", {"fingerprints": {"dataset": "e"}}, 4, 1, docs[:1])
        assert write_disagreements(store)[1] == 0
        assert not path.exists()
