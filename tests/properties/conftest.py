"""Laws are about what happens, never about how long it takes: a busy machine is no failure of a law."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")

#: Cases that also run on Ray are beside the jobs that run there.
_ON_RAY = str(Path(__file__).parent.parent / "on_ray")
if _ON_RAY not in sys.path:
    sys.path.insert(0, _ON_RAY)
