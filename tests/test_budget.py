import pytest

from harness.budget import at_budget, over_budget
from harness.errors import UsageError
from harness.records import DocSamples, RecordSet, Sample


def records(*tokens):
    docs = tuple(
        DocSamples(f"d{i}", None, None, "p", (
            Sample(0, "x", "stop", {"accuracy": 1.0, "output_tokens": 5.0}, (), n),))
        for i, n in enumerate(tokens)
    )  # fmt: skip
    info = {"fingerprints": {"scorer": "numeric@1"}}
    return RecordSet("m", "t", "run", info, docs, len(docs), len(docs), 1)


def test_a_sample_over_budget_has_no_answer_and_keeps_its_length():
    cut = at_budget(records(10, 11), 10)
    assert [d.mean("accuracy") for d in cut.docs] == [1, 0]
    assert [d.mean("output_tokens") for d in cut.docs] == [5, 5]
    assert over_budget(cut) == (1, 2)


def test_a_budget_that_all_keep_changes_nothing():
    assert at_budget(records(10, 11), 11) == records(10, 11)


@pytest.mark.parametrize(
    ("tokens", "budget", "says"), [(None, 5, "nobody counted"), (5, 0, "at least 1")]
)
def test_uncounted_tokens_and_empty_budgets_are_named(tokens, budget, says):
    with pytest.raises(UsageError, match=says):
        at_budget(records(tokens), budget)
