"""The llama.cpp engine: what it has that the other has not."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.engines import open_engine
from harness.errors import EngineError, UsageError
from harness.schema import Model
from tests.engines.conftest import need, say, user


def test_it_has_no_log_likelihood_and_says_who_has(llamacpp: Any) -> None:
    assert "loglikelihood" not in llamacpp.capabilities
    with pytest.raises(UsageError, match="use engine=hf"):
        asyncio.run(llamacpp.loglikelihood("a", [" b"]))


def test_only_gguf_weights_and_adapters_are_taken(card: Model, tmp_path: Path) -> None:
    llama = dataclasses.replace(card, engine="llamacpp")
    with pytest.raises(UsageError, match=r"reads a \.gguf file"):
        open_engine(dataclasses.replace(llama, path=str(tmp_path)))
    need("llamacpp")
    with pytest.raises(UsageError, match=r"convert_lora_to_gguf\.py"):
        open_engine(dataclasses.replace(llama, adapter=str(tmp_path)))


def test_a_file_that_llama_cpp_refuses_is_named(card: Model, tmp_path: Path) -> None:
    need("llamacpp")
    from harness.engines.weights import resolve

    cut = tmp_path / "cut.gguf"
    cut.write_bytes(resolve(card).read_bytes()[: 1 << 20])
    llama = dataclasses.replace(card, engine="llamacpp", path=str(cut))
    with pytest.raises(EngineError, match=r"cannot read the GGUF header|could not load"):
        open_engine(llama)


def test_an_adapter_changes_output_and_fingerprint(
    llamacpp: Any, card: Model, tmp_path: Path
) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install checkrail[hf]")
    np = pytest.importorskip("numpy")
    draw = np.random.default_rng(0)
    path = tmp_path / "adapter.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 16.0)
    for layer in range(4):
        name = f"blk.{layer}.attn_v.weight.lora_"
        writer.add_tensor(name + "a", draw.normal(size=(2, 576)).astype("float32"))
        writer.add_tensor(name + "b", draw.normal(size=(192, 2)).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    llama = dataclasses.replace(card, engine="llamacpp", adapter=str(path))
    tuned = open_engine(llama)
    prompt = user("What is the capital of France?")
    assert say(tuned, prompt, 1).logprobs != say(llamacpp, prompt, 1).logprobs
    assert tuned.fingerprint != llamacpp.fingerprint
    tuned.close()


def test_llama_cpp_is_silent(card: Model, capfd: pytest.CaptureFixture[str]) -> None:
    need("llamacpp")
    engine = open_engine(dataclasses.replace(card, engine="llamacpp"))
    say(engine, user("Hi"), 2)
    engine.close()
    assert capfd.readouterr() == ("", "")
