"""vLLM: many requests on one or several GPUs, with LoRA adapters and prefix caching.

Written against vLLM 0.32 (`vllm.v1.engine.async_llm`). vLLM runs its engine in a process of its
own; here are one event loop in a thread, which talks to it, and a guard, which ends it if this
process is killed. What those processes print goes to a file that is kept if something fails.

Greedy texts depend on batch mates: kernels, cached prefixes and batch shapes round differently,
and near ties fall either way (benchmarks/README.md).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import itertools
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import tempfile
import threading
from collections.abc import Iterable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from harness.engines import OPERATIONAL, check_flags
from harness.engines.chat import identity, overflow, template_text
from harness.engines.codec import ChatCodec, CodecEngine, dtype_of
from harness.engines.servant import Guard, output_to, reason, root_cause
from harness.engines.vllm_advice import advice
from harness.engines.weights import fingerprint, resolve, safetensors_from_gguf
from harness.errors import EngineError, UsageError
from harness.schema import Completion, Finish, Message, Model, Sampling

DEFAULT_REQUESTS = 64
_SEED_RANGE = 2**63  # vLLM keeps seeds in 64 bits with a sign
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM has kernels for
_FLAGS: dict[str, type | tuple[type, ...]] = {
    "dtype": str,
    "quantization": str,
    "kv_cache_dtype": str,
    "enforce_eager": bool,
    "prefix_caching": bool,
    "seed": int,
    "trust_remote_code": bool,
    "gpu_memory_utilization": (float, int),
}


class VLLMEngine(CodecEngine):
    """Serves weights through vLLM's asynchronous engine.

    Flags of a card that can change a text, and are therefore part of a run's identity:
    `dtype` (float32, bfloat16, float16; default "auto": as stored, but half precision for weights
    stored in float32), `quantization` (a method of vLLM, for weights that do not name theirs),
    `kv_cache_dtype` (default "auto"), `enforce_eager` (no compiled graphs: starts faster, runs
    slower, rounds differently; default false), `prefix_caching` (default true), `seed` (of
    requests that bring none; default 0), `trust_remote_code` (default false).

    Not part of it, as it only decides how many requests fit: `gpu_memory_utilization` (share of
    each GPU's memory in (0, 1], default vLLM's). Nor is `parallelism`, which says how a run is
    spread over hardware: `tensor` GPUs hold the weights together, `requests` run at once
    (default 64).

    A LoRA adapter is applied beside the weights, not merged into them as transformers does here.

    Args:
        model: The card.

    Raises:
        UsageError: A flag, the dtype or the adapter is wrong.
        EngineError: vLLM cannot start: no GPU, too little memory, weights that it does not serve.
    """

    def __init__(self, model: Model) -> None:
        check_flags(model, _FLAGS)
        flags = dict(model.flags)
        dtype = dtype_of(model)
        share = flags.get("gpu_memory_utilization")
        if share is not None and not 0 < share <= 1:
            raise UsageError(f"{model.name}: gpu_memory_utilization is {share}, must be in (0, 1]")
        template = template_text(model)
        path = resolve(model)
        adapter = Path(model.adapter).expanduser().resolve() if model.adapter else None
        adapter_print = fingerprint(adapter) if adapter else ""
        rank = _lora_rank(model, adapter) if adapter else 0
        # Both are read when vLLM is imported: nothing is reported to its makers, and its log has
        # what an error message needs.
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")
        self._name = model.name
        handle, log = tempfile.mkstemp(prefix="checkrail-vllm-", suffix=".log")
        os.close(handle)
        self._log, self._log_is_named = Path(log), False
        self._closed = True
        self._gate = threading.Lock()
        before = set(multiprocessing.active_children())
        try:
            with output_to(self._log):
                # By name: type checkers run where vLLM is not installed.
                self._vllm: Any = importlib.import_module("vllm")
                self._inputs: Any = importlib.import_module("vllm.inputs")
                kinds: Any = importlib.import_module("vllm.sampling_params").RequestOutputKind
                self._final = kinds.FINAL_ONLY
                folder = safetensors_from_gguf(path) if path.suffix == ".gguf" else path
                self._codec = ChatCodec(model, _tokenizer(model, folder), template)
                self._engine: Any = self._start(model, folder, dtype, rank)
        except (ModuleNotFoundError, UsageError, EngineError):
            self._log.unlink(missing_ok=True)
            raise
        except Exception as error:  # vLLM has no common base for what can go wrong here
            raise EngineError(
                self._explain(f"vLLM could not start with {path}", reason(error, self._log))
            ) from error
        logging.getLogger("vllm").setLevel(logging.CRITICAL)  # errors are raised, once, below
        processes = [p for p in multiprocessing.active_children() if p not in before]
        self._guard = Guard(p.pid for p in processes)
        self._lora = None
        if adapter:
            lora: Any = importlib.import_module("vllm.lora.request")
            self._lora = lora.LoRARequest(adapter.name or "adapter", 1, str(adapter))
        config = self._engine.model_config
        self._vocabulary = int(config.get_vocab_size())
        self.context_length = int(config.max_model_len)
        self.capabilities = frozenset(
            {"generate", "loglikelihood", "token_ids", "logprobs", "seed", "render", "continue"}
        )
        self.fingerprint = identity(
            "vllm",
            {
                "weights": fingerprint(path),
                "adapter": adapter_print,
                "dtype": str(config.dtype).removeprefix("torch."),
                "template": hashlib.sha256(self._codec.template.encode()).hexdigest(),
                "context_length": self.context_length,
                "flags": {
                    k: v for k, v in flags.items() if k not in ("dtype", *OPERATIONAL["vllm"])
                },
            },
        )
        self._numbers = itertools.count()
        self._going: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="vllm-engine", daemon=True
        )
        self._closed, self._death = False, ""
        self._thread.start()
        threading.Thread(target=self._watch, args=(processes,), daemon=True).start()

    def _start(self, model: Model, folder: Path, dtype: str, rank: int) -> Any:
        flags = dict(model.flags)
        arguments: dict[str, Any] = {
            "model": str(folder),
            "dtype": dtype,
            "max_model_len": _context(model, folder),
            "max_num_seqs": model.parallelism.get("requests", DEFAULT_REQUESTS),
            "tensor_parallel_size": model.parallelism.get("tensor", 1),
            "enable_prefix_caching": bool(flags.get("prefix_caching", True)),
            "enforce_eager": bool(flags.get("enforce_eager", False)),
            "seed": int(flags.get("seed", 0)),
            "trust_remote_code": bool(flags.get("trust_remote_code", False)),
            "disable_log_stats": True,
        }
        for name in ("quantization", "kv_cache_dtype", "gpu_memory_utilization"):
            if name in flags:
                arguments[name] = flags[name]
        if rank:
            arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
        return self._vllm.AsyncLLMEngine.from_engine_args(self._vllm.AsyncEngineArgs(**arguments))

    async def generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        """Continue messages or token ids.

        Raises:
            UsageError: A sampling setting that vLLM refuses (a temperature above 2, say).
            EngineError: The engine failed, or is closed.
        """
        ids = self._prompt_ids(prompt, sampling.thinking)
        room = self.context_length - len(ids)
        if room <= 0:
            return overflow(ids)
        output = await self._ask(
            ids,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=max(min(sampling.max_tokens, room), 1),
            seed=None if sampling.seed is None else sampling.seed % _SEED_RANGE,
            stop=[text for text in sampling.stop if text],
            logprobs=0,  # of the chosen token alone
        )
        return self._completion(ids, sampling, output.outputs[0])

    def _completion(self, ids: list[int], sampling: Sampling, output: Any) -> Completion:
        tokens = tuple(int(i) for i in output.token_ids)
        stop = output.stop_reason if isinstance(output.stop_reason, str) else None
        finish: Finish = "stop"
        if output.finish_reason == "length":
            finish = "length" if len(tokens) >= sampling.max_tokens else "context"
        elif output.finish_reason != "stop":
            raise EngineError(
                f"{self._name}: vLLM ended a request with '{output.finish_reason}'; "
                f"the same command asks it again"
            )
        # Decoded here, all at once: the same ids give the same text as through transformers.
        text = self._codec.decode(tokens)
        if stop is not None:
            cut = text.find(stop)
            text = output.text if cut < 0 else text[:cut]
        logprobs = tuple(
            float(row[token].logprob) for row, token in zip(output.logprobs, tokens, strict=False)
        )
        return Completion(
            text=text,
            prompt_ids=tuple(ids),
            token_ids=tokens,
            logprobs=logprobs if len(logprobs) == len(tokens) else None,
            finish=finish,
            stop_string=stop,
            prompt_tokens=len(ids),
            completion_tokens=len(tokens),
        )

    async def loglikelihood(
        self, context: str, continuations: Sequence[str]
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities of each continuation, and whether it is the greedy one.

        Tokens are cut as lm-eval's HFLM cuts them. What is over the context is lost on the left,
        one token earlier than elsewhere, as vLLM keeps room for one to generate.
        """
        pairs = [self._codec.pair(context, text) for text in continuations]
        return list(await asyncio.gather(*(self._score(*pair) for pair in pairs)))

    async def _score(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        ids = (context + continuation)[-(self.context_length - 1) :]
        scored = min(len(continuation), len(ids) - 1)
        if not scored:
            return 0.0, True
        output = await self._ask(
            ids, temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False
        )
        rows = zip(output.prompt_logprobs[-scored:], ids[-scored:], strict=True)
        chosen = [row[token] for row, token in rows]
        return sum(float(c.logprob) for c in chosen), all(c.rank == 1 for c in chosen)

    async def _ask(self, ids: list[int], **settings: Any) -> Any:
        try:
            parameters = self._vllm.SamplingParams(output_kind=self._final, **settings)
        except Exception as error:  # vLLM's own type, not a ValueError
            raise UsageError(f"{self._name}: vLLM refuses {str(error)[:300]}") from None
        with self._gate:  # nothing may be sent behind the end
            if self._closed:
                raise EngineError(f"{self._name}: the engine is closed")
            if self._death:
                raise EngineError(self._death)
            future = asyncio.run_coroutine_threadsafe(self._collect(ids, parameters), self._loop)
        return await asyncio.wrap_future(future)

    async def _collect(self, ids: list[int], parameters: Any) -> Any:
        """One request, in the engine's own loop; cancelling it frees its place in the batch."""
        task = asyncio.current_task()
        assert task is not None
        self._going.add(task)
        last: Any = None
        prompt = self._inputs.tokens_input(ids)
        try:
            async for output in self._engine.generate(
                prompt, parameters, str(next(self._numbers)), lora_request=self._lora
            ):
                last = output
        except asyncio.CancelledError:
            if self._closed:
                raise EngineError(f"{self._name}: the engine was closed") from None
            if self._death:
                raise EngineError(self._death) from None
            raise
        except Exception as error:  # whatever it is, the caller must hear of it
            what = f"vLLM failed on a prompt of {len(ids)} tokens"
            raise EngineError(self._explain(what, reason(error, self._log))) from error
        finally:
            self._going.discard(task)
        return last

    def _watch(self, processes: Sequence[BaseProcess]) -> None:
        """Fail what is asked when the engine dies: vLLM lets its first request wait for ever."""
        if not processes:  # it may live elsewhere, and is then vLLM's to watch
            return
        ended = multiprocessing.connection.wait([p.sentinel for p in processes])
        for process in (p for p in processes if p.sentinel in ended):
            process.join(5)  # its exit code comes a moment after its end
        with self._gate:
            if self._closed:
                return
            codes = ", ".join(str(p.exitcode) for p in processes if p.exitcode)
            cause = root_cause(self._log) or f"exit code {codes}"
            self._death = self._explain("vLLM's engine process died", cause)
            asyncio.run_coroutine_threadsafe(_cancel(self._going), self._loop)

    def close(self) -> None:
        """End the engine's processes and free the GPUs; idempotent."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel(self._going), self._loop).result()
        self._engine.shutdown()
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._engine = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._guard.dismiss()
        if not self._log_is_named:  # nobody was told to look there
            self._log.unlink(missing_ok=True)

    def _explain(self, what: str, cause: str) -> str:
        """One line: what failed, why, what to do about it, and where the log is."""
        self._log_is_named = True
        return f"{self._name}: {what} ({cause}); {advice(cause)}; its log is {self._log}"


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    going = [*tasks]
    for task in going:
        task.cancel()
    if going:
        await asyncio.wait(going, timeout=10)


async def _cancel_others() -> None:
    """End what vLLM itself runs in the loop; its `shutdown` only asks for that."""
    await _cancel(asyncio.all_tasks() - {asyncio.current_task()})


def _tokenizer(model: Model, folder: Path) -> Any:
    from transformers import AutoTokenizer

    remote = {"trust_remote_code": True} if model.flags.get("trust_remote_code") else {}
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, **remote)


def _context(model: Model, folder: Path) -> int:
    """The card's context length, at most the trained one."""
    from transformers import AutoConfig

    remote = {"trust_remote_code": True} if model.flags.get("trust_remote_code") else {}
    config: Any = AutoConfig.from_pretrained(folder, local_files_only=True, **remote)
    trained = int(config.get_text_config().max_position_embeddings)
    return min(model.context_length or trained, trained)


def _lora_rank(model: Model, adapter: Path) -> int:
    """The smallest rank vLLM knows that holds an adapter's.

    Raises:
        UsageError: The adapter's configuration cannot be read, or its rank is too high.
    """
    file = adapter / "adapter_config.json"
    try:
        rank = int(json.loads(file.read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{model.name}: {file} does not give the rank 'r' of a LoRA adapter ({error}); "
            f"give a PEFT adapter folder"
        ) from None
    for known in _LORA_RANKS:
        if rank <= known:
            return known
    raise UsageError(
        f"{model.name}: {file} has rank {rank}, vLLM serves up to {_LORA_RANKS[-1]}: "
        f"merge the adapter into the weights, or use engine=hf"
    )
