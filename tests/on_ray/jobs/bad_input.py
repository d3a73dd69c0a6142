"""User code of the jobs with bad input."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.connectors import DeadLetter

_POLL = 0.02


@dataclass(frozen=True)
class Gate:
    """A map function that blocks while a file exists; says so in another file."""

    closed: str

    def __call__(self, record: Any) -> Any:
        while Path(self.closed).exists():
            Path(self.closed + ".reached").touch()
            time.sleep(_POLL)
        return record


@dataclass(frozen=True)
class SlowWhile:
    """A map function that takes long for each record while a file exists."""

    slow: str

    def __call__(self, record: Any) -> Any:
        if Path(self.slow).exists():
            time.sleep(_POLL)
        return record


def long_number(i: int) -> str:
    """A number of 200 digits, for data in flight that is too large for a checkpoint's metadata."""
    return f"{i:0200d}"


def text_of(record: dict[str, str]) -> str:
    return record["text"]


def as_dict(letter: DeadLetter) -> dict[str, str]:
    return {"record": letter.record, "error": letter.error, "origin": letter.origin}
