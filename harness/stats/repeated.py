"""What several samples a question say: pass@1, pass@k, maj@n, and how sure they are.

    pass@1     mean over samples and questions, with the two parts of its error
    pass@k     chance that one of k samples is right, unbiased (counts.pass_at_k), k up to n
    maj@n      share of questions whose most frequent answer is right
    fully right, fully wrong   questions with every sample right, or none

Thirty questions dominate the error of sixteen samples each: the interval over new questions is
the one to compare models with; the decoding interval only says how far another set of samples of
these same questions might be off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from harness.stats.counts import pass_at_k
from harness.stats.intervals import Estimate, VarianceParts, estimate, variance_parts

K = (1, 2, 4, 8, 16, 32, 64)
"""The k of pass@k that are shown, as far as there are samples."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Several samples a question, put together.

    Attributes:
        n: Samples of each question.
        questions: Number of questions.
        parts: pass@1 with its whole error, and the decoding part of it.
        pass_at: pass@k by k, each with its interval over new questions.
        majority: maj@n; None where no sample says what it answered.
        fully_right: Questions with every sample right.
        fully_wrong: Questions with no sample right.
    """

    n: int
    questions: int
    parts: VarianceParts
    pass_at: Mapping[int, Estimate]
    majority: Estimate | None
    fully_right: int
    fully_wrong: int


def repeated(
    right: Sequence[Sequence[float]],
    votes: Sequence[Sequence[Hashable | None]] | None = None,
    ks: Sequence[int] | None = None,
    clusters: Sequence[str] | None = None,
    level: float = 0.95,
) -> Repeated:
    """Put the samples of each question together.

    Args:
        right: 0 or 1 for each sample, shape (questions, n); every question has n samples.
        votes: What each sample answered (equal answers are equal), None for no answer.
        ks: k of pass@k; None takes those of `K` up to n.
        clusters: Source of each question, where some share one.
        level: Confidence level.

    Raises:
        ValueError: No questions, questions with different numbers of samples (some are
            missing), values other than 0 and 1, k below 1 or above n.
    """
    if not right or not right[0]:
        raise ValueError("right: no samples")
    n = len(right[0])
    for i, row in enumerate(right):
        if len(row) != n:
            raise ValueError(f"question {i} has {len(row)} samples, expected {n}: some are missing")
        if any(value not in (0, 1) for value in row):
            raise ValueError(f"question {i}: values other than 0 and 1 in {list(row)}")
    hits = [round(sum(row)) for row in right]
    chosen = [k for k in K if k <= n] if ks is None else ks
    majority = None
    if votes is not None and any(vote is not None for row in votes for vote in row):
        shares = [majority_right(row, said) for row, said in zip(right, votes, strict=True)]
        majority = estimate(shares, clusters, level=level)
    return Repeated(
        n=n,
        questions=len(right),
        parts=variance_parts([list(row) for row in right], clusters, level),
        pass_at={
            k: estimate([pass_at_k(h, n, k) for h in hits], clusters, level=level) for k in chosen
        },
        majority=majority,
        fully_right=sum(h == n for h in hits),
        fully_wrong=sum(h == 0 for h in hits),
    )


def majority_right(right: Sequence[float], votes: Sequence[Hashable | None]) -> float:
    """Whether the most frequent answer is right; a tie counts as a draw among the tied.

    Args:
        right: 0 or 1 for each sample.
        votes: What each answered; None does not vote. Without any vote nothing is right.

    Raises:
        ValueError: Different numbers of samples and votes.

    Source: Wang et al., "Self-consistency improves chain of thought reasoning in language
    models", arXiv:2203.11171.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    won = {vote for vote, count in counts.items() if count == max(counts.values())}
    correct = {vote for hit, vote in zip(right, votes, strict=True) if hit and vote is not None}
    return len(won & correct) / len(won) if won else 0.0
