"""Outside predictions into a run, to be scored, compared, shown and frozen like our own.

The docs, prompts and scorer are the task's; only the texts come from the file. What the file
does not tell stays unknown: token counts are None, finish is "unknown", and the fingerprints of
weights, engine, template, sampling and policy say so, which `compare` heeds.

A run holds all imports of one name; a task of it comes from one file. Another file for the same
task replaces what is read; the old samples stay on disk.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness import codec, paths
from harness.catalog import catalog
from harness.compare import UNKNOWN
from harness.errors import DataError, UsageError, nearest
from harness.evaluate import Result, play, run_folder
from harness.models import load_model, model_names
from harness.planning import plan_task
from harness.predictions import Prediction, Predictions, read_predictions
from harness.progress import Progress
from harness.rollouts import SEARCHING
from harness.rollouts.driver import Job, OnDone
from harness.schema import Model, Rollout, Turn
from harness.settings import Settings
from harness.store import Store
from harness.task_loader import LoadedTask, load_tasks, task_manager
from harness.task_plan import TaskPlan

_NOT_TOLD = ("weights", "engine", "template", "sampling", "policy")


def import_predictions(
    file: Path,
    task: str,
    name: str,
    *,
    id_field: str = "id",
    answer: str = "prediction",
    partial: bool = False,
    data: Path | None = None,
    out: Path = paths.RUNS,
    baselines: Path = paths.BASELINES,
    tasks_folder: Path = paths.TASKS,
    progress: Progress | None = None,
) -> Result:
    """Store the predictions of a file as a run, scored by the task's scorer.

    Args:
        file: See `harness.predictions`.
        task: One task; its rows are the docs.
        name: What the run's model is called; a card of that name gives its parent and template.
        id_field: Field of the id.
        answer: Field of the text in a plain file.
        partial: Allow docs without a prediction; the run is then incomplete.
        data: Root of outside data sets; None takes CHECKRAIL_DATA.
        out: Folder of runs.
        baselines: Folder of model cards.
        tasks_folder: Folder of tasks.
        progress: Where to report; standard error by default.

    Raises:
        UsageError: No such task.
        DataError: A prediction fits no doc, two fit one, or a doc has none; names file and line.
    """
    progress = progress or Progress()
    entries = catalog(tasks_folder)
    if task not in entries or entries[task].members:
        single = [n for n, entry in entries.items() if not entry.members]
        raise UsageError(f"task={task}: {nearest(task, single)}")
    predictions = read_predictions(file, id_field, answer)
    root = data or paths.data_root()
    builder = {} if root is None else {"data": str(root)}
    manager = task_manager(tasks_folder, builder)
    with progress.step("tasks", f"{name}: loading {task}"):
        (loaded,) = load_tasks(
            [task], entries, manager=manager, settings=builder, repeats=predictions.repeats
        )
    found = match(predictions, loaded)
    if len(found) < loaded.total and not partial:
        ids = [str(i) for i in loaded.task.dataset[loaded.task.config.test_split]["id"]]
        first = next(i for i in ids if i not in found)
        raise DataError(
            f"{file}: {loaded.total - len(found)} of {loaded.total} docs of {task} have no "
            f"prediction, such as '{first}' (partial=true imports the others; the run is then "
            "incomplete)"
        )
    card = name in model_names(baselines)
    model = load_model(name, baselines) if card else Model(name, "imported")
    plan = _plan(loaded, model, predictions, _prompt_check(loaded, found))
    identity = {"imported": name}
    run_id = codec.sha(identity)[:10]
    meta = {"run_id": run_id, "model": name, "identity": identity,
            "card": dataclasses.asdict(model)}  # fmt: skip
    log = {"imported": plan.info["imported"]}
    with Store.create(run_folder(out, name, run_id), meta) as store:
        return play(
            store, model, manager, [loaded], {task: plan}, lambda: _Playback(found), progress, log
        )


class _Playback:
    """Plays predictions instead of an engine; docs without one stay missing."""

    def __init__(self, found: Mapping[str, Prediction]) -> None:
        self._found = found
        self.gave_up = ""

    def run(self, jobs: Iterable[Job], on_done: OnDone) -> None:
        """Hand over the prediction of every job that has one."""
        for job in jobs:
            if job.doc.id in self._found:
                on_done(job, _rollout(job, self._found[job.doc.id]))


def _rollout(job: Job, prediction: Prediction) -> Rollout:
    totals = prediction.choices
    if totals is not None:
        best = job.config.choices[totals.index(max(totals))].strip()
        return Rollout(job.doc.id, 0, (), best, choices=totals, prompt_tokens=None)
    text = prediction.texts[job.config.repeat]
    return Rollout(
        job.doc.id,
        job.config.repeat,
        (Turn("model", text),),
        text,
        finish="unknown",
        prompt_tokens=None,
    )


def _plan(loaded: LoadedTask, model: Model, source: Predictions, prompt: str) -> TaskPlan:
    """The task's plan, with everything that the file does not tell marked as unknown."""
    task_policy = str(loaded.metadata.get("policy", "single_turn"))
    settings = Settings(
        repeats=source.repeats, policy="" if loaded.by_likelihood else "single_turn"
    )
    untold = UNKNOWN + json.dumps(f"imported from {source.path.name} sha256 {source.sha256}") + "}"
    identity: dict[str, Any] = dict.fromkeys(_NOT_TOLD, untold)
    model = dataclasses.replace(model, policy="", policy_options={})
    plan = plan_task(loaded, model, settings, identity)
    fingerprints = {**plan.info["fingerprints"], **dict.fromkeys(_NOT_TOLD, untold)}
    if prompt == "another":
        fingerprints["prompt"] = untold
    if task_policy in SEARCHING:
        fingerprints["retriever"] = untold
    info = {
        **plan.info,
        "fingerprints": fingerprints,
        "policy": "imported",
        "policy_options": {},
        "off_protocol": [key for key in plan.info["off_protocol"] if key != "policy"],
        "imported": {
            "file": source.path.name,
            "sha256": source.sha256,
            "form": source.form,
            "prompt": prompt,
        },
    }
    return dataclasses.replace(plan, info=info, source=source.sha256)


