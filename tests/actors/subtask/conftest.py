"""Adds `tests/actors/shared` to the import path, because these tests use its helpers."""

from __future__ import annotations

import sys
from pathlib import Path

_SHARED = str(Path(__file__).parent.parent / "shared")
if _SHARED not in sys.path:
    sys.path.insert(0, _SHARED)
