from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scoring import tagged
from harness.scoring.tagged import parse, parse_pages


@pytest.mark.parametrize(
    "text",
    [
        "<answer>调度</answer><page>5</page>",
        "<answer> 调度 </answer>\n\n<page> 5 </page>\n",
        "  <answer>调度</answer> \t\n <page>第5页</page>",
        "<think>\n\n</think>\n\n<answer>调度</answer>\n<page>5</page>",
        "<think>页码是 5。</think><answer>调度</answer><page>5</page>",
        "\ufeff<answer>调度</answer>\u200b<page>5</page>",
    ],
)
def test_both_tags_once_and_nothing_else_is_well_formed(text: str) -> None:
    parsed = parse(text)
    assert (parsed.answer, parsed.pages, parsed.reasons) == ("调度", (5,), ())
    assert parsed.well_formed


@pytest.mark.parametrize(
    "text",
    [
        "Sure! <answer>a</answer><page>5</page>",
        "<answer>a</answer><page>5</page> I hope this helps.",
        "<answer>a</answer> is on <page>5</page>",
        "```\n<answer>a</answer>\n<page>5</page>\n```",
        "<think>x</think>so: <answer>a</answer><page>5</page>",
        f"<answer>a</answer><page>5, because {'of the plan ' * 9}</page>",
    ],
)
def test_anything_more_is_over_output(text: str) -> None:
    parsed = parse(text)
    assert parsed.answer == "a"
    assert parsed.reasons == ("over_output",)
    assert not parsed.well_formed


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("", ("bad_format", "missing_answer", "missing_page")),
        ("调度，第5页", ("bad_format", "missing_answer", "missing_page")),
        ("<answer>a</answer>", ("bad_format", "missing_page")),
        ("<page>5</page>", ("bad_format", "missing_answer")),
        ("<answer>a<page>5</page>", ("bad_format", "missing_answer")),
        ("<answer>a</answer><page>5", ("bad_format", "missing_page")),
        ("<answer> </answer><page>5</page>", ("bad_format", "missing_answer")),
        ("<page>5</page><answer>a</answer>", ("bad_format",)),
        ("<answer>a</answer><page>five</page>", ("unreadable_page",)),
        ("<answer><page>5</page></answer>", ("bad_format", "missing_answer")),
        ("＜answer＞a＜/answer＞", ("bad_format", "missing_answer", "missing_page")),
        ("<аnswer>a</аnswer><page>5</page>", ("over_output", "bad_format", "missing_answer")),
        ("<Answer>a</Answer><page>5</page>", ("over_output", "bad_format", "missing_answer")),
        (
            "<think>open <answer>a</answer>",
            ("bad_format", "missing_answer", "missing_page"),
        ),
    ],
)
def test_a_missing_or_misplaced_tag_is_named(text: str, reasons: tuple[str, ...]) -> None:
    assert parse(text).reasons == reasons


@pytest.mark.parametrize(
    "text",
    [
        "<answer>a</answer><page>5</page>" * 2,
        "<answer>a</answer><answer>a</answer><page>5</page>",
        "<answer>a</answer><page>5</page><page>5</page>",
        "<answer><answer>a</answer></answer><page>5</page>",
        "<answer>a</answer></answer><page>5</page>",
        "<answer>a</answer><page>5</page> ok? <answer>a</answer><page>5</page>",
    ],
)
def test_the_same_tag_twice_is_repeated_output(text: str) -> None:
    parsed = parse(text)
    assert parsed.reasons[0] == "repeated_output"
    assert not parsed.well_formed


def test_without_tags_of_its_own_only_an_empty_thought_is_taken_off() -> None:
    good = "<answer>a</answer><page>5</page>"
    assert parse(f"<think>\n</think>{good}", None).well_formed
    assert parse(f"<think>hm</think>{good}", None).reasons == ("over_output",)


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("5", (5,)),
        (" 5. ", (5,)),
        ("第5页", (5,)),
        ("page 5", (5,)),
        ("Page: ５", (5,)),
        ("第十二页", (12,)),
        ("四十页", (40,)),
        ("一百零三", (103,)),
        ("5, 6", (5, 6)),
        ("5、6和5", (5, 6)),
        ("5-7", (5, 7)),
        ("", ()),
        ("unknown", ()),
        ("一个好的答案", ()),
        ("9" * 5000, ()),
    ],
)
def test_page_numbers_are_read_in_any_dress(text: str, pages: tuple[int, ...]) -> None:
    assert parse_pages(text) == pages


PIECES = ["<answer>", "</answer>", "<page>", "</page>", "<think>", "</think>", "5", "页", " ", "\n"]


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_parses_with_reasons_of_the_vocabulary(text: str) -> None:
    parsed = parse(text)
    assert list(parsed.reasons) == [r for r in tagged.REASONS if r in parsed.reasons]
    assert parsed.well_formed == (not set(parsed.reasons) - {"unreadable_page"})
    assert parsed.answer is None or parsed.answer in text
    if parsed.well_formed:
        assert parsed.answer
        assert parsed.page_text


@given(st.text(alphabet=st.characters(exclude_characters="<>"), min_size=1), st.integers(0, 999))
def test_what_is_written_in_the_format_is_read_back(answer: str, page: int) -> None:
    parsed = parse(f"<answer>{answer}</answer>\n<page>{page}</page>")
    assert parsed.pages == (page,)
    assert (parsed.answer or "").split() == "".join(tagged.visible(answer)).split()


@pytest.mark.parametrize("junk", ["<answer>", "<page></answer>", "<", "<think>", "页" * 9])
def test_a_megabyte_of_tags_is_no_obstacle(junk: str) -> None:
    assert not parse(junk * (1_000_000 // len(junk))).well_formed
