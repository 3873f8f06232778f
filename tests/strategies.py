"""Hypothesis strategies for the central types."""

from __future__ import annotations

from hypothesis import strategies as st

from harness.schema import Doc, Passage, Rollout, Turn, Verdict

text = st.text(st.characters(), max_size=40)  # lone surrogates too: outside data has them
ids = st.none() | st.lists(st.integers(0, 2**31 - 1), max_size=8).map(tuple)
logprobs = st.none() | st.lists(st.floats(-1e6, 0), max_size=8).map(tuple)
finish = st.sampled_from(["stop", "length", "context"])

turns = st.builds(
    Turn,
    kind=st.sampled_from(["model", "environment", "summary"]),
    text=text,
    prompt_ids=ids,
    token_ids=ids,
    logprobs=logprobs,
    passages=st.lists(text, max_size=3).map(tuple),
)
rollouts = st.builds(
    Rollout,
    doc_id=st.text("abc", min_size=1, max_size=3),
    repeat=st.integers(0, 3),
    turns=st.lists(turns, max_size=4).map(tuple),
    answer=text,
    finish=finish,
    choices=st.none() | st.lists(st.floats(-1e3, 0), max_size=4).map(tuple),
    prompt_tokens=st.integers(0, 10**6),
    completion_tokens=st.none() | st.integers(0, 10**6),
    searches=st.integers(0, 9),
    seconds=st.integers(0, 100).map(float),
    error=st.none(),
)
passages = st.builds(
    Passage, doc_id=text, text=text, score=st.floats(-9, 9), title=text,
    page=st.none() | st.integers(1, 99),
)  # fmt: skip
docs = st.builds(
    Doc,
    id=st.text("abc", min_size=1, max_size=3),
    question=text,
    targets=st.lists(text, min_size=1, max_size=3).map(tuple),
    passages=st.lists(passages, max_size=3).map(tuple),
    cluster=st.none() | text,
    stratum=st.none() | text,
    meta=st.dictionaries(st.text("xyz", max_size=3), st.none() | text | st.integers(), max_size=3),
)
verdicts = st.builds(
    Verdict,
    judge=text,
    values=st.none() | st.dictionaries(text, st.booleans() | st.floats(0, 1), max_size=3),
    raw=text,
)
