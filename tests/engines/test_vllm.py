"""vLLM with a real model; skipped where it is not installed (nox -s tests_vllm installs it)."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: nox -s tests_vllm", allow_module_level=True)

from harness.engines import open_engine  # after the skip
from harness.errors import EngineError, UsageError
from harness.schema import Message, Model, Sampling
from tests.conftest import ROOT
from tests.engines.conftest import say, say_all, user

FLAGS = {"dtype": "float32", "enforce_eager": True}
COUNTRIES = ["France", "Spain", "Italy", "Korea", "Chile", "Cuba", "Norway", "Egypt"]
PROMPTS = [user(f"What is the capital of {c}?{' Think.' * n}") for n, c in enumerate(COUNTRIES)]


def asked(card: Model, **changes: Any) -> Model:
    return dataclasses.replace(card, **{"engine": "vllm", "flags": FLAGS, **changes})


# --- what it says ----------------------------------------------------------------------------


def test_greedy_texts_do_not_depend_on_the_order_of_requests(vllm: Any) -> None:
    samplings = [Sampling(max_tokens=6 + 3 * n) for n in range(len(PROMPTS))]
    first = say_all(vllm, PROMPTS, samplings)
    second = say_all(vllm, PROMPTS[::-1], samplings[::-1])[::-1]
    alone = [say_all(vllm, [p], [s])[0] for p, s in zip(PROMPTS, samplings, strict=True)]
    assert [c.token_ids for c in first] == [c.token_ids for c in second]
    assert [c.token_ids for c in first] == [c.token_ids for c in alone]
    for one, other in zip(first, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def test_it_renders_and_answers_as_transformers_does(vllm: Any, hf: Any) -> None:
    chat = [Message("system", "Brief."), *user("Hi 列车"), Message("assistant", "Hello, I")]
    assert vllm.render(chat, None) == hf.render(chat, None)
    for prompt in PROMPTS[:3]:
        ours, theirs = say(vllm, prompt, 16), say(hf, prompt, 16)
        assert (ours.text, ours.token_ids) == (theirs.text, theirs.token_ids)
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)


def test_a_text_cut_inside_a_character_is_that_of_transformers(vllm: Any, hf: Any) -> None:
    begun = [*user("Say it."), Message("assistant", "列车长应当立即报告列车调度员列车")]
    for tokens in range(1, 5):
        ours, theirs = say(vllm, begun, tokens), say(hf, begun, tokens)
        assert (ours.token_ids, ours.text) == (theirs.token_ids, theirs.text)


def test_log_probabilities_of_sampled_tokens_are_the_model_s_own(vllm: Any) -> None:
    hot, cold = ({"temperature": t, "top_k": 1, "seed": 1} for t in (1.7, 0.2))
    ours, theirs = say(vllm, PROMPTS[0], **hot), say(vllm, PROMPTS[0], **cold)
    assert ours.token_ids == theirs.token_ids
    assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)


def test_a_sampling_that_vllm_has_not_is_the_user_s_mistake(vllm: Any) -> None:
    with pytest.raises(UsageError, match=r"smol: vLLM refuses temperature must be in \[0, 2\]"):
        say(vllm, PROMPTS[0], temperature=3.0)


@pytest.mark.parametrize("prompt", [[], [-1], [10**6]])
def test_ids_that_are_no_tokens_are_refused_and_the_engine_goes_on(
    vllm: Any, prompt: list[int]
) -> None:
    with pytest.raises(EngineError, match="token ids from 0 to 49151"):
        say(vllm, prompt)
    assert say(vllm, PROMPTS[0], 2).text


# --- log-likelihood --------------------------------------------------------------------------


def test_log_likelihoods_are_those_of_transformers(vllm: Any, hf: Any) -> None:
    asks = [
        ("The capital of France is", [" Paris", " London", " a very large city", " Paris."]),
        ("Trailing spaces move  ", ["to the continuation"]),
        ("Question: 1+1?\nAnswer:", [" A", " B", " C", " D"]),
        ("", ["Once upon a time"]),
        ("列车长应当", ["立即报告。"]),
    ]
    for context, continuations in asks:
        ours = asyncio.run(vllm.loglikelihood(context, continuations))
        theirs = asyncio.run(hf.loglikelihood(context, continuations))
        assert [v for v, _ in ours] == pytest.approx([v for v, _ in theirs], abs=2e-3)
        assert [g for _, g in ours] == [g for _, g in theirs]


def test_a_continuation_is_greedy_if_the_model_would_say_it(vllm: Any) -> None:
    ids = vllm._codec.encode("The capital of France is", special=True)
    said = say(vllm, ids, 3)
    ((value, greedy),) = asyncio.run(vllm.loglikelihood("The capital of France is", [said.text]))
    assert greedy
    assert value == pytest.approx(sum(said.logprobs or ()), abs=2e-3)


def test_a_context_that_is_too_long_loses_its_beginning(vllm: Any, hf: Any) -> None:
    context, last = vllm._codec.pair("One, two and so on. " * 400, "and")
    ((ours, _),) = asyncio.run(vllm.loglikelihood("One, two and so on. " * 400, ["and"]))
    kept = (context + last)[-511:]
    theirs = hf._parts.score(hf._model, [(kept[:-1], kept[-1:])], 512, 4096)
    assert ours == pytest.approx(theirs[0][0], abs=2e-3)
    assert asyncio.run(vllm.loglikelihood("Hi", [""])) == [(0.0, True)]


# --- its parts -------------------------------------------------------------------------------


def test_an_adapter_speaks_as_transformers_with_it_merged(
    card: Model, hf: Any, vllm: Any, safetensors: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    network = transformers.AutoModelForCausalLM.from_pretrained(safetensors)
    shape = peft.LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "v_proj"])
    adapted = peft.get_peft_model(network, shape)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    folder = tmp_path / "adapter"
    adapted.save_pretrained(folder)
    merged = open_engine(dataclasses.replace(card, adapter=str(folder)), device="cpu")
    engine = open_engine(asked(card, adapter=str(folder), chat_template="none"))
    try:
        assert engine.fingerprint != vllm.fingerprint
        assert engine.render(user("Hi"), None) != vllm.render(user("Hi"), None)
        ids = hf.render(PROMPTS[0], None)
        ours, theirs, plain = (say(e, ids, 8) for e in (engine, merged, hf))
        assert ours.token_ids == theirs.token_ids
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)
        assert ours.logprobs != pytest.approx(plain.logprobs, abs=2e-2)
    finally:
        merged.close()
        engine.close()
    engine.close()
    with pytest.raises(EngineError, match="the engine is closed"):
        say(engine, [1, 2])
    assert not engine._log.exists()


# --- when it cannot start, or dies -----------------------------------------------------------

SCRIPT = """
import asyncio, importlib.metadata, os, signal, sys
{before}
from harness.engines import open_engine
from harness.errors import EngineError
from harness.schema import Model, Sampling

