"""Shared by all tests: no network, and the published data where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("checkrail", deadline=None)  # no test depends on how fast it runs
settings.load_profile("checkrail")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The published data sets; a test that wants them is skipped where they are missing."""
    for candidate in (os.environ.get("CHECKRAIL_DATA"), ROOT.parent / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("published data not at hand: set CHECKRAIL_DATA to their folder")
