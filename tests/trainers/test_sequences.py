import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EngineError
from harness.schema import Rollout, Turn
from trainers.sequences import TokenSequence, sequences


def model(prompt, said):
    return Turn("model", "", tuple(prompt), tuple(said))


def rollout(*turns, **more):
    return Rollout("d", 0, turns, "", **more)


SHOWN = Turn("environment", "documents")


def test_a_single_turn_is_one_sequence_of_the_model_alone():
    assert sequences(rollout(model([1, 2], [3, 4]))) == [TokenSequence((1, 2), (3, 4), (1, 1))]


def test_what_the_environment_shows_has_no_weight():
    turns = (model([1, 2], [3, 4]), SHOWN, model([1, 2, 3, 4, 8, 9], [5]))
    assert sequences(rollout(*turns)) == [TokenSequence((1, 2), (3, 4, 8, 9, 5), (1, 1, 0, 0, 1))]


def test_tokens_that_the_driver_took_back_are_left_out():
    turns = (model([1, 2], [3, 4, 7]), SHOWN, model([1, 2, 3, 4, 8, 9], [5]))
    assert sequences(rollout(*turns)) == [TokenSequence((1, 2), (3, 4, 8, 9, 5), (1, 1, 0, 0, 1))]


def test_a_refreshed_context_is_a_sequence_of_its_own():
    said = list(range(20, 40))
    turns = (model([1, 2], said), SHOWN, model([1, 2, 90, 91], [5]), model([1, 2, 92], [6, 7]))
    assert sequences(rollout(*turns)) == [
        TokenSequence((1, 2), tuple(said), (1,) * 20),
        TokenSequence((1, 2, 90, 91), (5,), (1,)),
        TokenSequence((1, 2, 92), (6, 7), (1, 1)),
    ]


def test_summaries_are_not_trained():
    summary = Turn("summary", "", (70,), (71,))
    turns = (model([1], [2, 3]), summary, SHOWN, model([1, 2, 3, 8], [4]))
    assert sequences(rollout(*turns)) == [TokenSequence((1,), (2, 3, 8, 4), (1, 1, 0, 1))]


def test_a_failed_rollout_and_one_without_ids_are_refused():
    with pytest.raises(EngineError, match="failed"):
        sequences(rollout(finish="error", error="down"))
    with pytest.raises(EngineError, match="no token ids"):
        sequences(rollout(Turn("model", "text")))


ids = st.lists(st.integers(10, 99), min_size=5, max_size=12)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5), st.lists(st.tuples(ids, ids), max_size=4)
)
def test_any_search_is_one_sequence_whose_weights_are_the_models_tokens(prompt, rounds):
    turns, context, weights = [], list(prompt), []
    for said, shown in rounds:
        turns += [model(context, said), SHOWN]
        context += said + shown
        weights += [1] * len(said) + [0] * len(shown)
    turns.append(model(context, [5]))
    (made,) = sequences(rollout(*turns))
    assert made.prompt_ids == tuple(prompt)
    assert made.completion_ids == (*context[len(prompt) :], 5)
    assert made.mask == (*weights, 1)
