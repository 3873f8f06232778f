"""HumanEval: its own solutions pass, changed ones fail, and nothing runs without a sandbox."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.cli import main
from harness.engines.scripted import ScriptedEngine
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.report.summary import summarise
from harness.schema import Doc, Model, Rollout
from harness.scoring import bubblewrap, code, sandbox, task_scorer
from harness.scoring.bubblewrap import SandboxError
from harness.scoring.process import doc_to_row
from harness.scoring.sandbox_process import Limits
from harness.store import Store
from harness.stored import StoredRun
from tasks.humaneval import rows
from tests.tasks.mutants import mutants

needs_sandbox = pytest.mark.skipif(
    bool(sandbox.unavailable()), reason=f"no sandbox here: {sandbox.unavailable()}"
)
TRIES = 12
"""Changes tried for one problem before its tests are called blind."""

MODEL = Model("scripted", "scripted", tasks=("humaneval",))


def judged(doc, answer):
    rollout = Rollout(doc.id, 0, (), answer, completion_tokens=1)
    return task_scorer("code").judge_and_score(doc, rollout)[1]


def check_canonical(docs):
    def one(doc):
        score = judged(doc, rows.doc_to_target(doc_to_row(doc)))
        return doc.id, doc.meta["variant"], score.metrics["pass"], score.metrics["format"]

    with ThreadPoolExecutor(2) as pool:
        wrong = [found for found in pool.map(one, docs) if found[2:] != (1.0, 1.0)]
    assert wrong == []


def check_mutants(docs):
    """The first change that is seen, for every problem; returns those that were not seen."""

    def one(doc):
        entry = doc.meta["entry_point"]
        unseen = []
        for name, program in mutants(doc.question + doc.targets[0], entry):
            found = sandbox.check(
                program, entry=entry, setup=doc.question, test=doc.meta["test"],
                limits=Limits(cpu=2),
            )  # fmt: skip
            if not found.passed:
                return doc.id, unseen, True
            unseen.append(name)
            if len(unseen) == TRIES:
                break
        return doc.id, unseen, False

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, docs))
    assert [doc_id for doc_id, _, caught in results if not caught] == []
    return {doc_id: unseen for doc_id, unseen, _ in results if unseen}


@pytest.mark.data
@needs_sandbox
def test_published_solutions_pass_in_both_variants(data_root):
    chat, completion = (rows.problems(data_root, v) for v in rows.VARIANTS)
    assert len(chat) == 164
    check_canonical([*chat[::12], *completion[5::12], *[chat[i] for i in (10, 32, 38, 50)]])


@pytest.mark.data
@needs_sandbox
def test_changed_solutions_fail(data_root):
    check_mutants(rows.problems(data_root)[::12])


@pytest.mark.soak
@pytest.mark.data
@needs_sandbox
def test_all_published_solutions_pass(data_root):
    check_canonical([d for v in rows.VARIANTS for d in rows.problems(data_root, v)])


@pytest.mark.soak
@pytest.mark.data
@needs_sandbox
def test_a_changed_solution_of_every_problem_fails(data_root):
    unseen = check_mutants(rows.problems(data_root))
    print(f"\nchanges that the tests do not see ({sum(map(len, unseen.values()))}): {unseen}")


# --- finding the code ---

PROMPT = 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """ Sum.\n    """\n'
TEST = "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n"
DOC = Doc("T/0", PROMPT, ("    return sum(xs)\n",), meta={"entry_point": "total", "test": TEST})
GOOD = "def total(xs):\n    return sum(xs)\n"

FOUND = {
    "a block": (f"Here:\n```python\n{GOOD}```\nDone.", "block"),
    "an untagged block": (f"```\n{GOOD}```", "block"),
    "an indented block": ("1. So:\n   ```python\n   def total(xs):\n       return sum(xs)\n   ```",
                          "block"),
    "a block with tildes": (f"~~~py\n{GOOD}~~~", "block"),
    "the last of two": (f"```python\ndef total(xs):\n    return 1\n```\nor\n```python\n{GOOD}```",
                        "block"),
    "before an example of use": (f"```python\n{GOOD}```\n```python\nprint(total([1]))\n```",
                                 "block"),
    "beside a shell block": (f"```python\n{GOOD}```\n```bash\npip install x\n```", "block"),
    "a restated type that needs the prompt's import":
        ("```python\ndef total(xs: List[int]) -> int:\n    return sum(xs)\n```", "block"),
    "a future import": (f"```python\nfrom __future__ import annotations\n{GOOD}```", "block"),
    "a block that is never closed": (f"```python\n{GOOD}", "block"),
    "after thinking": (f"<think>\n```\ndef total(xs): 9\n```\n</think>\n```python\n{GOOD}```",
                       "block"),
    "without a fence": (f"Sure, here it is:\n\n{GOOD}", "text"),
    "a body in a block": ("```python\n    return sum(xs)\n```", "body"),
    "a body without its indent": ("```python\nreturn sum(xs)\n```", "body"),
    "a completion": ("    return sum(xs)\n", "completion"),
    "a completion that goes on": ("    return sum(xs)\n\ndef other():\n    1 +", "completion"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
@needs_sandbox
def test_the_program_is_found(name):
    answer, kind = FOUND[name]
    visible = answer.rpartition("</think>")[2]
    assert code.extract(visible, PROMPT, "total")[1] == kind
    assert judged(DOC, answer).metrics["pass"] == 1.0


@pytest.mark.parametrize("answer", ["", "  \n", "```bash\nls\n```"])
def test_an_output_without_code_fails_without_running_anything(answer, monkeypatch):
    monkeypatch.setattr(sandbox, "check", None)
    score = judged(DOC, answer)
    assert score.metrics["pass"] == 0.0
    assert "no_code" in score.reasons


def test_the_format_asks_for_a_closed_fence():
    def form(answer):
        rollout = Rollout("T/0", 0, (), answer)
        return code.score(DOC, rollout, ()).metrics["format"]

    assert form(f"```python\n{GOOD}```") == 1.0
    assert form(f"```python\n{GOOD}") == 0.0
    assert form(f"Sure:\n{GOOD}") == 0.0


def test_code_may_repeat_itself_but_prose_may_not():
    lines = "    if xs == [7]:\n        return 7 + 0 * len('seven seven')\n" * 40
    answer = f"```python\ndef total(xs):\n{lines}    return sum(xs)\n```"
    rollout = Rollout("T/0", 0, (), answer)
    right = (code.Verdict(code.JUDGE, {"passed": True}),)
    assert code.score(DOC, rollout, right).metrics["pass"] == 1.0
    looping = Rollout("T/0", 0, (), answer + "\nI hope that this helps you a lot.\n" * 30)
    assert code.score(DOC, looping, right).reasons == ("repeated_output",)
    assert code.score(DOC, looping, right).metrics["pass"] == 0.0


# --- the whole path ---


def play(tmp_path, answer, **settings):
    engine = ScriptedEngine(lambda messages, sampling: answer)
    settings = Settings(out=tmp_path, **settings)
    return evaluate(MODEL, settings, engine=engine, progress=Progress(quiet=True))


@pytest.mark.data
@needs_sandbox
def test_a_run_is_scored_beside_generation_and_once_only(data_root, tmp_path, monkeypatch):
    runs = []
    real = sandbox.check
    monkeypatch.setattr(sandbox, "check", lambda *a, **k: (runs.append(1), real(*a, **k))[1])
    solutions = {d.question.strip(): rows.doc_to_target(doc_to_row(d))
                 for d in rows.problems(data_root)}  # fmt: skip

    def reply(messages, sampling):
        asked = messages[-1].content
        return next(s for q, s in solutions.items() if q in asked)

    engine = ScriptedEngine(reply)
    settings = Settings(out=tmp_path, limit=3, repeats=2, data=data_root)
    result = evaluate(MODEL, settings, engine=engine, progress=Progress(quiet=True))
    (records,) = result.records
    assert [s.metrics["pass"] for d in records.docs for s in d.samples] == [1.0] * 6
    assert result.lm_eval["humaneval"]["pass,none"] == 1.0
    assert len(runs) == 6
    again = evaluate(MODEL, settings, engine=engine, progress=Progress(quiet=True))
    assert again.outcome.reused == 6
    assert len(runs) == 6


@pytest.mark.data
def test_a_sandbox_that_fails_leaves_samples_unscored_and_is_asked_again(
    data_root, tmp_path, monkeypatch
):
    def broken(*args, **kwargs):
        raise SandboxError("no more namespaces")

    monkeypatch.setattr(sandbox, "unavailable", lambda: "")
    monkeypatch.setattr(sandbox, "ungrouped", lambda: "control groups are read-only")
    monkeypatch.setattr(sandbox, "check", broken)
    first = play(tmp_path, "```python\nx = 1\n```", limit=2, data=data_root)
    (records,) = first.records
    assert all("pass" not in (s.metrics or {}) for d in records.docs for s in d.samples)
    assert "unscored: up to 2 docs" in summarise(records).flags
    with StoredRun.open(first.run) as run:
        (note,) = run.invocations()[0]["notes"]
    assert "control groups are read-only" in note
    fine = sandbox.Checked(True, "", "", 0.1)
    monkeypatch.setattr(sandbox, "check", lambda *a, **k: fine)
    second = play(tmp_path, "never asked", limit=2, data=data_root)
    assert [s.metrics["pass"] for d in second.records[0].docs for s in d.samples] == [1.0, 1.0]


@pytest.mark.data
def test_without_a_sandbox_the_task_refuses_before_anything_is_generated(
    data_root, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bubblewrap (bwrap) is not installed")
    command = ["eval", "model=extractive", "tasks=humaneval", f"out={tmp_path}",
               f"data={data_root}"]  # fmt: skip
    assert main(command) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "bwrap" in said
    assert "apt-get install bubblewrap" in said
    assert "unsafe_code=true" in said
    assert not list(tmp_path.glob("*/run.sqlite"))


@pytest.mark.data
def test_planning_runs_no_program_so_it_only_notes_that_there_is_no_sandbox(
    data_root, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bubblewrap (bwrap) is not installed")
    command = ["plan", "model=extractive", "tasks=humaneval", "limit=3", f"out={tmp_path}",
               f"data={data_root}"]  # fmt: skip
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "3 samples to play" in said
    assert "note: this task runs programs that the model writes, and bubblewrap" in said


@pytest.mark.data
def test_unsafe_code_runs_without_a_sandbox_and_says_so(data_root, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "bubblewrap (bwrap) is not installed")
    monkeypatch.setattr(bubblewrap, "command", None)
    result = play(tmp_path, "    return None\n", limit=2, data=data_root, unsafe_code=True)
    (records,) = result.records
    assert "programs ran without a sandbox (unsafe_code=true)" in summarise(records).flags
    assert records.fingerprints["scorer"] == "code@1+unsafe@1"
    with Store.open(result.run) as store:
        verdicts = [r.verdicts[0] for r in store.records("humaneval", 2)]
    assert all(v.judge == "unsafe@1" and v.values is not None for v in verdicts)
    assert all(json.loads(v.raw)["reason"] in code.CODE_REASONS for v in verdicts)
