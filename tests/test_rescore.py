"""Scoring again over stored records: bit-equal, atomic, logged, without a model."""

import shutil
import sqlite3
import subprocess
import sys

import pytest

from harness import cli
from harness.audit import inspect
from harness.errors import UsageError
from harness.rescore import rescore
from harness.runs import load_run
from harness.schema import Score, Verdict
from harness.scoring import rag
from harness.store import FILE, Store
from tests.conftest import ROOT
from tests.test_commands import Bench
from tests.test_evaluate import run

TASK = "railway_demo_top1"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The reader without a model, played in full and frozen."""
    made = Bench(tmp_path_factory.mktemp("rescore"))
    assert made("eval", "model=extractive") == 0
    assert made("freeze", "run=extractive", "as=extractive") == 0
    return made


@pytest.fixture
def bench(finished, tmp_path):
    """A copy of it."""
    shutil.copytree(finished.root, tmp_path / "copy")
    copy = Bench.__new__(Bench)
    copy.root = tmp_path / "copy"
    copy.out, copy.baselines, copy.boards = (
        copy.root / "runs", copy.root / "baselines", copy.root / "boards",
    )  # fmt: skip
    return copy


def exported(bench):
    target = bench.root / "export.jsonl"
    assert bench("check", "run=extractive", f"export={target}") == 0
    return target.read_bytes()


def frozen(bench):
    return {p.name: p.read_bytes() for p in (bench.baselines / "extractive").glob("*.gz")}


def raw(bench):
    with sqlite3.connect(bench.run("extractive") / FILE) as db:
        return db.execute(
            "SELECT task, doc_id, repeat, request, rollout, ids, logprobs FROM samples"
            " ORDER BY 1, 2"
        ).fetchall()


def log(bench):
    with Store.open(bench.run("extractive")) as store:
        return store.invocations()[-1]


def harsher(doc, rollout, verdicts):
    """A scorer that gives nothing for the first page."""
    score = SCORE(doc, rollout, verdicts)
    if doc.cluster != "p02":
        return score
    return Score({**score.metrics, "joint_accuracy": 0.0}, score.reasons)


SCORE = rag.score


@pytest.mark.parametrize("judge", ["again", "keep"])
def test_the_same_scorer_gives_the_same_bytes(bench, judge):
    before, baseline = exported(bench), frozen(bench)
    assert bench("rescore", "run=extractive", f"judge={judge}") == 0
    assert exported(bench) == before
    assert bench("freeze", "run=extractive", "as=extractive") == 0
    assert frozen(bench) == baseline
    assert [r["docs"] for r in log(bench)["rescored"]] == [0, 0, 0]


def test_a_new_scorer_changes_scores_and_logs_which(bench, monkeypatch, capsys):
    outputs = raw(bench)
    monkeypatch.setattr(rag, "VERSION", 99)
    monkeypatch.setattr(rag, "score", harsher)
    assert bench("rescore", "model=extractive") == 0
    assert raw(bench) == outputs
    entry = log(bench)
    assert entry["status"] == "rescored"
    (first, *_) = entry["rescored"]
    assert first["task"] == TASK
    assert (first["before"][:5], first["after"][:6]) == ("rag@1", "rag@99")
    (change,) = first["metrics"]
    assert change["metric"] == "joint_accuracy"
    assert change["docs"] == first["docs"] > 0
    assert change["after"] < change["before"]
    records = load_run("extractive", bench.out)[TASK]
    assert "rag@99" in records.fingerprints["scorer"]
    assert all(d.mean("joint_accuracy") == 0 for d in records.docs if d.cluster == "p02")
    shown = capsys.readouterr().out
    assert "joint_accuracy" in shown
    assert "freeze run=" in shown, "the frozen baseline is out of date now"


def test_only_the_named_task_is_rescored(bench, monkeypatch):
    monkeypatch.setattr(rag, "VERSION", 99)
    assert bench("rescore", "run=extractive", f"tasks={TASK}") == 0
    sets = load_run("extractive", bench.out)
    assert {t: "rag@99" in r.fingerprints["scorer"] for t, r in sets.items()} == {
        TASK: True, "railway_demo_top3": False, "railway_demo_top5": False,
    }  # fmt: skip


def test_a_kept_verdict_is_scored_as_it_stands_and_named_in_the_fingerprint(bench, monkeypatch):
    with sqlite3.connect(bench.run("extractive") / FILE) as db:
        verdict = (
            '[{"judge":"old@0","values":{"answer_correct":true,"page_correct":true},"raw":""}]'
        )
        db.execute("UPDATE samples SET verdicts = ?", (verdict,))

    def refuse(doc, rollout):
        raise AssertionError("the judge was asked")

    monkeypatch.setattr(rag, "judge", refuse)
    assert bench("rescore", "run=extractive", "judge=keep", f"tasks={TASK}") == 0
    records = load_run("extractive", bench.out)[TASK]
    assert records.fingerprints["scorer"] == "rag@1+old@0"
    usable = [d for d in records.docs if "over_output" not in d.samples[0].reasons]
    assert all(d.mean("answer_accuracy") == 1.0 for d in usable)


def test_a_judge_that_gives_no_verdict_leaves_samples_unscored_and_exit_code_3(bench, monkeypatch):
    def unscored(doc, rollout, verdicts):
        return Score({})

    monkeypatch.setattr(rag, "judge", lambda doc, rollout: Verdict("j", None))
    monkeypatch.setattr(rag, "score", unscored)
    outputs = raw(bench)
    assert bench("rescore", "run=extractive") == 3
    assert raw(bench) == outputs
    records = load_run("extractive", bench.out)[TASK]
    assert all(s.metrics is None for d in records.docs for s in d.samples)


KILL = """
import os, signal, sys
from harness import cli
from harness.schema import Score
from harness.scoring import rag
from harness.store import Store

