"""Outside predictions: matched by doc, scored like our own, and nothing of them lost or guessed."""

import json
import shutil
from pathlib import Path

import pytest

from harness import cli, paths
from harness.audit import inspect
from harness.engines.scripted import ScriptedEngine
from harness.errors import CheckrailError
from harness.evaluate import Settings, evaluate
from harness.importing import import_predictions
from harness.predictions import LM_EVAL, PLAIN, read_predictions
from harness.progress import Progress
from harness.runs import load_run
from harness.schema import Completion, Model
from harness.store import Store
from tests import test_likelihood
from tests.test_evaluate import gold, run

TASK = "railway_demo_top1"
QUIET = Progress(quiet=True)
UNTOLD = ("weights", "engine", "template", "sampling", "policy")
NOT_IN_A_FILE = {"output_tokens", "degenerate"}
"""Metrics that need token counts, or to know whether the text was cut off."""


def replies():
    """Answers of every kind: right, wrong, without a page, looping, playing on, empty."""
    ways = [
        lambda a: a,
        lambda a: "<answer> nothing of it </answer>\n<page> 1 </page>",
        lambda a: a.partition("<page>")[0],
        lambda a: a + "\n" + "Stand clear of the closing doors, please. " * 12,
        lambda a: a + "\nQuestion: and what comes next?",
        lambda a: "",
        lambda a: f"<think>so it goes</think>\n{a}",
    ]
    return {q: ways[i % len(ways)](a) for i, (q, a) in enumerate(gold().items())}


@pytest.fixture(scope="session")
def answers():
    return replies()


def stock(folder, task, generate=None, likelihood=None, limit=None, include=paths.TASKS):
    """Run lm-eval without this harness, and let it write its samples file."""
    from lm_eval.api.model import LM
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Scripted(LM):
        def generate_until(self, requests, disable_tqdm=False):
            return [generate(r.args[0]) for r in requests]

        def loglikelihood(self, requests, disable_tqdm=False):
            return [likelihood(*r.args) for r in requests]

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            raise NotImplementedError

    tracker = EvaluationTracker(output_path=str(folder))
    done = simple_evaluate(
        model=Scripted(),
        tasks=[task],
        task_manager=TaskManager(include_path=[str(include)], include_defaults=False),
        limit=limit,
        bootstrap_iters=0,
        log_samples=True,
        evaluation_tracker=tracker,
    )
    samples = done.pop("samples")
    tracker.save_results_aggregated(results=done, samples=samples)
    tracker.save_results_samples(task_name=task, samples=samples[task])
    (path,) = Path(folder).rglob(f"samples_{task}_*.jsonl")
    return path


@pytest.fixture(scope="session")
def samples(tmp_path_factory, answers):
    """A whole samples file of the demo."""

    def generate(prompt):
        return next(reply for question, reply in answers.items() if question in prompt)

    return stock(tmp_path_factory.mktemp("stock"), TASK, generate)


