"""User code that fails on purpose, once: what has happened is remembered in marker files outside the job."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.wrapped_sink import WrappedSink, WrappedWriter

from penstock.connectors import CommitPermit, ConnectorContext, SinkWriter, Source, SourceReader

_POLL = 0.02


def first_time(marker: str) -> bool:
    """True exactly once for each marker, whatever process asks."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_this_process() -> None:
    """As if the machine had lost power."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class RaisesOnce:
    """A map function that raises when it sees a record for the first time."""

    record: Any
    marker: str

    def __call__(self, record: Any) -> Any:
        if record == self.record and first_time(self.marker):
            msg = f"no luck with {record!r}"
            raise ValueError(msg)
        return record


@dataclass(frozen=True)
class RaisesFrom:
    """A map function that raises on every record once a file exists; counts how often in another one."""

    armed: str
    counter: str

    def __call__(self, record: Any) -> Any:
        if Path(self.armed).exists():
            with Path(self.counter).open("a") as file:
                file.write("x")
            msg = f"can't stand {record!r}"
            raise ValueError(msg)
        return record


@dataclass(frozen=True)
class Slow:
    """A map function that takes its time, so that what is before it has no credit."""

    seconds: float

    def __call__(self, record: Any) -> Any:
        time.sleep(self.seconds)
        return record


@dataclass(frozen=True)
class Stuck:
    """A map function that never comes back."""

    marker: str

    def __call__(self, record: Any) -> Any:
        first_time(self.marker)
        threading.Event().wait()
        return record


@dataclass(frozen=True)
class SlowToOpen:
    """A source whose reader is not made while a file exists; says in another file that it waits."""

    inner: Source[str]
    closed: str

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[str]:
        while Path(self.closed).exists():
            first_time(self.closed + ".reached")
            time.sleep(_POLL)
        return self.inner.reader(context, splits)


@dataclass(frozen=True)
class DeadlySink(WrappedSink):
    """A file sink one of whose writers SIGKILLs a process in the midst of its two phases, once.

    Attributes:
        at: `after prepare`, `before commit` or `after commit`.
        marker: Exists when it has happened.
        arm: The kill happens only when this file exists; it may hold the pid of another process that is to
            die first.
        itself: Whether the writer's own process is to die.
        subtask: Which writer.
    """

    at: str
    marker: str
    arm: str
    itself: bool = True
    subtask: int = 0

    def writer(self, context: ConnectorContext) -> DeadlyWriter:
        return DeadlyWriter(self, self.inner.writer(context), context.subtask == self.subtask)


class DeadlyWriter(WrappedWriter):
    """Kills at its moment."""

    def __init__(self, sink: DeadlySink, inner: SinkWriter[Any], deadly: bool) -> None:
        super().__init__(inner)
        self._sink = sink
        self._deadly = deadly

    def prepare_commit(self) -> Sequence[Any]:
        prepared = super().prepare_commit()
        if prepared:
            self._at("after prepare")
        return prepared

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        self._at("before commit")
        super().commit(committables, permit)
        self._at("after commit")

    def _at(self, moment: str) -> None:
        sink = self._sink
        if not self._deadly or moment != sink.at or not Path(sink.arm).exists():
            return
        if first_time(sink.marker):
            victim = Path(sink.arm).read_text().strip()
            if victim:
                os.kill(int(victim), signal.SIGKILL)
            if sink.itself:
                kill_this_process()
