"""Prompts of policies, from prompts.toml: data, each with its source."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from harness import codec
from harness.errors import UsageError, nearest
from harness.schema import Message

FILE = Path(__file__).with_name("prompts.toml")
_FIELD = re.compile(r"\{(question|documents|thoughts|query|previous|max_searches|today)\}")
ROLES = ("system", "user", "assistant")


@cache
def prompts() -> dict[str, dict[str, str]]:
    """Every prompt by name: its roles and its source."""
    return cast("dict[str, dict[str, str]]", tomllib.loads(FILE.read_text(encoding="utf-8")))


def messages(name: str, **fields: Any) -> tuple[Message, ...]:
    """A prompt with its fields filled in, in one pass: data cannot pull in other data.

    Raises:
        UsageError: No such prompt, or it wants a field that the policy does not have.
    """
    found = _prompt(name)

    def fill(match: re.Match[str]) -> str:
        if match[1] not in fields:
            raise UsageError(f"prompt '{name}' wants {match[0]}, which this policy does not have")
        return str(fields[match[1]])

    return tuple(Message(role, _FIELD.sub(fill, found[role])) for role in ROLES if role in found)


def prompt_sha(names: Sequence[str]) -> str:
    """Hash of prompts: part of what makes a sample that sample."""
    return codec.sha([_prompt(name) for name in names])[:16]


def _prompt(name: str) -> dict[str, str]:
    if name not in prompts():
        raise UsageError(f"unknown prompt '{name}': {nearest(name, prompts())}")
    return prompts()[name]
