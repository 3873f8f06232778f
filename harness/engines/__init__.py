"""Engines: what serves a checkpoint. One module per kind, imported when a card asks for it.

    engine = open_engine(load_card(path))
    completion = await engine.generate([Message("user", "Hello")], Sampling(max_tokens=32))

Adding an engine is one module with a class whose first argument is a `Model`, and one line in
`ENGINES`.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from harness.errors import UsageError, missing_dependency, nearest
from harness.schema import Engine, Model

ENGINES: dict[str, tuple[str, str, str]] = {
    "hf": ("harness.engines.hf", "HFEngine", "hf"),
    "llamacpp": ("harness.engines.llamacpp", "LlamaCppEngine", "llamacpp"),
    "vllm": ("harness.engines.vllm", "VLLMEngine", "vllm"),
    "openai": ("harness.engines.openai", "OpenAIEngine", ""),
    "scripted": ("harness.engines.scripted", "ScriptedEngine", "test"),
}
"""Name on a card -> module, class, and the extra that brings its packages ("" for none)."""

CAN = {
    "generate": tuple(ENGINES),
    "continue": ("hf", "vllm", "llamacpp", "openai (served by vLLM or llama.cpp)"),
    "loglikelihood": ("hf", "vllm", "openai (served by vLLM)"),
}
"""Capability -> engines to name where another one lacks it."""

OPERATIONAL: dict[str, frozenset[str]] = {"vllm": frozenset({"gpu_memory_utilization"})}
"""Flags that cannot change a text; all others are part of a run's identity."""


def open_engine(model: Model, **settings: Any) -> Engine:
    """Load the engine that a card names.

    Args:
        model: The card.
        **settings: Passed to the engine's class (device, max_batch, ...).

    Raises:
        UsageError: The engine, a flag or the weights do not exist, or a package is missing.
        EngineError: The weights could not be loaded.
    """
    if model.engine not in ENGINES:
        hint = nearest(model.engine, ENGINES)
        raise UsageError(f"{model.name}: unknown engine '{model.engine}', {hint}")
    module_name, class_name, extra = ENGINES[model.engine]
    try:
        engine_class = getattr(importlib.import_module(module_name), class_name)
        return cast(Engine, engine_class(model, **settings))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "harness":
            raise
        raise missing_dependency(missing, extra, error) from error


def identity_flags(model: Model) -> dict[str, Any]:
    """The flags of a card that are part of a run's identity."""
    left_out = OPERATIONAL.get(model.engine, frozenset())
    return {name: value for name, value in model.flags.items() if name not in left_out}


def check_flags(model: Model, known: dict[str, type | tuple[type, ...]]) -> None:
    """Refuse flags that the card's engine does not have, or of the wrong type.

    Raises:
        UsageError: Names the flag, with the nearest known ones.
    """
    for name, value in model.flags.items():
        if name not in known:
            raise UsageError(
                f"{model.name}: engine '{model.engine}' has no flag '{name}', "
                f"{nearest(name, known)}"
            )
        kind = known[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = kind if isinstance(kind, type) else kind[0]
            raise UsageError(
                f"{model.name}: flag '{name}' must be a {wanted.__name__}, is {value!r}"
            )
