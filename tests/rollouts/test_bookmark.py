import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engines.scripted import ScriptedEngine
from harness.errors import UsageError
from harness.retrieval.encoders import open_encoder
from harness.rollouts import encoder_name, identity
from harness.rollouts.bookmark import bookmark, closed
from harness.rollouts.driver import Driver, Job
from harness.rollouts.single_turn import single_turn
from harness.schema import Doc, Message, PolicyConfig, Sampling
from harness.scoring.bookmark import format_score, metrics, reasons

DOC = Doc("d", "How many boats cross?", ("42",))


class Speaker:
    """A model that says a text piece by piece, wherever it is asked to go on."""

    def __init__(self, text):
        self.left = text
        self.prompts = []

    def __call__(self, prompt, sampling):
        shown = bytes(i for i in prompt if isinstance(i, int) and i < 256).decode() if isinstance(
            prompt[0], int
        ) else "\n".join(f"{m.role}: {m.content}" for m in prompt)  # fmt: skip
        self.prompts.append(shown)
        if "Summarise the step" in shown:
            return f"bookmark of {shown.rpartition('Step:')[2].strip()[:24]}"
        hits = [(self.left.find(s), s) for s in sampling.stop if s in self.left]
        at, stop = min(hits, default=(len(self.left), ""))
        said, self.left = self.left[: at + len(stop)], self.left[at + len(stop) :]
        return said


def play(text, policy=bookmark, messages=None, sampling=None, **options):
    speaker = Speaker(text)
    if policy is bookmark:
        options.setdefault("encoder", "ngram")
    config = PolicyConfig(
        messages or (Message("user", DOC.question),), sampling or Sampling(max_tokens=4000),
        options=options,
    )  # fmt: skip
    driver = Driver(ScriptedEngine(speaker), encoder=open_encoder("ngram"))
    rollout = asyncio.run(driver.play(Job("t", DOC, config, policy, "r")))
    assert rollout.error is None, rollout.error
    return rollout, speaker


FULL = (
    "<think>\n<substep>The harbour has six boats.</substep>"
    " So far.\n<substep>Every boat crosses seven times.</substep>\n"
    "<reflection>How many boats does the harbour have? I want to be sure. "
    "Six.</reflection>\n<substep>6 * 7 = 42.</substep>\n</think>The answer is \\boxed{42}."
)


def test_a_reflection_goes_on_from_bookmarks_two_sentences_and_the_step_it_asks_for():
    rollout, _ = play(FULL)
    (context,) = [t for t in rollout.turns if t.kind == "environment"]
    assert context.text == (
        "<think>\n"
        "<bookmark>bookmark of The harbour has six boat</bookmark>\n"
        "<bookmark>bookmark of Every boat crosses seven</bookmark>\n"
        "<reflection>How many boats does the harbour have? I want to be sure. \n"
        "<substep>The harbour has six boats.</substep>\n"
    )
    assert context.passages == ("substep-1",)
    behind = rollout.turns[rollout.turns.index(context) + 1]
    refreshed = "".join(chr(i) for i in behind.prompt_ids)
    assert refreshed == f"user: {DOC.question}\nassistant: {context.text}"
    assert rollout.answer == FULL
    assert metrics(rollout)["compressions"] == 1
    assert metrics(rollout)["archive_size"] == 3
    assert reasons(rollout) == ()
    assert format_score(rollout) == 1.0


def test_replace_keeps_the_retrieved_bookmarks_alone():
    rollout, _ = play(FULL, variant="replace", fetch=1)
    (context,) = [t for t in rollout.turns if t.kind == "environment"]
    assert context.text == (
        "<think>\n<bookmark>bookmark of The harbour has six boat</bookmark>\n"
        "<reflection>How many boats does the harbour have? I want to be sure. "
    )


def test_reflections_are_summarised_too_where_all_is_asked_for():
    rollout, _ = play(FULL, summarise="all")
    assert metrics(rollout)["archive_size"] == 4
    rollout, _ = play("<substep>a b</substep><reflection>no end</reflection> ok", summarise="all")
    texts = [t.text for t in rollout.turns if t.kind == "summary"]
    assert texts == ["bookmark of a b", "bookmark of no end"]


def test_without_compression_the_rollout_is_the_plain_one():
    plain, _ = play(FULL, policy=single_turn)
    off, _ = play(FULL, compress=False)
    assert (off.turns, off.answer, off.finish) == (plain.turns, plain.answer, plain.finish)
    assert off.completion_tokens == plain.completion_tokens


def said(rollout):
    return [i for t in rollout.turns if t.kind == "model" for i in t.token_ids]


