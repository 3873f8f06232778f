"""Vectors of a corpus on disk: made batch by batch, resumed, mapped into memory when searched.

    FOLDER/vectors.json   corpus, encoder, dimension, rows, done
    FOLDER/vectors.npy    float32 (rows, dimension), in the order of the corpus

Only one batch is in memory at a time. A build that was killed goes on behind its last batch.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DataError
from harness.retrieval.building import (
    Counter,
    building,
    read_description,
    refuse_stale,
    write_description,
)
from harness.retrieval.corpus import Corpus
from harness.schema import Encoder

NAME = "vectors"


def check_vectors(folder: Path, corpus: Corpus, encoder: Encoder) -> None:
    """Refuse vectors of another corpus or encoder; nothing is encoded for that.

    Raises:
        DataError: They are stale; names both.
    """
    found = read_description(folder / f"{NAME}.json")
    if found:
        wanted = {"corpus": corpus.fingerprint, "encoder": encoder.passage_fingerprint}
        refuse_stale(folder, found, wanted)


def stored_vectors(folder: Path, corpus: Corpus, encoder: Encoder, batch: int = 256) -> Any:
    """The vectors of a corpus as a read-only map of the file, made first where some are missing.

    Args:
        folder: Where they are kept.
        corpus: What to encode.
        encoder: Encodes its passages.
        batch: Passages that are encoded and written at a time.

    Returns:
        float32 array (passages, dimension), rows of unit length.

    Raises:
        DataError: The folder holds vectors of another corpus, encoder or dimension, or is damaged.
        EngineError: The encoder's server failed; the next call goes on from there.
    """
    with building(folder):
        said = folder / f"{NAME}.json"
        check_vectors(folder, corpus, encoder)
        description: dict[str, Any] = read_description(said)
        if not description:
            description = {
                "corpus": corpus.fingerprint,
                "encoder": encoder.passage_fingerprint,
                "dimension": encoder.dimension,
                "rows": len(corpus),
                "done": 0,
            }
        if int(description["done"]) < len(corpus):
            refuse_stale(folder, description, {"dimension": encoder.dimension})
            _encode(folder, description, corpus, encoder, batch)
    return _map(folder, description, "r")


def _encode(
    folder: Path, description: dict[str, Any], corpus: Corpus, encoder: Encoder, batch: int
) -> None:
    done = int(description["done"])
    rows = _map(folder, description, "r+") if done else _map(folder, description, "w+")
    counter = Counter("encoded", len(corpus), done)
    texts = corpus.texts(done)
    while part := list(islice(texts, batch)):
        rows[done : done + len(part)] = encoder.encode(part, "passage")
        rows.flush()
        done += len(part)
        description["done"] = done
        write_description(folder / f"{NAME}.json", description)
        counter.add(len(part))


def _map(folder: Path, description: dict[str, Any], mode: str) -> Any:
    path = folder / f"{NAME}.npy"
    shape = int(description["rows"]), int(description["dimension"])
    if mode == "w+":
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    try:
        found = np.lib.format.open_memmap(path, mode="r+" if mode == "r+" else "r")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); delete its folder") from None
    if found.shape != shape or found.dtype != np.float32:
        raise DataError(
            f"{path}: holds {found.shape} numbers of type {found.dtype}, expected {shape} of "
            f"float32; delete its folder"
        )
    return found
