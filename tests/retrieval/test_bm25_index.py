"""BM25 indexes on disk: the scores of memory to the last bit, resumed, never stale."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import DataError, StoreError
from harness.retrieval import Corpus, bm25, bm25_index, open_retriever, postings
from harness.retrieval.bm25 import BM25
from harness.retrieval.passage_file import open_corpus
from harness.schema import Passage

TEXTS = [
    "The conductor leads the response to a fire.",
    "",
    "The mechanic leads the rescue group: the group looks after the wounded.",
    "现场应急领导小组由列车长任组 长。",
    "...",
    "灭火组负责控制火势，列车长。",
    "The conductor leads the response to a fire.",
]
ASKED = ["who leads the group?", "列车长任组长", "the the fire", "zebra", ""]


def corpus_of(texts):
    return Corpus.of([Passage(f"p{i}", text, page=i) for i, text in enumerate(texts)])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))


@contextmanager
def sizes(shard, block):
    """Shards of so many tokens, merges of so many postings."""
    was = postings.TOKENS, bm25_index.BLOCK
    postings.TOKENS, bm25_index.BLOCK = shard, block
    try:
        yield
    finally:
        postings.TOKENS, bm25_index.BLOCK = was


words = st.sampled_from(["a", "b", "c", "dd", "火", "车", "列车长", "火势", "。", "E5"])
texts = st.lists(st.lists(words, max_size=9).map(" ".join), min_size=1, max_size=14)


@settings(max_examples=80, deadline=None)
@given(texts, st.lists(st.lists(words, max_size=5).map(" ".join), min_size=1, max_size=4),
       st.sampled_from(["words", "cjk_bigram", "auto"]), st.sampled_from(bm25.METHODS),
       st.sampled_from(["", *bm25.METHODS]), st.sampled_from([0.0, 1.5]),
       st.sampled_from([0.0, 0.75, 1.0]), st.integers(1, 40), st.integers(1, 20))  # fmt: skip
def test_ranking_and_scores_are_those_of_memory_to_the_last_bit(
    docs, asked, tokenizer, method, idf, k1, b, shard, block
):
    corpus = corpus_of(docs)
    options = {"tokenizer": tokenizer, "method": method, "idf": idf, "k1": k1, "b": b}
    in_memory = BM25(corpus, **options)
    with tempfile.TemporaryDirectory() as folder, sizes(shard, block):
        on_disk = BM25(corpus, index=folder, **options)
        for k in (1, 3, 99):
            assert on_disk.retrieve(asked, k) == in_memory.retrieve(asked, k)
        assert on_disk.fingerprint == in_memory.fingerprint
        again = BM25(corpus, index=folder, **options)  # opened, not built
        assert again.retrieve(asked, 99) == in_memory.retrieve(asked, 99)
        assert not (Path(folder) / "shards").exists()


def test_bm25s_opens_the_folder_itself_and_the_arrays_stay_on_disk(tmp_path):
    corpus = corpus_of(TEXTS)
    BM25(corpus, index=str(tmp_path / "i")).retrieve(ASKED, 1)
    index = bm25s.BM25.load(tmp_path / "i", mmap=True)
    assert all(isinstance(index.scores[n], np.memmap) for n in ("data", "indices", "indptr"))
    scores = index.get_scores(["the", "fire"])
    (found,) = BM25(corpus, tokenizer="words").retrieve(["the fire"], 9)
    assert {p.page: p.score for p in found} == {i: s for i, s in enumerate(scores) if s}


@pytest.mark.parametrize("docs", [[], [""], ["...", "!"]])
def test_a_corpus_without_a_word_has_an_index_that_finds_nothing(tmp_path, docs):
    for _ in range(2):
        retriever = BM25(corpus_of(docs), index=str(tmp_path / "i"))
        assert retriever.retrieve(["a", ""], 3) == [[], []]


class Fault(Exception):
    pass


def counting(monkeypatch, fail_at=None):
    """Count the passages that are cut into tokens; fail at one of them."""
    from harness.retrieval import tokenize

    seen = []

    def cut(text):
        if len(seen) == fail_at:
            raise Fault
        seen.append(text)
        return tokenize.words(text)

    monkeypatch.setitem(tokenize.TOKENIZERS, "words", cut)
    return seen


def test_a_build_that_broke_off_goes_on_behind_its_last_whole_shard(tmp_path, monkeypatch, capsys):
    corpus = corpus_of([f"word{i} common {'x' * (i % 3)}" for i in range(50)])
    asked = ["word7 common", "word49 xx"]
    expected = BM25(corpus, tokenizer="words").retrieve(asked, 50)
    folder = tmp_path / "i"
    options = {"tokenizer": "words", "index": str(folder)}
    with sizes(shard=20, block=7):
        counting(monkeypatch, fail_at=30)
        with pytest.raises(Fault):
            BM25(corpus, **options).retrieve(asked, 1)
        whole = sum(len(np.load(p)) for p in folder.glob("shards/0*/lengths.npy"))
        assert 0 < whole <= 30
        (folder / "shards" / "part").mkdir(exist_ok=True)  # what a kill within a shard leaves
        seen = counting(monkeypatch)
        resumed = BM25(corpus, **options)
        assert resumed.retrieve(asked, 50) == expected
    assert len(seen) == 50 - whole + len(asked)
    assert f"{whole} of 50 passages were tokenised before" in capsys.readouterr().err


def test_a_merge_that_broke_off_is_done_again_without_tokenising(tmp_path, monkeypatch):
    corpus, folder = corpus_of(TEXTS), str(tmp_path / "i")
    expected = BM25(corpus, tokenizer="words").retrieve(ASKED, 9)

    def broken(*_):
        raise Fault

    with monkeypatch.context() as patch:
        patch.setattr(bm25_index, "_collect", broken)
        with pytest.raises(Fault):
            BM25(corpus, tokenizer="words", index=folder).retrieve(ASKED, 1)
    seen = counting(monkeypatch)
    assert BM25(corpus, tokenizer="words", index=folder).retrieve(ASKED, 9) == expected
    assert len(seen) == len(ASKED)


BUILD = """
import sys, time
from harness.retrieval import open_retriever, postings, tokenize
from harness.retrieval.passage_file import open_corpus
postings.TOKENS = 200
def slowly(text, cut=tokenize.words):
    time.sleep(0.005)
    return cut(text)