def plain(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def uncut(answers):
    """Replies that no token budget cuts off, as the stock model's."""
    return {q: Completion(text, None, None, None, "stop") for q, text in answers.items()}


def own(tmp_path, answers, **settings):
    result, _ = run(tmp_path / "own", uncut(answers), **settings)
    with Store.open(result.run) as store:
        return {r.doc_id: r for r in store.records(TASK)}


def imported(tmp_path, file, **options):
    result = import_predictions(file, TASK, "other", out=tmp_path, progress=QUIET, **options)
    with Store.open(result.run) as store:
        assert not inspect(store).problems
        return {r.doc_id: r for r in store.records(TASK, 10**9)}


def command(tmp_path, file, *arguments):
    where = [f"out={tmp_path / 'runs'}", f"baselines={paths.BASELINES}"]
    return cli.main(["import", f"file={file}", f"task={TASK}", "model=other", *arguments, *where])


# --- the same scores --------------------------------------------------------------------------


def test_imported_samples_of_lm_eval_score_bit_for_bit_as_our_own_run(tmp_path, samples, answers):
    ours, theirs = own(tmp_path, answers), imported(tmp_path, samples)
    assert set(ours) == set(theirs)
    assert len(ours) == 100
    seen = set()
    for doc_id, record in ours.items():
        other = theirs[doc_id]
        assert other.rollout.answer == record.rollout.answer
        assert other.prompt_sha == record.prompt_sha
        assert other.verdicts == record.verdicts
        assert other.score.reasons == record.score.reasons
        told = {k: v for k, v in record.score.metrics.items() if k not in NOT_IN_A_FILE}
        assert dict(other.score.metrics) == told
        seen.update(record.score.reasons)
    assert {"repeated_output", "over_output", "empty_output"} <= seen


def test_lm_eval_itself_gave_those_scores(tmp_path, samples):
    theirs = imported(tmp_path, samples)
    for line in samples.read_text("utf-8").splitlines():
        row = json.loads(line)
        for metric in row["metrics"]:
            if metric in theirs[row["doc"]["id"]].score.metrics:
                assert theirs[row["doc"]["id"]].score.metrics[metric] == row[metric]


def test_a_plain_file_scores_as_our_own_run(tmp_path, answers):
    ours = own(tmp_path, answers)
    rows = [{"id": i, "prediction": r.rollout.answer} for i, r in reversed(ours.items())]
    theirs = imported(tmp_path, plain(tmp_path / "p.jsonl", rows))
    assert {i: r.score.metrics["joint_accuracy"] for i, r in ours.items()} == {
        i: r.score.metrics["joint_accuracy"] for i, r in theirs.items()
    }


def test_what_the_file_does_not_tell_stays_unknown(tmp_path, samples):
    record = next(iter(imported(tmp_path, samples).values()))
    rollout = record.rollout
    assert (rollout.completion_tokens, rollout.prompt_tokens) == (None, None)
    assert rollout.finish == "unknown"
    assert rollout.turns[0].token_ids is None
    assert not NOT_IN_A_FILE & set(record.score.metrics)
    sets = load_run("other", tmp_path)
    assert all("imported from samples_" in sets[TASK].fingerprints[f] for f in UNTOLD)
    assert all("sha256" in sets[TASK].fingerprints[f] for f in UNTOLD)
    assert sets[TASK].info["imported"]["prompt"] == "the task's"


def test_repeats_come_as_a_list_and_mark_the_row_off_protocol(tmp_path, answers):
    ids = list(own(tmp_path, answers))
    rows = [{"id": i, "prediction": ["one", "two"]} for i in ids]
    import_predictions(
        plain(tmp_path / "p.jsonl", rows), TASK, "other", out=tmp_path, progress=QUIET
    )
    records = load_run("other", tmp_path)[TASK]
    assert [s.output for s in records.docs[0].samples] == ["one", "two"]
    assert "repeats" in records.info["off_protocol"]


def test_log_likelihoods_score_as_our_own_run(tmp_path):
    def likelihood(context, continuation):
        """The same for a plain prompt and for a chat, whose choices have no space in front."""
        question = context.partition("Question: ")[2].partition("\n")[0]
        return -float(sum(map(ord, question + continuation.strip())) % 97) - 1 / 3, False

    folder = test_likelihood.FOLDER
    file = stock(tmp_path / "stock", "example_choice", likelihood=likelihood, include=folder)
    engine = ScriptedEngine({}, likelihood=likelihood)
    own_result = evaluate(
        Model("scripted", "scripted", tasks=("example_choice",)),
        Settings(out=tmp_path / "own", tasks_folder=folder), engine=engine, progress=QUIET,
    )  # fmt: skip
    result = import_predictions(
        file, "example_choice", "other", out=tmp_path, tasks_folder=folder, progress=QUIET
    )
    ours, theirs = (test_likelihood.rollouts(r) for r in (own_result, result))
    assert {k: (r.choices, r.answer) for k, r in ours.items()} == {
        k: (r.choices, r.answer) for k, r in theirs.items()
    }
    for a, b in zip(own_result.records[0].docs, result.records[0].docs, strict=True):
        assert a.samples[0].metrics == b.samples[0].metrics


# --- compare, freeze, boards --------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(tmp_path_factory, samples, answers):
    root = tmp_path_factory.mktemp("gate")
    (root / "baselines").mkdir()
    shutil.copy(paths.BASELINES / "gates.toml", root / "baselines")
    run(root / "runs", uncut(answers))
    verb(root, "import", f"file={samples}", f"task={TASK}", "model=other")
    return root


def verb(root, name, *arguments):
    where = [f"out={root / 'runs'}", f"baselines={root / 'baselines'}"]
    if name == "leaderboard":
        where.append(f"boards={root / 'boards'}")
    return cli.main([name, *arguments, *where])


def test_an_import_is_comparable_only_where_the_unknown_fields_are_named(bench, capsys):
    ask = ("compare", "model=other", "baseline=scripted")
    assert verb(bench, *ask) == 12
    note = json.loads((bench / "runs" / "gate.json").read_text("utf-8"))["comparisons"][0]["note"]
    assert "engine, template, sampling, policy unknown" in note
    assert "imported from samples_" in note
    vary = note.partition("(")[2].partition("vary=")[2].partition(" ")[0]
    assert verb(bench, *ask, f"vary={vary}") == 0
    lines = json.loads((bench / "runs" / "gate.json").read_text("utf-8"))["comparisons"]
    assert {(c["metric"], c["delta"]) for c in lines if c["blocking"]} == {("joint_accuracy", 0.0)}
    assert all("unknown" in c["note"] for c in lines if c["delta"] is not None)


def test_an_import_is_frozen_rescored_and_on_the_board(bench):
    assert verb(bench, "freeze", "run=other", "as=other") == 0
    assert verb(bench, "rescore", "run=other") == 0
    assert verb(bench, "check") == 0
    assert verb(bench, "leaderboard") == 0
    board = (bench / "boards" / "railway_demo.md").read_text("utf-8")
    assert "imported from samples_" in next(x for x in board.splitlines() if "| other" in x)
    vary = f"vary={','.join(UNTOLD)}"
    assert verb(bench, "compare", "model=scripted", "baseline=other", vary) == 0


def test_a_partial_import_is_incomplete_and_a_gate_over_it_is_3(tmp_path, samples, capsys, bench):
    shutil.copytree(bench, tmp_path / "b")
    part = tmp_path / "part.jsonl"
    part.write_text("".join(samples.read_text("utf-8").splitlines(True)[:90]), encoding="utf-8")
    ask = ["import", f"file={part}", f"task={TASK}", "model=partly"]
    assert verb(tmp_path / "b", *ask) == 2
    assert "10 of 100 docs" in capsys.readouterr().err
    assert not list((tmp_path / "b" / "runs").glob("partly-*")), "nothing was written"
    assert verb(tmp_path / "b", *ask, "partial=true") == 0
    assert "10 docs have no prediction" in capsys.readouterr().out
    vary = f"vary={','.join(UNTOLD)}"
    assert verb(tmp_path / "b", "compare", "model=partly", "baseline=scripted", vary) == 3
    assert verb(tmp_path / "b", "freeze", "run=partly", "as=partly") == 2


def test_the_same_file_again_changes_nothing_and_another_replaces_it(tmp_path, samples):
    first = imported(tmp_path, samples)
    again = import_predictions(samples, TASK, "other", out=tmp_path, progress=QUIET)
    assert (again.outcome.played, again.outcome.reused) == (0, 100)
    rows = [{"id": i, "prediction": "other"} for i in first]
    changed = imported(tmp_path, plain(tmp_path / "p.jsonl", rows))
    assert {r.rollout.answer for r in changed.values()} == {"other"}
    with Store.open(again.run) as store:
        assert store.redone() == 100


# --- matching ---------------------------------------------------------------------------------


def test_samples_without_ids_are_matched_by_hash_and_by_prompt(tmp_path, samples):
    rows = [json.loads(x) for x in samples.read_text("utf-8").splitlines()]
    whole = {i: r.rollout.answer for i, r in imported(tmp_path / "a", samples).items()}
    for row in rows:
        del row["doc"]["id"]
    by_hash = imported(tmp_path / "b", plain(tmp_path / "hash.jsonl", rows))
    for row in rows:
        del row["doc_hash"]
    by_prompt = imported(tmp_path / "c", plain(tmp_path / "prompt.jsonl", rows))
    assert whole == {i: r.rollout.answer for i, r in by_hash.items()}
    assert whole == {i: r.rollout.answer for i, r in by_prompt.items()}


def test_another_prompt_is_noted_and_never_comparable(tmp_path, samples):
    rows = [json.loads(x) for x in samples.read_text("utf-8").splitlines()]
    rows[5]["arguments"]["gen_args_0"]["arg_0"] = "something else"
    imported(tmp_path, plain(tmp_path / "other.jsonl", rows))
    records = load_run("other", tmp_path)[TASK]
    assert records.info["imported"]["prompt"] == "another"
    assert records.fingerprints["prompt"].startswith('{"unknown"')


def test_further_filters_repeat_a_doc_and_are_passed_over(tmp_path, samples):
    rows = [json.loads(x) for x in samples.read_text("utf-8").splitlines()]
    doubled = [row | {"filter": name} for row in rows for name in ("none", "strict")]
    assert len(imported(tmp_path, plain(tmp_path / "two.jsonl", doubled))) == 100


# --- mistakes: one line, with file and line -----------------------------------------------------

ROW = '{"id": "demo-test-p02-q1", "prediction": "x"}\n'


@pytest.mark.parametrize(
    ("content", "line", "hint"),
    [
        (b"", None, "no predictions"),
        (ROW.encode() + b'{"id": "demo-test-p02-q2", "pred', 2, "cut short"),
        (ROW.encode() * 2, 2, "line 1 already"),
        (b'{"id": "demo-test-p02-q99", "prediction": "x"}\n', 1, "did you mean"),
        (b'{"prediction": "x"}\n', 1, "id=FIELD"),
        (b'{"id": "a", "text": "x"}\n', 1, "answer=FIELD"),
        (b'{"id": NaN, "prediction": "x"}\n', 1, "NaN"),
        (b'{"id": "a", "prediction": NaN}\n', 1, "NaN"),
        (b'{"id": "a", "prediction": null}\n', 1, "must be text, is null"),
        (b'{"id": "a", "prediction": 42}\n', 1, "must be text"),
        (b'{"id": "a", "prediction": []}\n', 1, "empty list"),
        (b'{"id": null, "prediction": "x"}\n', 1, "id must be text"),
        (b'[1, 2]\n', 1, "not a JSON object"),
        ('{"id": "a", "prediction": "é"}\n'.encode("latin-1"), 1, "not UTF-8"),
        (ROW.encode("utf-16"), 1, "not UTF-8"),
        (ROW.encode() + b'\n{"id": "demo-test-p02-q2", "prediction": ["x", "y"]}', 3, "2 texts"),
        (b'{"resps": [], "doc": {}}\n', 1, "not a sample"),
        (b'{"resps": [[["nan", "True"]]], "doc": {"id": "a"}}\n', 1, "no finite number"),
        (b"[" * 100_000, 1, "not JSON"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_names_file_and_line(tmp_path, capsys, content, line, hint):
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    assert command(tmp_path, path, "partial=true") == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "p.jsonl" in message
    assert hint in message
    assert line is None or f"line {line}" in message
    assert not (tmp_path / "runs").exists(), "a refused file leaves nothing"


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"question": "What else?"}, "another question"),
        ({"id": "nobody"}, "has no doc"),
    ],
)
def test_samples_of_another_data_set_are_refused(tmp_path, samples, change, hint):
    row = json.loads(samples.read_text("utf-8").splitlines()[0])
    row["doc"] |= change
    row["doc_hash"] = row["arguments"]["gen_args_0"]["arg_0"] = "0"
    with pytest.raises(CheckrailError, match=hint):
        imported(tmp_path, plain(tmp_path / "p.jsonl", [row]), partial=True)


