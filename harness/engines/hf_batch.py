"""Continuous batching on transformers: requests join and leave a running batch.

The decode loop is our own because `generate` wants one sampling for a whole batch, keeps
finished rows until the last one ends, and copies the whole key-value cache for each token.

A batch is left-padded: all rows end at the same column, so a new token is one column for
everybody. Rows that end leave and waiting ones join in one rebuild of the cache. Prompts are
read in groups of similar length, on a CPU mostly one by one, where padding would only cost.

Each row has its own random numbers (one uniform draw a token, by inverse distribution), so a
sampled text depends on its seed alone, up to the float noise that batch mates can cause: none
to be seen in float32, near ties that fall either way in bfloat16 (benchmarks/README.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from harness.engines.codec import ChatCodec
from harness.schema import Completion, Finish, Sampling

_HEADROOM = 64  # columns added when a cache is full
_NUCLEUS = 512  # candidates tried before sorting a whole vocabulary


@dataclass(eq=False)
class Row:
    """One request in the batch.

    Attributes:
        limit: Tokens it may still add, and `limit_finish` why it ends there.
    """

    prompt: list[int]
    sampling: Sampling
    limit: int
    limit_finish: Finish
    future: Future[Completion]
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.sampling.seed)


class _RoomyLayer(DynamicLayer):
    """Keys and values of one layer, with spare columns so that a token copies only itself."""

    _room: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append columns; the stock layer would copy everything on each call."""
        del args, kwargs
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        used = self.get_seq_length()
        end = used + key_states.shape[-2]
        if self._room is None:
            # The first call is the prompt: most are rebuilt into a batch at once, so no room yet.
            self.keys, self.values = key_states, value_states
            self._room = (key_states, value_states)
            return key_states, value_states
        if end > self._room[0].shape[-2]:
            self.arrange([(self, None)], used, end + _HEADROOM)
        keys, values = self._room
        keys[:, :, used:end] = key_states
        values[:, :, used:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def forget(self) -> None:
        """Free the memory."""
        self.reset()
        self._room = None

    def arrange(
        self, parts: Sequence[tuple[_RoomyLayer, Tensor | None]], used: int, room: int
    ) -> None:
        """Become the rows of several layers, right-aligned to `used` of `room` columns.

        Args:
            parts: A layer and the indices of the rows it gives (None: all).
            used: Width of the longest row.
            room: Columns to make space for.
        """
        made: list[Tensor] = []
        for name in ("keys", "values"):
            tensors = [cast(Tensor, getattr(layer, name)) for layer, _ in parts]
            picked = [
                tensor if rows is None else tensor[rows]
                for tensor, (_, rows) in zip(tensors, parts, strict=True)
            ]
            first = picked[0]
            shape = (sum(len(part) for part in picked), first.shape[1], room, first.shape[3])
            # Zeros, not empty memory: a masked column meets a weight of 0, and 0 * NaN is NaN.
            joined = first.new_zeros(shape)
            start = 0
            for part in picked:
                width = min(part.shape[-2], used)
                joined[start : start + len(part), :, used - width : used] = part[:, :, -width:]
                start += len(part)
            made.append(joined)
        self.is_initialized = True
        self.dtype, self.device = made[0].dtype, made[0].device
        self._room = (made[0], made[1])
        self.keys, self.values = made[0][:, :, :used], made[1][:, :, :used]


class Batch:
    """Rows with their cache, and the logits of the token that each says next.

    Attributes:
        lengths: Tokens of each row in the cache; the columns before them are padding.
        layers: The cache's layers; empty if the model cannot batch.

    Args:
        model: A causal language model of transformers.
        rows: Rows whose prompts are read here, left-padded to the longest.
    """

    def __init__(self, model: Any, rows: list[Row]) -> None:
        self._model = model
        self.rows = rows
        self._cache: Cache = DynamicCache(config=model.config)
        self.layers: list[_RoomyLayer] = []
        if can_batch(model):
            self.layers = [_RoomyLayer() for _ in self._cache.layers]
            self._cache = Cache(layers=[*self.layers])
        self.lengths = [len(row.prompt) for row in rows]
        width = max(self.lengths)
        ids = torch.tensor([[0] * (width - len(row.prompt)) + row.prompt for row in rows])
        self.logits = self._forward(ids, width)

    @torch.inference_mode()
    def _forward(self, ids: Tensor, width: int) -> Tensor:
        """Feed columns; `width` is the cache's width afterwards."""
        lengths = torch.tensor(self.lengths)
        columns = torch.arange(width)
        first = width - lengths
        inputs: dict[str, Tensor] = {"input_ids": ids}
        if int(first.max()):
            inputs["attention_mask"] = (columns >= first[:, None]).long()
        positions = (columns - first[:, None])[:, -ids.shape[1] :]
        inputs["position_ids"] = positions.clamp(min=0)
        device = self._model.device
        output = self._model(
            **{name: tensor.to(device) for name, tensor in inputs.items()},
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def step(self) -> None:
        """Feed every row's last token."""
        ids = torch.tensor([[row.tokens[-1]] for row in self.rows])
        self.lengths = [length + 1 for length in self.lengths]
        self.logits = self._forward(ids, self._cache.get_seq_length() + 1)


def join(sources: Sequence[tuple[Batch, Sequence[int]]]) -> Batch | None:
    """One batch of chosen rows of several; None if no row is chosen. The sources are used up."""
    chosen = [(batch, list(keep)) for batch, keep in sources if keep]
    if not chosen:
        return None
    first, keep = chosen[0]
    if len(chosen) == 1 and len(keep) == len(first.rows):
        return first
    rows = [batch.rows[i] for batch, keep in chosen for i in keep]
    lengths = [batch.lengths[i] for batch, keep in chosen for i in keep]
    used = max(lengths)
    picks = [
        None if len(keep) == len(batch.rows) else torch.tensor(keep, device=batch.logits.device)
        for batch, keep in chosen
    ]
    # Layer by layer, so that only one layer exists twice.
    for same in zip(*(batch.layers for batch, _ in chosen), strict=True):
        same[0].arrange(list(zip(same, picks, strict=True)), used, used + _HEADROOM)
        for spent in same[1:]:
            spent.forget()
    first.rows, first.lengths = rows, lengths
    return first


def can_batch(model: Any) -> bool:
    """Whether rows of different lengths can share this model's cache.

    Sliding windows and linear attention keep other state than one column for each token; such
    models run one request at a time here.
    """
    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def groups(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Split rows into groups of similar length, each of at most `budget` padded tokens.

    A padded token costs as much as a real one, so a row also starts a new group where it is
    over a quarter longer than the group's shortest.
    """
    made: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: len(r.prompt)):
        size = len(row.prompt)
        last = made[-1] if made else []
        if last and size * (len(last) + 1) <= budget and size <= 1.25 * len(last[0].prompt) + 16:
            last.append(row)
        else:
            made.append([row])
    return made


def advance(
    rows: Sequence[Row], logits: Tensor, codec: ChatCodec, ends: frozenset[int]
) -> list[int]:
    """Draw one token for every row and settle the rows that end.

    Returns:
        Indices of the rows that go on.
    """
    tokens = logits.argmax(-1)
    for i, row in enumerate(rows):
        if row.sampling.temperature > 0:
            tokens[i] = sample(logits[i], row.sampling, row.draw.random())
    logprobs = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    going: list[int] = []
    drawn = zip(rows, tokens.tolist(), logprobs.tolist(), strict=True)
    for i, (row, token, logprob) in enumerate(drawn):
        if row.future.cancelled():
            continue
        row.tokens.append(token)
        row.logprobs.append(logprob)
        finish, stop = _ending(row, codec, ends)
        if finish is None:
            going.append(i)
        else:
            settle(row.future, completion(row, finish, stop, codec))
    return going


def sample(logits: Tensor, sampling: Sampling, uniform: float) -> int:
    """Draw a token: temperature, then top-k, then top-p, as transformers and vLLM order them.

    Args:
        logits: One row.
        sampling: `temperature` above 0.
        uniform: A number in [0, 1), the only randomness.
    """
    scaled = logits.double() / sampling.temperature
    if sampling.top_k:
        scaled, index = scaled.topk(min(sampling.top_k, len(scaled)))
        total = scaled.logsumexp(0)
    else:
        total = scaled.logsumexp(0)
        index = None
        if sampling.top_p < 1:
            few, index = scaled.topk(min(_NUCLEUS, len(scaled)))
            if float((few - total).exp().sum()) < sampling.top_p:
                few, index = scaled.sort(descending=True)
            scaled = few
    probabilities = (scaled - total).exp()
    mass = probabilities.cumsum(0)
    if sampling.top_p < 1:
        # The token that crosses top_p belongs to the nucleus.
        kept = int((mass - probabilities < sampling.top_p).sum())
        mass = mass[: max(kept, 1)]
    place = int(torch.searchsorted(mass, uniform * mass[-1], right=True))
    place = min(place, len(mass) - 1)
    return place if index is None else int(index[place])


def _ending(row: Row, codec: ChatCodec, ends: frozenset[int]) -> tuple[Finish | None, str | None]:
    if row.tokens[-1] in ends:
        return "stop", None
    stops = [text for text in row.sampling.stop if text]
    if stops:
        # A token is at least one byte, so this tail covers any stop string that ends here.
        reach = 4 * max(len(text) for text in stops) + 8
        tail = codec.decode(row.tokens[-reach:])
        if any(text in tail for text in stops):
            whole = codec.decode(row.tokens)
            hits = [(whole.find(text), text) for text in stops if text in whole]
            if hits:
                return "stop", min(hits)[1]
    if len(row.tokens) >= row.limit:
        return row.limit_finish, None
    return None, None


def completion(row: Row, finish: Finish, stop: str | None, codec: ChatCodec) -> Completion:
    """What a row's caller gets."""
    text = codec.decode(row.tokens)
    if stop is not None:
        text = text[: text.find(stop)]
    return Completion(
        text=text,
        prompt_ids=tuple(row.prompt),
        token_ids=tuple(row.tokens),
        logprobs=tuple(row.logprobs),
        finish=finish,
        stop_string=stop,
        prompt_tokens=len(row.prompt),
        completion_tokens=len(row.tokens),
    )


def settle(future: Future[Any], value: Any) -> None:
    """Give a future its result or exception, unless its caller has gone."""
    deliver: Callable[[Any], None] = (
        future.set_exception if isinstance(value, BaseException) else future.set_result
    )
    # Cancelling is atomic in `Future`, so claim it first.
    if not future.done() and future.set_running_or_notify_cancel():
        deliver(value)
