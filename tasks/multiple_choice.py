"""What the multiple-choice tasks share: questions to docs, prompts and rows.

A row carries its whole prompt, few-shot examples included, so that rendering is a look-up and
the data fingerprint covers every word of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError, nearest
from harness.schema import Doc
from harness.scoring.choice import LETTERS
from harness.scoring.process import doc_from_row, doc_to_row
from harness.scoring.process import process_results as make_process_results

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `gold` is the index of the right choice. `id` "" takes one from the text."""

    subject: str
    text: str
    choices: tuple[str, ...]
    gold: int
    id: str = ""


def listed(question: Question, mark: str = ". ") -> str:
    """The question with its choices, one a line: "A. first"."""
    options = (f"{LETTERS[i]}{mark}{c}" for i, c in enumerate(question.choices))
    return "\n".join([question.text.strip(), *options])


def asked(question: Question, label: str) -> str:
    """The question in the field's form, up to the label that the answer follows."""
    return f"{listed(question)}\n{label}"


def with_examples(
    question: Question, examples: Sequence[Question], label: str, intro: str = ""
) -> str:
    """Worked examples, then the question: the text whose next token is the answer's letter."""
    parts = [f"{asked(e, label)} {LETTERS[e.gold]}\n\n" for e in examples]
    return intro + "".join(parts) + asked(question, label)


def to_docs(questions: Iterable[Question]) -> list[Doc]:
    """Docs with the subject as stratum.

    Without an id of its own a question gets one from subject, text, choices and answer, so that
    it depends on no order; exact copies within a set are numbered.
    """
    docs: list[Doc] = []
    copies: Counter[str] = Counter()
    for q in questions:
        content = "\0".join([q.text, *q.choices, str(q.gold)])
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        doc_id = q.id or f"{q.subject}-{digest}"
        copies[doc_id] += 1
        if not q.id and copies[doc_id] > 1:
            doc_id += f"-{copies[doc_id]}"
        letters = LETTERS[: len(q.choices)]
        meta = {"choices": list(letters), "gold": q.gold, "options": list(q.choices)}
        docs.append(Doc(doc_id, q.text, (letters[q.gold],), stratum=q.subject, meta=meta))
    return docs


def rows(
    questions: Sequence[Question], prompt: Callable[[Question], str]
) -> dict[str, datasets.Dataset]:
    """The data set that lm-eval's `custom_dataset` returns.

    Args:
        questions: The test set.
        prompt: Renders a question; what it returns is the whole prompt.
    """
    import datasets

    made = [
        doc_to_row(doc) | {"prompt": prompt(q)}
        for doc, q in zip(to_docs(questions), questions, strict=True)
    ]
    return {"test": datasets.Dataset.from_list(made)}


def chosen(subjects: str | Sequence[str], known: Sequence[str]) -> list[str]:
    """Subjects by the task option `subjects`: names with commas, or a list; "" takes all.

    Raises:
        UsageError: A name that is no subject.
    """
    names = subjects.split(",") if isinstance(subjects, str) else list(subjects)
    names = [name.strip() for name in names if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"subjects={name}: {nearest(name, known)}")
    return [s for s in known if s in names] if names else list(known)


def doc_to_text(row: Mapping[str, Any]) -> str:
    """The prompt."""
    return str(row["prompt"])


def doc_to_target(row: Mapping[str, Any]) -> str:
    """The right letter."""
    return doc_from_row(row).targets[0]


def doc_to_gold(row: Mapping[str, Any]) -> int:
    """Index of the right choice, as lm-eval's `multiple_choice` wants its target."""
    return int(doc_from_row(row).meta["gold"])


def doc_to_choice(row: Mapping[str, Any]) -> list[str]:
    """The letters."""
    return list(doc_from_row(row).meta["choices"])


process_results = make_process_results("choice")
