"""The files of this folder import each other, the example and `pipelines` by name."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent

for folder in (_HERE, _HERE.parents[1], _HERE.parents[2] / "examples" / "nexmark"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
