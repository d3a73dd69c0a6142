"""Makes the benches importable that lie beside this file."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from either_backend import either_backend as either_backend  # noqa: E402 (found beside this file)
from either_backend import only_heap as only_heap  # noqa: E402
