"""Cases that also run on Ray are beside the jobs that run there; the planted bugs are beside this file."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulate import collect_seldom

_HERE = Path(__file__).parent
for folder in (str(_HERE.parent / "on_ray"), str(_HERE)):
    if folder not in sys.path:
        sys.path.insert(0, folder)


@pytest.fixture(scope="package", autouse=True)
def few_collections() -> Iterator[None]:
    """Simulations make many small objects; the cycle collector took a quarter of their time."""
    usual = gc.get_threshold()
    collect_seldom()
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()
