"""Makes importable what tests share, here and in the tests of actors, and gives them files for frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bridge.frame_store import FrameStore

_HERE = Path(__file__).parent
for _folder in (_HERE, _HERE.parent / "actors" / "shared"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))


@pytest.fixture
def files() -> Iterator[FrameStore]:
    """Small files, so that frames go into several of them; closed at the end."""
    opened = FrameStore(file_size=20)
    yield opened
    opened.close()
