"""The gate: one printed rule from an interval and a margin to a verdict and an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.stats.missing import MissingBounds
    from harness.stats.paired import PairedResult

VERDICTS = (
    "identical",
    "improved",
    "no worse",
    "slightly worse",
    "regressed",
    "inconclusive",
    "not comparable",
    "no baseline",
    "incomplete",
)
PASSING = frozenset({"identical", "improved", "no worse", "slightly worse"})
"""Verdicts that let a checkpoint through; `slightly worse` is within the margin."""

State: TypeAlias = Literal["not comparable", "no baseline", "incomplete"]

RULE = """\
Delta is candidate minus baseline, paired by doc, turned so that more is better; its interval
is two-sided at 1 - alpha. The first line that holds gives the verdict.
  not comparable   a held field differs
  no baseline      nothing to compare with
  incomplete       samples are missing, and they could change the verdict
  identical        the records are equal byte for byte
  improved         the interval lies above 0
  slightly worse   the interval lies below 0, yet above -margin
  no worse         the interval lies above -margin
  regressed        the interval lies below 0, reaches -margin or beyond, and the test rejects
                   at alpha after Holm's correction over the gate
  inconclusive     anything else, also where clusters are too few for an interval
Each tail of the interval holds alpha / 2, so P(regressed | no change) and
P(passed | true delta = -margin) are both at most alpha, with slack for discreteness. Passing
needs no correction: a checkpoint passes only if every blocking test does.
"""

EXIT_CODES = (
    (10, "a blocking test regressed, and no missing sample can change that"),
    (3, "samples are missing; the same command resumes"),
    (12, "a blocking test is not comparable"),
    (13, "no baseline where the gate demands one"),
    (11, "inconclusive where the gate says that fails"),
    (0, "passed"),
)
"""Exit codes with their meaning, by precedence: the first that applies is returned."""


@dataclass(frozen=True, slots=True)
class GateRule:
    """What a gate asks of one metric of one task.

    Attributes:
        metric: Name of the metric.
        margin: Largest drop that is tolerated, in the metric's unit, 0 or more.
        alpha: Bound on either error, in (0, .5).
        blocking: Whether its verdict counts for the exit code.
        on_inconclusive: "fail" turns an inconclusive verdict into exit code 11.
        on_no_baseline: "fail" turns a missing baseline into exit code 13.
        higher_is_better: False for lengths, searches and error rates.

    Raises:
        ValueError: A value out of range, named.
    """

    metric: str
    margin: float = 0.03
    alpha: float = 0.05
    blocking: bool = True
    on_inconclusive: Literal["warn", "fail"] = "warn"
    on_no_baseline: Literal["warn", "fail"] = "warn"
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        _check(self.margin, self.alpha)
        for key, value in (
            ("on_inconclusive", self.on_inconclusive),
            ("on_no_baseline", self.on_no_baseline),
        ):
            if value not in ("warn", "fail"):
                raise ValueError(f"{key}={value!r}: expected warn or fail")


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a gate, ready to be judged.

    Attributes:
        rule: What is asked.
        result: The comparison of the docs both have, None where there is none. Its level
            has to be 1 - rule.alpha.
        identical: The records are equal byte for byte.
        state: Why there can be no verdict, if so.
        missing: Best and worst case over the unscored samples; None if none is missing.
    """

    rule: GateRule
    result: PairedResult | None
    identical: bool = False
    state: State | None = None
    missing: MissingBounds | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A gate's answer.

    Attributes:
        verdicts: One per case, in order.
        p_adjusted: Holm's p-value per case, None where there was no test.
        exit_code: See EXIT_CODES.
        reason: What the exit code says.
    """

    verdicts: tuple[str, ...]
    p_adjusted: tuple[float | None, ...]
    exit_code: int
    reason: str


def verdict(
    result: PairedResult | None,
    margin: float,
    identical: bool = False,
    alpha: float = 0.05,
    *,
    p_adjusted: float | None = None,
    higher_is_better: bool = True,
    state: State | None = None,
) -> str:
    """Apply RULE to one comparison.

    Args:
        result: The comparison, from `paired(..., level=1 - alpha)`; None without a baseline.
        margin: Largest tolerated drop, 0 or more, in the metric's unit.
        identical: The records are equal byte for byte.
        alpha: Bound on either error.
        p_adjusted: Two-sided p after Holm; None: the result's own, for a gate of one test.
        higher_is_better: False for lengths and error rates.
        state: Why there can be no verdict, if so.

    Returns:
        One of VERDICTS.

    Raises:
        ValueError: A margin or alpha out of range, or an interval of another level.
    """
    _check(margin, alpha)
    if state is not None:
        return state
    if identical:
        return "identical"
    if result is None:
        return "no baseline"
    if abs(result.level - (1 - alpha)) > 1e-9:
        raise ValueError(
            f"interval of level {result.level} for alpha={alpha}: call paired(level={1 - alpha:g})"
        )
    if result.low is None or result.high is None:
        return "inconclusive"
    low, high = result.low, result.high
    if not higher_is_better:
        low, high = -high, -low
    if low > 0:
        return "improved"
    if low > -margin:
        return "slightly worse" if high < 0 else "no worse"
    p = result.p_value if p_adjusted is None else p_adjusted
    if high < 0 and p is not None and p <= alpha:
        return "regressed"
    return "inconclusive"


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Holm's step-down adjusted p-values, in the order given.

    Args:
        p_values: One per test; None where there was no test, which does not count.

    Raises:
        ValueError: A p-value outside [0, 1].

    Source: Holm (1979).
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(known):
        if not 0 <= p <= 1:
            raise ValueError(f"p_values[{i}]={p}: expected a probability")
        running = max(running, min(1.0, (len(known) - rank) * p))
        adjusted[i] = running
    return tuple(adjusted)


def holm_alpha(tests: int, alpha: float = 0.05) -> float:
    """The level that Holm's first step asks of one test of a gate: alpha / tests."""
    if tests < 1:
        raise ValueError(f"tests={tests}: expected at least 1")
    return alpha / tests


