"""Kill and resume: SIGKILL at random moments, the same command goes on."""

import random
import shutil
import sqlite3
import subprocess
import sys
import time

import pytest

from harness import paths
from harness.audit import inspect
from harness.store import FILE, Store
from tests.conftest import ROOT

CARD = """
name = "slow"
engine = "scripted"
tasks = ["railway_demo"]
[flags]
reply = "<answer> the driver </answer>\\n<page> 2 </page>"
latency = 0.02
[parallelism]
requests = 4
"""
WINDOW = 4


def command(root):
    return [
        sys.executable, "-m", "harness", "eval", "model=slow", f"out={root / 'runs'}",
        f"baselines={root / 'baselines'}", f"boards={root / 'boards'}", "limit=60",
    ]  # fmt: skip


def prepare(root):
    (root / "baselines" / "slow").mkdir(parents=True)
    (root / "baselines" / "slow" / "card.toml").write_text(CARD, encoding="utf-8")
    shutil.copy(paths.BASELINES / "gates.toml", root / "baselines")
    return root


def stored(root):
    """Every sample on disk, with its output: (task, doc, repeat) -> rollout JSON less timing."""
    (run,) = (root / "runs").glob("slow-*")
    with sqlite3.connect(run / FILE) as db:
        rows = db.execute("SELECT task, doc_id, repeat, rollout, ids FROM samples").fetchall()
    keys = [row[:3] for row in rows]
    assert len(keys) == len(set(keys)), "a sample is stored twice"
    with Store.open(run) as store:
        return {
            (r.task, r.doc_id, r.repeat): (r.rollout.answer, r.rollout.turns, r.score)
            for task in store.tasks()
            for r in store.records(task, 10**9)
        }


@pytest.mark.soak
def test_ten_kills_lose_nothing_and_double_nothing(tmp_path):
    whole = prepare(tmp_path / "whole")
    subprocess.run(command(whole), cwd=ROOT, check=True, capture_output=True)
    killed = prepare(tmp_path / "killed")
    dice = random.Random(7)
    kills = 0
    while kills < 10:
        process = subprocess.Popen(
            command(killed), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(dice.uniform(0.3, 2.6))
        if process.poll() is not None:  # finished before the shot: start the file anew
            shutil.rmtree(killed / "runs")
            continue
        process.kill()
        process.wait()
        kills += 1
    done = subprocess.run(
        command(killed), cwd=ROOT, check=False, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert stored(killed) == stored(whole)
    (run,) = (killed / "runs").glob("slow-*")
    with Store.open(run) as store:
        assert not inspect(store).problems


def test_a_kill_in_the_middle_redoes_at_most_what_was_in_flight(tmp_path):
    root = prepare(tmp_path)
    process = subprocess.Popen(
        command(root), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    before = 0
    while before < 20 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
        files = list((root / "runs").glob(f"slow-*/{FILE}"))
        if files:
            try:
                with sqlite3.connect(f"file:{files[0]}?mode=ro", uri=True) as db:
                    (before,) = db.execute("SELECT count(*) FROM samples").fetchone()
            except sqlite3.Error:
                continue
    process.kill()
    process.wait()
    assert before >= 20
    done = subprocess.run(
        command(root), cwd=ROOT, check=False, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert "samples are stored already" in done.stderr
    reused = int(done.stderr.split(" of 180 samples are stored")[0].split()[-1])
    assert reused >= before
    assert len(stored(root)) == 180