TEXTS = st.lists(
    st.sampled_from(
        ["<substep>", "</substep>", "<reflection>", "</reflection>", "<think>", "</think>",
         "word ", "Stop. ", "\n\n", "<", "好。", ""]
    ),
    max_size=30,
).map("".join)  # fmt: skip


@given(TEXTS, st.integers(1, 200))
def test_without_refresh_the_model_says_what_it_says_in_one_go(text, budget):
    sampling = Sampling(max_tokens=budget)
    plain, _ = play(text, policy=single_turn, sampling=sampling)
    kept, _ = play(text, sampling=sampling, refresh=False)
    assert kept.answer == plain.answer
    assert kept.finish == plain.finish
    assert said(kept) == said(plain)


@given(TEXTS, st.sampled_from(["insert", "replace"]), st.sampled_from(["substeps", "all"]))
def test_any_text_ends_with_consistent_counts(text, variant, summarise):
    rollout, _ = play(text, variant=variant, summarise=summarise, max_refreshes=3, max_archive=4)
    found = metrics(rollout)
    assert rollout.answer == text
    assert found["compressions"] <= 3
    assert found["archive_size"] <= 4
    assert 0 <= found["tag_format"] <= 1
    assert found["peak_context_tokens"] <= found["total_context_tokens"]
    for turn in rollout.turns:
        assert turn.kind != "environment" or turn.passages
    assert rollout.finish in ("stop", "length")


def test_a_substep_that_never_ends_is_a_plain_rollout():
    rollout, _ = play("<substep>on and on <reflection>what? why? </reflection> 42")
    assert [t.kind for t in rollout.turns] == ["model"]
    assert reasons(rollout) == ("unpaired_tags", "reflection_without_archive")
    assert format_score(rollout) == 0


def test_empty_and_unopened_substeps_are_not_archived():
    rollout, _ = play("<substep> </substep>x</substep><reflection>What? Why? </reflection>")
    assert {t.kind for t in rollout.turns} == {"model"}
    assert "empty_substep" in reasons(rollout)


def test_thousands_of_substeps_fill_the_archive_and_no_more():
    rollout, _ = play(
        "<substep>x</substep>" * 3000, max_archive=5, sampling=Sampling(max_tokens=10**6)
    )
    assert metrics(rollout)["archive_size"] == 5
    assert len(rollout.turns) == 11


def test_a_budget_that_ends_within_a_reflection_ends_the_rollout_as_too_long():
    text = "<substep>ab</substep><reflection>Was it ab? Or was it not ab? </reflection> done"
    rollout, _ = play(text, sampling=Sampling(max_tokens=45))
    assert rollout.finish == "length"
    assert len(said(rollout)) == 45


def test_tags_in_the_answer_behind_the_thinking_are_left_alone():
    rollout, _ = play(
        "<think><substep>ab</substep></think>See: <substep>x</substep><reflection>A b. C d. e"
    )
    assert [t.kind for t in rollout.turns] == ["model", "summary", "model", "model"]


def test_a_prompt_that_opens_a_substep_counts_as_having_said_so():
    rollout, speaker = play("six boats</substep> \\boxed{6}", prompt="bookmark")
    assert rollout.turns[0].text == "<substep>"
    assert [t.kind for t in rollout.turns] == ["environment", "model", "summary", "model"]
    assert metrics(rollout)["compressions"] == 0
    assert metrics(rollout)["tag_format"] == 1
    assert speaker.prompts[0].endswith("<substep>")


def test_a_stop_string_of_the_task_ends_the_rollout_and_is_no_part_of_it():
    rollout, _ = play(
        "<substep>ab</substep> END more", sampling=Sampling(max_tokens=99, stop=("END",))
    )
    assert rollout.answer == "<substep>ab</substep> "


def test_the_encoder_is_part_of_the_policy_and_mistakes_are_named():
    assert encoder_name("bookmark", {}) == "e5"
    assert encoder_name("bookmark", {"encoder": "ngram"}) == "ngram"
    assert encoder_name("search", {}) == ""
    for options, says in (
        ({"variant": "inset"}, "'variant' must be insert or replace"),
        ({"fetch": -1}, "'fetch' must be at least 0"),
        ({"summary_tokens": 0}, "'summary_tokens' must be at least 1"),
        ({"prompt": "nothing"}, "unknown prompt 'nothing'"),
    ):
        with pytest.raises(UsageError, match=says):
            identity("bookmark", options)


@pytest.mark.parametrize(
    ("text", "inner"),
    [("<substep> a </substep>", "a"), ("a</substep>", ""), ("<substep>a</substep>b</substep>", ""),
     ("<substep>a<substep>b</substep>", "b")],
)  # fmt: skip
def test_what_a_closing_tag_closes(text, inner):
    assert closed(text, ("<substep>", "</substep>")) == inner
