"""llama.cpp in this process, through xllamacpp: GGUF weights without torch.

Its server batches continuously over `parallelism.requests` slots; every call blocks, so each
slot has a thread. The server also listens on a free port of 127.0.0.1, which serves its
tokenizer and chat template here.

Greedy texts repeat exactly with one slot and `cache_prompt = false`. With more, what shares a
batch or a cached prefix changes roundings, and near ties fall either way (benchmarks/README.md).

Log-likelihood of a given text is not offered: llama.cpp's server returns no probabilities of
prompt tokens. Use engine=hf for such tasks.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from harness.engines import check_flags
from harness.engines.chat import (
    PLAIN,
    identity,
    overflow,
    plain_text,
    prompt_ids,
    split_open_turn,
    template_text,
)
from harness.engines.llama_api import completion_request, native_completion
from harness.engines.weights import fingerprint, gguf_context_length, resolve
from harness.errors import EngineError, UsageError
from harness.schema import Completion, Message, Model, Sampling

DEFAULT_SLOTS = 4
_FLAGS: dict[str, type | tuple[type, ...]] = {
    "cache_prompt": bool,
    "flash_attention": bool,
    "gpu_layers": int,
}


class LlamaCppEngine:
    """Serves a GGUF file.

    Flags of a card: `cache_prompt` (reuse the common prefix of a slot's last prompt, default
    true), `flash_attention` (default: llama.cpp decides), `gpu_layers` (default: llama.cpp
    decides).

    Args:
        model: The card. `parallelism.requests` slots (default 4) of `context_length` tokens
            each (default: the trained length) are reserved when it loads.
        threads: CPU threads; all that this process may use by default.

    Attributes:
        address: HOST:PORT of its server, which speaks OpenAI's API under /v1.

    Raises:
        UsageError: The path is no GGUF file, or a flag is unknown.
        EngineError: llama.cpp refuses the file or has too little memory.
    """

    def __init__(self, model: Model, threads: int | None = None) -> None:
        check_flags(model, _FLAGS)
        path = resolve(model)
        if path.suffix != ".gguf":
            raise UsageError(
                f"{model.name}: engine 'llamacpp' reads a .gguf file, not {path}; use engine=hf, "
                f"or convert it with llama.cpp's convert_hf_to_gguf.py"
            )
        adapter = _adapter(model)
        template = template_text(model)
        self._plain = model.chat_template == PLAIN
        self._cache_prompt = bool(model.flags.get("cache_prompt", True))
        trained = gguf_context_length(path)
        self.context_length = min(model.context_length or trained, trained)
        self.capabilities = frozenset(
            {"generate", "token_ids", "logprobs", "seed", "render", "continue"}
        )
        self.fingerprint = identity(
            "llamacpp",
            {
                "weights": fingerprint(path),
                "adapter": fingerprint(adapter) if adapter else "",
                "template": _sha(template) if template else model.chat_template,
                "context_length": self.context_length,
                "flags": dict(model.flags),
            },
        )
        slots = model.parallelism.get("requests", DEFAULT_SLOTS)
        self._server: Any = self._start(model, path, adapter, template, slots, threads)
        self.address = str(self._server.listening_address).rpartition("/")[2]
        self._host, _, port = self.address.rpartition(":")
        self._port = int(port)
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="llamacpp")
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def _start(
        self,
        model: Model,
        path: Path,
        adapter: Path | None,
        template: str | None,
        slots: int,
        threads: int | None,
    ) -> Any:
        import xllamacpp

        library = cast(Any, xllamacpp)  # a compiled module without stubs
        params = library.CommonParams()
        params.model.path = str(path)
        params.n_parallel = slots
        # Slots are a multiple of 256 tokens; `generate` holds the exact limit.
        params.n_ctx = slots * (-(-self.context_length // 256) * 256)
        params.fit_params = False  # would shrink the context silently where memory is short
        params.cache_prompt = self._cache_prompt
        params.swa_full = self._cache_prompt  # else models with sliding windows keep no prefix
        params.cache_ram_mib = 0  # copies of whole slots: measured, no gain for short prompts
        count = threads or len(os.sched_getaffinity(0))
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = count
        params.verbosity = -1  # llama.cpp writes to stderr past Python
        params.ui = False
        params.warmup = False
        if template is not None:
            params.chat_template = template
        if "gpu_layers" in model.flags:
            params.n_gpu_layers = model.flags["gpu_layers"]
        if "flash_attention" in model.flags:
            kinds = library.llama_flash_attn_type
            on = model.flags["flash_attention"]
            params.flash_attn_type = (
                kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if on else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
            )
        if adapter is not None:
            params.lora_adapters = [library.CommonAdapterLoraInfo(str(adapter), 1.0)]
        try:
            return library.Server(params)
        except RuntimeError as error:
            raise EngineError(
                f"{model.name}: llama.cpp could not load {path} with {slots} slots of "
                f"{self.context_length} tokens ({error}); lower context_length or "
                f"parallelism.requests if memory is short, else check the file"
            ) from error

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of a chat, by the template in the GGUF file unless the card names another."""
        return self._tokenize(self.render_text(messages, thinking), special=self._plain)

    def render_text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `render`."""
        if self._plain:
            return plain_text(messages)
        closed, tail = split_open_turn(messages)
        if not closed:
            return tail
        body: dict[str, Any] = {
            "messages": [{"role": m.role, "content": m.content} for m in closed],
            "add_generation_prompt": True,
        }
        if thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": thinking}
        return str(self._call("/apply-template", body)["prompt"]) + tail

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in the middle of a prompt."""
        return self._tokenize(text, special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, as completions have it."""
        return str(self._call("/detokenize", {"tokens": list(ids)})["content"])

    def _tokenize(self, text: str, *, special: bool) -> list[int]:
        body = {"content": text, "add_special": special, "parse_special": True}
        return [int(i) for i in self._call("/tokenize", body)["tokens"]]

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the server's tokenizer or template over the loopback interface."""
        with self._lock:
            if self._server is None:
                raise EngineError("the llama.cpp engine is closed")
            try:
                status, data = self._post(path, body)
            except (http.client.HTTPException, OSError):
                # The server closes idle connections; a fresh one tells that from a failure.
                self._connection = None
                try:
                    status, data = self._post(path, body)
                except (http.client.HTTPException, OSError) as error:
                    raise EngineError(f"llama.cpp {path} failed: {error}") from error
        if status != 200:
            raise EngineError(f"llama.cpp {path} answered {status}: {data[:200]!r}")
        return json.loads(data)

    def _post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port)
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    async def generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        """Continue messages or token ids.

        Raises:
            EngineError: The server refused the request, or the engine is closed.
        """
        if self._server is None:
            raise EngineError("the llama.cpp engine is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._generate, prompt, sampling)

    def _generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        ids = prompt_ids(prompt, self.render, sampling.thinking)
        room = self.context_length - len(ids)
        if room <= 0:
            return overflow(ids)
        server = self._server
        if server is None:
            raise EngineError("the llama.cpp engine is closed")
        request = completion_request(ids, sampling, room, cache_prompt=self._cache_prompt)
        reply = server.handle_completions(request)
        if "error" in reply:
            message = reply["error"].get("message", reply["error"])
            raise EngineError(f"llama.cpp refused a prompt of {len(ids)} tokens: {message}")
        return native_completion(ids, sampling, reply["__verbose"])

    async def loglikelihood(
        self, context: str, continuations: Sequence[str]
    ) -> list[tuple[float, bool]]:
        """Not available.

        Raises:
            UsageError: Always.
        """
        raise UsageError("engine 'llamacpp' has no log-likelihood: use engine=hf for this task")

    def close(self) -> None:
        """Stop the server and free the weights; idempotent."""
        with self._lock:
            server, self._server = self._server, None
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        if server is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _adapter(model: Model) -> Path | None:
    if not model.adapter:
        return None
    path = Path(model.adapter).expanduser()
    if path.suffix != ".gguf" or not path.is_file():
        raise UsageError(
            f"{model.name}: engine 'llamacpp' applies a GGUF adapter file, not {path}; use "
            f"engine=hf, or convert it with llama.cpp's convert_lora_to_gguf.py"
        )
    return path


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
