from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.errors import DataError, RetrieverError, UsageError
from harness.retrieval import RETRIEVERS, Corpus, open_retriever, ranking
from harness.retrieval.bm25 import BM25, RankBM25
from harness.retrieval.tokenize import cjk_bigram, resolve, words
from harness.schema import Passage, RetrievalError, Retriever


def corpus_of(*texts: str) -> Corpus:
    return Corpus.of([Passage(f"p{i}", text, page=i) for i, text in enumerate(texts)])


PLAN = corpus_of(
    "The conductor leads the response to a fire.",
    "The mechanic leads the rescue group and looks after the wounded.",
    "The officer guards the scene and keeps order.",
    "Passengers leave through the doors on the side without a track.",
    "Nothing here.",
    "The emergency ladder is kept in the last car, the megaphone in the first.",
)
ZH = corpus_of("现场应急领导小组由列车长任组 长。", "灭火组负责控制火势。", "GSM-R 专用电话")


def ids(found: list[Passage] | RetrievalError) -> list[str]:
    assert isinstance(found, list)
    return [p.doc_id for p in found]


@pytest.mark.parametrize("kind", [BM25, RankBM25])
@pytest.mark.parametrize(
    ("corpus", "query", "best"),
    [(PLAN, "who leads the rescue group?", "p1"), (ZH, "谁任组长？", "p0"), (ZH, "gsm", "p2")],
)
def test_the_passage_that_shares_rare_words_comes_first(
    kind: type[BM25] | type[RankBM25], corpus: Corpus, query: str, best: str
) -> None:
    retriever = kind(corpus)
    assert isinstance(retriever, Retriever)
    (found,) = retriever.retrieve([query], 2)
    assert ids(found)[0] == best
    assert isinstance(found, list)
    assert found[0].page == int(best[1:])
    assert found[0].score == max(p.score for p in found) > 0


@pytest.mark.parametrize("kind", [BM25, RankBM25])
def test_nothing_in_common_finds_nothing(kind: type[BM25] | type[RankBM25]) -> None:
    assert kind(PLAN).retrieve(["zebra", "", "?!"], 5) == [[], [], []]
    assert kind(PLAN).retrieve(["conductor"], 0) == [[]]
    assert kind(corpus_of("...", "!")).retrieve(["a"], 3) == [[]]
    assert kind(corpus_of()).retrieve(["a"], 3) == [[]]
    assert kind(PLAN).retrieve([], 3) == []


@pytest.mark.parametrize("kind", [BM25, RankBM25])
def test_ties_keep_the_order_of_the_corpus(kind: type[BM25] | type[RankBM25]) -> None:
    twins = corpus_of(*["the same words"] * 7, *["something else entirely"] * 9)
    assert ids(kind(twins).retrieve(["same"], 5)[0]) == ["p0", "p1", "p2", "p3", "p4"]


def test_many_threads_get_the_same_ranking() -> None:
    retriever = BM25(PLAN)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ids(retriever.retrieve(["the fire"], 3)[0]), range(16)))
    assert all(f == found[0] for f in found)


tokens = st.sampled_from("abcdefghij")
texts = st.lists(st.lists(tokens, min_size=1, max_size=9).map(" ".join), min_size=3, max_size=12)


@settings(max_examples=60)
@given(texts, st.lists(tokens, min_size=1, max_size=5), st.sampled_from([0.5, 1.5, 2.0]),
       st.sampled_from([0.0, 0.75, 1.0]))  # fmt: skip
def test_bm25s_equals_rank_bm25_where_the_formulas_agree(
    docs: list[str], query: list[str], k1: float, b: float
) -> None:
    df = Counter(token for doc in docs for token in set(doc.split()))
    assume(all(2 * df[token] <= len(docs) for token in query))
    corpus = corpus_of(*docs)
    fast = BM25(corpus, k1=k1, b=b, method="atire", idf="robertson")
    slow = RankBM25(corpus, k1=k1, b=b)
    (a,), (c,) = (r.retrieve([" ".join(query)], len(docs)) for r in (fast, slow))
    assert isinstance(a, list)
    assert isinstance(c, list)
    # float64 sums may differ in the last bit, so compare as one ranking up to equal scores
    assert {p.doc_id: round(p.score, 9) for p in a} == {p.doc_id: round(p.score, 9) for p in c}
    assert [round(p.score, 9) for p in a] == [round(p.score, 9) for p in c]


