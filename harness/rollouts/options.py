"""Settings of policies: a dataclass each, checked in one place.

    @takes(RagOptions)
    def rag(doc, config): ...
        options = read(rag, config.options)

A wrong key or value is a one-line `UsageError`, raised before any model is loaded.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from harness.errors import UsageError, nearest
from harness.schema import Policy

P = TypeVar("P", bound=Callable[..., Any])
T = TypeVar("T")
Reader = Callable[[str, Mapping[str, Any]], Any]

Prompts = Callable[[Mapping[str, Any]], Sequence[str]]

_READERS: dict[Callable[..., Any], Reader] = {}
_PROMPTS: dict[Callable[..., Any], Prompts] = {}
_NAMES: dict[Callable[..., Any], tuple[str, ...]] = {}


def takes(
    reader: type[Any] | Reader,
    prompts: Sequence[str] | Prompts = (),
    kinds: Sequence[type[Any]] = (),
) -> Callable[[P], P]:
    """Say what a policy's options and prompts are.

    Args:
        reader: A dataclass, or a function (policy name, options).
        prompts: Names in prompts.toml, or a function of the options.
        kinds: Dataclasses whose fields the options are, where `reader` is a function.
    """

    def own(given: Mapping[str, Any]) -> Sequence[str]:
        return prompts(given) if callable(prompts) else prompts

    def dataclass_of(name: str, given: Mapping[str, Any]) -> Any:
        return checked(typing.cast("type[Any]", reader), given, name)

    def mark(policy: P) -> P:
        _PROMPTS[policy] = own
        shapes = (reader,) if isinstance(reader, type) else kinds
        _NAMES[policy] = tuple(f.name for kind in shapes for f in dataclasses.fields(kind))
        _READERS[policy] = dataclass_of if isinstance(reader, type) else reader
        return policy

    return mark


def read(policy: Policy, given: Mapping[str, Any]) -> Any:
    """The options of a policy, checked; a policy that declares none takes none.

    Raises:
        UsageError: Unknown option or bad value; names the policy and the option.
    """
    name = getattr(policy, "__name__", "?")
    if policy not in _READERS:
        if given:
            raise UsageError(f"policy '{name}' has no options, got '{next(iter(given))}'")
        return None
    return _READERS[policy](name, given)


def option_names(policy: Policy) -> tuple[str, ...]:
    """What a policy's options are called."""
    return _NAMES.get(policy, ())


def prompts_of(policy: Policy, given: Mapping[str, Any]) -> Sequence[str]:
    """Names of the prompts that a policy renders by itself."""
    return _PROMPTS[policy](given) if policy in _PROMPTS else ()


def checked(kind: type[T], given: Mapping[str, Any], policy: str) -> T:
    """Make a dataclass of options.

    Raises:
        UsageError: Unknown key, wrong type, or a value that the dataclass refuses (ValueError).
    """
    values = {key: value_of(kind, key, value, policy) for key, value in given.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise UsageError(f"policy '{policy}': {error}") from None


def value_of(kind: type[Any], key: str, value: Any, policy: str) -> Any:
    """One option, with lists as tuples.

    Raises:
        UsageError: The dataclass has no such field, or it is of another type.
    """
    known = [f.name for f in dataclasses.fields(kind)]
    if key not in known:
        raise UsageError(f"policy '{policy}': unknown option '{key}': {nearest(key, known)}")
    wanted = typing.get_type_hints(kind)[key]
    if typing.get_origin(wanted) is tuple:
        texts: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
        size = None if Ellipsis in typing.get_args(wanted) else len(typing.get_args(wanted))
        if all(isinstance(t, str) for t in texts) and size in (None, len(texts)):
            return tuple(texts)
        raise UsageError(f"policy '{policy}': option '{key}' must be a list of texts")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise UsageError(
            f"policy '{policy}': option '{key}' must be {wanted.__name__}, is {value!r}"
        )
    return value
