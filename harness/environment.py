"""What a result was computed with: code, packages and hardware; noted, never compared."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import paths

_PACKAGES = (
    "checkrail", "lm-eval", "datasets", "numpy", "scipy", "torch", "transformers", "peft",
    "xllamacpp", "vllm", "bm25s", "rank-bm25", "faiss-cpu",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Code version, packages and hardware: noted beside results, never compared."""
    packages: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "code": code_version(),
        "python": platform.python_version(),
        "packages": packages,
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count() or 0,
        },
    }


def code_version() -> str:
    """Commit of this checkout, with "+changes" where files differ; "unknown" outside git."""
    if not paths.IS_CHECKOUT:
        return "unknown"  # git would tell of whatever repository the package lies in

    def git(*args: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(paths.ROOT), *args],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "harness", "tasks")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit + ("+changes" if changed else "")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