# --- which prediction belongs to which doc ----------------------------------------------------


def match(predictions: Predictions, loaded: LoadedTask) -> dict[str, Prediction]:
    """Predictions by doc id: by the id, else by lm-eval's hash of the row, else by the prompt.

    Raises:
        DataError: A prediction fits no doc or another kind of task, or two fit the same doc.
    """
    rows = {str(row["id"]): row for row in _rows(loaded)}
    hashes: dict[str, str] = {}
    prompts: dict[str, str] = {}
    found: dict[str, Prediction] = {}
    for item in predictions.items:
        where = f"{predictions.path}, line {item.line}"
        doc_id = item.id if item.id in rows else ""
        if not doc_id and item.doc_hash:
            hashes = hashes or {row_hash(row): key for key, row in rows.items()}
            doc_id = hashes.get(item.doc_hash, "")
        if not doc_id and item.prompt is not None:
            prompts = prompts or {key: rendered(loaded, row) for key, row in rows.items()}
            given = _squeeze(item.prompt)
            fits = [key for key, text in prompts.items() if text in given]
            doc_id = fits[0] if len(fits) == 1 else ""
        if not doc_id:
            said = f"'{item.id}': {nearest(item.id, rows)}" if item.id else "this sample"
            raise DataError(f"{where}: task {loaded.name} has no doc {said}")
        if doc_id in found:
            raise DataError(f"{where}: doc '{doc_id}' is on line {found[doc_id].line} already")
        _check(item, rows[doc_id], loaded, where)
        found[doc_id] = item
    return found


def _check(item: Prediction, row: Mapping[str, Any], loaded: LoadedTask, where: str) -> None:
    if item.question is not None and item.question != str(row["question"]):
        raise DataError(f"{where}: doc '{row['id']}' has another question in {loaded.name}")
    if loaded.by_likelihood != (item.choices is not None):
        wants, has = ("log-likelihoods", "a text") if loaded.by_likelihood else (
            "a text", "log-likelihoods")  # fmt: skip
        raise DataError(f"{where}: task {loaded.name} asks for {wants}, the file has {has}")
    if item.choices is not None:
        choices = len(loaded.task.doc_to_choice(row))
        if len(item.choices) != choices:
            raise DataError(
                f"{where}: {len(item.choices)} log-likelihoods, doc '{row['id']}' has "
                f"{choices} choices"
            )


def _prompt_check(loaded: LoadedTask, found: Mapping[str, Prediction]) -> str:
    """Whether the model was shown the task's prompt: "the task's", "another", "not recorded"."""
    if any(item.prompt is None for item in found.values()):
        return "not recorded"
    same = all(
        rendered(loaded, row) in _squeeze(found[str(row["id"])].prompt or "")
        for row in _rows(loaded)
        if str(row["id"]) in found
    )
    return "the task's" if same else "another"


def _rows(loaded: LoadedTask) -> Iterable[Mapping[str, Any]]:
    return loaded.task.dataset[loaded.task.config.test_split]


def rendered(loaded: LoadedTask, row: Mapping[str, Any]) -> str:
    """The task's prompt for a row without white space: a chat template leaves that as it is."""
    return _squeeze(
        loaded.task.fewshot_context(dict(row), int(loaded.task.config.num_fewshot or 0))
    )


def row_hash(row: Mapping[str, Any]) -> str:
    """lm-eval's `doc_hash` of a row."""
    text = json.dumps(dict(row), indent=2, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _squeeze(text: str) -> str:
    return "".join(text.split())
