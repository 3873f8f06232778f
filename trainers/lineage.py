"""What a run leaves behind: a model card with its lineage, and the curve beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import codec
from harness.errors import UsageError
from harness.models import CARD, load_card
from harness.schema import Model
from trainers.log import CURVE
from trainers.recipe import Recipe

ADAPTER, WEIGHTS, RUN = "adapter", "weights", "run.json"


def may_write(folder: Path, recipe: Recipe) -> None:
    """Refuse to put a new checkpoint over a card that another recipe, or a person, made.

    Raises:
        UsageError: The name is taken.
    """
    path = folder / CARD
    if path.is_file():
        card = load_card(path)
        if card.recipe != recipe.name or not card.training:
            raise UsageError(
                f"name={folder.name}: {path} is another checkpoint's card: give another name="
            )


def card_of(
    parent: Model, recipe: Recipe, name: str, training: Mapping[str, Any], *, adapter: bool
) -> dict[str, Any]:
    """The new card: the parent's way of running, with other weights.

    Args:
        parent: What was trained.
        recipe: How.
        name: Of the new checkpoint.
        training: Noted under [training].
        adapter: Whether an adapter lies beside the card; else whole weights do.
    """
    own = parent.engine in ("hf", "vllm")  # others read no such weights
    fields: dict[str, Any] = {
        "name": name,
        "engine": parent.engine if own else "hf",
        "path": parent.path if adapter else f"./{WEIGHTS}",
        "adapter": f"./{ADAPTER}" if adapter else "",
        "revision": parent.revision if adapter else "",
        "chat_template": parent.chat_template,
        "think_tags": list(parent.think_tags) if parent.think_tags else None,
        "context_length": parent.context_length,
        "parent": parent.name,
        "recipe": recipe.name,
        "tasks": list(recipe.tasks or parent.tasks),
        "policy": parent.policy,
        "note": recipe.about,
        "flags": dict(parent.flags) if own else {},
        "policy_options": dict(parent.policy_options),
        "parallelism": dict(parent.parallelism),
        "sampling": dict(parent.sampling),
        "training": dict(training),
    }
    return {key: value for key, value in fields.items() if value not in (None, "", {}, [])}


def write_card(folder: Path, fields: Mapping[str, Any], run: Path) -> Path:
    """Write card and curve; the card is read back, so `eval` takes it at once."""
    folder.mkdir(parents=True, exist_ok=True)
    if (run / CURVE).is_file():
        shutil.copyfile(run / CURVE, folder / CURVE)
    path = folder / CARD
    path.write_text(toml(fields), encoding="utf-8")
    load_card(path)
    return path


def toml(fields: Mapping[str, Any]) -> str:
    """Plain values first, then a table a mapping (two levels at most)."""
    plain = [f"{k} = {_value(v)}" for k, v in fields.items() if not isinstance(v, Mapping)]
    tables: list[str] = []
    for name, table in fields.items():
        if isinstance(table, Mapping):
            tables += ["", f"[{name}]", *(f"{_key(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join([*plain, *tables]) + "\n"


def _key(key: object) -> str:
    text = str(key)
    return text if text.replace("_", "").replace("-", "").isalnum() else json.dumps(text)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


# --- is this folder this run's? ---------------------------------------------------------------


def identity(recipe: Recipe, parent: str, rows: str) -> dict[str, str]:
    """What a run is: a stopped one goes on only as itself.

    Args:
        recipe: With its settings.
        parent: Fingerprint of the weights (and adapter) it starts from.
        rows: Fingerprint of the rows.
    """
    return {"recipe": codec.sha(repr(recipe)), "parent": parent, "rows": rows}


def claim(folder: Path, wanted: Mapping[str, str]) -> None:
    """Take a run folder, or find that it is this run's already.

    Raises:
        UsageError: It belongs to a run with another recipe, parent or rows.
    """
    path = folder / RUN
    if path.is_file():
        have: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        other = [key for key, value in wanted.items() if have.get(key) != value]
        if other:
            raise UsageError(
                f"{folder} holds a run with other {', '.join(other)}: give another name=, or "
                f"fresh=true to start over"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(wanted), indent=2) + "\n", encoding="utf-8")
