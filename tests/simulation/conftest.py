"""Cases that also run on Ray are beside the jobs that run there; the planted bugs are beside this file."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
for folder in (str(_HERE.parent / "on_ray"), str(_HERE)):
    if folder not in sys.path:
        sys.path.insert(0, folder)