if __name__ == "__main__":
    flags = {{"dtype": "float32", "enforce_eager": True}}
    card = Model("smol", "vllm", path=sys.argv[1], context_length=512, flags=flags)
    try:
        engine = open_engine(card)
        {after}
    except EngineError as error:
        print("EngineError:", error)
"""


def run(before: str, after: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    script = SCRIPT.format(before=before, after=textwrap.indent(after, " " * 8).strip())
    file = folder / "script.py"
    file.write_text(script)
    from harness.engines.weights import resolve
    from tests.engines.conftest import CARD

    return subprocess.Popen(
        [sys.executable, str(file), str(resolve(CARD))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


NO_GPU = """
stock = importlib.metadata.version
importlib.metadata.version = lambda name: stock(name).replace("+cpu", "")
"""


def test_a_machine_without_a_gpu_is_told_in_one_line_what_to_use(tmp_path: Path) -> None:
    out, err = run(NO_GPU, "pass", tmp_path).communicate(timeout=300)
    (line,) = (x for x in out.splitlines() if x.startswith("EngineError"))
    assert "vLLM could not start" in line and "engine=hf or engine=llamacpp" in line
    assert "Traceback" not in out + err


def test_too_little_memory_is_told_in_one_line_with_what_to_lower(tmp_path: Path) -> None:
    small = run("", "pass", tmp_path, VLLM_CPU_KVCACHE_SPACE="100000")
    out, err = small.communicate(timeout=300)
    (line,) = (x for x in out.splitlines() if x.startswith("EngineError"))
    assert "memory is short: lower context_length or parallelism.requests" in line
    assert "Traceback" not in out + err


def test_an_engine_that_dies_fails_its_requests_and_says_so(tmp_path: Path) -> None:
    after = """
import multiprocessing
os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
try:
    asyncio.run(engine.generate([504] * 9, Sampling(max_tokens=400)))
finally:
    engine.close()
"""
    out, err = run("", after, tmp_path).communicate(timeout=300)
    (line,) = (x for x in out.splitlines() if x.startswith("EngineError"))
    assert "smol: vLLM" in line and "died" in line
    assert "Traceback" not in out + err


def test_a_killed_harness_leaves_no_engine_behind(tmp_path: Path) -> None:
    after = """
import multiprocessing
print(*(p.pid for p in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = run("", after, tmp_path)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    (pid,) = out.split()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_nothing_is_printed_while_it_loads_works_and_ends(tmp_path: Path) -> None:
    after = "print(asyncio.run(engine.generate([504] * 9, Sampling())).finish)\nengine.close()"
    out, err = run("", after, tmp_path).communicate(timeout=300)
    assert out in ("stop\n", "length\n")
    assert err == ""
