"""Data sets from outside: where a file has to be, and whether it is the right one.

None of them is part of this project. `tasks/datasets.toml` names upstream, revision, licence
and the checksum of every file; a user puts the files under one folder, the data root, and says
which one with data=DIR or CHECKRAIL_DATA.

    path = locate("bjtu_railway", "dataset/sft_data/test.csv", root)

A set with `hub` is a hub repository whose files nobody here holds, so it has no checksums:
`find` takes a file from the data root, else from the hub, gated sets with the user's token.

A checksum is computed once for a file and remembered by size and modification time, in the
process and in the cache folder (CHECKRAIL_CACHE, or ~/.cache/checkrail).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import tempfile
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness import paths
from harness.errors import ConfigError, DataError, nearest

DATASETS = paths.TASKS / "datasets.toml"

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HOW = f"give data=DIR or set {paths.DATA_VARIABLE}"

_Fields = Mapping[str, tuple[type, bool]]  # key -> (type, required)
_SET: _Fields = {
    "about": (str, True),
    "upstream": (str, True),
    "revision": (str, True),
    "licence": (str, True),
    "folder": (str, True),
    "note": (str, False),
    "recipe": (str, False),
    "hub": (str, False),
    "files": (dict, False),
}
_FILE: _Fields = {
    "sha256": (str, True),
    "rows": (int, False),
    "source": (str, False),
    "packed": (bool, False),
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set.

    Attributes:
        path: Relative to the data set's folder, with "/".
        sha256: Of its bytes, or of what they unpack to.
        rows: Items in it; None where that means nothing.
        source: Path in the upstream repository.
        packed: Whether it is gzipped here and the checksum is that of the content.
    """

    path: str
    sha256: str
    rows: int | None
    source: str
    packed: bool


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set as `tasks/datasets.toml` describes it.

    Attributes:
        upstream: Repository (or paper) that published it.
        revision: Commit of the repository.
        folder: Its place under the data root.
        recipe: How the files are made from upstream, where they do not lie there as they are.
        hub: Data set repository on the Hugging Face hub; then `files` may be empty.
    """

    id: str
    about: str
    upstream: str
    revision: str
    licence: str
    folder: str
    note: str = ""
    recipe: str = ""
    hub: str = ""
    files: Mapping[str, DataFile] = field(default_factory=dict[str, DataFile])

    @property
    def origin(self) -> str:
        """Upstream and revision, as every message and every board cites them."""
        return f"{self.upstream}@{self.revision}"

    def get(self, file: DataFile) -> str:
        """What a user has to do to have a file: for error messages."""
        if self.recipe:
            return f"make {file.path} from {self.origin} ({self.recipe})"
        return f"get {file.source} of {self.origin} ({self.licence})"


def load_datasets(path: Path = DATASETS) -> dict[str, Dataset]:
    """Read the list of data sets.

    Raises:
        ConfigError: The file cannot be read, or a key is unknown, missing or of the wrong type;
            the message names file, data set and key.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    key = path, hashlib.sha256(raw).digest()
    if key not in _LISTS:
        try:
            data = tomllib.loads(raw.decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None
        _LISTS[key] = {name: _dataset(path, name, value) for name, value in data.items()}
    return dict(_LISTS[key])


_LISTS: dict[tuple[Path, bytes], dict[str, Dataset]] = {}


def dataset(dataset_id: str, listing: Path = DATASETS) -> Dataset:
    """Return a data set by its id.

    Raises:
        ConfigError: It is not in the list; the message gives the nearest ids.
    """
    known = load_datasets(listing)
    if dataset_id not in known:
        raise ConfigError(f"{listing}: no data set '{dataset_id}': {nearest(dataset_id, known)}")
    return known[dataset_id]


def locate(
    dataset_id: str, file: str, root: Path | str | None = None, *, listing: Path = DATASETS
) -> Path:
    """Path of a file of a data set, after its checksum was found right.

    Args:
        dataset_id: A table of `tasks/datasets.toml`.
        file: One of its files.
        root: The data root; None or "" takes CHECKRAIL_DATA.
        listing: The list of data sets.

    Raises:
        DataError: There is no data root, no such file under it, or another content than
            published; one line that says which data set, from where, and where to put it.
        ConfigError: The list does not have this data set or this file.
    """
    found = dataset(dataset_id, listing)
    wanted = _file(found, file, listing)
    base = Path(root).expanduser() if root else paths.data_root()
    where = f"{found.folder}/{wanted.path}"
    if base is None:
        raise DataError(
            f"data set '{dataset_id}' is not part of this project: get {found.origin} "
            f"({found.licence}), put its files at DIR/{found.folder}/, and {_HOW}"
        )
    path = base / where
    if not path.is_file():
        raise DataError(
            f"data set '{dataset_id}': {path} is missing: {found.get(wanted)} "
            f"and put it there, or {_HOW} where DIR holds {where}"
        )
    actual = _checksum(path, wanted.packed)
    if actual != wanted.sha256:
        content = "content of " if wanted.packed else ""
        raise DataError(
            f"data set '{dataset_id}': {content}{path} has sha256 {actual}, expected "
            f"{wanted.sha256}: {found.get(wanted)} again"
        )
    return path


def find(
    dataset_id: str,
    file: str,
    root: Path | str | None = None,
    *,
    listing: Path = DATASETS,
    download: bool = True,
) -> Path:
    """Path of a file of a hub set: in its folder under the data root, else from the hub.

    Nothing is checked: the fingerprint of a task's rows tells two versions apart.

    Args:
        dataset_id: A table of `tasks/datasets.toml` with `hub`.
        file: Path in the hub repository, and in the set's folder.
        root: The data root; None or "" takes CHECKRAIL_DATA.
        listing: The list of data sets.
        download: Whether to ask the hub.

    Raises:
        DataError: It is in neither place; one line that says how to get it.
        ConfigError: The list does not have this data set.
    """
    found = dataset(dataset_id, listing)
    base = Path(root).expanduser() if root else paths.data_root()
    if base is not None and (base / found.folder / file).is_file():
        return base / found.folder / file
    why = "the hub was not asked"
    if download:
        made = _from_hub(found.hub, file)
        if isinstance(made, Path):
            return made
        why = made
    where = f"{base or 'DIR'}/{found.folder}"
    raise DataError(
        f"data set '{dataset_id}': {where}/{file} is missing ({why}): "
        f"`hf download {found.hub} --repo-type dataset --local-dir {where}`"
        f"{f' {found.note}' if found.note else ''}, and {_HOW}"
    )


def _from_hub(repository: str, file: str) -> Path | str:
    """A file of a hub data set, from the cache or downloaded; else why it cannot be had."""
    import httpx
    import huggingface_hub as hub
    from huggingface_hub import constants, errors

    cached = hub.try_to_load_from_cache(repository, file, repo_type="dataset")
    if isinstance(cached, str):
        return Path(cached)
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:  # a download by itself tries for half a minute to reach a hub that is not there
        httpx.head(constants.ENDPOINT, timeout=5)
        return Path(hub.hf_hub_download(repository, file, repo_type="dataset"))
    except httpx.TransportError:
        return f"{constants.ENDPOINT} cannot be reached"
    except errors.GatedRepoError:
        return "gated: accept its terms on the hub, then `hf auth login`"
    except (errors.HfHubHTTPError, OSError) as error:
        return " ".join(str(error).split())[:200]


def problems(
    dataset_id: str, root: Path | str | None = None, *, listing: Path = DATASETS
) -> list[str]:
    """One line for each file of a data set that is missing or changed; empty if all are right."""
    lines: dict[str, None] = {}  # without a data root every file has the same problem
    for file in dataset(dataset_id, listing).files:
        try:
            locate(dataset_id, file, root, listing=listing)
        except DataError as error:
            lines[str(error)] = None
    return list(lines)


def _file(found: Dataset, file: str, listing: Path) -> DataFile:
    if file not in found.files:
        raise ConfigError(
            f"{listing}: data set '{found.id}' has no file '{file}': {nearest(file, found.files)}"
        )
    return found.files[file]


# --- the list --------------------------------------------------------------------------------


def _dataset(path: Path, name: str, value: Any) -> Dataset:
    data = _checked(value, _SET, f"{path}: [{name}]")
    files: dict[str, DataFile] = {}
    for file, entry in data.pop("files", {}).items():
        where = f'{path}: [{name}.files] "{file}"'
        _check_relative(file, where)
        fields = _checked(entry, _FILE, where)
        if not _SHA256.fullmatch(fields["sha256"]):
            raise ConfigError(f"{where}: 'sha256' must be 64 lower-case hexadecimal digits")
        files[file] = DataFile(
            path=file,
            sha256=fields["sha256"],
            rows=fields.get("rows"),
            source=fields.get("source", file),
            packed=fields.get("packed", False),
        )
    if not files and not data.get("hub"):
        raise ConfigError(f"{path}: [{name}]: 'files' names no file")
    _check_relative(data["folder"], f"{path}: [{name}]: 'folder'")
    return Dataset(id=name, files=files, **data)


def _checked(value: Any, fields: _Fields, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table, is {type(value).__name__}")
    data = cast("dict[str, Any]", value)
    for key, item in data.items():
        if key not in fields:
            raise ConfigError(f"{where}: unknown key '{key}', {nearest(key, fields)}")
        kind = fields[key][0]
        if not isinstance(item, kind) or (isinstance(item, bool) and kind is not bool):
            raise ConfigError(
                f"{where}: '{key}' must be a {kind.__name__}, is {type(item).__name__}"
            )
    for key, (_, required) in fields.items():
        if required and data.get(key) in (None, ""):
            raise ConfigError(f"{where}: key '{key}' is missing")
    return dict(data)


def _check_relative(path: str, where: str) -> None:
    """A path of the list stays under the data root."""
    if path.startswith("/") or "\\" in path or {"", ".", ".."} & set(path.split("/")):
        raise ConfigError(f"{where}: '{path}' must be a plain relative path")


# --- checksums -------------------------------------------------------------------------------

_Stamp = tuple[str, int, int, bool]  # path, size, modification time, unpacked or not
_CHECKSUMS: dict[_Stamp, str] = {}


def _checksum(path: Path, packed: bool) -> str:
    try:
        stat = path.stat()
        stamp = str(path.resolve()), stat.st_size, stat.st_mtime_ns, packed
        if stamp not in _CHECKSUMS:
            _CHECKSUMS[stamp] = _remembered(stamp) or _computed(path, stamp)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: is cut short or no gzip file ({error})") from None
    return _CHECKSUMS[stamp]


def _computed(path: Path, stamp: _Stamp) -> str:
    digest = hashlib.sha256()
    with gzip.open(path, "rb") if stamp[3] else path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    value = digest.hexdigest()
    cache = _cache_file()
    with contextlib.suppress(OSError):  # a cache that cannot be written is done without
        cache.parent.mkdir(parents=True, exist_ok=True)
        known = {**_read_cache(cache), _key(stamp): [*stamp[1:3], value]}
        handle, temporary = tempfile.mkstemp(dir=cache.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(known, out)
        Path(temporary).replace(cache)
    return value


def _remembered(stamp: _Stamp) -> str:
    entry = _read_cache(_cache_file()).get(_key(stamp))
    if isinstance(entry, list) and entry[:2] == [stamp[1], stamp[2]]:
        value = cast("list[Any]", entry)[-1]
        return value if isinstance(value, str) and _SHA256.fullmatch(value) else ""
    return ""


def _key(stamp: _Stamp) -> str:
    return f"{stamp[0]}{' (unpacked)' if stamp[3] else ''}"


def _cache_file() -> Path:
    return paths.cache() / "checksums.json"


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}
