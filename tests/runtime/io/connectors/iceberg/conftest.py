"""Tables in memory; the helpers of these tests are importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_folder import memory_folder

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder() as folder:
        yield folder
