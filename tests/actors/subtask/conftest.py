"""Makes importable what the tests of actors share."""

from __future__ import annotations

import sys
from pathlib import Path

_SHARED = str(Path(__file__).parent.parent / "shared")
if _SHARED not in sys.path:
    sys.path.insert(0, _SHARED)
