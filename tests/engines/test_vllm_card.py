"""What a card says to vLLM, checked before vLLM is imported: needs no vLLM."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from harness.engines import identity_flags, open_engine
from harness.engines.vllm import _lora_rank
from harness.engines.vllm_advice import advice
from harness.errors import UsageError
from harness.schema import Model
from tests.engines.conftest import need

FLAGS = {"dtype": "float32", "enforce_eager": True}


@pytest.fixture
def vllm_card(card: Model) -> Model:
    return dataclasses.replace(card, engine="vllm", flags=FLAGS)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"gpu_memory_utilisation": 0.5}, "did you mean gpu_memory_utilization"),
        ({"gpu_memory_utilization": 1.5}, r"must be in \(0, 1\]"),
        ({"dtype": "int4"}, "unknown dtype 'int4'"),
        ({"enforce_eager": "yes"}, "must be a bool"),
        ({"seed": True}, "must be a int"),
    ],
)
def test_a_wrong_flag_is_refused_before_anything_is_loaded(
    vllm_card: Model, flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_engine(dataclasses.replace(vllm_card, flags=flags))


def test_a_share_of_memory_is_no_part_of_a_run_and_every_other_flag_is(vllm_card: Model) -> None:
    flags = {**FLAGS, "gpu_memory_utilization": 0.5, "prefix_caching": False, "seed": 3}
    kept = identity_flags(dataclasses.replace(vllm_card, flags=flags))
    assert set(flags) - set(kept) == {"gpu_memory_utilization"}
    assert identity_flags(Model("m", "hf", flags={"dtype": "float32"})) == {"dtype": "float32"}


@pytest.mark.parametrize(("rank", "served"), [(1, 1), (2, 8), (8, 8), (100, 128), (512, 512)])
def test_an_adapter_is_served_at_the_next_rank_that_vllm_has(
    vllm_card: Model, tmp_path: Path, rank: int, served: int
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": rank}))
    assert _lora_rank(vllm_card, tmp_path) == served


@pytest.mark.parametrize("text", ["", "[]", '{"r": null}', '{"rank": 4}'])
def test_a_folder_that_is_no_adapter_is_named(vllm_card: Model, tmp_path: Path, text: str) -> None:
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(UsageError, match=r"adapter_config.json does not give the rank 'r'"):
        _lora_rank(vllm_card, tmp_path)


def test_an_adapter_of_too_high_a_rank_says_what_to_do(vllm_card: Model, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 1024}')
    with pytest.raises(UsageError, match="merge the adapter"):
        _lora_rank(vllm_card, tmp_path)


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "memory is short"),
        ("ValueError: Free memory on device cuda:0 (9/79 GiB) is less than", "memory is short"),
        ("RuntimeError: Failed to infer device type", "use engine=hf"),
        ("ValueError: World size (8) is larger than the number of available GPUs", "tensor of"),
        ("OSError: config.json", "check the card's path"),
    ],
)
def test_each_cause_has_its_next_step(cause: str, step: str) -> None:
    assert step in advice(cause)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_one_line_names_the_extra(vllm_card: Model) -> None:
    need("llamacpp")  # for the weights
    with pytest.raises(UsageError, match=r"vllm is not installed .* 'checkrail\[vllm\]'"):
        open_engine(vllm_card)
