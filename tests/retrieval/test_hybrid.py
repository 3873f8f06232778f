"""Reciprocal rank fusion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.retrieval import Corpus, open_retriever
from harness.retrieval.hybrid import Hybrid, fuse
from harness.schema import Passage, RetrievalError


def passages(names):
    return [Passage(name, name) for name in names]


class Fixed:
    def __init__(self, names, fingerprint="fixed"):
        self.names, self.fingerprint, self.asked = names, fingerprint, []

    def retrieve(self, queries, k):
        self.asked.append(k)
        if self.names is None:
            return [RetrievalError(q, "down") for q in queries]
        return [passages(self.names)[:k] for _ in queries]


def test_scores_are_those_of_the_paper():
    fused = fuse([passages("abc"), passages("ca")])
    assert [(p.doc_id, p.score) for p in fused] == [
        ("a", pytest.approx(1 / 61 + 1 / 62)),
        ("c", pytest.approx(1 / 63 + 1 / 61)),
        ("b", pytest.approx(1 / 62)),
    ]


ranked = st.permutations("abcdefgh").flatmap(
    lambda order: st.integers(0, 8).map(lambda n: passages(order[:n]))
)


@given(st.lists(ranked, min_size=1, max_size=4))
def test_every_passage_comes_once_and_agreement_is_kept(rankings):
    fused = [p.doc_id for p in fuse(rankings)]
    assert sorted(fused) == sorted({p.doc_id for r in rankings for p in r})
    place = [{p.doc_id: n for n, p in enumerate(r)} for r in rankings]
    for n, first in enumerate(fused):
        for second in fused[n + 1 :]:
            better = [p[second] < p.get(first, 99) for p in place if second in p]
            everywhere = all(better) and all(second in p for p in place)
            assert not everywhere, f"{second} is ahead of {first} in every ranking"


@given(ranked)
def test_a_ranking_fused_with_itself_is_itself(ranking):
    assert [p.doc_id for p in fuse([ranking, ranking])] == [p.doc_id for p in ranking]


def test_rankings_are_fused_deeper_than_what_is_asked():
    one, two = Fixed("abcdef"), Fixed("fedcba")
    (found,) = Hybrid([one, two], depth=4).retrieve(["q"], 2)
    assert len(found) == 2
    assert one.asked == two.asked == [4]
    Hybrid([one, two], depth=4).retrieve(["q"], 9)
    assert one.asked[-1] == 9


def test_a_failed_retriever_fails_the_query_rather_than_the_fusion_quietly():
    (found,) = Hybrid([Fixed("ab"), Fixed(None)]).retrieve(["q"], 2)
    assert found == RetrievalError("q", "down")


def test_bm25_and_dense_are_fused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path))
    corpus = Corpus.of([Passage("a", "red fox"), Passage("b", "blue whale"), Passage("c", "fox")])
    options = {"dense.encoder": "ngram", "bm25.k1": 1.2}
    hybrid = open_retriever("hybrid", corpus, of="bm25,dense", **options)
    (found,) = hybrid.retrieve(["whales"], 2)
    assert found[0].doc_id == "b"  # only its characters match
    other = open_retriever("hybrid", corpus, of="bm25,dense", constant=10, **options)
    assert hybrid.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "bm25"}, "two retrievers"),
        ({"of": "bm25,bm25"}, "each once"),
        ({"of": "bm25,hybrid"}, "other retrievers"),
        ({"of": "bm25,rank_bm25", "bm25.k": 1}, "did you mean k1"),
        ({"of": "bm25,rank_bm25", "depths": 1}, "did you mean depth"),
        ({"of": "bm25,rank_bm25", "dense.encoder": "e5"}, "unknown option"),
        ({"of": "bm25,rank_bm25", "depth": 0}, "at least 1"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(UsageError, match=message):
        open_retriever("hybrid", Corpus.of(passages("ab")), **options)
