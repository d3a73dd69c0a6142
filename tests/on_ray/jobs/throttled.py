"""A sink that lets little through, so that a job is back-pressured for as long as a test wants.

Subtasks import this module, so it imports nothing that only tests need.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.wrapped_sink import WrappedSink, WrappedWriter

from penstock.connectors import ConnectorContext, SinkWriter
from penstock.operators import Batch


@dataclass(frozen=True)
class Throttled(WrappedSink):
    """A sink that lets a record through now and then while a file exists, and all of them without it.

    It is never shut altogether: between two records it must be able to take a checkpoint.

    Attributes:
        shut: The file.
        seconds: What a record takes while that exists.
        fails_before_commit: When this file exists, the next pre-commit removes it and fails.
    """

    shut: str
    seconds: float
    fails_before_commit: str = ""

    def writer(self, context: ConnectorContext) -> ThrottledWriter:
        return ThrottledWriter(self, self.inner.writer(context))


class ThrottledWriter(WrappedWriter):
    """Takes its time, and may fail."""

    def __init__(self, sink: Throttled, inner: SinkWriter[Any]) -> None:
        super().__init__(inner)
        self._sink = sink
        self._shut = Path(sink.shut)

    def write(self, batch: Batch) -> None:
        for _ in range(len(batch)):
            if self._shut.exists():
                time.sleep(self._sink.seconds)
        super().write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        if self._sink.fails_before_commit:
            fail_if_armed(self._sink.fails_before_commit)
        return super().prepare_commit()


def fail_if_armed(armed: str) -> None:
    """Raise when a file exists, and take it away: only the process that removes it fails."""
    try:
        Path(armed).unlink()
    except FileNotFoundError:
        return
    msg = f"told to fail: {Path(armed).name}"
    raise RuntimeError(msg)
