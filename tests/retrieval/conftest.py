"""Encoders that packages carry, each read once: their weights take seconds."""

from functools import cache

import pytest

from harness.retrieval.encoders import open_encoder


@pytest.fixture(scope="session")
def packaged():
    """Opens an encoder by name, or gives the one that is open."""
    return cache(open_encoder)