tokenize.TOKENIZERS["words"] = slowly
corpus = open_corpus(sys.argv[1])
open_retriever("bm25", corpus, index=sys.argv[2], tokenizer="words").retrieve(["a"], 1)
"""


def test_a_killed_process_leaves_a_build_that_is_finished_by_the_next(tmp_path):
    file, folder = tmp_path / "c.jsonl", tmp_path / "i"
    rows = [
        {"id": i, "contents": f"title{i}\nbody w{i % 17} " + "v " * (i % 5)} for i in range(3000)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    child = subprocess.Popen([sys.executable, "-c", BUILD, str(file), str(folder)])
    shards = folder / "shards"
    while child.poll() is None and not (shards / "00002").exists():
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert len([*shards.glob("0*")]) >= 3
    corpus = open_corpus(file)
    with sizes(shard=200, block=1000), pytest.MonkeyPatch.context() as patch:
        seen = counting(patch)
        on_disk = open_retriever("bm25", corpus, index=str(folder), tokenizer="words")
        found = on_disk.retrieve(["title3 w5 v", "body"], 50)
    assert len(seen) < 3000
    assert found == open_retriever("bm25", corpus, tokenizer="words").retrieve(
        ["title3 w5 v", "body"], 50
    )


@pytest.mark.parametrize(
    ("docs", "options", "message"),
    [
        (TEXTS[1:], {}, r"built for corpus corpus:\w+, but this is corpus corpus:\w+"),
        (
            TEXTS,
            {"tokenizer": "cjk_bigram"},
            "tokenizer words, version 1, but this is tokenizer cjk",
        ),
        (TEXTS, {"k1": 1.2}, r"built for k1 1\.5, but this is k1 1\.2"),
        (TEXTS, {"b": 0.5}, r"built for b 0\.75, but this is b 0\.5"),
        (TEXTS, {"method": "atire"}, "built for method lucene, but this is method atire"),
        (TEXTS, {"idf": "robertson"}, "built for idf lucene, but this is idf robertson"),
    ],
)
def test_a_foreign_index_is_refused_naming_both(tmp_path, docs, options, message):
    folder = str(tmp_path / "i")
    BM25(corpus_of(TEXTS), tokenizer="words", index=folder).retrieve(["a"], 1)
    with pytest.raises(DataError, match=message):
        BM25(corpus_of(docs), index=folder, **{"tokenizer": "words", **options})


@pytest.mark.parametrize("name", ["data.csc.index.npy", "vocab.index.json", "params.index.json"])
def test_a_damaged_index_is_one_clear_error(tmp_path, name):
    corpus, folder = corpus_of(TEXTS), tmp_path / "i"
    BM25(corpus, index=str(folder)).retrieve(["a"], 1)
    damaged = (folder / name).read_bytes()[:-9]
    (folder / name).write_bytes(damaged)
    with pytest.raises(DataError, match=r"cannot be read .*; delete it"):
        BM25(corpus, index=str(folder)).retrieve(["a"], 1)


def test_a_damaged_shard_is_named(tmp_path, monkeypatch):
    corpus, folder = corpus_of(TEXTS), tmp_path / "i"
    with sizes(shard=5, block=5):
        counting(monkeypatch, fail_at=4)
        with pytest.raises(Fault):
            BM25(corpus, tokenizer="words", index=str(folder)).retrieve(["a"], 1)
        counting(monkeypatch)
        (folder / "shards" / "00000" / "terms.npy").write_bytes(b"")
        with pytest.raises(DataError, match=r"00000/terms\.npy: cannot be read"):
            BM25(corpus, tokenizer="words", index=str(folder)).retrieve(["a"], 1)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((DataError, StoreError), match="file"):
        BM25(corpus_of(TEXTS), index=str(tmp_path / "file" / "i")).retrieve(["a"], 1)


def test_a_large_corpus_is_kept_in_the_cache_a_small_one_in_memory(tmp_path, monkeypatch):
    corpus = corpus_of(TEXTS)
    expected = BM25(corpus).retrieve(ASKED, 3)
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(bm25, "STORED", len(TEXTS))
    assert BM25(corpus).retrieve(ASKED, 3) == expected
    assert BM25(corpus, k1=1.2).retrieve(ASKED, 3) != expected
    assert len(list((tmp_path / "cache" / "bm25").iterdir())) == 2


def test_hybrid_and_oracle_hand_the_folder_on(tmp_path):
    corpus = corpus_of(TEXTS)
    options = {"of": "bm25,dense", "dense.encoder": "ngram", "bm25.index": str(tmp_path / "h")}
    open_retriever("hybrid", corpus, **options).retrieve(["fire"], 1)
    gold = {"fire": "p0"}
    open_retriever("oracle", corpus, gold, index=str(tmp_path / "o")).retrieve(["fire"], 1)
    assert all((tmp_path / name / "bm25.json").exists() for name in "ho")
