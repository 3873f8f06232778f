"""Record sets: one task's samples, from a run store or from a frozen baseline.

    baselines/NAME/TASK.jsonl.gz    first line: header with fingerprints; then one sample a line

A frozen baseline holds ids, outputs, scores, reasons and clusters: all that a paired
comparison needs, and no text of the data set. Outputs that quote a data set which must not be
copied (a reader of passages does) are left out with `freeze texts=false`: their hash still tells
whether two outputs are the same.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import codec
from harness.errors import DataError, NoBaselineError, StoreError
from harness.leaks import IN_PROMPT
from harness.schema import Verdict
from harness.store import Store

FROZEN_SCHEMA = 1
SUFFIX = ".jsonl.gz"

MACRO = "macro_"
"""Prefix of an aggregate that no doc has: `macro_accuracy` is the mean over strata (subjects) of
their mean accuracy, each stratum alike; `accuracy` is the mean over docs (micro)."""


def doc_metric(metric: str) -> tuple[str, bool]:
    """The metric of a doc that a name is an aggregate of, and whether strata count alike."""
    return metric.removeprefix(MACRO), metric.startswith(MACRO)


@dataclass(frozen=True, slots=True)
class Sample:
    """What statistics need of one record. `metrics` None means unscored.

    `output` is "" and `output_sha` its hash where a frozen baseline was to keep no texts.
    `verdicts` are what judges said, the deciding one first; a frozen baseline keeps them only
    where two judged, without their text.
    """

    repeat: int
    output: str
    finish: str
    metrics: Mapping[str, float] | None
    reasons: tuple[str, ...]
    completion_tokens: int | None
    verdicts: tuple[Verdict, ...] = ()
    output_sha: str = ""

    def says(self, other: Sample) -> bool:
        """Whether both have the same output, byte for byte."""
        if self.output_sha or other.output_sha:
            return self._sha() == other._sha()
        return self.output == other.output

    def kept(self, *, texts: bool) -> dict[str, str]:
        """The output as a frozen baseline has it."""
        keep = texts and not self.output_sha
        return {"output": self.output} if keep else {"output_sha": self._sha()}

    def _sha(self) -> str:
        return self.output_sha or codec.sha(self.output)


@dataclass(frozen=True, slots=True)
class DocSamples:
    """All samples of one doc, by repeat. `in_prompt`: the prompt shows its question."""

    doc_id: str
    cluster: str | None
    stratum: str | None
    prompt_sha: str
    samples: tuple[Sample, ...]
    in_prompt: bool = False

    def mean(self, metric: str) -> float | None:
        """Mean over repeats; None if any repeat is unscored on this metric."""
        values = [s.metrics.get(metric) if s.metrics is not None else None for s in self.samples]
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class RecordSet:
    """One task of one run.

    Attributes:
        name: Model (or baseline) name, for people.
        source: Run id, or the baseline's folder.
        info: As the store keeps it: fingerprints, version, sampling, flags, ...
        docs: In the nested order; only docs whose repeats are all there.
        selected: Docs that were asked for.
        unfinished: Docs that were asked for and lack repeats, with the samples they have.
        total: Docs in the whole set.
        environment: Code, packages and hardware of the invocations, each once.
    """

    name: str
    task: str
    source: str
    info: Mapping[str, Any]
    docs: tuple[DocSamples, ...]
    selected: int
    total: int
    repeats: int
    unfinished: tuple[DocSamples, ...] = ()
    environment: tuple[Mapping[str, Any], ...] = ()

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """What the run is made of, field by field."""
        return self.info["fingerprints"]

    @property
    def label(self) -> str:
        """Name and run, for people."""
        return self.source if "(frozen" in self.source else f"{self.name} ({self.source})"

    @property
    def retriever(self) -> str:
        """The retriever with its options, for people: "dense (encoder=e5)"; "" without one.

        Of a path or address only the last part is shown.
        """
        name = str(self.info.get("retriever") or "")
        given: Mapping[str, Any] = self.info.get("retriever_options") or {}
        shown = [
            f"{key}={str(value).partition('@')[0].rpartition('/')[2]:.40}"
            for key, value in sorted(given.items())
        ]
        return f"{name} ({', '.join(shown)})" if name and shown else name

    @property
    def missing(self) -> int:
        """Docs that were asked for and are not finished."""
        return len(self.unfinished)

    def metric_names(self) -> list[str]:
        """Every metric that any sample has, sorted."""
        return sorted({m for d in self.docs for s in d.samples for m in (s.metrics or ())})


def from_store(store: Store, task: str, limit: int | None = None) -> RecordSet:
    """Read one task of a run.

    Args:
        store: An open run.
        task: Task name.
        limit: Size of the selection; None takes the largest completed one, or, if none is
            complete, everything asked for (then `missing` is above 0).

    Raises:
        StoreError: The run has no such task, or a record is damaged.
    """
    tasks = store.tasks()
    if task not in tasks:
        raise StoreError(f"{store.folder}: the run has no task '{task}', it has {', '.join(tasks)}")
    run = tasks[task]
    stored = store.docs(task, limit if limit is not None else (run.complete or None))
    by_doc: dict[str, list[Sample]] = {}
    for record in store.records(task, len(stored)):
        score = record.score
        by_doc.setdefault(record.doc_id, []).append(
            Sample(
                record.repeat,
                record.rollout.answer,
                record.rollout.finish,
                None if score is None else score.metrics,
                () if score is None else score.reasons,
                record.rollout.completion_tokens,
                record.verdicts,
            )
        )
    docs = [
        DocSamples(
            d.doc.id,
            d.doc.cluster,
            d.doc.stratum,
            d.prompt_sha,
            tuple(by_doc.get(d.doc.id, ())),
            bool(d.doc.meta.get(IN_PROMPT)),
        )
        for d in stored
    ]  # fmt: skip
    meta = store.meta()
    return RecordSet(
        name=meta["model"],
        task=task,
        source=meta["run_id"],
        info=run.info,
        docs=tuple(d for d in docs if len(d.samples) == run.repeats),
        selected=len(stored),
        total=run.total,
        repeats=run.repeats,
        unfinished=tuple(d for d in docs if len(d.samples) < run.repeats),
        environment=_distinct(i["environment"] for i in store.invocations()),
    )


def _distinct(items: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple({codec.dumps(item): item for item in items}.values())


def freeze(records: RecordSet, folder: Path, name: str, *, texts: bool = True) -> Path:
    """Write a record set as a baseline; the same records give the same bytes.

    Args:
        records: A complete selection.
        folder: Of the baseline.
        name: Of the baseline.
        texts: Keep what the model said; else a hash of it.

    Raises:
        StoreError: The selection is not complete, or the folder cannot be written.
    """
    if records.missing or not records.docs:
        raise StoreError(
            f"{records.task}: {records.missing} of {records.selected} docs are not finished; "
            "only complete runs can be frozen (run the same command again to resume)"
        )
    header = {
        "schema": FROZEN_SCHEMA,
        "name": name,
        "task": records.task,
        "run": records.source,
        "info": dict(records.info),
        "selected": records.selected,
        "total": records.total,
        "repeats": records.repeats,
        "environment": [dict(e) for e in records.environment],
    }
    lines = [codec.dumps(header)]
    for doc in records.docs:
        for s in doc.samples:
            lines.append(
                codec.dumps(
                    {
                        "id": doc.doc_id, "cluster": doc.cluster, "stratum": doc.stratum,
                        "prompt_sha": doc.prompt_sha, "repeat": s.repeat,
                        **s.kept(texts=texts),
                        "finish": s.finish, "reasons": list(s.reasons),
                        "metrics": None if s.metrics is None else dict(s.metrics),
                        "completion_tokens": s.completion_tokens,
                        **({IN_PROMPT: True} if doc.in_prompt else {}),
                        **({"verdicts": [_bare(v) for v in s.verdicts]}
                           if len(s.verdicts) > 1 else {}),
                    }
                )
            )  # fmt: skip
    path = folder / f"{records.task}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".part")
        # mtime 0 and no file name in the header: the same records give the same bytes.
        with (
            temporary.open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as out,
        ):
            out.write(("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    return path


def _bare(verdict: Verdict) -> dict[str, Any]:
    """A verdict with what it cost and without what the judge said, which may quote the data."""
    try:
        raw = json.loads(verdict.raw)
    except ValueError:
        raw = None
    counts = {k: v for k, v in raw.items() if isinstance(v, int)} if isinstance(raw, dict) else {}
    return {**codec.verdict_to_json(verdict), "raw": codec.dumps(counts) if counts else ""}


def frozen_tasks(folder: Path) -> list[str]:
    """Tasks that a baseline folder holds."""
    return sorted(p.name.removesuffix(SUFFIX) for p in folder.glob(f"*{SUFFIX}"))


def load_frozen(folder: Path, task: str) -> RecordSet:
    """Read a frozen baseline.

    Raises:
        NoBaselineError: There is none for this task.
        DataError: The file is damaged; the message names it and the line.
    """
    path = folder / f"{task}{SUFFIX}"
    if not path.is_file():
        raise NoBaselineError(
            f"no baseline for task '{task}' in {folder}: freeze run=ID as={folder.name}"
        )
    number = 1
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="surrogatepass") as lines:
            header = json.loads(next(lines))
            if header["schema"] != FROZEN_SCHEMA:
                raise DataError(
                    f"{path}: schema {header['schema']}, this version reads {FROZEN_SCHEMA}"
                )
            rows: list[dict[str, Any]] = []
            for line in lines:
                number += 1
                rows.append(json.loads(line))
                _ = rows[-1]["id"], rows[-1]["repeat"], rows[-1]["metrics"]
        docs = _docs(rows)
        if len(docs) != header["selected"]:
            raise DataError(
                f"{path}: {len(docs)} docs, the header declares {header['selected']}; truncated?"
            )
        return RecordSet(
            name=header["name"],
            task=header["task"],
            source=f"{header['name']} (frozen {header['run']})",
            info=header["info"],
            docs=docs,
            selected=header["selected"],
            total=header["total"],
            repeats=header["repeats"],
            environment=tuple(header["environment"]),
        )
    except (OSError, EOFError, zlib.error, StopIteration) as error:
        raise DataError(f"{path}: cannot be read ({error or 'empty'}); freeze it again") from None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}, line {number}: {type(error).__name__}: {error}") from None


def _docs(rows: Iterable[Mapping[str, Any]]) -> tuple[DocSamples, ...]:
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row["id"], []).append(row)
    return tuple(
        DocSamples(
            doc_id,
            samples[0]["cluster"],
            samples[0]["stratum"],
            samples[0]["prompt_sha"],
            tuple(
                Sample(
                    s["repeat"], s.get("output", ""), s["finish"], s["metrics"],
                    tuple(s["reasons"]), s["completion_tokens"],
                    tuple(codec.verdict_from_json(v) for v in s.get("verdicts", ())),
                    s.get("output_sha", ""),
                )
                for s in sorted(samples, key=lambda s: s["repeat"])
            ),
            bool(samples[0].get(IN_PROMPT)),
        )
        for doc_id, samples in grouped.items()
    )  # fmt: skip
