"""Rows to learn from, as the harness's own docs and prompts: `examples(recipe)`.

Each source gives `Example`s: the doc that policies play and rewards read, the prompt exactly as
the task renders it for evaluation, and the target that SFT teaches. Order and selection are
those of evaluation (`harness.task_loader.nested_order`), so rows and skip name the same rows
everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness import codec
from harness.data import locate
from harness.errors import ConfigError, DataError, UsageError, nearest
from harness.jsonl import read_rows, text
from harness.schema import Doc, Message, Passage
from harness.task_loader import nested_order
from trainers.recipe import Recipe

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """One row.

    Attributes:
        messages: The prompt.
        target: What SFT teaches after it; "" where rollouts are played.
    """

    doc: Doc
    messages: tuple[Message, ...]
    target: str = field(default="")


def examples(recipe: Recipe, data: str | None = None) -> list[Example]:
    """The rows of a recipe, selected and in their fixed order.

    Args:
        recipe: Names the source.
        data: Root of outside data sets, or the file of the source "jsonl".

    Raises:
        ConfigError: Unknown source or option.
        UsageError: The source has no published file and none is given.
        DataError: A file is missing or malformed, an id stands twice, a target is missing, or
            rows and skip leave nothing.
    """
    where = f"recipe '{recipe.name}'"
    if recipe.data.source not in SOURCES:
        hint = nearest(recipe.data.source, SOURCES)
        raise ConfigError(f"{where}: unknown 'data.source' '{recipe.data.source}', {hint}")
    try:
        rows = SOURCES[recipe.data.source](recipe.data.options, data)
    except TypeError as error:
        raise ConfigError(f"{where}: 'data.options': {error}") from error
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    order = nested_order(recipe.data.source, [e.doc.id for e in rows])
    last = recipe.data.skip + recipe.data.rows if recipe.data.rows else None
    chosen = [rows[i] for i in order[recipe.data.skip : last]]
    if not chosen:
        raise DataError(f"{where}: 'data.skip' leaves none of {len(rows)} rows")
    empty = next((e.doc.id for e in chosen if not e.target), None)
    if empty is not None and not recipe.is_rl:
        raise DataError(f"{where}: row '{empty}' has no completion to learn")
    return chosen


def fingerprint(rows: Sequence[Example]) -> str:
    """Hash of docs, prompts and targets, in their order."""
    return codec.sha(
        [[codec.doc_to_json(e.doc), codec.messages_to_json(e.messages), e.target] for e in rows]
    )[:16]


# --- sources --------------------------------------------------------------------------------


def railway_demo(options: Options, data: str | None) -> list[Example]:
    """The training split of `railway_demo`, as its tasks render it."""
    del data
    from tasks.railway_demo import rows

    docs, _ = rows.build_docs("train", **_only(options, "top_k", "retriever", top_k=3))
    return [_rendered(doc, rows) for doc in docs]


def bjtu_sft(options: Options, data: str | None) -> list[Example]:
    """The 100 published rows of SFT: prompt and output as they stand."""
    _only(options)
    path = locate("bjtu_railway", "dataset/sft_data/sft_100.json", data)
    found: list[Example] = []
    for number, row in enumerate(json.loads(path.read_text(encoding="utf-8")), start=1):
        prompt, output = str(row["input"]), str(row["output"])
        asked = re.search(r"### 回答问题：\s*问题：(.*?)\n参考文档：", prompt, re.DOTALL)
        if asked is None:
            raise DataError(f"{path}: row {number} has no question in its input")
        answer = re.search(r"<answer>(.*?)</answer>", output, re.DOTALL)
        page = re.search(r"<page>\D*(\d+)", output)
        doc = Doc(
            f"bjtu-sft-{number:03d}",
            asked[1].strip(),
            (answer[1].strip() if answer else "",),
            meta={"gold_page": int(page[1])} if page else {},
        )
        found.append(Example(doc, (Message("user", prompt),), output))
    return found


def bjtu_zero(options: Options, data: str | None) -> list[Example]:
    """The 490 published rows of Zero, over their published top-5."""
    return _bjtu("dataset/rl_data/train_for_rl_zero.parquet", options, data)


def bjtu_rl(options: Options, data: str | None) -> list[Example]:
    """The 390 published rows of SFT-RL: those of Zero that SFT has not seen."""
    return _bjtu("dataset/rl_data/train_for_rl_sft.parquet", options, data)


def _bjtu(file: str, options: Options, data: str | None) -> list[Example]:
    from pyarrow import parquet  # type: ignore[import-untyped]

    from tasks.railway_rag import rows

    top_k = int(_only(options, "top_k", top_k=5)["top_k"])
    found: list[Example] = []
    table: Any = parquet.read_table(locate("bjtu_railway", file, data))
    for row in cast("list[dict[str, str]]", table.to_pylist()):
        pages = [(int(row[f"chunk_page_{r}"]), row[f"chunk_text_{r}"]) for r in range(1, top_k + 1)]
        doc = Doc(
            id=row["id"],
            question=row["question"],
            targets=(row["answer"],),
            passages=tuple(Passage(f"p{page}", shown, page=page) for page, shown in pages),
            cluster=f"p{int(row['page']):02d}",
            meta={"gold_page": int(row["page"])},
        )
        found.append(_rendered(doc, rows))
    return found


def r1_searcher(options: Options, data: str | None) -> list[Example]:
    """The published questions of a stage; the search policy has a prompt of its own."""
    stage = int(_only(options, "stage", stage=1)["stage"])
    path = locate("r1_searcher", f"training_set/stage_{stage}.jsonl", data)
    return [
        _asked(Doc(f"r1-stage{stage}-{n:04d}", text(where, row, "question"), _answers(where, row)))
        for n, (where, row) in enumerate(read_rows(path), start=1)
    ]


def jsonl(options: Options, data: str | None) -> list[Example]:
    """A user's own rows: id, question or prompt, and answer (RL) or completion (SFT).

    The option `kind` becomes the doc's (see harness/scoring/numeric.py); `file` names the file
    where data= does not.
    """
    chosen = _only(options, "file", "kind", file="", kind="")
    name = data or str(chosen["file"])
    path = Path(name).expanduser()
    if not name or not path.is_file():
        raise UsageError(
            f"{f'{name} is no file' if name else 'its data are not published'}: give "
            f"data=FILE.jsonl (id, question or prompt, and answer or completion)"
        )
    meta = {"kind": str(chosen["kind"])} if chosen["kind"] else {}
    found: list[Example] = []
    for where, row in read_rows(path):
        asked = text(where, row, "prompt" if "prompt" in row else "question")
        question = text(where, row, "question") if "question" in row else asked
        target = text(where, row, "completion") if "completion" in row else ""
        known = "answer" in row or "golden_answers" in row
        answers = _answers(where, row) if known else (target,)
        own = cast("dict[str, Any]", row["meta"]) if isinstance(row.get("meta"), dict) else {}
        doc = Doc(str(row.get("id", "")), question, answers, meta={**meta, **own})
        found.append(Example(doc, (Message("user", asked),), target))
    return found


SOURCES: Mapping[str, Callable[[Options, str | None], list[Example]]] = {
    "railway_demo": railway_demo,
    "bjtu_sft": bjtu_sft,
    "bjtu_zero": bjtu_zero,
    "bjtu_rl": bjtu_rl,
    "r1_searcher": r1_searcher,
    "jsonl": jsonl,
}
"""Name in a recipe -> its rows. Adding one: a function and a line here."""


def _only(options: Options, *known: str, **defaults: Any) -> dict[str, Any]:
    for key in options:
        if key not in known:
            raise ConfigError(f"unknown key 'data.options.{key}', {nearest(key, known)}")
    return {**defaults, **options}


def _rendered(doc: Doc, rows: Any) -> Example:
    """A doc with prompt and gold output as its task's module renders them."""
    from harness.scoring.process import doc_to_row

    row = doc_to_row(doc)
    prompt, target = str(rows.doc_to_text(row)), str(rows.doc_to_target(row))
    return Example(doc, (Message("user", prompt),), target)


def _asked(doc: Doc) -> Example:
    return Example(doc, (Message("user", doc.question),))


def _answers(where: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    value = row.get("golden_answers", row.get("answer"))
    if isinstance(value, list):
        return tuple(str(v) for v in cast("list[Any]", value))
    if isinstance(value, (int, float)):
        return (f"{value:g}",)
    return (text(where, dict(row), "answer"),)
