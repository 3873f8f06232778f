import json

import pytest
from hypothesis import given

from harness import codec
from harness.schema import Message, Sampling
from tests import strategies


@given(strategies.rollouts)
def test_a_rollout_comes_back_from_its_row_bit_for_bit(rollout):
    row = codec.rollout_to_row(rollout)
    assert codec.rollout_from_row(rollout.doc_id, rollout.repeat, *row) == rollout


@given(strategies.docs)
def test_a_doc_comes_back_from_json(doc):
    assert codec.doc_from_json(json.loads(codec.dumps(codec.doc_to_json(doc)))) == doc


@given(strategies.verdicts)
def test_a_verdict_comes_back_from_json(verdict):
    data = json.loads(codec.dumps(codec.verdict_to_json(verdict)))
    assert codec.verdict_from_json(data) == verdict


@given(strategies.rollouts)
def test_a_row_with_too_few_or_too_many_ids_is_refused(rollout):
    body, ids, logprobs = codec.rollout_to_row(rollout)
    with pytest.raises(ValueError, match="token ids"):
        codec.rollout_from_row(rollout.doc_id, 0, body, ids + b"\0\0\0\0", logprobs)
    if ids:
        with pytest.raises(ValueError, match="token ids"):
            codec.rollout_from_row(rollout.doc_id, 0, body, ids[:-4], logprobs)


def test_the_prompt_hash_tells_roles_and_boundaries_apart():
    one = codec.prompt_sha([Message("user", "ab")])
    assert one != codec.prompt_sha([Message("user", "a"), Message("user", "b")])
    assert one != codec.prompt_sha([Message("system", "ab")])
    assert one == codec.prompt_sha([Message("user", "ab")])


def test_the_seed_of_a_request_is_no_part_of_the_sampling_identity():
    assert codec.sampling_to_json(Sampling(seed=1)) == codec.sampling_to_json(Sampling(seed=2))


def test_nan_is_not_written():
    with pytest.raises(ValueError):
        codec.dumps({"a": float("nan")})
