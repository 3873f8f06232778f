"""The published normal forms, and the examples that tell them apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.scoring.normal import VARIANTS, variant

APART = [  # text, R1-Searcher's form, SQuAD's
    ("L'Oréal", "l oréal", "loréal"),
    ("U.S.", "u s", "us"),
    ("1,000", "1 000", "1000"),
    ("The-Dream", "dream", "thedream"),
    ("’Allo ‘Allo´", "allo allo", "’allo ‘allo´"),
    ("snake_case", "snake case", "snakecase"),
    ("True", "yes", "true"),
    ("False", "no", "false"),
    (" True ", "true", "true"),  # only the whole text is a truth value
    ("The Who", "who", "who"),
    ("a  b\tc", "b c", "b c"),
]


@pytest.mark.parametrize(("text", "r1_searcher", "squad"), APART)
def test_each_example_has_the_form_that_its_published_code_gives_it(text, r1_searcher, squad):
    assert variant("r1_searcher").normalise(text) == r1_searcher
    for name in ("squad", "hotpotqa", "search_r1", "flashrag"):
        assert variant(name).normalise(text) == squad


def test_yes_and_no_are_closed_in_hotpotqa_flashrag_and_r1_searcher_only():
    closed = {name for name, rule in VARIANTS.items() if rule.closed}
    assert closed == {"hotpotqa", "flashrag", "r1_searcher"}


@given(st.text(), st.sampled_from(sorted(VARIANTS)))
def test_a_normal_form_is_its_own_normal_form_but_for_truth_values(text, name):
    rule = variant(name)
    once = rule.normalise(text)
    if "ı" not in text.lower() and "i̇" not in text.lower():
        assert rule.normalise(once) == once


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_target_of_articles_alone_keeps_them(name):
    assert variant(name).pair("The The", "The The") == ("the the", "the the")
    assert variant(name).pair("A B", "A") == ("a b", "a")
    assert variant(name).pair(" ? ", "?") == ("?", "?")


def test_an_unknown_form_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="r1_searcher"):
        variant("r1searcher")
