"""Functions of users that do not come back for a while: in C with the interpreter's lock, or asleep."""

from __future__ import annotations

import re
import time
from pathlib import Path

#: Records of a job with such a function; one in the middle is the one that takes long.
RECORDS = 2_000
STUCK_AT = 1_000


def backtrack(seconds: float) -> None:
    """Run one regular expression for at least this long, about twice as long at most.

    No other thread runs.
    """
    letters, taken = 16, 0.0
    while taken < 0.4:
        letters += 1
        taken = _match(letters)
    while taken < 1.2 * seconds:  # each letter doubles the time
        letters, taken = letters + 1, 2 * taken
    _match(letters)


def _match(letters: int) -> float:
    begun = time.thread_time()
    re.match(r"(a+)+$", "a" * letters + "b")
    return time.thread_time() - begun


class Backtracks:
    """Runs a regular expression for a long time at one record."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, line: str) -> str:
        if line == str(STUCK_AT):
            backtrack(self.seconds)
        return line


class WaitsForFile:
    """Waits for a file at one record, as for a service that is away."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, line: str) -> str:
        while line == str(STUCK_AT) and not self.file.exists():
            time.sleep(0.05)
        return line
