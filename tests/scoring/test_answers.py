"""Answers are found as the published code of each dialect finds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.scoring.answers import EXTRACTORS, extract

TWO = "<answer>one</answer> no, <answer> two </answer>"


def test_r1_searcher_stops_at_the_first_closing_tag_and_keeps_white_space():
    assert extract(TWO, "r1_searcher") == "one"
    assert extract("<answer>no <answer> yes </answer>", "r1_searcher") == " yes "


def test_search_r1_and_flashrag_take_the_last_pair_stripped():
    assert extract(TWO, "search_r1") == extract(TWO, "flashrag") == "two"
    assert extract("<answer>a <answer>b</answer>", "search_r1") == "a <answer>b"


@pytest.mark.parametrize("dialect", ["r1_searcher", "search_r1", "flashrag"])
@pytest.mark.parametrize(
    "text", ["", "Paris", "<answer>Paris", "Paris</answer>", "</answer><answer>"]
)
def test_without_both_tags_there_is_no_answer(text, dialect):
    assert extract(text, dialect) is None


def test_self_ask_reads_what_follows_the_last_answer_is():
    text = "Intermediate answer is: Lyon.\nSo the final answer is: Paris.\nNote"
    assert extract(text, "self_ask") == extract(text, "ircot") == "Paris"
    assert extract("Paris", "self_ask") is None


def test_search_o1_reads_the_last_box_with_balanced_braces():
    assert (
        extract(r"\boxed{a} then \boxed{\text{Paris} {x}} end", "search_o1") == r"\text{Paris} {x}"
    )
    assert extract(r"\boxed{Paris", "search_o1") is None


def test_a_plain_answer_is_the_whole_output():
    assert extract(" Paris\n", "plain") == "Paris"
    assert extract(" \n", "plain") is None


@given(
    st.lists(
        st.sampled_from(["<answer>", "</answer>", "x", " ", "answer is", "\\boxed{", "}", "\n"])
    ),
    st.sampled_from(sorted(EXTRACTORS)),
)
def test_an_answer_is_part_of_its_output(pieces, dialect):
    text = "".join(pieces)
    answer = extract(text, dialect)
    assert answer is None or answer in text


@pytest.mark.parametrize("dialect", ["r1_searcher", "search_r1", "flashrag"])
def test_a_hundred_thousand_open_tags_are_read_in_one_pass(dialect):
    tags = "<answer>" * 100_000
    assert extract(tags + "x</answer>" + tags, dialect).endswith("x")


def test_an_unknown_dialect_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="search_r1"):
        extract("", "searchr1")
