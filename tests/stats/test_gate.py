"""The printed rule, Holm, missing samples, exit codes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.gate import (
    EXIT_CODES,
    PASSING,
    RULE,
    VERDICTS,
    Case,
    GateRule,
    decide,
    exit_code,
    holm,
    holm_alpha,
    verdict,
)
from harness.stats.missing import (
    doc_range,
    missing_bounds,
    regression_stands,
    verdict_if_missing,
)
from harness.stats.paired import PairedResult, paired


def result(low: float | None, high: float | None, p: float | None = 0.001) -> PairedResult:
    delta = 0.0 if low is None or high is None else (low + high) / 2
    return PairedResult(100, 100, delta, low, high, p, None, "made up", 0.1)


def lossy(lost: int, gained: int, n: int) -> tuple[list[float], list[float]]:
    same = [1.0] * (n - lost - gained)
    return [1.0] * lost + [0.0] * gained + same, [0.0] * lost + [1.0] * gained + same


ends = st.lists(st.integers(-50, 50).map(lambda k: k / 100), min_size=2, max_size=2, unique=True)


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [
        (0.01, 0.05, 0.01, "improved"),
        (-0.02, 0.05, 0.5, "no worse"),
        (0.0, 0.05, 0.04, "no worse"),
        (-0.02, -0.01, 0.01, "slightly worse"),
        (-0.02, -0.01, 0.5, "slightly worse"),
        (-0.10, -0.01, 0.01, "regressed"),
        (-0.10, -0.05, 0.01, "regressed"),
        (-0.03, -0.01, 0.01, "regressed"),
        (-0.10, -0.01, 0.06, "inconclusive"),
        (-0.10, 0.01, 0.01, "inconclusive"),
        (-0.10, 0.00, 0.01, "inconclusive"),
        (-0.10, 0.10, 0.9, "inconclusive"),
    ],
)
def test_each_line_of_the_rule(low: float, high: float, p: float, expected: str) -> None:
    assert verdict(result(low, high, p), 0.03) == expected


def test_the_printed_rule_names_every_verdict() -> None:
    assert all(f"\n  {name} " in RULE for name in VERDICTS)
    assert set(VERDICTS) > PASSING


def test_states_come_before_figures() -> None:
    good = result(0.01, 0.05)
    assert verdict(good, 0.03, identical=True) == "identical"
    assert verdict(good, 0.03, identical=True, state="not comparable") == "not comparable"
    assert verdict(None, 0.03) == "no baseline"
    assert verdict(result(None, None, None), 0.03) == "inconclusive"


def test_a_regression_that_holm_takes_back_is_inconclusive() -> None:
    bad = result(-0.1, -0.01, 0.03)
    assert verdict(bad, 0.03) == "regressed"
    assert verdict(bad, 0.03, p_adjusted=0.06) == "inconclusive"


@given(pair=ends, margin=st.integers(0, 30).map(lambda k: k / 100), p=st.floats(0, 1))
def test_lower_is_better_turns_the_interval_round(
    pair: list[float], margin: float, p: float
) -> None:
    low, high = sorted(pair)
    name = verdict(result(low, high, p), margin)
    assert verdict(result(-high, -low, p), margin, higher_is_better=False) == name
    assert name in VERDICTS


@given(pair=ends, p=st.floats(0, 1), shift=st.integers(0, 30).map(lambda k: k / 100))
def test_a_better_interval_or_a_wider_margin_never_turns_a_pass_into_a_failure(
    pair: list[float], p: float, shift: float
) -> None:
    low, high = sorted(pair)
    if verdict(result(low, high, p), 0.03) in PASSING:
        assert verdict(result(low + shift, high + shift, p), 0.03) in PASSING
        assert verdict(result(low, high, p), 0.03 + shift) in PASSING


def test_an_interval_of_another_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"level 0.95 for alpha=0.01: call paired\(level=0.99\)"):
        verdict(result(0.0, 0.1), 0.03, alpha=0.01)


@pytest.mark.parametrize(
    ("key", "value"), [("margin", -0.1), ("alpha", 0.7), ("on_inconclusive", "maybe")]
)
def test_a_bad_setting_is_named(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key):
        GateRule("acc", **{key: value})  # type: ignore[arg-type]


def test_holm_agrees_with_statsmodels_and_skips_missing_tests() -> None:
    expected = (0.04, 0.09, 0.09, 0.025, 0.5)
    assert holm([0.01, 0.04, 0.03, 0.005, 0.5]) == pytest.approx(expected)
    assert holm([0.01, None, 0.04]) == pytest.approx((0.02, None, 0.04))
    assert holm([]) == ()
    assert holm_alpha(5) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="expected a probability"):
        holm([1.5])


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=8), alpha=st.floats(0.001, 0.2))
def test_holm_rejects_exactly_what_the_step_down_procedure_rejects(
    p: list[float], alpha: float
) -> None:
    rejected: set[int] = set()
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if (len(p) - rank) * p[i] > alpha:
            break
        rejected.add(i)
    assert {i for i, a in enumerate(holm(p)) if a is not None and a <= alpha} == rejected


def test_many_tests_in_a_gate_ask_more_of_each() -> None:
    rule = GateRule("acc")
    bad = paired(*lossy(9, 1, 200))  # p = .021
    assert decide([Case(rule, bad)]).verdicts == ("regressed",)
    quiet = [Case(rule, paired(*lossy(3, 3, 2000))) for _ in range(4)]
    outcome = decide([Case(rule, bad), *quiet])
    assert outcome.verdicts[0] == "inconclusive" and outcome.exit_code == 0
    watching = [Case(GateRule("acc", blocking=False), case.result) for case in quiet]
    assert decide([Case(rule, bad), *watching]).exit_code == 10


def test_the_range_of_a_doc_with_unscored_samples() -> None:
    assert doc_range([1.0, 0.0]) == 0.5
    assert doc_range([1.0, None, 0.0, None]) == (0.25, 0.75)
    with pytest.raises(ValueError, match="empty"):
        doc_range([])


def test_nothing_missing_needs_no_bounds() -> None:
    assert missing_bounds([1.0, 0.0], [1.0, 1.0]) is None
    with pytest.raises(ValueError, match="baseline has 2 docs, candidate 1"):
        missing_bounds([1.0, None], [1.0])


@given(
    sides=st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, None]), st.sampled_from([0.0, 1.0, None])),
        min_size=3,
        max_size=6,
    )
)
def test_every_completion_lies_between_the_bounds(
    sides: list[tuple[float | None, float | None]],
) -> None:
    base, cand = [s[0] for s in sides], [s[1] for s in sides]
    bounds = missing_bounds(base, cand)
    holes = sum(v is None for v in base + cand)
    if bounds is None:
        assert holes == 0
        return
    for fill in itertools.islice(itertools.product((0.0, 1.0), repeat=holes), 64):
        values = iter(fill)
        full = [next(values) if v is None else v for v in base + cand]
        delta = paired(full[: len(base)], full[len(base) :]).delta
        assert bounds.worst.delta - 1e-9 <= delta <= bounds.best.delta + 1e-9


def test_no_verdict_where_the_missing_samples_could_flip_it() -> None:
    base, cand = lossy(0, 0, 1000)
    holes: list[float | None] = [None] * 60
    bounds = missing_bounds(base, [*cand[60:], *holes])
    assert bounds is not None and bounds.docs == 60
    assert verdict_if_missing(bounds, 0.03) == "incomplete"
    one = missing_bounds(base, [*cand[1:], None])
    assert one is not None and verdict_if_missing(one, 0.03) == "no worse"


def test_a_regression_that_stands_outranks_missing_samples() -> None:
    base, cand = lossy(40, 2, 200)
    holes: list[float | None] = [*cand[:-5], *[None] * 5]
    bounds = missing_bounds(base, holes)
    assert bounds is not None and regression_stands(bounds, 0.03)
    case = Case(GateRule("acc"), None, missing=bounds)
    assert decide([case]).exit_code == 10
    many = missing_bounds(base, [None] * 40 + cand[40:])
    assert many is not None and not regression_stands(many, 0.03)
    outcome = decide([Case(GateRule("acc"), None, missing=many)])
    assert outcome.verdicts == ("incomplete",) and outcome.exit_code == 3


def test_a_shorter_output_is_the_lenient_case_where_lower_is_better() -> None:
    base = [100.0 + i % 7 for i in range(60)]
    cand: list[float | None] = [160.0 + i % 5 for i in range(59)] + [None]
    bounds = missing_bounds(base, cand, low=1.0, high=1024.0)
    assert bounds is not None
    assert regression_stands(bounds, 10.0, higher_is_better=False)
    rule = GateRule("tokens", margin=10.0, higher_is_better=False)
    assert decide([Case(rule, None, missing=bounds)]).verdicts == ("regressed",)


def test_a_complete_test_keeps_its_verdict_only_if_no_completion_of_others_takes_it() -> None:
    """Holm's correction must not lean on a p-value that missing samples could raise."""
    rule = GateRule("acc")
    sure = Case(rule, paired(*lossy(8, 1, 200)))  # p = .039: lost as soon as there are two tests
    base, cand = lossy(30, 0, 200)
    unsure = Case(rule, None, missing=missing_bounds(base, [None] * 30 + cand[30:]))
    outcome = decide([sure, unsure])
    assert decide([sure]).verdicts == ("regressed",)
    assert outcome.verdicts[0] == "inconclusive" and outcome.exit_code == 3


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["no worse", "improved", "identical", "slightly worse"], 0),
        (["inconclusive", "no worse"], 11),
        (["no baseline", "inconclusive"], 13),
        (["not comparable", "no baseline", "inconclusive"], 12),
        (["incomplete", "not comparable", "no baseline"], 3),
        (["regressed", "incomplete", "not comparable", "inconclusive"], 10),
    ],
)
def test_exit_codes_follow_the_documented_order(names: list[str], code: int) -> None:
    strict = GateRule("acc", on_inconclusive="fail", on_no_baseline="fail")
    for order in itertools.permutations(names):
        assert exit_code([Case(strict, None) for _ in order], order)[0] == code
    assert [c for c, _ in EXIT_CODES] == [10, 3, 12, 13, 11, 0]


def test_a_lenient_profile_and_a_test_that_does_not_block_let_through() -> None:
    lenient, watching = GateRule("acc"), GateRule("acc", blocking=False, on_inconclusive="fail")
    assert exit_code([Case(lenient, None)] * 2, ["inconclusive", "no baseline"])[0] == 0
    names = ["regressed", "not comparable", "inconclusive"]
    assert exit_code([Case(watching, None)] * 3, names)[0] == 0
    assert exit_code([Case(watching, None)], ["incomplete"])[0] == 3
