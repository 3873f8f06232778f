"""What outside retrievers answered is kept, asked once, and played back."""

import pytest

from harness.errors import DataError, UsageError
from harness.retrieval import Corpus, open_retriever
from harness.retrieval.journal import Recorded, Replay, load
from harness.schema import Passage, RetrievalError


class Outside:
    fingerprint = "outside"

    def __init__(self):
        self.asked = []

    def retrieve(self, queries, k):
        self.asked += queries
        return [
            RetrievalError(q, "down") if q == "bad" else [Passage(q, f"{q} é\n", 0.5, "T", 3)]
            for q in queries
        ]


def test_the_same_question_is_asked_once_also_after_a_restart(tmp_path):
    outside, path = Outside(), tmp_path / "searches.jsonl"
    first = Recorded(outside, path).retrieve(["a", "b", "a"], 2)
    again = Recorded(outside, path).retrieve(["b", "a", "c"], 2)
    assert outside.asked == ["a", "b", "c"]
    assert first[0] == first[2] == again[1]
    assert Recorded(outside, path).retrieve(["a"], 3)
    assert outside.asked[-1] == "a"  # another k is another question


def test_a_failure_is_not_kept(tmp_path):
    outside, path = Outside(), tmp_path / "searches.jsonl"
    recorded = Recorded(outside, path)
    _, bad = recorded.retrieve(["a", "bad"], 1)
    assert isinstance(bad, RetrievalError)
    assert list(load(path)) == [("outside", "a", 1)]
    recorded.retrieve(["bad"], 1)
    assert outside.asked.count("bad") == 2


def test_a_replay_gives_the_same_passages_and_names_what_was_never_asked(tmp_path):
    path = tmp_path / "searches.jsonl"
    found = Recorded(Outside(), path).retrieve(["a", "ü"], 2)
    replay = Replay(path)
    assert replay.retrieve(["a", "ü"], 2) == found
    assert replay.fingerprint == "outside"
    (missing,) = replay.retrieve(["never"], 2)
    assert isinstance(missing, RetrievalError)
    assert "not among the recorded searches" in missing.message


def test_a_line_cut_off_by_a_crash_harms_nothing_else(tmp_path):
    path = tmp_path / "searches.jsonl"
    Recorded(Outside(), path).retrieve(["a"], 1)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert list(load(path)) == [("outside", "a", 1)]
    Recorded(Outside(), path).retrieve(["b"], 1)
    assert [query for _, query, _ in load(path)] == ["a", "b"]
    assert path.read_bytes().startswith(whole)


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "searches.jsonl"
    path.write_text('nonsense\n{"also": 1}\n')
    with pytest.raises(DataError, match="line 1"):
        load(path)


def test_a_run_without_recorded_searches_cannot_be_replayed(tmp_path):
    with pytest.raises(UsageError, match="recorded no searches"):
        open_retriever("replay", Corpus.of(()), path=tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match=r"retriever_options\.run"):
        open_retriever("replay", Corpus.of(()))