@given(texts, st.lists(tokens, min_size=1, max_size=4).map(" ".join), st.integers(0, 6))
def test_a_shorter_ranking_is_the_beginning_of_a_longer_one(
    docs: list[str], query: str, k: int
) -> None:
    retriever = BM25(corpus_of(*docs))
    (long,), (short,) = retriever.retrieve([query], 99), retriever.retrieve([query], k)
    assert ids(short) == ids(long)[:k]
    shares = {f"p{i}" for i, doc in enumerate(docs) if set(doc.split()) & set(query.split())}
    assert set(ids(long)) == shares


def test_the_oracle_puts_gold_first_and_the_base_after_it() -> None:
    gold = {"who leads the rescue group?": "p3"}
    (found,) = open_retriever("oracle", PLAN, gold).retrieve(list(gold), 3)
    (base,) = open_retriever("bm25", PLAN).retrieve(list(gold), 3)
    assert ids(found)[0] == "p3"
    assert ids(found)[1:] == [i for i in ids(base) if i != "p3"][:2]
    empty = open_retriever("oracle", PLAN, gold, base="none")
    assert ids(empty.retrieve(list(gold), 3)[0]) == ["p3"]


def test_the_oracle_refuses_what_it_does_not_know() -> None:
    oracle = open_retriever("oracle", PLAN, {"why?": "p1"})
    (known, unknown) = oracle.retrieve(["why?", "b"], 2)
    assert ids(known) == ["p1"]
    assert unknown == RetrievalError("b", "oracle: no gold passage for this question")
    with pytest.raises(RetrieverError, match="no gold passage"):
        ranking("oracle", PLAN, ["b"], 2, gold={"a": "p1"})
    with pytest.raises(DataError, match="'p99' is not in the corpus"):
        open_retriever("oracle", PLAN, {"a": "p99"})
    with pytest.raises(UsageError, match="needs the gold passages"):
        open_retriever("oracle", PLAN)
    with pytest.raises(UsageError, match="cannot be 'oracle' itself"):
        open_retriever("oracle", PLAN, {"a": "p1"}, base="oracle")


def test_none_retrieves_nothing() -> None:
    assert ranking("none", PLAN, ["a", "b"], 5) == [[], []]


def test_unknown_names_and_options_get_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match="unknown retriever 'bm52': did you mean bm25"):
        open_retriever("bm52", PLAN)
    with pytest.raises(UsageError, match="unknown option 'K1': did you mean k1"):
        open_retriever("bm25", PLAN, K1=2)
    with pytest.raises(UsageError, match="unknown option 'k1'"):
        open_retriever("none", PLAN, k1=2)
    with pytest.raises(UsageError, match="unknown tokenizer 'word': did you mean words"):
        open_retriever("bm25", PLAN, tokenizer="word")
    with pytest.raises(UsageError, match="unknown method 'lucen'"):
        open_retriever("bm25", PLAN, method="lucen")
    with pytest.raises(UsageError, match="b must lie in"):
        open_retriever("bm25", PLAN, b=1.5)
    with pytest.raises(UsageError, match="k1 must be at least 0"):
        open_retriever("rank_bm25", PLAN, k1=-1)


def test_every_listed_retriever_opens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GOOGLE_API_KEY", "GOOGLE_CSE_ID"):
        monkeypatch.setenv(name, "key")
    journal = tmp_path / "searches.jsonl"
    journal.write_text('{"retriever": "web", "query": "a", "k": 1, "passages": []}\n')
    needs: dict[str, dict[str, object]] = {
        "published": {"rankings": {"a": ["p1"]}},
        "searxng": {"url": "http://localhost:1"},
        "dense": {"encoder": "ngram"},
        "hybrid": {"of": "bm25,dense", "dense.encoder": "ngram"},
        "replay": {"path": journal},
    }
    for name in RETRIEVERS:
        if name == "remote":  # asks its server what it is: tests/retrieval/test_server.py
            continue
        assert open_retriever(name, PLAN, {"a": "p1"}, **needs.get(name, {})).fingerprint


