"""A function that waits at each record until a test lets all of them pass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POLL = 0.02


@dataclass(frozen=True)
class HeldAtEachRecord:
    """Waits at each record until a file exists.

    Attributes:
        open: The file.
    """

    open: str

    def __call__(self, record: Any) -> Any:
        while not Path(self.open).exists():
            time.sleep(_POLL)
        return record
