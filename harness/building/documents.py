"""Documents as page chunks: PDF, plain text, markdown, or JSON lines of pages.

    read_document(Path("plan.pdf")).chunks[0]   # Passage("p1_c0", text, title="plan.pdf", page=1)

A PDF has its own pages (text by pdfium). Pages of a text end at form feeds; `page_chars` cuts a
text that has none at paragraph ends. JSON lines are read back as they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DataError, UsageError, missing_dependency
from harness.jsonl import read_rows, text
from harness.schema import Passage

TEXTS = (".txt", ".md")
SUFFIXES = (".pdf", *TEXTS, ".jsonl")
LONGEST_PAGE = 6000
"""Characters; a longer "page" of a text without form feeds is surely not one."""

_SENTENCE_END = re.compile(r"(?<=[。！？；])|(?<=[.!?;])\s+")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINE_HYPHEN = "\ufffe"  # pdfium's mark for a hyphen at the end of a line


@dataclass(frozen=True, slots=True)
class Document:
    """Page chunks of a document, one a page.

    Attributes:
        name: File name.
        chunks: Passages: id `pN_c0`, the file's name as title, page N from 1.
        skipped: Numbers of the pages without text that were left out.
    """

    name: str
    chunks: tuple[Passage, ...]
    skipped: tuple[int, ...] = ()


def read_document(path: Path, page_chars: int = 0, *, skip_empty: bool = False) -> Document:
    """Read a document.

    Args:
        path: A file whose name ends in one of `SUFFIXES`.
        page_chars: Characters of a page of a text or markdown file at most (a single sentence
            may be longer); 0: pages end at form feeds.
        skip_empty: Leave out pages without text; page numbers stay the document's.

    Raises:
        UsageError: An unknown kind of file, or `page_chars` where pages are given.
        DataError: The file is missing, encrypted, damaged or empty, or a page has no text.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise UsageError(f"document={path}: reads {', '.join(SUFFIXES)}, not '{kind or path.name}'")
    if not path.is_file():
        raise DataError(f"document={path}: there is no such file")
    if page_chars and kind not in TEXTS:
        raise UsageError(f"page_chars cuts .txt and .md files; {path.name} has pages of its own")
    if kind == ".jsonl":
        return Document(path.name, _from_rows(path))
    pages = _pdf_pages(path) if kind == ".pdf" else _text_pages(path, page_chars)
    if not any(pages):
        raise DataError(f"{path}: holds no text (scanned pages need OCR first)")
    empty = tuple(number for number, page in enumerate(pages, start=1) if not page)
    if empty and not skip_empty:
        raise DataError(
            f"{path}: page {empty[0]} has no text ({len(empty)} of {len(pages)} pages); run OCR "
            f"over the document, or leave such pages out with skip_empty=true"
        )
    chunks = [
        Passage(f"p{number}_c0", page, title=path.name, page=number)
        for number, page in enumerate(pages, start=1)
        if page
    ]
    return Document(path.name, tuple(chunks), empty)


def chunk_row(chunk: Passage) -> dict[str, Any]:
    """A chunk as a line of `pages.jsonl`, as `harness.retrieval.load_jsonl` reads it."""
    return {
        "doc_name": chunk.title,
        "page": chunk.page,
        "chunk_id": chunk.doc_id,
        "text": chunk.text,
    }


def _from_rows(path: Path) -> tuple[Passage, ...]:
    chunks: list[Passage] = []
    for where, row in read_rows(path):
        page = row.get("page", len(chunks) + 1)
        if not isinstance(page, int) or isinstance(page, bool):
            raise DataError(f"{where}: key 'page' must be a whole number, got {page!r:.40}")
        chunk_id = text(where, row, "chunk_id") if "chunk_id" in row else f"p{page}_c0"
        title = text(where, row, "doc_name") if "doc_name" in row else path.name
        if any(c.doc_id == chunk_id for c in chunks):
            raise DataError(f"{where}: chunk_id '{chunk_id}' occurs twice; ids must differ")
        chunks.append(Passage(chunk_id, text(where, row, "text"), title=title, page=page))
    if not chunks:
        raise DataError(f"{path}: holds no page; expected one JSON object with 'text' a line")
    return tuple(chunks)


def _pdf_pages(path: Path) -> list[str]:
    try:
        import pypdfium2
    except ImportError as error:
        raise missing_dependency("pypdfium2", "build", error) from error
    pdfium: Any = pypdfium2
    try:
        with pdfium.PdfDocument(path) as document:
            return [_tidy(_pdf_text(page)) for page in document]
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower():
            raise DataError(f"{path}: is encrypted; save it without a password first") from error
        raise DataError(f"{path}: is no PDF, or is damaged ({error})") from error


def _pdf_text(page: Any) -> str:
    return str(page.get_textpage().get_text_range())


def _text_pages(path: Path, page_chars: int) -> list[str]:
    try:
        whole = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (byte {error.start + 1}); convert the file") from error
    if path.suffix.lower() == ".md":
        whole = _COMMENT.sub("", whole)
    pages = [_tidy(page) for page in whole.split("\f")]
    while len(pages) > 1 and not pages[-1]:  # a form feed ends the last page
        pages.pop()
    if page_chars:
        return [piece for page in pages for piece in cut(page, page_chars)] or [""]
    if len(pages) == 1 and len(pages[0]) > LONGEST_PAGE:
        raise UsageError(
            f"{path}: one page of {len(pages[0])} characters, as it has no form feeds; say how "
            f"long a page may be: page_chars=800"
        )
    return pages


def _tidy(page: str) -> str:
    """Lines without spaces at their ends, blank ones dropped."""
    joined = page.replace(_LINE_HYPHEN + "\r\n", "").replace(_LINE_HYPHEN, "").replace("\0", "")
    return "\n".join(line.strip() for line in joined.splitlines() if line.strip())


def cut(page: str, size: int) -> list[str]:
    """Cut a text at line ends, and longer lines at sentence ends, into pieces of `size` at most.

    Nothing but white space is lost; a single sentence longer than `size` stays whole.
    """
    parts: list[tuple[str, str]] = []  # (what joins it to the part before, part)
    for line in page.split("\n"):
        sentences = [line] if len(line) <= size else [s for s in _SENTENCE_END.split(line) if s]
        parts += [("\n" if i == 0 else " " if s[0].isascii() else "", s)
                  for i, s in enumerate(sentences)]  # fmt: skip
    pieces: list[str] = []
    for joint, part in parts:
        if pieces and len(pieces[-1]) + len(joint) + len(part) <= size:
            pieces[-1] += joint + part
        elif part.strip():
            pieces.append(part)
    return pieces
