"""Makes importable what tests share, which lies beside this file, and gives them files for frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bridge.receive_buffer.frame_store import FrameStore

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def files() -> Iterator[FrameStore]:
    """Small files, so that frames go into several of them; closed at the end."""
    opened = FrameStore(file_size=20)
    yield opened
    opened.close()
