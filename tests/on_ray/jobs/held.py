"""A function that lets this many records through at once, and the next ones slowly until a file is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


class Held:
    """Created in each attempt."""

    def __init__(self, free: int, release: Path) -> None:
        self.free = free
        self.release = str(release)

    def __call__(self, record: Any) -> Any:
        if self.free > 0:
            self.free -= 1
        elif not Path(self.release).exists():
            # A little at a time, so that barriers come through. The task makes its slices small after the
            # first of 256 records, so a thousand records take ten seconds.
            time.sleep(0.01)
        return record
