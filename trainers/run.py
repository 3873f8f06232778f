"""One training run from a recipe to a card: `train(recipe, model, settings, progress)`.

    rows -> contamination -> claim the folder -> back end (resumes by itself) -> card

Everything that can be wrong with the command is said before a model is loaded.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.catalog import catalog, expand
from harness.engines import open_engine
from harness.engines.weights import fingerprint, resolve
from harness.errors import DataError, UsageError, missing_dependency
from harness.models import load_model
from harness.paths import TASKS
from harness.progress import Progress
from harness.schema import Model
from trainers import data as training_data
from trainers import lineage
from trainers.contamination import Overlap, shares
from trainers.data import Example
from trainers.play import check_policy, open_search, oracle_judge
from trainers.recipe import Recipe
from trainers.rewarding import rule_of
from trainers.testsets import QuestionSets, check, load_test_sets

CONTAMINATION = "contamination.json"
LIMIT = 0.05
"""Share of a task's questions that rows may show before the command refuses. Not 0: the published
railway rows show 3 of the 225 test questions, and the prompt's worked example is one of them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command says beside recipe and model.

    Attributes:
        name: Of the new checkpoint.
        folder: Of the run.
        baselines: Where the card goes.
        data: Root of outside data, or the file of own rows.
        limit_steps: Steps of this invocation.
        merge: Write whole weights instead of an adapter.
        contaminated: "allow" trains whatever the rows show.
    """

    name: str
    folder: Path
    baselines: Path
    data: str | None = None
    limit_steps: int | None = None
    merge: bool = False
    contaminated: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it; `card` is None where steps are left to do."""

    step: int
    steps: int
    card: Path | None


def train(recipe: Recipe, model: Model, settings: Settings, progress: Progress) -> Result:
    """Train, or go on training, and write the card when all steps are done.

    Raises:
        UsageError: A name that does not exist or is taken, or a missing package.
        DataError: Rows that cannot be read, or that show too many test questions.
        EngineError: Weights, a rollout or memory failed; the same command resumes.
    """
    check_policy(recipe)
    lineage.may_write(settings.baselines / settings.name, recipe)
    adapter = backend("trl_adapter")
    with progress.step("rows", f"rows of {recipe.name}"):
        rows = training_data.examples(recipe, settings.data)
    parent = fingerprint(resolve(model))
    parent += f"+{fingerprint(Path(model.adapter).expanduser())}" if model.adapter else ""
    marks = training_data.fingerprint(rows)
    lineage.claim(settings.folder, lineage.identity(recipe, parent, marks))
    flagged = contamination(recipe, rows, settings, progress)
    job = adapter.Job(recipe, model, settings.folder, progress, settings.limit_steps)
    with progress.step("train", f"loading {model.name}"):
        done = _train(adapter, job, rows, settings)
    if done.step < done.steps:
        return Result(done.step, done.steps, None)
    target = settings.baselines / settings.name
    whole = settings.merge or recipe.lora.rank == 0
    if whole:
        adapter.save_merged(done.network, done.tokenizer, target / lineage.WEIGHTS)
    else:
        folder = target / lineage.ADAPTER
        adapter.save_adapter(done.network, folder, model.path, recipe.hyper.dtype)
    training: dict[str, Any] = {
        "steps": done.steps,
        "rows": len(rows),
        "data": marks,
        "parent_weights": parent,
        "curve": lineage.CURVE,
        "contaminated": flagged,
    }
    fields = lineage.card_of(model, recipe, settings.name, training, adapter=not whole)
    return Result(done.step, done.steps, lineage.write_card(target, fields, settings.folder))


def _train(adapter: Any, job: Any, rows: Sequence[Example], settings: Settings) -> Any:
    recipe: Recipe = job.recipe
    if not recipe.is_rl:
        return adapter.train_sft(job, rows)
    engine = open_engine(load_model(recipe.judge, settings.baselines)) if recipe.judge else None
    try:
        judge = oracle_judge(engine, recipe.judge) if engine else None
        retriever, encoder = open_search(recipe, settings.data)
        rule = rule_of(recipe.reward, recipe.scorer, judge)
        return adapter.train_rl(job, rows, rule, retriever, encoder)
    finally:
        if engine:
            engine.close()


def backend(module: str) -> Any:
    """The module of a back end.

    Raises:
        UsageError: A package of it is not installed.
    """
    try:
        return importlib.import_module(f"trainers.{module}")
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("harness", "trainers", ""):
            raise
        raise missing_dependency(missing, "train", error) from error


# --- contamination ---------------------------------------------------------------------------


def contamination(
    recipe: Recipe, rows: Sequence[Example], settings: Settings, progress: Progress
) -> dict[str, int]:
    """Report test questions among the rows; task -> how many, for the card.

    Raises:
        DataError: A task of the recipe shows more than `LIMIT`, and nobody allowed it.
    """
    path = settings.folder / CONTAMINATION
    with progress.step("contamination", "looking for test questions among the rows"):
        own = recipe.data.source == "jsonl"  # then data= is that file, and no root
        sets = load_test_sets(None if own else settings.data)
        found = check(rows, sets)
    path.write_text(
        json.dumps(report(sets, found), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    for line in lines(sets, found):
        progress.say(f"  {line}")
    over = [
        task for task in expand(recipe.tasks, catalog(TASKS)) if sets.share(task, found) > LIMIT
    ]
    if over and settings.contaminated != "allow":
        raise DataError(
            f"recipe '{recipe.name}': over {100 * LIMIT:g}% of the questions of {', '.join(over)} "
            f"stand in the training rows (see {path}): leave them out, or contaminated=allow"
        )
    return sets.flagged(found)


def report(sets: QuestionSets, found: Sequence[Overlap]) -> dict[str, Any]:
    """All that was found, as JSON; nothing of the questions but ids."""
    items: dict[str, dict[str, Any]] = {}
    for overlap in found:
        of_set = items.setdefault(overlap.item.test_set, {})
        of_set[overlap.item.id] = {
            "kind": overlap.kind, "share": overlap.share, "rows": list(overlap.rows)[:20],
        }  # fmt: skip
    return {"flagged": items, "same": sets.same, "absent": list(sets.absent)}


def lines(sets: QuestionSets, found: Sequence[Overlap]) -> list[str]:
    """The report in words: sets with flagged questions, then how many there are without."""
    counts = shares(found, sets.items)
    exact = {o.item.test_set: 0 for o in found}
    for overlap in found:
        exact[overlap.item.test_set] += overlap.kind == "exact"
    said = [
        f"{name}: {flagged} of {total} test questions stand in the rows ({exact[name]} exactly)"
        for name, (flagged, total) in counts.items()
        if flagged
    ]
    clean = sum(not flagged for flagged, _ in counts.values())
    said.append(f"{clean} test sets are clean, {len(sets.absent)} tasks have no data here")
    return said


def flagged_ids(folder: Path, task: str) -> set[str]:
    """Ids of a task's flagged questions, from the report of a run.

    Raises:
        UsageError: The folder holds no report.
    """
    path = folder / CONTAMINATION
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error})") from None
    return set(data["flagged"].get(data["same"].get(task, task), {}))
