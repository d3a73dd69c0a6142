"""A function that waits at each record until a test lets it pass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POLL = 0.02


@dataclass(frozen=True)
class HeldAtEachRecord:
    """Waits at each record for a file that admits it.

    Attributes:
        admit: Admits one record, which takes the file away.
        open: Admits all records for as long as it exists.
    """

    admit: str
    open: str

    def __call__(self, record: Any) -> Any:
        while not Path(self.open).exists():
            try:
                Path(self.admit).unlink()
            except FileNotFoundError:
                time.sleep(_POLL)
            else:
                break
        return record
