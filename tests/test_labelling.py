"""Labels: a blind, stratified, resumable sample, and figures corrected by it."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from harness import cli
from harness.errors import DataError, UsageError
from harness.labelling import Labels, allocate, ask, draw, questions, report, samples, shown
from harness.records import DocSamples, RecordSet, Sample
from harness.schema import Doc
from tests.test_commands import Bench

N = 400
DOCS = {f"d{i}": Doc(f"d{i}", f"question {i}?", (f"gold {i}",)) for i in range(N)}


def records(name, right, said, reasons=(), n=N):
    """Outputs say whether they are right; `said(i)` is what the judge makes of them."""
    docs = tuple(
        DocSamples(
            f"d{i}", None, None, "sha",
            (Sample(0, f"{name} output {i}: {'good' if right(i) else 'bad'}", "stop",
                    None if said(i) is None else {"answer_accuracy": float(said(i))},
                    reasons(i) if callable(reasons) else reasons, 5),),
        )
        for i in range(n)
    )  # fmt: skip
    about = {"fingerprints": {"scorer": "rag@1+llm:J"}, "metric": "answer_accuracy"}
    return RecordSet(name, "t", f"run-{name}", about, docs, n, n, 1)


TRUTH = [random.Random(f"truth {i}").random() < 0.5 for i in range(N)]
LENIENT = [t or random.Random(f"x{i}").random() < 0.2 for i, t in enumerate(TRUTH)]
A = records("A", TRUTH.__getitem__, LENIENT.__getitem__)
B = records("B", TRUTH.__getitem__, TRUTH.__getitem__)


def oracle(labels, sets, **changes):
    """Answers rightly, by what the output says of itself."""
    seen = []

    def read():
        return "y\n" if any("good" in line for line in seen[-3:]) else "n\n"

    left = ask(labels, sets, DOCS, changes.pop("read", read), seen.append, "me")
    return left, seen


def made(tmp_path, sets=(A, B), n=150, seed=0):
    return Labels.create(tmp_path / "l.jsonl", draw(sets, "answer_accuracy", n, seed))


# --- drawing ------------------------------------------------------------------------------------


def test_every_drawn_doc_has_the_probability_with_which_its_stratum_was_drawn():
    design = draw([A, B], "answer_accuracy", 150, 0)
    sizes = Counter(item.stratum for item in design.items)
    whole = Counter(f"{int(LENIENT[i])}{int(TRUTH[i])}" for i in range(N))
    assert set(sizes) == set(whole) == {"00", "10", "11"}
    for item in design.items:
        assert item.probability == pytest.approx(sizes[item.stratum] / whole[item.stratum])
    assert abs(len(design.items) - 150) <= 3
    assert sum(1 / item.probability for item in design.items) == pytest.approx(N)


def test_docs_that_the_judge_called_right_are_twice_as_likely_and_none_is_drawn_twice():
    assert allocate({"11": 300, "10": 60, "01": 40, "00": 400}, 150) == {
        "11": 75, "10": 15, "01": 10, "00": 50,
    }  # fmt: skip
    assert allocate({"1": 60, "0": 100}, 150) == {"1": 60, "0": 90}
    assert allocate({"1": 60, "0": 100}, 10**6) == {"1": 60, "0": 100}


def test_a_rare_stratum_is_in_the_sample_and_a_small_population_is_taken_whole():
    rare = records("C", TRUTH.__getitem__, lambda i: None if i in (3, 5, 7) else TRUTH[i])
    design = draw([rare], "answer_accuracy", 60, 0)
    assert Counter(item.stratum for item in design.items)["?"] == 2
    assert {i.probability for i in draw([A], "answer_accuracy", 10**6, 0).items} == {1.0}


def test_the_seed_decides_the_draw_and_another_draws_other_docs():
    first, again, other = (draw([A, B], "answer_accuracy", 50, seed) for seed in (0, 0, 1))
    assert first == again
    assert {i.doc_id for i in first.items} != {i.doc_id for i in other.items}


def test_draws_are_uniform_within_a_stratum():
    small = records("S", lambda i: True, lambda i: True, n=20)
    drawn = Counter(
        item.doc_id
        for seed in range(400)
        for item in draw([small], "answer_accuracy", 5, seed).items
    )
    assert len(drawn) == 20
    assert all(60 <= count <= 145 for count in drawn.values()), "100 expected of each"


@pytest.mark.parametrize("metric", ["nothing", "output_tokens"])
def test_a_metric_that_is_no_verdict_is_refused(metric):
    docs = tuple(
        replace(d, samples=tuple(replace(s, metrics={"output_tokens": 7.0}) for s in d.samples))
        for d in A.docs
    )
    with pytest.raises(UsageError, match=f"metric={metric}"):
        draw([replace(A, docs=docs)], metric, 10, 0)


# --- asking -------------------------------------------------------------------------------------


def test_a_labeller_sees_no_model_and_no_order_of_models(tmp_path):
    named = [
        replace(s, docs=tuple(
            replace(d, samples=tuple(replace(x, output=x.output[2:]) for x in d.samples))
            for d in s.docs))
        for s in (A, records("B", lambda i: not TRUTH[i], TRUTH.__getitem__))
    ]  # fmt: skip
    labels = made(tmp_path, named)
    left, seen = oracle(labels, named)
    assert left == 0
    text = "\n".join(seen)
    assert not any(word in text for word in ("run-A", "run-B", "llm:", "A ", "B "))
    runs = [q.runs[0] for q in questions(labels.design, named)]
    assert 0.35 < sum(a == b for a, b in itertools.pairwise(runs)) / len(runs) < 0.65


def test_equal_outputs_of_a_doc_are_asked_once_and_both_labelled(tmp_path):
    twin = replace(A, name="T", source="run-T")
    labels = made(tmp_path, (A, twin), n=20)
    assert len(questions(labels.design, (A, twin))) == len(labels.design.items)
    oracle(labels, (A, twin))
    assert len(labels.given) == 2 * len(labels.design.items)


def test_unusable_outputs_are_wrong_by_rule_and_not_asked(tmp_path):
    broken = records("A", TRUTH.__getitem__, lambda i: False, ("repeated_output",))
    labels = made(tmp_path, (broken,))
    left, seen = oracle(labels, (broken,))
    assert (left, seen) == (0, [])
    assert report(labels, (broken,)).means[0].mean == 0


def test_labelling_goes_on_where_it_stopped(tmp_path):
    labels = made(tmp_path, n=30)
    answers = iter(["y\n", "x\n", "n\n", "b\n", "y\n", "s\n", ""])
    left, seen = oracle(labels, (A, B), read=lambda: next(answers))
    total = len(questions(labels.design, (A, B)))
    assert left == total - 2
    assert any("'x' is no answer" in line for line in seen)
    again = Labels(tmp_path / "l.jsonl")
    assert again.given == labels.given
    assert set(again.given.values()) == {1.0}, "b took the n back, y came instead"
    assert oracle(again, (A, B))[0] == 0
    rows = [json.loads(x) for x in (tmp_path / "l.jsonl").read_text("utf-8").splitlines()[1:]]
    assert {r["labeller"] for r in rows} == {"me"}
    assert all(0 < r["probability"] <= 1 for r in rows)


def test_a_label_that_a_kill_cut_off_is_asked_again(tmp_path):
    labels = made(tmp_path, n=30)
    answers = iter(["y\n", "n\n", ""])
    oracle(labels, (A, B), read=lambda: next(answers))
    path = tmp_path / "l.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    cut = Labels(path)
    assert len(cut.given) == 1
    assert oracle(cut, (A, B))[0] == 0
    assert Labels(path).given == cut.given


def test_outputs_cannot_write_to_the_terminal():
    doc = Doc("d", "q\x1b[2J", ("gold\x07",), meta={"gold_page": 5})
    lines = list(shown(doc, "line one\nquestion | forged\n\x1b]0;title\x07\u202e\r\x9b1m\ud800"))
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith("   output | question | forged") for line in lines)
    assert any("page | 5" in line for line in lines)


# --- correcting -----------------------------------------------------------------------------------


def test_a_lenient_judge_is_put_right_for_the_accuracy_and_for_the_delta(tmp_path):
    labels = made(tmp_path)
    oracle(labels, (A, B))
    found = report(labels, (A, B))
    truth = sum(TRUTH) / N
    assert found.means[0].judged > truth + 0.05
    for mean in found.means.values():
        assert mean.low <= truth <= mean.high
    assert found.deltas[0, 1].judged > 0.05
    assert found.deltas[0, 1].low <= 0 <= found.deltas[0, 1].high
    assert not found.refused


def test_a_judge_that_favours_a_run_is_flagged_by_the_labels_and_a_fair_one_is_not(tmp_path):
    labels = made(tmp_path)
    oracle(labels, (A, B))
    flagged = [d for d in report(labels, (A, B)).differences if d.flagged]
    assert {(d.rate, d.model, d.lenient) for d in flagged} == {
        ("specificity", "0", True), ("specificity", "1", False),
    }  # fmt: skip
    lenient = sum(word and not true for word, true in zip(LENIENT, TRUTH, strict=True))
    assert flagged[0].value == pytest.approx(1 - lenient / TRUTH.count(False), abs=0.04)
    also = records("C", TRUTH.__getitem__, LENIENT.__getitem__)
    (tmp_path / "fair").mkdir()
    labels = made(tmp_path / "fair", (A, also))
    oracle(labels, (A, also))
    assert not any(d.flagged for d in report(labels, (A, also)).differences)


def test_outputs_without_a_verdict_say_nothing_about_the_judge(tmp_path):
    unscored = records("C", TRUTH.__getitem__, lambda i: None if i % 3 == 0 else TRUTH[i])
    labels = made(tmp_path, (unscored, B))
    oracle(labels, (unscored, B))
    found = report(labels, (unscored, B)).differences
    assert found
    assert all(d.value == d.others == 1 for d in found)


def test_figures_are_refused_before_all_is_labelled_or_with_too_few_labels(tmp_path):
    labels = made(tmp_path, (B,), n=60)
    with pytest.raises(UsageError, match="still to be labelled"):
        report(labels, (B,))
    oracle(labels, (B,))
    found = report(labels, (B,))
    assert not found.means
    assert "at least 100 labels" in found.refused[(0,)]


def test_figures_are_refused_without_probabilities_or_of_other_docs(tmp_path):
    labels = made(tmp_path)
    with pytest.raises(UsageError, match="the runs have 399 now"):
        report(labels, [replace(s, docs=s.docs[:-1]) for s in (A, B)])
    lines = labels.path.read_text("utf-8").splitlines()
    head = json.loads(lines[0])
    for item in head["items"]:
        del item["probability"]
    labels.path.write_text(json.dumps(head) + "\n", "utf-8")
    with pytest.raises(DataError, match="without inclusion probabilities"):
        Labels(labels.path)
    labels.path.write_text("no json", "utf-8")
    with pytest.raises(DataError, match="line 1"):
        Labels(labels.path)


def test_samples_are_those_that_all_runs_have():
    assert len(samples([A, replace(B, docs=B.docs[:7])])) == 7


# --- the command line ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("label"))
    for model in ("extractive", "extractive-lossy"):
        assert made("eval", f"model={model}", "tasks=railway_demo_top1") == 0
    return made


def test_label_reads_plain_lines_resumes_and_reports(bench, capsys, monkeypatch):
    command = ["label", "run=extractive,extractive-lossy", "tasks=railway_demo_top1", "n=100"]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\n"))
    assert bench(*command) == 3
    assert "the same command goes on" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n" * 400))
    assert bench(*command) == 0
    shown = capsys.readouterr().out
    assert "[3 of" in shown
    assert "prediction-powered inference" in shown
    assert "the judge" in shown.splitlines()[-1]
    assert bench(*command, "report=true") == 0
    assert "extractive-lossy" in capsys.readouterr().out
    (path,) = (bench.out / "labels").glob("*.jsonl")
    assert json.loads(path.read_text("utf-8").splitlines()[0])["metric"] == "answer_accuracy"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run=extractive"], "tasks=ONE"),
        (["run=extractiv", "tasks=railway_demo_top1"], "did you mean extractive"),
        (["run=extractive", "tasks=railway_demo_top1", "n=0"], "must be 1 or more"),
        (["run=extractive,extractive", "tasks=railway_demo_top1"], "the same run twice"),
        (["run=extractive", "tasks=railway_demo_top1", "report=true"], "label first"),
        (["run=extractive", "tasks=railway_demo_top1", "name=../x"], "cannot contain"),
        (["run=extractive", "tasks=railway_demo_top1", "metric=f1"], "metric=f1"),
        (["run=extractive", "tasks=nothing"], "has no task 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(bench, capsys, arguments, hint):
    assert bench("label", *arguments) == 2
    message = capsys.readouterr().err
    assert hint in message
    assert message.count("\n") == 1


def test_the_verb_names_its_keys(capsys):
    assert cli.main(["label", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {key}=" in shown for key in ("run", "n", "report"))
