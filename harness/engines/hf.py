"""transformers in this process: safetensors or GGUF weights, LoRA adapters, log-likelihoods.

One worker thread owns the model. `generate` and `loglikelihood` hand it their requests and
wait; it batches what is there (see hf_batch.py and hf_score.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import queue
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.engines import check_flags
from harness.engines.chat import identity, overflow, template_text
from harness.engines.codec import ChatCodec, CodecEngine, dtype_of
from harness.engines.weights import fingerprint, resolve, safetensors_from_gguf
from harness.errors import EngineError
from harness.schema import Completion, Message, Model, Sampling

if TYPE_CHECKING:
    from harness.engines.hf_batch import Batch, Row

DEFAULT_BATCH = 16
_WINDOW = 0.005  # seconds an idle worker waits for more requests to begin with
_BUDGET = {"cpu": 1024, "cuda": 16384}  # padded prompt tokens in one forward pass
_SCORE_BUDGET = {"cpu": 4096, "cuda": 32768}
_FLAGS: dict[str, type | tuple[type, ...]] = {
    "dtype": str,
    "attention": str,
    "trust_remote_code": bool,
}

_Score = tuple[list[tuple[list[int], list[int]]], "Future[list[tuple[float, bool]]]"]


class HFEngine(CodecEngine):
    """Serves weights through transformers.

    Flags of a card: `dtype` (float32, bfloat16, float16; default "auto": as stored, which for
    GGUF is float32), `attention` (an attention implementation of transformers, default "sdpa"),
    `trust_remote_code` (default false).

    A LoRA adapter is merged in float32 before the weights are cast to `dtype`.

    Args:
        model: The card.
        device: "cpu", "cuda", ...; default: a GPU if there is one.
        dtype: Overrides the flag, and is part of the fingerprint like it.
        max_batch: Rows in the running batch; default `parallelism.requests`, else 16.
        loaded: Network and tokenizer that are in memory already (a model in training): nothing
            is read, and the fingerprint says nothing of their weights.

    Raises:
        UsageError: A flag or the dtype is unknown.
        EngineError: transformers cannot load the weights.
    """

    def __init__(
        self,
        model: Model,
        device: str | None = None,
        dtype: str | None = None,
        max_batch: int | None = None,
        loaded: tuple[Any, Any] | None = None,
    ) -> None:
        check_flags(model, _FLAGS)
        wanted = dtype_of(model, dtype)
        template = template_text(model)
        path = resolve(model) if loaded is None else Path()
        adapter = Path(model.adapter).expanduser() if model.adapter and loaded is None else None
        adapter_print = fingerprint(adapter) if adapter else ""

        import torch

        # These need torch when they are imported, this module must not.
        from harness.engines import hf_batch, hf_score

        self._parts: Any = hf_batch
        self._scorer: Any = hf_score
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        folder = safetensors_from_gguf(path) if path.suffix == ".gguf" else path
        try:
            self._model, tokenizer = loaded or _load(model, folder, adapter, device, wanted)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            reason = str(error).strip().partition("\n")[0][:300]
            raise EngineError(
                f"{model.name}: transformers could not load {path}"
                f"{f' with adapter {adapter}' if adapter else ''} on {device} ({reason}); check "
                f"the folder, free memory, or pass dtype=bfloat16"
            ) from error
        self._codec = ChatCodec(model, tokenizer, template)
        self._name = model.name
        self._ends = _end_ids(self._model, tokenizer)
        self._vocabulary = int(self._model.get_input_embeddings().num_embeddings)
        trained = int(self._model.config.get_text_config().max_position_embeddings)
        self.context_length = min(model.context_length or trained, trained)
        self.capabilities = frozenset(
            {"generate", "loglikelihood", "token_ids", "logprobs", "seed", "render", "continue"}
        )
        self.fingerprint = identity(
            "hf",
            {
                "weights": fingerprint(path) if loaded is None else "in memory",
                "adapter": adapter_print,
                "dtype": str(self._model.dtype).removeprefix("torch."),
                "template": hashlib.sha256(self._codec.template.encode()).hexdigest(),
                "context_length": self.context_length,
                "flags": {k: v for k, v in model.flags.items() if k != "dtype"},
            },
        )
        rows = max_batch or model.parallelism.get("requests", DEFAULT_BATCH)
        self._max_batch = rows if hf_batch.can_batch(self._model) else 1
        kind = "cpu" if device == "cpu" else "cuda"
        self._budget, self._score_budget = _BUDGET[kind], _SCORE_BUDGET[kind]
        self._inbox: queue.SimpleQueue[Row | _Score | None] = queue.SimpleQueue()
        self._waiting: list[Row] = []
        self._scores: list[_Score] = []
        self._closed = False
        self._gate = threading.Lock()
        self._worker = threading.Thread(target=self._work, name="hf-engine", daemon=True)
        self._worker.start()

    async def generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        """Continue messages or token ids.

        Raises:
            EngineError: The model failed (out of memory, say), or the engine is closed.
        """
        ids = self._prompt_ids(prompt, sampling.thinking)
        room = self.context_length - len(ids)
        if room <= 0:
            return overflow(ids)
        future: Future[Completion] = Future()
        limit = min(sampling.max_tokens, room)
        why = "length" if limit == sampling.max_tokens else "context"
        self._send(self._parts.Row(ids, sampling, max(limit, 1), why, future))
        return await asyncio.wrap_future(future)

    async def loglikelihood(
        self, context: str, continuations: Sequence[str]
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities of each continuation, and whether it is the greedy one.

        Tokens are cut as lm-eval's HFLM cuts them: spaces at the end of the context move to the
        continuation, and the two are encoded together.
        """
        pairs = [self._codec.pair(context, text) for text in continuations]
        future: Future[list[tuple[float, bool]]] = Future()
        self._send((pairs, future))
        return await asyncio.wrap_future(future)

    def _send(self, item: Row | _Score) -> None:
        with self._gate:  # nothing may enter the inbox behind the end mark
            if self._closed:
                raise EngineError(f"{self._name}: the engine is closed")
            self._inbox.put(item)

    def close(self) -> None:
        """Let the worker end after its current step and free the weights; idempotent."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._inbox.put(None)
        self._worker.join()
        self._model = None

    # --- the worker thread -------------------------------------------------------------------

    def _work(self) -> None:
        batch: Batch | None = None
        going: list[int] = []
        while self._collect(idle=not going):
            rows = [*(batch.rows if batch else [])]
            room = self._max_batch - len(going)
            admitted, self._waiting = self._waiting[:room], self._waiting[room:]
            try:
                self._score()
                batch = self._regroup(batch, going, admitted)
                going = []
                if batch is not None:
                    batch.step()
                    going = self._advance(batch)
                    batch = batch if going else None  # an idle engine holds no cache
            except Exception as error:  # whatever it is, the callers must hear of it
                failed = EngineError(f"{self._name}: {_explain(error)}")
                self._fail([*rows, *admitted], failed)
                batch, going = None, []
        closed = EngineError(f"{self._name}: the engine was closed")
        self._fail([*(batch.rows if batch else []), *self._waiting], closed)
        for _, future in self._scores:
            self._parts.settle(future, closed)

    def _collect(self, *, idle: bool) -> bool:
        """Empty the inbox, waiting if there is nothing else to do; False at the end."""
        wait = idle and not self._waiting
        while True:
            try:
                item = self._inbox.get(block=wait)
            except queue.Empty:
                return True
            if item is None:
                return False
            if isinstance(item, tuple):
                self._scores.append(item)
            else:
                self._waiting.append(item)
            if wait:
                time.sleep(_WINDOW)
                wait = False

    def _score(self) -> None:
        """Answer all log-likelihood requests at once."""
        jobs, self._scores = self._scores, []
        if not jobs:
            return
        every = [pair for pairs, _ in jobs for pair in pairs]
        try:
            values = self._scorer.score(self._model, every, self.context_length, self._score_budget)
        except Exception as error:  # as in _work
            for _, future in jobs:
                failed = EngineError(f"{self._name}: {_explain(error)}")
                self._parts.settle(future, failed)
            return
        for pairs, future in jobs:
            self._parts.settle(future, values[: len(pairs)])
            values = values[len(pairs) :]

    def _regroup(self, batch: Batch | None, going: list[int], admitted: list[Row]) -> Batch | None:
        """Read the prompts of new rows and put them beside those that go on."""
        sources = [(batch, going)] if batch is not None else []
        wanted = [row for row in admitted if not row.future.done()]
        for rows in self._parts.groups(wanted, self._budget):
            fresh = self._parts.Batch(self._model, rows)
            sources.append((fresh, self._advance(fresh)))
        return self._parts.join(sources)

    def _advance(self, batch: Batch) -> list[int]:
        return self._parts.advance(batch.rows, batch.logits, self._codec, self._ends)

    def _fail(self, rows: list[Row], error: EngineError) -> None:
        for row in rows:
            self._parts.settle(row.future, error)


def _load(
    model: Model, folder: Path, adapter: Path | None, device: str, dtype: str
) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    options: dict[str, Any] = {"local_files_only": True}
    if model.flags.get("trust_remote_code"):
        options["trust_remote_code"] = True
    if dtype == "auto":
        stored = AutoConfig.from_pretrained(folder, **options).dtype
        target = stored if isinstance(stored, torch.dtype) else torch.float32
    else:
        target = getattr(torch, dtype)
    network: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32 if adapter else target,
        attn_implementation=str(model.flags.get("attention", "sdpa")),
        **options,
    )
    if adapter:
        from peft import PeftModel

        with warnings.catch_warnings():  # peft and transformers about each other's names
            warnings.simplefilter("ignore", FutureWarning)
            merged: Any = PeftModel.from_pretrained(network, str(adapter))
        network = merged.merge_and_unload().to(target)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **options)
    return network.to(device).eval(), tokenizer


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a turn: the generation config's and the tokenizer's."""
    ends: set[int] = set()
    for value in (model.generation_config.eos_token_id, tokenizer.eos_token_id):
        if isinstance(value, list):
            ends.update(int(i) for i in value)
        elif value is not None:
            ends.add(int(value))
    return frozenset(ends)


def _explain(error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0][:300]
    if "out of memory" in reason or "allocate memory" in reason:
        return f"out of memory ({reason}); lower parallelism.requests or context_length"
    return f"{type(error).__name__}: {reason}"
