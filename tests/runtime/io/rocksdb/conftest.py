"""Makes the setup importable that lies beside this file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from rocksdb_setup import close_all  # noqa: E402 (found beside this file)


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    """Every database of a test is gone with it."""
    yield
    close_all()
