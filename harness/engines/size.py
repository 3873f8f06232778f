"""How large a model is, read from headers: no weights are loaded, no package is needed."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.engines.weights import WEIGHT_SUFFIXES, gguf_header, resolve
from harness.errors import EngineError
from harness.schema import Model

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
          "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}  # fmt: skip
_DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 0}
_CACHE_BYTES = 2  # llama.cpp and vllm keep 16-bit caches


@dataclass(frozen=True, slots=True)
class Size:
    """What a model needs.

    Attributes:
        weights: Bytes of the weights as the engine holds them.
        per_token: Bytes of KV cache for each token of a rollout in flight.
        context_length: Tokens it was trained for; 0 where that is not said.
    """

    weights: int
    per_token: int
    context_length: int


@dataclass(frozen=True, slots=True)
class _Header:
    parameters: int
    stored: int  # bytes of the weights as stored
    layers: int
    kv_heads: int
    head_size: int
    context: int
    gguf: bool


def size_of(model: Model) -> Size:
    """Read what a card's weights need on its engine.

    Raises:
        UsageError: The weights are not on this machine.
        EngineError: A header cannot be read or says too little.
    """
    path = resolve(model)
    try:
        head = _of_gguf(path) if path.suffix == ".gguf" else _of_folder(path)
    except (KeyError, TypeError, ValueError, OSError, struct.error) as error:
        raise EngineError(
            f"{model.name}: cannot read the size of {path}: {type(error).__name__}: {error}"
        ) from error
    width = 0 if model.engine == "llamacpp" else _DTYPES.get(str(model.flags.get("dtype")), 0)
    if head.gguf and model.engine == "hf":
        width = width or 4  # dequantised
    cached = width or (head.stored // max(head.parameters, 1) if model.engine == "hf" else 0)
    return Size(
        weights=head.parameters * width if width else head.stored,
        per_token=2 * head.layers * head.kv_heads * head.head_size * (cached or _CACHE_BYTES),
        context_length=head.context,
    )


def _of_gguf(path: Path) -> _Header:
    values, shapes = gguf_header(path)

    def value(name: str, default: int | None = None) -> int:
        found = values.get(f"{values['general.architecture']}.{name}", default)
        return int(found)

    heads = value("attention.head_count")
    return _Header(
        parameters=sum(math.prod(shape) for shape in shapes),
        stored=path.stat().st_size,
        layers=value("block_count"),
        kv_heads=value("attention.head_count_kv", heads),
        head_size=value("attention.key_length", value("embedding_length") // heads),
        context=value("context_length", 0),
        gguf=True,
    )


def _of_folder(path: Path) -> _Header:
    whole = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config: Mapping[str, Any] = whole.get("text_config", whole)
    heads = int(config["num_attention_heads"])
    files = [f for f in path.iterdir() if f.suffix == ".safetensors"]
    parameters = stored = 0
    for file in files:
        for shape, width in _tensors(file):
            count = math.prod(shape)
            parameters += count
            stored += count * width
    if not files:  # pickled weights have no header: assume 16 bits
        stored = sum(f.stat().st_size for f in path.iterdir() if f.suffix in WEIGHT_SUFFIXES)
        parameters = stored // 2
    return _Header(
        parameters=parameters,
        stored=stored,
        layers=int(config["num_hidden_layers"]),
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        context=int(config.get("max_position_embeddings", 0)),
        gguf=False,
    )


def _tensors(file: Path) -> list[tuple[list[int], int]]:
    """Shape and bytes a value of every tensor in a safetensors file."""
    with file.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        if size > 1 << 27:
            raise ValueError(f"{file.name}: a header of {size} bytes")
        header = cast("dict[str, dict[str, Any]]", json.loads(stream.read(size)))
    return [
        ([int(n) for n in entry["shape"]], _BYTES.get(str(entry["dtype"]), 2))
        for name, entry in header.items()
        if name != "__metadata__"
    ]
