"""How many outputs two runs share, and where the first one parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.codec import dumps
from harness.differences import agreement, difference, printable
from harness.records import DocSamples, RecordSet, Sample


def sample(output: str, finish: str = "stop", repeat: int = 0) -> Sample:
    return Sample(repeat, output, finish, {"m": 1.0}, (), 3)


def run(
    docs: dict[str, list[Sample]],
    *,
    temperature: float = 0.0,
    unfinished: dict[str, list[Sample]] | None = None,
) -> RecordSet:
    def all_of(given: dict[str, list[Sample]]) -> tuple[DocSamples, ...]:
        return tuple(DocSamples(i, None, None, "p", tuple(s)) for i, s in given.items())

    info = {"fingerprints": {"sampling": dumps({"temperature": temperature})}}
    rest = unfinished or {}
    return RecordSet(
        "m", "t", "run", info, all_of(docs), len(docs) + len(rest), 9, 1, all_of(rest)
    )  # fmt: skip


def test_runs_that_say_the_same_have_no_difference() -> None:
    docs = {"a": [sample("x")], "b": [sample("y")]}
    found = agreement(run(docs), run(dict(reversed(docs.items()))))
    assert (found.same, found.total, found.first) == (2, 2, None)
    assert str(found) == "t: 2 of 2 greedy outputs identical"


def test_the_first_difference_is_named_in_the_candidate_s_order() -> None:
    ours = run({"a": [sample("same")], "b": [sample("page 12, yes")], "c": [sample("p")]})
    theirs = run({"c": [sample("q")], "b": [sample("page 13")], "a": [sample("same")]})
    found = agreement(ours, theirs)
    assert (found.same, found.total) == (1, 3)
    assert found.first is not None
    assert (found.first.doc_id, found.first.repeat, found.first.position) == ("b", 0, 6)
    assert str(found) == (
        "t: 1 of 3 greedy outputs identical; first difference on doc 'b' at character 6, "
        "after 'page 1': '2, yes<stop>' against '3<stop>'"
    )


def test_a_repeat_is_compared_with_the_same_repeat() -> None:
    ours = run({"a": [sample("x"), sample("y", repeat=1)]})
    theirs = run({"a": [sample("x"), sample("z", repeat=1)]})
    found = agreement(ours, theirs)
    assert (found.same, found.total) == (1, 2)
    assert "doc 'a', repeat 1 at character 0" in str(found)


def test_another_finish_is_a_difference_at_the_end_of_the_text() -> None:
    first = agreement(run({"a": [sample("x")]}), run({"a": [sample("x", "length")]})).first
    assert first is not None
    assert (first.position, first.candidate, first.baseline) == (1, "<stop>", "<length>")


def test_only_samples_of_both_runs_count_and_unfinished_docs_count_too() -> None:
    ours = run({"a": [sample("x")], "b": [sample("x")]})
    theirs = run({"b": [sample("x")]}, unfinished={"c": [sample("x")], "a": [sample("y")]})
    assert (agreement(ours, theirs).same, agreement(ours, theirs).total) == (1, 2)
    assert agreement(ours, run({})).total == 0


def test_sampled_outputs_are_not_called_greedy() -> None:
    docs = {"a": [sample("x")]}
    assert "1 of 1 sampled outputs" in str(agreement(run(docs, temperature=0.6), run(docs)))


def test_long_and_hostile_texts_are_shown_on_one_safe_line() -> None:
    ours = sample("a" * 90 + "\n\x1b[31m\u202e" + "b" * 99)
    found = difference("d", ours, sample("a" * 90 + "\\n"))
    assert found.position == 90
    assert found.common == "…" + "a" * 24
    assert found.candidate == "\\n\\x1b[31m\\u202e" + "b" * 33 + "…"
    assert found.baseline == "\\\\n<stop>"


@given(st.text(st.characters()), st.integers(0, 20))
def test_what_is_shown_is_printable_and_says_which_text_it_was(text: str, width: int) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(printable(text, width).removesuffix("…")) <= 10 * width
    plain = shown.encode("latin-1", "backslashreplace").decode("unicode_escape")
    assert plain.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_texts_agree_before_the_position_and_differ_at_it(ours: str, theirs: str) -> None:
    at = difference("d", sample(ours), sample(theirs)).position
    assert ours[:at] == theirs[:at]
    assert at == min(len(ours), len(theirs)) or ours[at] != theirs[at]
