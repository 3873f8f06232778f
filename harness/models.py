"""Model cards: baselines/NAME/card.toml -> `Model`.

A card says how to run a checkpoint and where it comes from. Adding a checkpoint is adding a
card; `python -m harness models` lists them.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import paths
from harness.errors import ConfigError, UsageError, nearest
from harness.schema import Model

CARD = "card.toml"

_KINDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "engine": str,
    "path": str,
    "adapter": str,
    "revision": str,
    "chat_template": str,
    "think_tags": list,
    "context_length": int,
    "parallelism": dict,
    "sampling": dict,
    "parent": str,
    "recipe": str,
    "training": dict,
    "tasks": list,
    "policy": str,
    "policy_options": dict,
    "flags": dict,
    "note": str,
}
_SAMPLING: dict[str, type | tuple[type, ...]] = {
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": int,
    "max_tokens": int,
    "stop": list,
    "thinking": bool,
}
_RANGES = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 10**6),
    "max_tokens": (1, 10**7),
}


def model_names(folder: Path) -> list[str]:
    """Names of all cards in a baselines folder, sorted."""
    return sorted(p.parent.name for p in folder.glob(f"*/{CARD}"))


def load_card(path: Path) -> Model:
    """Read one card.

    Raises:
        ConfigError: The file cannot be parsed, or a key is unknown, missing, of the wrong type
            or out of range; the message names file and key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    for key in ("path", "adapter"):  # "./adapter" lies beside the card
        value = data.get(key)
        if isinstance(value, str) and value.startswith("./"):
            data[key] = str(path.parent / value)
    return model_from_mapping(data, str(path))


def model_from_mapping(data: Mapping[str, Any], where: str) -> Model:
    """Validate a mapping (a parsed card, or a card with command-line changes).

    Args:
        data: Keys of `Model`.
        where: Named in errors.

    Raises:
        ConfigError: As for `load_card`.
    """
    check_keys(data, _KINDS, where)
    for key in ("name", "engine"):
        if not data.get(key):
            raise ConfigError(f"{where}: key '{key}' is missing")
    sampling = data.get("sampling", {})
    check_sampling(sampling, f"{where}: [sampling]")
    for key in ("tasks", "think_tags"):
        if not all(isinstance(item, str) for item in data.get(key, [])):
            raise ConfigError(f"{where}: '{key}' must be a list of strings")
    tags = data.get("think_tags")
    if tags is not None and len(tags) != 2:
        raise ConfigError(f"{where}: 'think_tags' must be two strings, opening and closing")
    parallelism = data.get("parallelism", {})
    for key, value in parallelism.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{where}: parallelism.{key} must be a whole number above 0")
    length = data.get("context_length")
    if length is not None and length < 1:
        raise ConfigError(f"{where}: 'context_length' must be above 0")
    fields = dict(data)
    fields["tasks"] = tuple(data.get("tasks", ()))
    fields["think_tags"] = None if tags is None else (tags[0], tags[1])
    return Model(**fields)


def check_sampling(sampling: Mapping[str, Any], where: str) -> None:
    """Check names, types and ranges of sampling settings.

    Raises:
        ConfigError: Names the key.
    """
    check_keys(sampling, _SAMPLING, where)
    for key, (low, high) in _RANGES.items():
        value = sampling.get(key)
        if value is not None and not low <= value <= high:  # also refuses NaN
            raise ConfigError(f"{where}: '{key}' is {value}, must be in [{low:g}, {high:g}]")


def check_keys(
    data: Mapping[str, Any], kinds: Mapping[str, type | tuple[type, ...]], where: str
) -> None:
    """Refuse unknown keys and wrong types.

    Raises:
        ConfigError: Names the key, with the nearest known ones or the wanted type.
    """
    for key, value in data.items():
        if key not in kinds:
            raise ConfigError(f"{where}: unknown key '{key}', {nearest(key, kinds)}")
        kind = kinds[key]
        wrong_bool = isinstance(value, bool) and kind is not bool
        if wrong_bool or not isinstance(value, kind):
            wanted = kind if isinstance(kind, type) else kind[-1]
            raise ConfigError(
                f"{where}: '{key}' must be a {wanted.__name__}, is {type(value).__name__}"
            )


def at_endpoint(model: Model, endpoint: str = "", served: str = "") -> Model:
    """A card whose model a server stands in for; tags, sampling and tasks stay the card's.

    Args:
        model: Any card with a model. The flags of its own engine are dropped.
        endpoint: Address of an OpenAI-compatible server; "" keeps that of an endpoint's card.
        served: The server's name for the model; "" lets the server's list decide.

    Raises:
        UsageError: The card has no model, or there is no endpoint.
    """
    if model.engine == "none":
        raise UsageError(f"{model.name} is a reader without a model: leave out endpoint=")
    own = dict(model.flags) if model.engine == "openai" else {}
    given = {"endpoint": endpoint, "model": served}
    flags = own | {key: value for key, value in given.items() if value}
    if not flags.get("endpoint"):
        raise UsageError(f"{model.name}: served={served} needs endpoint=http://HOST:PORT/v1")
    return dataclasses.replace(model, engine="openai", flags=flags)


def load_model(
    name: str, folder: Path = paths.BASELINES, changes: Mapping[str, Any] | None = None
) -> Model:
    """Return the model of a name, with command-line changes applied.

    Args:
        name: A card's name, or the path of a card file or of its folder.
        folder: The baselines folder.
        changes: Fields that replace the card's (path, engine, adapter, ...).

    Raises:
        UsageError: No such card; the message gives the nearest names.
        ConfigError: A mistake in the card.
    """
    path = folder / name / CARD
    direct = Path(name).expanduser()
    if "/" in name or name.endswith(".toml"):
        path = direct / CARD if direct.is_dir() else direct
    elif name in ("", ".", ".."):
        raise UsageError("model= needs a name")
    if not path.is_file():
        raise UsageError(
            f"unknown model '{name}': {nearest(name, model_names(folder))} "
            f"(a card is {folder.name}/NAME/{CARD})"
        )
    model = load_card(path)
    if not ("/" in name or name.endswith(".toml")) and model.name != name:
        raise ConfigError(f"{path}: 'name' is '{model.name}', the folder is '{name}'")
    if not changes:
        return model
    fields = {
        f.name: getattr(model, f.name)
        for f in dataclasses.fields(model)
        if getattr(model, f.name) is not None
    }
    fields |= {
        "tasks": list(model.tasks),
        "think_tags": list(model.think_tags) if model.think_tags else None,
    } | dict(changes)
    fields = {key: value for key, value in fields.items() if value is not None}
    return model_from_mapping(fields, f"{path} with command-line changes")
