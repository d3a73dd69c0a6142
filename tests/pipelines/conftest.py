"""Pipelines and their harness are imported as `pipelines...`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulate import collect_seldom

_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.append(_TESTS)


@pytest.fixture(scope="package", autouse=True)
def few_collections() -> Iterator[None]:
    """Simulations make many small objects."""
    usual = gc.get_threshold()
    collect_seldom()
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()
