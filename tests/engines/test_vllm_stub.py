"""What the engine does around vLLM, with a stub in vLLM's place: needs no vLLM."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engines import vllm as ours
from harness.errors import EngineError, UsageError
from harness.schema import Model, Sampling


class Tokenizer:
    """Letters for ids."""

    chat_template = "plain"
    bos_token, bos_token_id, eos_token_id = None, None, 0

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(chr(97 + i) for i in ids)


def parameters(**settings: Any) -> SimpleNamespace:
    if settings.get("temperature", 0) > 2:
        raise ValueError("temperature must be in [0, 2]")
    return SimpleNamespace(**settings)


class Stub:
    """Says the next letters, waits for ever on a prompt of 9s, fails on one of 8s."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(
            get_vocab_size=lambda: 26, max_model_len=32, dtype="torch.float32"
        )
        self.aborted = 0
        self.shut = 0
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=time.sleep, args=(60,))
        self.process.start()

    async def generate(
        self, prompt: list[int], asked: Any, key: str, lora_request: Any
    ) -> AsyncGenerator[Any]:
        del key, lora_request
        if prompt[0] == 8:
            raise RuntimeError("CUDA out of memory")
        try:
            await asyncio.sleep(60 if prompt[0] == 9 else 0)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        ids = [(prompt[-1] + 1 + i) % 26 for i in range(asked.max_tokens)]
        reason, stop = "length", None
        for text in asked.stop:
            found = "".join(chr(97 + i) for i in ids).find(text)
            if found >= 0:
                ids, reason, stop = ids[: found + len(text)], "stop", text
        if prompt[0] == 7:
            reason = "abort"
        logprobs = [{i: SimpleNamespace(logprob=-0.5)} for i in ids]
        yield SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=ids, text="?", logprobs=logprobs,
                                     finish_reason=reason, stop_reason=stop)]
        )  # fmt: skip

    def shutdown(self) -> None:
        self.shut += 1
        self.process.terminate()
        self.process.join()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    stub = SimpleNamespace(
        SamplingParams=parameters,
        AsyncEngineArgs=lambda **arguments: arguments,
        AsyncLLMEngine=SimpleNamespace(from_engine_args=lambda arguments: Stub()),
    )
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=2))
    monkeypatch.setitem(sys.modules, "vllm", stub)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", kinds)  # type: ignore[arg-type]
    inputs = SimpleNamespace(tokens_input=lambda ids: ids)
    monkeypatch.setitem(sys.modules, "vllm.inputs", inputs)  # type: ignore[arg-type]
    monkeypatch.setattr(ours, "_tokenizer", lambda model, folder: Tokenizer())
    monkeypatch.setattr(ours, "_context", lambda model, folder: 32)
    (tmp_path / "model.safetensors").write_bytes(b"w")
    made = ours.VLLMEngine(Model("stub", "vllm", path=str(tmp_path)))
    yield made
    made.close()


def say(engine: Any, prompt: list[int], **sampling: Any) -> Any:
    return asyncio.run(engine.generate(prompt, Sampling(**sampling)))


def test_ids_text_and_log_probabilities_come_back(engine: Any) -> None:
    made = say(engine, [1, 2], max_tokens=3)
    assert (made.text, made.token_ids, made.finish) == ("def", (3, 4, 5), "length")
    assert (made.prompt_ids, made.logprobs) == ((1, 2), (-0.5, -0.5, -0.5))


def test_a_stop_string_is_cut_from_the_text_and_named(engine: Any) -> None:
    made = say(engine, [1], max_tokens=9, stop=("", "ef"))
    assert (made.text, made.stop_string, made.finish) == ("cd", "ef", "stop")
    assert made.completion_tokens == 4


def test_the_context_ends_a_prompt_and_a_text(engine: Any) -> None:
    assert say(engine, [1] * 32).finish == "context"
    assert say(engine, [1] * 30, max_tokens=9).completion_tokens == 2
    assert say(engine, [1] * 30, max_tokens=9).finish == "context"
    assert say(engine, [1] * 30, max_tokens=2).finish == "length"


def test_an_aborted_request_is_a_failure_and_no_text(engine: Any) -> None:
    with pytest.raises(EngineError, match="vLLM ended a request with 'abort'"):
        say(engine, [7])


def test_a_failing_request_says_what_to_do_and_the_next_one_is_served(engine: Any) -> None:
    with pytest.raises(EngineError, match=r"prompt of 1 tokens .*out of memory.*memory is short"):
        say(engine, [8])
    assert say(engine, [1], max_tokens=1).text == "c"
    assert engine._log.exists()  # its name was given away
    engine._log.unlink()


def test_a_setting_that_vllm_refuses_is_the_user_s_mistake(engine: Any) -> None:
    with pytest.raises(UsageError, match=r"stub: vLLM refuses temperature must be in \[0, 2\]"):
        say(engine, [1], temperature=3.0)


def test_a_caller_that_gives_up_frees_its_place(engine: Any) -> None:
    async def give_up() -> None:
        task = asyncio.create_task(engine.generate([9], Sampling()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    deadline = time.monotonic() + 10
    while not engine._engine.aborted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine._engine.aborted == 1


def test_an_engine_that_dies_fails_what_is_asked_and_what_comes_after(engine: Any) -> None:
    async def die() -> None:
        task = asyncio.create_task(engine.generate([9], Sampling()))
        await asyncio.sleep(0.05)
        os.kill(engine._engine.process.pid, signal.SIGKILL)
        await asyncio.wait_for(task, 20)

    with pytest.raises(EngineError, match=r"process died \(exit code -9\); memory is short"):
        asyncio.run(die())
    with pytest.raises(EngineError, match="process died"):
        say(engine, [1])
    engine._log.unlink()


def test_closing_fails_what_is_asked_and_leaves_nothing(engine: Any) -> None:
    stub = engine._engine

    async def close() -> None:
        task = asyncio.create_task(engine.generate([9], Sampling()))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(engine.close)
        await asyncio.wait_for(task, 20)

    with pytest.raises(EngineError, match="the engine was closed"):
        asyncio.run(close())
    engine.close()
    assert stub.shut == 1
    assert not stub.process.is_alive()
    assert not engine._thread.is_alive()
    assert not engine._log.exists()
    with pytest.raises(EngineError, match="the engine is closed"):
        say(engine, [1])
