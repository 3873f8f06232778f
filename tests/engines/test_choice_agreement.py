"""Log-likelihood through the whole harness chooses what lm-eval's own hf model chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines.conftest import need


@pytest.mark.data
def test_twenty_questions_get_the_same_answers_from_lm_evals_own_model(
    data_root: Path, hf: Any
) -> None:
    from benchmarks.choice_agreement import measure, report

    found = measure(20, "mmlu_ll", "marketing", chat=True, data=str(data_root), engine=hf)
    assert len(found.ours) == len(found.theirs) == 20
    assert found.different == [], report(found)
    assert found.accuracy[0] == found.accuracy[1]
    assert found.largest_gap < 1e-3


@pytest.mark.soak
@pytest.mark.data
def test_two_hundred_korean_questions_get_the_same_answers(data_root: Path) -> None:
    need("hf")
    from benchmarks.choice_agreement import margin, measure, report

    found = measure(200, data=str(data_root))
    assert len(found.ours) == 200
    for doc in found.different:  # a tie may fall either way: sums in another order
        assert margin(found.ours[doc]) <= 2 * found.largest_gap, report(found)
    assert found.largest_gap < 1e-3
