"""BM25 at size: ours on disk and in memory against rank_bm25; flat against HNSW and IVF.

    CHECKRAIL_DATA=DIR python benchmarks/bm25_scale.py folder=DIR
        parts=real,synthetic,dense sizes=10000,100000,300000,1000000 rank=1000000 memory=100000

Every side is a process of its own, one thread each, so that its memory is its own: `RSS` is the
peak that the kernel says (with what is mapped from files), `own` the largest sample of its
anonymous memory. The synthetic passages have 80 to 120 words (KILT's have 100), drawn with a
probability of about (rank + 10.5)^-1.4: at the size of the real passages it has their vocabulary.
`rank` and `memory` are the largest sizes at which rank_bm25 and the index in memory are tried; a
side that wants more than 8 GiB of its own is stopped and said to be. rank_bm25 is given each
distinct word as one object and no list of all tokens, which spares it several times its memory.

The tables of benchmarks/README.md come from here. `folder` keeps corpora and results.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from harness import paths
from harness.jsonl import read_rows
from harness.retrieval import load_passages, open_retriever
from harness.retrieval.passage_file import open_corpus
from harness.retrieval.tokenize import words

K = 10
LIMIT = 8 << 30
SAME = {"method": "atire", "idf": "robertson"}  # rank_bm25's formula, but for its floor on idf
SENTENCES = 100_000
WORLD = 29_000_000  # passages of R1-Searcher's KILT corpus


# --- what is searched -----------------------------------------------------------------------------


def real(folder: Path) -> tuple[Path, list[str]]:
    """Every passage of the multi-hop corpora at hand, each once, and the evaluation questions."""
    root = paths.data_root()
    if not root:
        raise SystemExit(f"set {paths.DATA_VARIABLE}")
    seen: dict[tuple[str, str], None] = {}
    for path in sorted((root / "derived").glob("*.jsonl")):
        seen.update(((p.title, p.text), None) for p in load_passages(path).passages)
    for path in sorted((root / "hipporag").glob("*_corpus.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(rows, dict):
            rows = [{"title": t, "text": " ".join(text)} for t, text in rows.items()]
        seen.update(((row["title"], row["text"]), None) for row in rows)
    corpus = folder / "real.jsonl"
    with corpus.open("w", encoding="utf-8") as stream:
        for n, (title, text) in enumerate(seen):
            stream.write(json.dumps({"id": n, "title": title, "text": text}) + "\n")
    sets = sorted((root / "r1_searcher" / "eval_set").glob("*.jsonl"))
    return corpus, [str(row["question"]) for path in sets for _, row in read_rows(path)]


def synthetic(folder: Path, sizes: list[int]) -> tuple[list[Path], list[str]]:
    """The first n of a seeded corpus for each n, and 200 queries of 8 words of a passage each."""
    vocabulary, shift, slope = 3_000_000, 10.5, 0.4
    names = np.array([_name(rank) for rank in range(vocabulary)], object)
    rng = np.random.default_rng(0)
    asked: list[str] = []
    files = [folder / f"synthetic{n}.tsv" for n in sizes]
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(path.open("w", encoding="ascii")) for path in files]
        for stream in streams:
            stream.write("id\ttext\ttitle\n")
        for first in range(0, max(sizes), 10_000):
            lengths = rng.integers(80, 121, 10_000).tolist()
            tail = rng.random(sum(lengths)) * (1 - (vocabulary / shift + 1) ** -slope)
            ranks = (shift * ((1 - tail) ** (-1 / slope) - 1)).astype(np.int64)
            drawn = iter(names[np.minimum(ranks, vocabulary - 1)].tolist())
            texts = [" ".join(itertools.islice(drawn, length)) for length in lengths]
            lines = [f"{first + i}\t{text}\t\n" for i, text in enumerate(texts)]
            for n, stream in zip(sizes, streams, strict=True):
                stream.writelines(lines[: max(0, n - first)])
            if not asked:
                picks = np.random.default_rng(1)
                chosen = [picks.choice(text.split(), 8, replace=False) for text in texts[:200]]
                asked = [" ".join(query) for query in chosen]
    return files, asked


def _name(rank: int) -> str:
    letters = ""
    rank += 1
    while rank:
        rank, letter = divmod(rank - 1, 26)
        letters = chr(97 + letter) + letters
    return letters


# --- the sides, each in its own process -----------------------------------------------------------


def build(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    with timed() as read:
        passages = open_corpus(corpus)
    with timed() as built:
        open_retriever("bm25", passages, index=index, **SAME).retrieve(["x"], 1)
    said = json.loads((Path(index) / "bm25.json").read_text(encoding="utf-8"))
    return {
        "n": len(passages),
        "read": read,
        "build": built,
        "tokens": said["tokens"],
        "postings": said["postings"],
    }


def ours(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    """Search; with an index on disk, or built in memory where `index` is ""."""
    passages = open_corpus(corpus)
    retriever: Any = open_retriever("bm25", passages, index=index, **SAME)
    with timed() as opened:
        retriever.retrieve(["x"], 1)
    retriever.retrieve(asked[:5], K)
    with timed() as search:
        found = retriever.retrieve(asked, K)
    ends = retriever._index.scores["indptr"]
    ids = retriever._index.vocab_dict
    often = {t: bool(2 * (ends[ids[t] + 1] - ends[ids[t]]) > len(passages))
             for query in asked for t in words(query) if t in ids}  # fmt: skip
    rows = [[(int(p.doc_id), p.score) for p in row] for row in found]
    return {"build": opened, "search": search, "n": len(asked), "rows": rows,
            "often": [t for t, frequent in often.items() if frequent]}  # fmt: skip


def memory(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    from harness.retrieval import bm25

    bm25.STORED = 1 << 40
    return ours(corpus, "", asked)


def lucene(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    """The default formula, in memory."""
    found: Any = open_retriever("bm25", open_corpus(corpus)).retrieve(asked, K)
    return {"rows": [[(int(p.doc_id), p.score) for p in row] for row in found]}


def rank(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    from rank_bm25 import BM25Okapi

    one: dict[str, str] = {}
    passages = open_corpus(corpus)
    with timed() as built:
        library = BM25Okapi([one.setdefault(t, t) for t in words(x)] for x in passages.texts())
    rows: list[list[tuple[int, float]]] = []
    half = len(asked) // 2  # the others are for the comparison, not for the clock
    with timed() as search:
        rows += [_ranked(library, query) for query in asked[:half]]
    rows += [_ranked(library, query) for query in asked[half:]]
    return {"build": built, "search": search, "n": half, "rows": rows}


def _ranked(library: Any, query: str) -> list[tuple[int, float]]:
    scores = library.get_scores(words(query))
    found = np.flatnonzero(scores >= np.partition(scores, -K)[-K])
    best = found[np.argsort(-scores[found], kind="stable")][:K]
    return [(int(i), float(scores[i])) for i in best if scores[i]]


def encode(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    with timed() as built:
        dense(corpus, index).open()
    return {"build": built}


def vectors(corpus: Path, index: str, asked: list[str]) -> dict[str, Any]:
    """One kind of FAISS index under several settings; `index` is FOLDER:KIND."""
    folder, _, kind = index.rpartition(":")
    setting = {"flat": "", "hnsw": "ef_search", "ivf": "probes"}[kind]
    results: list[dict[str, Any]] = []
    for value in {"flat": (0,), "hnsw": (16, 64, 256), "ivf": (4, 16, 64)}[kind]:
        retriever = dense(corpus, folder, kind=kind, **({setting: value} if setting else {}))
        with timed() as built:
            retriever.open()
        queries = retriever._encoder.encode(asked, "query")
        with timed() as search:
            _, rows = retriever.search(queries, 5)
        results.append({"setting": f"{setting} {value}" if setting else "", "build": built,
                        "search": search, "rows": rows.tolist()})  # fmt: skip
    return {"results": results, "n": len(asked)}


def dense(corpus: Path, index: str, **options: Any) -> Any:
    return open_retriever("dense", open_corpus(corpus), encoder="ngram", encoder_dimension=256,
                          index=index, **options)  # fmt: skip


SIDES: dict[str, Callable[[Path, str, list[str]], dict[str, Any]]] = {
    s.__name__: s for s in (build, ours, memory, lucene, rank, encode, vectors)
}


class timed:
    """Seconds of a block: (wall, CPU); a busy machine stretches the first, hardly the second."""

    def __enter__(self) -> list[float]:
        self._said: list[float] = []
        self._began = time.perf_counter(), time.process_time()
        return self._said

    def __exit__(self, *_: object) -> None:
        self._said += [time.perf_counter() - self._began[0], time.process_time() - self._began[1]]


def child(side: str, corpus: Path, index: str, asked: list[str], folder: Path) -> dict[str, Any]:
    """Run a side; {} with "stopped" where it wanted more memory than it may have."""
    job = {"side": side, "corpus": str(corpus), "index": index, "asked": asked}
    task, result = folder / "job.json", folder / "result.json"
    task.write_text(json.dumps(job), encoding="utf-8")
    result.unlink(missing_ok=True)
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env = {**os.environ, **one, "CHECKRAIL_CACHE": str(folder / "cache")}
    process = subprocess.Popen([sys.executable, __file__, f"job={task}"], env=env)
    own = disk = 0
    last = 0.0
    while process.poll() is None:
        own = max(own, _status(process.pid, "RssAnon"))
        if side == "build" and time.monotonic() - last > 1:
            disk, last = max(disk, size(Path(index))), time.monotonic()
        time.sleep(0.02)
    found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {"stopped": True}
    found |= {"own": own / 1024, "disk": disk}
    print(f"{side} {corpus.name} {index}: {_short(found)}", file=sys.stderr, flush=True)
    return found


def _status(pid: int | str, name: str) -> int:
    """A process's memory in KiB: RssAnon now, VmHWM at its peak."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(name))


