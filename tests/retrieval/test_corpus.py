from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DataError
from harness.retrieval import Corpus, load_jsonl
from harness.schema import Passage

LINE = {"doc_name": "plan.pdf", "page": 5, "chunk_id": "p5_c0", "text": "列车长 leads."}


def write(path: Path, *lines: object) -> Path:
    text = "\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def test_page_chunks_become_passages_in_order(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", LINE, "", LINE | {"chunk_id": "p1_c0", "page": 1}, "")
    corpus = load_jsonl(path)
    assert corpus.passages[0] == Passage("p5_c0", "列车长 leads.", 0.0, "plan.pdf", 5)
    assert [p.page for p in corpus.passages] == [5, 1]
    assert len(corpus) == 2


def test_a_byte_order_mark_and_crlf_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LINE).encode() + b"\r\n")
    assert load_jsonl(path) == load_jsonl(write(tmp_path / "d.jsonl", LINE))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{not json", "not valid JSON"),
        ("[1]", "expected a JSON object, got list"),
        ({k: v for k, v in LINE.items() if k != "text"}, "key 'text' is missing"),
        (LINE | {"chunk_id": "x", "text": " \n"}, "key 'text' is empty"),
        (LINE | {"chunk_id": "x", "text": 5}, "key 'text' must be a string, got 5"),
        (LINE | {"chunk_id": "x", "page": "5"}, "key 'page' must be a whole number, got '5'"),
        (LINE | {"chunk_id": "x", "page": True}, "key 'page' must be a whole number"),
        (LINE | {"chunk_id": "x", "text": "\ud800"}, "broken character"),
        (LINE, "passage 'p5_c0' is already on line 1"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(tmp_path: Path, bad: object, message: str) -> None:
    path = write(tmp_path / "c.jsonl", LINE, bad)
    with pytest.raises(DataError) as error:
        load_jsonl(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_another_encoding_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b"\n" + "列车长".encode("gb18030") + b"\n")
    with pytest.raises(DataError, match=r"c\.jsonl:2: not UTF-8"):
        load_jsonl(path)


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match="holds no passage"):
        load_jsonl(path)


def test_a_missing_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_jsonl(tmp_path / "nowhere.jsonl")


def test_the_same_id_twice_is_refused() -> None:
    with pytest.raises(DataError, match="occurs twice"):
        Corpus.of([Passage("a", "x"), Passage("a", "y")])


@given(st.binary(max_size=200))
def test_any_bytes_give_a_corpus_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(raw)
    with pytest.raises(DataError):
        load_jsonl(path)


def test_the_fingerprint_sees_ids_titles_pages_texts_and_order() -> None:
    base = [Passage("a", "x", 0.0, "t", 1), Passage("b", "y", 0.0, "t", 2)]
    variants = [
        base,
        base[::-1],
        [Passage("c", "x", 0.0, "t", 1), base[1]],
        [Passage("a", "z", 0.0, "t", 1), base[1]],
        [Passage("a", "x", 0.0, "u", 1), base[1]],
        [Passage("a", "x", 0.0, "t", None), base[1]],
    ]
    assert len({Corpus.of(v).fingerprint for v in variants}) == len(variants)
    rescored = [Passage("a", "x", 9.0, "t", 1), base[1]]
    assert Corpus.of(rescored).fingerprint == Corpus.of(base).fingerprint
