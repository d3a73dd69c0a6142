"""Cases that also run on Ray are beside the jobs that run there."""

from __future__ import annotations

import sys
from pathlib import Path

_ON_RAY = str(Path(__file__).parent.parent / "on_ray")
if _ON_RAY not in sys.path:
    sys.path.insert(0, _ON_RAY)