def decide(cases: Sequence[Case]) -> Outcome:
    """Judge every case and give the exit code of the gate.

    Holm runs over the blocking tests, and apart from them over the others, so that watching
    one metric more costs the gate no power. Where samples are missing, the verdict is the
    one that holds whether all of them are right or all wrong, else `incomplete`; for Holm
    such a test counts as rejecting only if its most lenient case does, so a regression
    found beside it stands whatever the missing samples turn out to be.

    Raises:
        ValueError: What `verdict` raises.
    """
    raw = [_lenient_p(case) for case in cases]
    adjusted: list[float | None] = [None] * len(cases)
    for blocking in (True, False):
        family = [i for i, case in enumerate(cases) if case.rule.blocking is blocking]
        for i, p in zip(family, holm([raw[i] for i in family]), strict=True):
            adjusted[i] = p
    verdicts = [_judge(case, p) for case, p in zip(cases, adjusted, strict=True)]
    code, reason = exit_code(cases, verdicts)
    return Outcome(tuple(verdicts), tuple(adjusted), code, reason)


def exit_code(cases: Sequence[Case], verdicts: Sequence[str]) -> tuple[int, str]:
    """Map verdicts to the exit code, by the precedence of EXIT_CODES.

    A case that is not blocking never changes the code, except that missing samples anywhere
    leave the run incomplete.

    Args:
        cases: The gate's tests.
        verdicts: Their verdicts, as `decide` gives them.
    """
    codes: set[int] = {0}
    for case, name in zip(cases, verdicts, strict=True):
        if name == "incomplete" or case.missing is not None:
            codes.add(3)
        if not case.rule.blocking:
            continue
        if name == "regressed":
            codes.add(10)
        elif name == "not comparable":
            codes.add(12)
        elif name == "no baseline" and case.rule.on_no_baseline == "fail":
            codes.add(13)
        elif name == "inconclusive" and case.rule.on_inconclusive == "fail":
            codes.add(11)
    return next((code, reason) for code, reason in EXIT_CODES if code in codes)


def _ends(case: Case, missing: MissingBounds) -> tuple[PairedResult, PairedResult]:
    """The lenient and the strict case: every missing sample right, or wrong."""
    if case.rule.higher_is_better:
        return missing.best, missing.worst
    return missing.worst, missing.best


def _lenient_p(case: Case) -> float | None:
    """What a case brings to Holm: 1 where missing samples could take its loss away."""
    if case.state is not None or case.identical:
        return None
    if case.missing is None:
        return None if case.result is None else case.result.p_value
    lenient, _ = _ends(case, case.missing)
    loss = lenient.delta < 0 if case.rule.higher_is_better else lenient.delta > 0
    return lenient.p_value if loss else 1.0


def _judge(case: Case, p_adjusted: float | None) -> str:
    def rule(result: PairedResult | None, p: float | None) -> str:
        return verdict(
            result,
            case.rule.margin,
            case.identical,
            case.rule.alpha,
            p_adjusted=p,
            higher_is_better=case.rule.higher_is_better,
            state=case.state,
        )

    if case.missing is None:
        return rule(case.result, p_adjusted)
    lenient, strict = _ends(case, case.missing)
    name = rule(lenient, p_adjusted)
    return name if name == rule(strict, strict.p_value) or name == "regressed" else "incomplete"


def _check(margin: float, alpha: float) -> None:
    if not margin >= 0:
        raise ValueError(f"margin={margin}: expected the tolerated drop, 0 or more")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha={alpha}: expected an error rate between 0 and .5")
