"""Laws are about what happens, never about how long it takes: a busy machine is no failure of a law."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")

#: What laws share lies beside them; cases that also run on Ray are beside the jobs that run there.
_HERE = Path(__file__).parent
for _folder in (str(_HERE), str(_HERE.parent / "on_ray")):
    if _folder not in sys.path:
        sys.path.insert(0, _folder)
