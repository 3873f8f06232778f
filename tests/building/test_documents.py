"""Documents become page chunks, and what is wrong with one is said in a line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.building.documents import chunk_row, cut, read_document
from harness.errors import DataError, UsageError
from harness.retrieval import load_jsonl
from harness.scoring.text import squeeze
from tests.building.pdf import pdf

pytest.importorskip("pypdfium2", reason="needs checkrail[build]")


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_the_published_plan_gives_the_published_chunks(data_root):
    folder = data_root / "bjtu_railway"
    published = load_jsonl(folder / "dataset" / "indices" / "meta.jsonl").passages
    chunks = read_document(folder / "Emergency_Plan.pdf").chunks
    assert len(chunks) == 48
    for mine, theirs in zip(chunks, published, strict=True):
        assert (mine.doc_id, mine.page, mine.title) == (theirs.doc_id, theirs.page, theirs.title)
        assert squeeze(mine.text) == squeeze(theirs.text)


def test_a_pdf_gives_a_chunk_a_page(tmp_path):
    chunks = read_document(written(tmp_path, "plan.pdf", pdf("Stop the train.", "Call."))).chunks
    assert [(c.doc_id, c.page, c.title, c.text) for c in chunks] == [
        ("p1_c0", 1, "plan.pdf", "Stop the train."),
        ("p2_c0", 2, "plan.pdf", "Call."),
    ]


def test_a_page_without_text_is_an_error_that_names_it(tmp_path):
    path = written(tmp_path, "plan.pdf", pdf("One.", "", "Three."))
    with pytest.raises(DataError, match=r"page 2 has no text .*skip_empty=true"):
        read_document(path)
    document = read_document(path, skip_empty=True)
    assert [c.page for c in document.chunks] == [1, 3]
    assert document.skipped == (2,)


@pytest.mark.parametrize(
    ("name", "content", "error", "says"),
    [
        ("plan.pdf", b"hello", DataError, "is no PDF, or is damaged"),
        ("plan.pdf", b"", DataError, "is no PDF, or is damaged"),
        ("plan.pdf", pdf("secret", encrypted=True), DataError, "is encrypted"),
        ("plan.pdf", pdf("", ""), DataError, "holds no text"),
        ("plan.txt", " \n\n", DataError, "holds no text"),
        ("plan.txt", b"\xff\xfe\x00", DataError, "not UTF-8"),
        ("plan.txt", "word " * 2000, UsageError, "page_chars=800"),
        ("plan.docx", b"PK", UsageError, "reads .pdf, .txt, .md, .jsonl, not '.docx'"),
        ("pages.jsonl", "", DataError, "holds no page"),
        ("pages.jsonl", '{"page": 1}', DataError, "'text' is missing"),
        ("pages.jsonl", '{"text": "a", "page": 1}\n{"text": "b", "page": 1}', DataError, "twice"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path, name, content, error, says
):
    with pytest.raises(error, match=says):
        read_document(written(tmp_path, name, content))


def test_a_missing_document_and_page_chars_on_a_pdf_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_document(tmp_path / "none.pdf")
    with pytest.raises(UsageError, match="has pages of its own"):
        read_document(written(tmp_path, "plan.pdf", pdf("One.")), page_chars=100)


def test_pages_of_a_text_end_at_form_feeds(tmp_path):
    document = read_document(written(tmp_path, "a.txt", "\ufeffone\n\n two \r\n\fthree\n\f"))
    assert [(c.page, c.text) for c in document.chunks] == [(1, "one\ntwo"), (2, "three")]


def test_comments_of_markdown_are_no_text(tmp_path):
    document = read_document(written(tmp_path, "a.md", "# Head\n<!-- INFO\nEND -->\nbody"))
    assert document.chunks[0].text == "# Head\nbody"


def test_chunks_are_read_back_as_they_are_written(tmp_path):
    document = read_document(written(tmp_path, "a.txt", "one\ftwo"))
    lines = "".join(json.dumps(chunk_row(c)) + "\n" for c in document.chunks)
    path = written(tmp_path, "pages.jsonl", lines)
    assert read_document(path).chunks == document.chunks == load_jsonl(path).passages


@given(st.text("ab 。.?\n列车", max_size=200), st.integers(1, 40))
def test_cutting_loses_nothing_but_white_space_and_keeps_to_the_length(page, size):
    pieces = cut(page, size)
    assert squeeze("".join(pieces)) == squeeze(page)
    for piece in pieces:
        # Longer only where it is one sentence: no end of sentence inside.
        assert len(piece) <= size or not any(m in piece[:-1] for m in ("。", ". ", "? ", "\n"))
