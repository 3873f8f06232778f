"""Log-likelihoods on transformers: the choices of one prompt share its forward pass.

The choices of a multiple choice repeat their prompt, which is nearly all of the work. So a
context is read once, with every continuation behind it in the same row:

    context | choice 1, but its last token | choice 2, but its last token | ...

A continuation sees the context and itself, by a mask of its own, and its positions begin where
the context ends; the last token of a continuation is predicted, never read. Letters, which are
one token, add nothing to the row at all. Models whose attention takes no such mask get a row for
each continuation of more than one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness.engines.hf_batch import can_batch

_MASKABLE = ("sdpa", "eager")
_LONGEST = 8192  # tokens of a shared row: its mask grows with the square


@dataclass
class Row:
    """One sequence to read.

    Attributes:
        ids: Token ids.
        shared: Length of the context, which every continuation sees.
        spans: (start, end) of each continuation in `ids`, behind the context.
        asked: (number of the pair, tokens to predict, index of the logits of each).
    """

    ids: list[int]
    shared: int
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    asked: list[tuple[int, list[int], list[int]]] = field(
        default_factory=list[tuple[int, list[int], list[int]]]
    )

    @property
    def branches(self) -> bool:
        """Whether continuations stand side by side, so that a plain causal mask is wrong."""
        return len(self.spans) > 1

    def add(self, number: int, continuation: list[int]) -> None:
        """Put a continuation behind what is there."""
        start = len(self.ids)
        self.ids += continuation[:-1]
        if len(continuation) > 1:
            self.spans.append((start, len(self.ids)))
        places = [self.shared - 1, *range(start, len(self.ids))]
        self.asked.append((number, continuation, places))

    def positions(self) -> list[int]:
        """Position of each token: every continuation follows the context."""
        made = list(range(self.shared))
        for start, end in self.spans:
            made += range(self.shared, self.shared + end - start)
        return made

    def mask(self) -> Tensor:
        """Who sees whom, shape (tokens, tokens): the context, and what stands before in a span."""
        size = len(self.ids)
        seen = torch.ones(size, size, dtype=torch.bool).tril()
        for start, end in self.spans:
            seen[start:end, self.shared : start] = False
        return seen


@torch.inference_mode()
def score(
    model: Any, pairs: Sequence[tuple[list[int], list[int]]], limit: int, budget: int
) -> list[tuple[float, bool]]:
    """Log-likelihood of each continuation given its context, both as token ids.

    Args:
        model: A causal language model of transformers.
        pairs: A pair over the context length loses tokens on the left, as in lm-eval.
        limit: Context length in tokens.
        budget: Padded tokens of a forward pass at most (a single row may have more).

    Returns:
        Sum of log-probabilities in nats, and whether the continuation is the greedy one.
    """
    results: list[tuple[float, bool]] = [(0.0, True)] * len(pairs)
    queue = sorted(rows(pairs, limit, budget, pack=can_pack(model)), key=lambda r: len(r.ids))
    while queue:
        size = len(queue[-1].ids)
        chunk = [queue.pop()]
        while queue and size * (len(chunk) + 1) <= budget:
            chunk.append(queue.pop())
        for row, logits, offset in _logits(model, chunk):
            logprobs = logits.float().log_softmax(-1)
            for number, tokens, places in row.asked:
                wanted = torch.tensor(tokens, device=logprobs.device)
                spoken = logprobs[[place - offset for place in places]]
                total = spoken.gather(1, wanted[:, None]).sum()
                greedy = bool((spoken.argmax(-1) == wanted).all())
                results[number] = (float(total), greedy)
    return results


def can_pack(model: Any) -> bool:
    """Whether the model's attention takes any mask: full attention, computed by torch itself."""
    return can_batch(model) and model.config._attn_implementation in _MASKABLE


def rows(
    pairs: Sequence[tuple[list[int], list[int]]], limit: int, budget: int, *, pack: bool
) -> list[Row]:
    """Sequences that answer all pairs; empty continuations need none.

    Args:
        pairs: Context and continuation.
        limit: Context length: a pair over it stands alone, cut on the left.
        budget: A row that is shared does not grow beyond it.
        pack: Whether continuations may stand side by side.
    """
    made: list[Row] = []
    shared: dict[tuple[int, ...], Row] = {}
    for number, (context, continuation) in enumerate(pairs):
        if not continuation:
            continue
        if not context:
            raise ValueError("a continuation needs at least one token before it")
        if len(context) + len(continuation) > limit + 1:
            ids = (context + continuation)[-(limit + 1) : -1]
            tokens = continuation[-limit:]
            places = list(range(len(ids) - len(tokens), len(ids)))
            made.append(Row(ids, len(ids), [], [(number, tokens, places)]))
            continue
        row = shared.get(tuple(context))
        longer = len(continuation) - 1
        if row is None or (
            longer and row.spans and (not pack or len(row.ids) + longer > min(budget, _LONGEST))
        ):
            row = shared[tuple(context)] = Row(list(context), len(context))
            made.append(row)
        row.add(number, continuation)
    return made


def _logits(model: Any, chunk: Sequence[Row]) -> list[tuple[Row, Tensor, int]]:
    """Each row with its last logits, and the index in the row that they begin at."""
    size = max(len(row.ids) for row in chunk)
    padding = [size - len(row.ids) for row in chunk]
    keep = max(len(row.ids) - min(p for _, _, ps in row.asked for p in ps) for row in chunk)
    inputs = {
        "input_ids": torch.tensor([[0] * p + r.ids for p, r in zip(padding, chunk, strict=True)]),
        "position_ids": torch.tensor(
            [[0] * p + r.positions() for p, r in zip(padding, chunk, strict=True)]
        ),
    }
    if any(row.branches for row in chunk):
        seen = torch.zeros(len(chunk), 1, size, size, dtype=torch.bool)
        for i, (p, row) in enumerate(zip(padding, chunk, strict=True)):
            seen[i, 0, p:, p:] = row.mask()
            seen[i, 0].fill_diagonal_(True)  # a padded token that sees nothing would be NaN
        inputs["attention_mask"] = torch.zeros(seen.shape, dtype=model.dtype).masked_fill(
            ~seen, torch.finfo(model.dtype).min
        )
    elif any(padding):
        columns = torch.arange(size)
        inputs["attention_mask"] = (columns >= torch.tensor(padding)[:, None]).long()
    logits = model(
        **{name: tensor.to(model.device) for name, tensor in inputs.items()},
        use_cache=False,
        logits_to_keep=min(keep, size),
    ).logits
    kept = logits.shape[1]
    return [(row, logits[i], len(row.ids) - kept) for i, row in enumerate(chunk)]
