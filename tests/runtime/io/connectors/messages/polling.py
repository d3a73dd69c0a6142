"""Reads of a source whose records come from another process."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime.errors import OperatorError
from penstock.testing import SourceHarness

PATIENCE = 60.0


def polled(harness: SourceHarness, count: int, max_rows: int = 100) -> list[Any]:
    """Poll until so many records have come."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        found += harness.poll(max_rows) or _pause()
        assert time.monotonic() < deadline, f"only {found} came"
    return found


def _pause() -> list[Any]:
    """Leave the processor to the thread that receives."""
    time.sleep(0.001)
    return []


def eventually(is_so: Callable[[], Any], what: str) -> Any:
    """Look until something is so, and return what it is."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"it never came to pass that {what}"
        time.sleep(0.005)
    return found


def read(source: Any) -> list[Any]:
    """Read a bounded source."""
    found: list[Any] = []
    with SourceHarness(source) as harness:
        deadline = time.monotonic() + PATIENCE
        while not harness.is_finished:
            found += harness.poll() or _pause()
            assert time.monotonic() < deadline, f"the source did not end; it gave {found}"
    return found


def covered(harness: SourceHarness) -> Any:
    """Take a checkpoint that completes, and return its snapshot."""
    snapshot = harness.snapshot()
    harness.complete_checkpoint(snapshot)
    return snapshot


def lag_of(harness: SourceHarness) -> dict[str, int | None]:
    """The known lag by split."""
    lag = harness.reader.lag()
    return {} if lag is None else {split.split: split.records for split in lag.by_split}


def failure_of(source: Any, **harness: Any) -> str:
    """The error, with its causes, that a source raises in the end."""
    with SourceHarness(source, **harness) as opened, pytest.raises(OperatorError) as found:
        polled(opened, sys.maxsize)
    return "".join(traceback.format_exception(found.value))