def size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _short(found: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in found.items() if k not in ("rows", "results", "often")})


def work(task: str) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    job = json.loads(Path(task).read_text(encoding="utf-8"))
    try:
        found = SIDES[job["side"]](Path(job["corpus"]), job["index"], job["asked"])
    except MemoryError:
        found = {"stopped": True}
    found["rss"] = _status("self", "VmHWM") / 1024
    Path(task).with_name("result.json").write_text(json.dumps(found), encoding="utf-8")


# --- what comes of it -----------------------------------------------------------------------------


def same(ours: list[Any], theirs: list[Any]) -> bool:
    """One ranking: equal scores rank by rank, equal passages among equal scores.

    Passages that tie with the last one may be others; float sums may differ in the last bits.
    """
    a, b = [s for _, s in ours], [s for _, s in theirs]
    if len(a) != len(b) or not np.allclose(a, b, rtol=1e-9, atol=0):
        return False
    last = b[-1] * (1 + 1e-9) if b else 0
    return {i for i, s in ours if s > last} == {i for i, s in theirs if s > last}


def lexical(
    corpus: Path, asked: list[str], folder: Path, tries: dict[str, int]
) -> tuple[list[list[str]], dict[str, Any]]:
    """Rows of the table for one corpus, and what the projection needs."""
    index = folder / f"index-{corpus.stem}"
    shutil.rmtree(index, ignore_errors=True)
    built = child("build", corpus, str(index), [], folder)
    disk = child("ours", corpus, str(index), asked, folder)
    n = built["n"]
    sides = {"ours, on disk": {**disk, "build": built["build"], "rss": built["rss"],
                               "own": built["own"]}}  # fmt: skip
    if n <= tries["memory"]:
        sides["ours, in memory"] = child("memory", corpus, "", asked, folder)
    often = set(disk["often"])
    few = asked[:: max(1, len(asked) // tries["queries"])][: tries["queries"]]
    at = [asked.index(query) for query in few]
    trimmed = [" ".join(t for t in words(query) if t not in often) for query in few]
    if n <= tries["rank"]:
        sides["rank_bm25"] = child("rank", corpus, "", [*few, *trimmed], folder)
    rows: list[list[str]] = []
    base = sides.get("rank_bm25", {})
    for name, side in sides.items():
        if side.get("stopped"):
            rows.append([f"{n:,}", name, "more than 8 GiB", *[""] * 6])
            continue
        pace = side["n"] / side["search"][1]
        ratios = ["", ""]
        if base.get("build") and name != "rank_bm25":
            ratios = [f"{side['build'][1] / base['build'][1]:.2f}",
                      f"{pace / (base['n'] / base['search'][1]):.0f}"]  # fmt: skip
        held = f"{side['own']:,.0f} / {side['rss']:,.0f}"
        searched = f"{disk['own']:,.0f} / {disk['rss']:,.0f}" if name == "ours, on disk" else ""
        rows.append([f"{n:,}", name, f"{side['build'][1]:.1f} ({side['build'][0]:.1f})", held,
                     searched, f"{pace:,.1f}", *ratios])  # fmt: skip
    facts = {"n": n, "corpus": corpus.stat().st_size, "read": built["read"], **{
        key: built[key] for key in ("build", "own", "rss", "tokens", "postings")},
        "disk": size(index), "peak": max(built["disk"], size(index)),
        "query": disk["search"][1] / disk["n"], "open": disk["build"][1], "held": disk["own"],
    }  # fmt: skip
    if "ours, in memory" in sides and "rows" in sides["ours, in memory"]:
        facts["memory"] = sides["ours, in memory"]["rows"] == disk["rows"]
    if base.get("rows"):
        theirs, cut = base["rows"][: len(few)], base["rows"][len(few) :]
        mine = child("ours", corpus, str(index), trimmed, folder)["rows"]
        agree = [same(disk["rows"][i], row) for i, row in zip(at, theirs, strict=True)]
        frequent = [bool(often & set(words(query))) for query in few]
        facts["agreement"] = {
            "without": _share(a for a, f in zip(agree, frequent, strict=True) if not f),
            "with": _share(a for a, f in zip(agree, frequent, strict=True) if f),
            "overlap": _overlap([disk["rows"][i] for i in at], theirs, K),
            "trimmed": _share(same(a, b) for a, b in zip(mine, cut, strict=True)),
        }
        if corpus.stem == "real":
            default = child("lucene", corpus, "", few, folder)["rows"]
            facts["agreement"]["overlap, default formula"] = _overlap(default, theirs, K)
    return rows, facts


def _share(of: Iterable[bool]) -> str:
    values = [*of]
    return f"{sum(values)} of {len(values)}"


def _overlap(ours: list[Any], theirs: list[Any], k: int) -> str:
    """How many have the same first passage, and the mean share of the first k in common."""
    ids = [[[i for i, _ in row[:k]] for row in side] for side in (ours, theirs)]
    first = _share(a[:1] == b[:1] for a, b in zip(*ids, strict=True))
    common = np.mean([len({*a} & {*b}) / max(len(b), 1) for a, b in zip(*ids, strict=True)])
    return f"first {first}, {common:.3f} of the first {k}"


def projection(facts: list[dict[str, Any]]) -> list[list[str]]:
    """From the two largest sizes on by a straight line; the vocabulary by a power of the size."""
    a, b = facts[-2:]
    step = WORLD - b["n"]

    def line(of: Callable[[dict[str, Any]], float]) -> float:
        return of(b) + step * (of(b) - of(a)) / (b["n"] - a["n"])

    power = np.log(b["tokens"] / a["tokens"]) / np.log(b["n"] / a["n"])
    tokens = b["tokens"] * (WORLD / b["n"]) ** power
    return [
        ["reading the corpus once", f"{line(lambda f: f['read'][1]) / 60:,.0f} CPU minutes"],
        ["building", f"{line(lambda f: f['build'][1]) / 60:,.0f} CPU minutes"],
        ["index", f"{line(lambda f: f['disk']) / 1e9:,.0f} GB"],
        ["while it is built, at most", f"{line(lambda f: f['peak']) / 1e9:,.0f} GB"],
        ["own memory while it is built", f"{line(lambda f: f['own']) / 1024:,.1f} GiB"],
        ["words", f"{tokens / 1e6:.0f} million (exponent {power:.2f})"],
        ["own memory of a search", f"{line(lambda f: f['held']) / 1024:,.1f} GiB"],
        ["queries a CPU second", f"{1 / line(lambda f: f['query']):.1f}"],
    ]


def dense_table(corpus: Path, asked: list[str], folder: Path) -> str:
    """Sentences of the real passages by the packaged n-gram encoder, the real questions."""
    sentences = folder / "sentences.jsonl"
    texts = (s.strip() for text in open_corpus(corpus).texts() for s in text.split(". "))
    distinct = [*dict.fromkeys(s for s in texts if len(s) > 20)][:SENTENCES]
    lines = (json.dumps({"id": n, "text": s}) + "\n" for n, s in enumerate(distinct))
    sentences.write_text("".join(lines), encoding="utf-8")
    index = folder / "vectors"
    print(
        f"{len(distinct):,} sentences: {_short(child('encode', sentences, str(index), [], folder))}"
    )
    kinds = {k: child("vectors", sentences, f"{index}:{k}", asked, folder)
             for k in ("flat", "hnsw", "ivf")}  # fmt: skip
    true = kinds["flat"]["results"][0]
    table: list[list[str]] = []
    for kind, found in kinds.items():
        for result in found["results"]:
            hits = [len({*x} & {*y}) / 5 for x, y in zip(true["rows"], result["rows"], strict=True)]
            first = result is found["results"][0]
            table.append([
                kind, result["setting"], f"{np.mean(hits):.3f}",
                f"{result['build'][1]:.0f}" if first and kind != "flat" else "",
                f"{found['n'] / result['search'][1]:,.0f}",
                f"{true['search'][1] / result['search'][1]:.1f}",
                f"{size_of(index, kind) / 1e6:,.0f}" if first else "",
                f"{found['own']:,.0f} / {found['rss']:,.0f}" if first else "",
            ])  # fmt: skip
    head = ["kind", "searched with", "recall@5", "build CPU s", "queries / CPU s", "x flat", "MB",
            "own / RSS MiB"]  # fmt: skip
    return tabulate(table, head, tablefmt="pipe", disable_numparse=True)


def size_of(index: Path, kind: str) -> int:
    names = {"flat": "vectors.npy"}.get(kind, f"{kind}-*.faiss")
    return sum(path.stat().st_size for path in index.glob(names))


HEAD = ["passages", "side", "build CPU s (wall)", "own / RSS MiB", "searching", "queries / CPU s",
        "build, x rank_bm25", "queries, x rank_bm25"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("options", nargs="+")
    given = dict(option.partition("=")[::2] for option in parser.parse_args().options)
    if "job" in given:
        work(given["job"])
        return
    folder = Path(given["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["CHECKRAIL_CACHE"] = str(folder / "cache")
    parts = given.get("parts", "real,synthetic,dense").split(",")
    tries = {"rank": int(given.get("rank", 10**6)), "memory": int(given.get("memory", 10**5))}
    corpus, questions = real(folder) if {"real", "dense"} & {*parts} else (folder, [])
    rows: list[list[str]] = []
    facts: list[dict[str, Any]] = []
    if "real" in parts:
        rows, fact = lexical(corpus, questions, folder, {**tries, "queries": 200})
        print(f"Real: {json.dumps(fact)}\n")
    if "synthetic" in parts:
        sizes = [*map(int, given.get("sizes", "10000,100000,300000,1000000").split(","))]
        files, asked = synthetic(folder, sizes)
        for made in files:
            more, fact = lexical(made, asked, folder, {**tries, "queries": 10})
            rows += more
            facts.append(fact)
            print(f"Synthetic: {json.dumps(fact)}\n", flush=True)
    if rows:
        print(tabulate(rows, HEAD, tablefmt="pipe", disable_numparse=True), "\n")
    if len(facts) > 1:
        print(f"Projection to {WORLD:,} passages\n")
        print(tabulate(projection(facts), ["", ""], tablefmt="pipe", disable_numparse=True), "\n")
    if "dense" in parts:
        print(dense_table(corpus, questions, folder))


if __name__ == "__main__":
    main()
