"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Tells the machine's time; implements `penstock.runtime.ports.Clock`."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()