old, stop, seen = rag.score, sys.argv[1], 0
rag.VERSION = 99
rag.score = lambda *a: Score({**old(*a).metrics, "joint_accuracy": 0.25})

def traced(statement):
    global seen
    seen += statement.startswith("UPDATE samples")
    if stop == str(seen) or statement.startswith(stop) and seen:
        os.kill(os.getpid(), signal.SIGKILL)

create = Store.create.__func__
def watched(cls, folder, meta):
    store = create(cls, folder, meta)
    store._db.set_trace_callback(traced)
    return store
Store.create = classmethod(watched)
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize("moment", ["1", "150", "300", "UPDATE tasks", "COMMIT"])
def test_a_kill_in_the_middle_leaves_the_run_as_it_was(bench, moment):
    before = exported(bench)
    command = [sys.executable, "-c", KILL, moment, "rescore", "run=extractive"]
    where = [f"out={bench.out}", f"baselines={bench.baselines}"]
    killed = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert exported(bench) == before
    with Store.open(bench.run("extractive")) as store:
        assert not inspect(store).problems
        assert len(store.invocations()) == 1
    command[3] = "never"
    assert subprocess.run([*command, *where], cwd=ROOT, check=False).returncode == 0
    records = load_run("extractive", bench.out)[TASK]
    assert {d.mean("joint_accuracy") for d in records.docs} == {0.25}


def test_a_frozen_baseline_says_how_to_freeze_it_again(bench, capsys):
    run_id = bench.run("extractive").name.rpartition("-")[2]
    shutil.rmtree(bench.run("extractive"))
    assert bench("rescore", "run=extractive") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"freeze run={run_id} as=extractive" in message


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "run=ID or model=NAME"),
        (["run=extractive", "model=extractive"], "run=ID or model=NAME"),
        (["run=extractve"], "did you mean extractive"),
        (["run=extractive", "judge=kep"], "did you mean keep"),
        (["run=extractive", "tasks=railway_demo_top2"], "did you mean railway_demo_top"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(bench, capsys, arguments, hint):
    assert bench("rescore", *arguments) == 2
    message = capsys.readouterr().err
    assert hint in message
    assert message.count("\n") == 1


def test_a_run_that_is_being_written_is_not_rescored(bench):
    with Store.create(bench.run("extractive"), {}):
        assert bench("rescore", "run=extractive") == 2


def test_an_unfinished_run_is_rescored_as_far_as_it_goes(tmp_path, monkeypatch):
    run(tmp_path, limit=10, fail_every=3)
    monkeypatch.setattr(rag, "VERSION", 99)
    (result,) = rescore("scripted", out=tmp_path)
    assert (result.samples, result.unscored) == (7, 0)
    whole, engine = run(tmp_path, limit=10)
    assert engine.calls == 3
    assert whole.outcome.rescored == 0


def test_a_smaller_selection_rescores_the_larger_one_that_is_stored(tmp_path, monkeypatch):
    run(tmp_path, limit=10)
    monkeypatch.setattr(rag, "VERSION", 99)
    again, _ = run(tmp_path, limit=4)
    assert again.outcome.rescored == 10


def test_a_task_that_no_longer_exists_keeps_its_scorer(bench, tmp_path):
    (tmp_path / "tasks").mkdir()
    results = rescore("extractive", out=bench.out, tasks_folder=tmp_path / "tasks")
    assert [(r.after, r.docs) for r in results] == [(results[0].before, 0)] * 3


def test_an_unknown_run_raises_a_usage_error_in_python(tmp_path):
    with pytest.raises(UsageError):
        rescore("nothing", out=tmp_path)


def test_the_verb_names_its_keys(capsys):
    assert cli.main(["rescore", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(key in shown for key in ("run=", "model=", "tasks=", "judge="))
