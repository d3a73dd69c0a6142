"""Numbers of examples of laws and of seeds of simulated jobs: PENSTOCK_DEEP=N takes N times as many.

`make test-long` sets it.
"""

from __future__ import annotations

import os
from typing import Final

DEEP: Final = int(os.environ.get("PENSTOCK_DEEP", "1"))

#: Seeds from 0 on whose simulated jobs the tests judge.
SEEDS: Final = 700 * DEEP