def test_top_1_3_and_5_come_from_one_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = BM25.retrieve

    def spy(self: BM25, queries: list[str], k: int) -> object:
        calls.append(k)
        return original(self, queries, k)

    monkeypatch.setattr(BM25, "retrieve", spy)
    queries = ["the fire in the last car", "the rescue of the wounded"]
    by_k = {k: ranking("bm25", PLAN, queries, k, k1=1.25) for k in (1, 3, 5)}
    assert calls == [5]
    assert all(by_k[k] == [row[:k] for row in by_k[5]] for k in by_k)
    by_k[5][0].clear()
    assert ranking("bm25", PLAN, queries, 5, k1=1.25)[0] != []
    assert len(ranking("bm25", PLAN, queries, 6, k1=1.25)[0]) >= len(by_k[3][0])
    assert calls == [5, 6]


def test_fingerprints_name_everything_that_changes_a_ranking() -> None:
    prints = [
        open_retriever(name, corpus, {"a": gold}, **options).fingerprint
        for name, corpus, gold, options in [
            ("bm25", PLAN, "p1", {}),
            ("bm25", corpus_of("x", "y"), "p1", {}),
            ("bm25", PLAN, "p1", {"k1": 1.2}),
            ("bm25", PLAN, "p1", {"b": 0.5}),
            ("bm25", PLAN, "p1", {"method": "atire"}),
            ("bm25", PLAN, "p1", {"method": "atire", "idf": "robertson"}),
            ("bm25", PLAN, "p1", {"tokenizer": "cjk_bigram"}),
            ("rank_bm25", PLAN, "p1", {}),
            ("rank_bm25", PLAN, "p1", {"epsilon": 0}),
            ("oracle", PLAN, "p1", {}),
            ("oracle", PLAN, "p2", {}),
            ("oracle", PLAN, "p1", {"base": "none"}),
            ("none", PLAN, "p1", {}),
        ]
    ]
    assert len(set(prints)) == len(prints)
    same = [{}, {"k1": 1.5}, {"tokenizer": "words"}, {"idf": "lucene"}]
    assert len({open_retriever("bm25", PLAN, **o).fingerprint for o in same}) == 1
    assert ranking("bm25", PLAN, ["a"], 1).fingerprint == prints[0]


def test_tokenizers_cut_words_and_character_pairs() -> None:
    assert words("The GSM-R radio，ｐage 12.") == ["the", "gsm", "r", "radio", "page", "12"]
    assert cjk_bigram("组织人\n员，GSM-R专用 5 分") == [
        "组织", "织人", "人员", "gsm", "r", "专用", "5", "分",
    ]  # fmt: skip
    assert resolve("auto", PLAN) == "words"
    assert resolve("auto", ZH) == "cjk_bigram"
    assert resolve("auto", corpus_of()) == "words"


@given(st.text(st.characters(max_codepoint=127)), st.sampled_from(["é", "－", "车 "]))
def test_ascii_is_cut_like_any_other_text(text: str, other: str) -> None:
    """A stretch that is not ASCII leads round the short cut; it is cut off again."""
    for cut in (words, cjk_bigram):
        with_tail = cut(f"{text} {other}")
        tail = cut(other)
        assert cut(text) == with_tail[: len(with_tail) - len(tail)]
        assert with_tail[len(with_tail) - len(tail) :] == tail


@given(st.text())
def test_tokenizers_never_raise_nor_return_empty_tokens(text: str) -> None:
    assert all(words(text))
    assert all(cjk_bigram(text))


def test_importing_the_package_imports_no_numerics() -> None:
    code = (
        "import sys, harness.retrieval.bm25, harness.retrieval.simple, harness.scoring.rag;"
        "print([m for m in ('numpy', 'bm25s', 'rank_bm25', 'lm_eval') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_indexing_prints_no_progress_bar(capfd: pytest.CaptureFixture[str]) -> None:
    BM25(PLAN, k1=1.75).retrieve(["the fire"], 3)
    assert capfd.readouterr() == ("", "")
