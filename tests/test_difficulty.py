"""Questions are placed by the rollouts to their first right answer; no level is guessed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import main
from harness.difficulty import LEVELS, level, place
from harness.engines.scripted import ScriptedEngine
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.schema import Doc, Model

DOC = Doc("q", "?", ("x",))


@pytest.mark.parametrize(
    ("needed", "wanted"),
    [(1, "easy"), (9, "easy"), (10, "medium"), (20, "medium"), (21, "difficult")],
)
def test_the_levels_are_the_paper_s(needed, wanted):
    assert level(needed) == wanted
    values = {i: float(i == needed - 1) for i in range(needed)}
    found = place(DOC, values, repeats=30)
    assert (found.level, found.needed) == (wanted, needed)


@given(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=30))
def test_only_what_comes_before_the_first_right_answer_counts(values):
    found = place(DOC, dict(enumerate(values)), len(values))
    first = values.index(1.0) if 1.0 in values else len(values)
    if None in values[:first]:
        assert (found.level, found.needed) == ("unfinished", None)
    elif first == len(values):
        assert (found.level, found.needed) == ("unanswered", None)
    else:
        assert found.needed == first + 1


def test_a_run_with_repeats_becomes_training_sets(tmp_path, capsys):
    path = tmp_path / "mine.jsonl"
    rows = [{"id": i, "question": f"{i}?", "golden_answers": ["yes"]} for i in ("one", "two")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    seen = {"one": 0, "two": 0}

    def reply(prompt, _):
        name = "one" if "one?" in prompt[-1].content else "two"
        seen[name] += 1
        return "<answer>yes</answer>" if name == "one" and seen[name] == 2 else "no"

    result = evaluate(
        Model("scripted", "scripted", tasks=("qa_jsonl",)),
        Settings(out=tmp_path, data=path, policy="naive", repeats=3, window=1),
        engine=ScriptedEngine(reply),
        progress=Progress(quiet=True),
    )
    to = tmp_path / "sets"
    assert main(["select", f"run={result.run}", "tasks=qa_jsonl", f"to={to}"]) == 0
    said = capsys.readouterr().out
    assert "repeats=21 tells" in said
    assert "right = cem_bag of at least 1" in said
    written = {n: [json.loads(x) for x in (to / f"{n}.jsonl").open()] for n in LEVELS}
    assert {n: len(r) for n, r in written.items() if r} == {"easy": 1, "unanswered": 1}
    (easy,) = written["easy"]
    assert easy == {"id": "one", "question": "one?", "golden_answers": ["yes"], "rollouts": 2,
                    "repeats": 3, "task": "qa_jsonl"}  # fmt: skip
    assert written["unanswered"][0]["rollouts"] is None
    for bad in ("tasks=nothing", "tasks=qa_jsonl metric=nothing"):
        assert main(["select", f"run={result.run}", f"to={to}", *bad.split()]) == 2
        assert "\n" not in capsys.readouterr().err.strip()