def test_texts_for_a_task_of_log_likelihoods_are_refused(tmp_path):
    file = plain(tmp_path / "p.jsonl", [{"id": "colour-0", "prediction": "red"}])
    with pytest.raises(CheckrailError, match="asks for log-likelihoods"):
        import_predictions(
            file, "example_choice", "other", partial=True, out=tmp_path,
            tasks_folder=test_likelihood.FOLDER, progress=QUIET,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["task=railway_demo_top2", "model=x", "file=y"], "did you mean railway_demo_top"),
        (["task=railway_demo", "model=x", "file=y"], "did you mean railway_demo_top"),
        (["task=railway_demo_top1", "model=x", "file=nowhere.jsonl"], "No such file"),
        (["task=railway_demo_top1", "model=x"], "needs file="),
    ],
)
def test_a_mistake_in_the_command_is_one_line(tmp_path, capsys, arguments, hint):
    assert cli.main(["import", *arguments, f"out={tmp_path}"]) == 2
    message = capsys.readouterr().err
    assert hint in message
    assert message.count("\n") == 1


def test_other_field_names_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"qid": 7, "text": "a\\u2028b"}\r\n\r\n')
    read = read_predictions(path, "qid", "text")
    assert (read.form, read.items[0].id, read.items[0].texts) == (PLAIN, "7", ("a\u2028b",))


def test_the_form_is_told_from_the_first_line(samples):
    assert read_predictions(samples).form == LM_EVAL
