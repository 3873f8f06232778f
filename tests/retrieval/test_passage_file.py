"""Corpora that stay in their file."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import DataError
from harness.retrieval import load_passages, open_retriever
from harness.retrieval.passage_file import open_corpus
from harness.schema import Passage

SAMPLES = "r1_searcher/corpus_samples"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ROWS = [
    {"id": "1", "title": "Lyon", "text": "A city\u2028on the Rhône."},
    {"id": 2, "contents": "Ain   A river."},
    {"id": "3", "contents": '"Jura"\nMountains.'},
    {"id": "four", "contents": "no title"},
]

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
def test_a_file_gives_the_same_corpus_as_memory(tmp_path, pairs):
    rows = [{"id": n, "title": title, "text": text} for n, (title, text) in enumerate(pairs)]
    path = write(tmp_path / "c.jsonl", rows)
    streamed, loaded = open_corpus(path), load_passages(path)
    assert [*streamed.passages] == [*loaded.passages]
    assert streamed.fingerprint == loaded.fingerprint
    assert [*streamed.texts(1)] == [*loaded.texts(1)]
    assert (streamed.titles, len(streamed)) == (loaded.titles, len(loaded))


def test_every_form_of_a_json_line_is_read(tmp_path):
    path = write(tmp_path / "c.jsonl", ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\n\n").rstrip(b"\n"))
    assert [*open_corpus(path).passages] == [*load_passages(path).passages]
    assert open_corpus(path).passages[-1] == Passage("four", "no title")
    assert open_corpus(path).passages[1:3] == [*load_passages(path).passages][1:3]


def test_dprs_tab_separated_passages_are_read(tmp_path):
    path = tmp_path / "psgs_w100.tsv"
    path.write_text('id\ttext\ttitle\n1\t"Aaron said ""no"" twice."\tAaron\n2\tplain text\tB\n')
    assert [*open_corpus(path).passages] == [
        Passage("1", 'Aaron said "no" twice.', title="Aaron"),
        Passage("2", "plain text", title="B"),
    ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [("train_kilt_full_page_sample_100", 93), ("train_np_title_abs_sample_100", 100)],
)
def test_the_published_samples_of_r1_searchers_corpora_are_read(data_root, name, lines):
    corpus = open_corpus(data_root / SAMPLES / f"{name}.tsv")
    assert [p.doc_id for p in corpus.passages] == [str(n) for n in range(lines)]
    assert all(p.text.strip() for p in corpus.passages)


def test_the_file_is_read_through_once_and_again_when_it_changed(tmp_path, monkeypatch):
    from harness.retrieval import passage_file

    path = write(tmp_path / "c.jsonl", ROWS)
    first = open_corpus(path)
    monkeypatch.setattr(passage_file, "_scan", lambda _: pytest.fail("read again"))
    assert open_corpus(path).fingerprint == first.fingerprint
    monkeypatch.undo()
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))
    write(path, ROWS[:2])
    assert len(open_corpus(path)) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.jsonl", '{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}\n', "passages 1 and 2 have"),
        ("c.jsonl", '{"id": 1, "text": "a"}\n{"id": 2}\n', r"c\.jsonl:2: key 'text' is missing"),
        ("c.jsonl", '{"id": 1, "text": "a"}\nnothing\n', r"c\.jsonl:2: not valid JSON"),
        ("c.jsonl", "\n", "holds no passage"),
        ("c.tsv", "1\ta\tb\td\n", r"c\.tsv:1: expected id TAB text"),
        ("c.tsv", "1\n", r"c\.tsv:1: expected id TAB text"),
        ("c.jsonl.gz", "x", "unpack it first"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        open_corpus(tmp_path / name)
    with pytest.raises(DataError, match="cannot be read"):
        open_corpus(tmp_path / "absent.jsonl")


def test_page_chunks_are_a_corpus_too(tmp_path):
    row = {"doc_name": "plan.pdf", "page": 5, "chunk_id": "p5", "text": "leads"}
    assert open_corpus(write(tmp_path / "pages.jsonl", [row])).passages[0].page == 5


def test_it_is_searched_like_any_other(tmp_path):
    path = write(tmp_path / "c.jsonl", ROWS)
    streamed, loaded = open_corpus(path), load_passages(path)
    for name, options in (("bm25", {}), ("dense", {"encoder": "ngram"})):
        asked = ["the river Ain", "Jura mountains"]
        found = open_retriever(name, streamed, **options).retrieve(asked, 2)
        assert found == open_retriever(name, loaded, **options).retrieve(asked, 2)
