"""Sinks without an external system: `CollectSink`, `PreviewSink`, and `DiscardSink`, which drops rows.

**`CollectSink`**: committed rows go to a collector in the program; for notebooks and tests. The rows
themselves are the committable, so a checkpoint holds them and a restored job delivers them again under the
same key. The collector keeps one entry per key, so repeats are harmless.

A `CollectSink()` makes a `ProgramCollector` of its own. When a job is sent to other processes, the sink is
pickled with a remote collector of the installed executor instead. Each pickling begins a *run*: a submitted
job. `rows()` returns the rows of the last run, so a notebook cell that is executed again shows no rows of its
previous run.

**`PreviewSink`**: rows go to a collector at once, without waiting for a checkpoint. Unbounded streams have no
last checkpoint, and the job of a preview takes no checkpoints. Without checkpoints, another attempt delivers
all rows again. So each `Preview` has an attempt number, and only the newest attempt counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeAlias, runtime_checkable

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.executor import find_executor
from penstock.runtime.io.connectors.arrow_batches import rows_of
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

#: Job, operator, subtask, attempt, and number of the transaction in that attempt.
CollectKey: TypeAlias = tuple[str, str, int, int, int]


class Collector(Protocol):
    """Takes the committed rows of a `CollectSink`. It is pickled with the sink, and may be remote."""

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None: ...


@runtime_checkable
class ReadableCollector(Collector, Protocol):
    """A collector whose rows the program can read."""

    def rows(self) -> list[Any]:
        """All rows committed so far, by transaction, in the order of their commits."""
        ...


@runtime_checkable
class RunCollector(ReadableCollector, Protocol):
    """A collector that separates the runs of a sink."""

    def add_of_run(self, run: str, key: CollectKey, rows: Sequence[Any]) -> None: ...

    def rows_of_run(self, run: str) -> list[Any]: ...


@runtime_checkable
class MakesCollectors(Protocol):
    """An executor whose jobs can bring committed rows back to the program."""

    def collector(self) -> RunCollector: ...


@dataclass(frozen=True, slots=True)
class CollectedRows:
    """A pre-committed transaction of a `CollectSink`."""

    key: CollectKey
    rows: Sequence[Any]


class InMemoryCollector:
    """A collector for jobs whose subtasks run in this process, as in tests with the harness.

    Subtasks on a cluster would fill copies that the program never sees. The collector can't be sent there:
    use a `penstock.cluster.RayCollector`.

    Example:
        >>> collector = InMemoryCollector()
        >>> collector.add(("job-1", "out", 0, 1, 0), ["a"])
        >>> collector.add(("job-1", "out", 0, 1, 0), ["a"])
        >>> collector.rows()
        ['a']
    """

    def __init__(self) -> None:
        self._by_key: dict[CollectKey, list[Any]] = {}

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        """Add the rows of one transaction; repeated keys are ignored."""
        self._by_key.setdefault(key, list(rows))

    def rows(self) -> list[Any]:
        """All rows, by transaction in the order of commits."""
        return [row for rows in self._by_key.values() for row in rows]

    def __reduce__(self) -> NoReturn:
        msg = (
            "an InMemoryCollector stays in its process; collect the rows of a job on a cluster with "
            "CollectSink(), or CollectSink(penstock.cluster.RayCollector())"
        )
        raise TypeError(msg)


class ProgramCollector:
    """Collects rows in the program that made it, wherever its jobs run."""

    def __init__(self) -> None:
        self._here = InMemoryCollector()
        self._job_here: str | None = None
        self._reached: RunCollector | None = None
        self._runs = 0

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        """Add the rows of one transaction of a job in this process; repeated keys are ignored.

        The first rows of another job replace the collected ones.
        """
        if key[0] != self._job_here:
            self._here, self._job_here = InMemoryCollector(), key[0]
        self._here.add(key, rows)

    def rows(self) -> list[Any]:
        return self._here.rows() if self._reached is None else self._reached.rows_of_run(str(self._runs))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reached is None:
            executor = find_executor()
            if not isinstance(executor, MakesCollectors):
                msg = (
                    f"{type(executor).__name__} makes no collectors (it has no method `collector()`); give "
                    "the sink one of your own: CollectSink(collector)"
                )
                raise ConfigurationError(msg)
            self._reached = executor.collector()
        self._runs += 1
        return CollectorOfRun, (self._reached, str(self._runs))


@dataclass(frozen=True, slots=True)
class CollectorOfRun:
    """Takes the rows of one run of a sink, in its subtasks."""

    collector: RunCollector
    run: str

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        self.collector.add_of_run(self.run, key, rows)


@dataclass(frozen=True)
class CollectSink(metaclass=NearestNames):
    """A sink that passes committed rows to a collector; Arrow batches become dicts.

    Attributes:
        target: Collector of the rows; by default the program's own, read with `rows()`. It holds all rows in
            memory, and each checkpoint holds the rows since the one before, so use it for small results.

    Example:
        >>> results = CollectSink()
        >>> results.rows()  # of the newest job with this sink, as its checkpoints complete
        []
    """

    target: Collector = field(default_factory=ProgramCollector)

    def rows(self) -> list[Any]:
        """Return the rows that the newest job with this sink has committed so far, in commit order.

        Rows of earlier jobs are dropped. A custom collector decides what it keeps.

        Raises:
            ConfigurationError: The collector can't return rows.
        """
        if not isinstance(self.target, ReadableCollector):
            msg = f"{type(self.target).__name__} has no method `rows()`; read the rows where it put them"
            raise ConfigurationError(msg)
        return self.target.rows()

    def writer(self, context: ConnectorContext) -> CollectWriter:
        """Make the writer of one subtask."""
        return CollectWriter(self.target, context)


class CollectWriter:
    def __init__(self, target: Collector, context: ConnectorContext) -> None:
        self._target = target
        self._origin = (context.job_id, context.operator_id, context.subtask, context.attempt)
        self._open: list[Any] = []
        self._number = 0

    def write(self, batch: Batch) -> None:
        self._open.extend(rows_of(batch))

    def prepare_commit(self) -> Sequence[CollectedRows]:
        if not self._open:
            return []
        ended = CollectedRows((*self._origin, self._number), self._open)
        self._open = []
        self._number += 1
        return [ended]

    def commit(self, committables: Sequence[CollectedRows], permit: CommitPermit) -> None:
        for transaction in committables:
            self._target.add(transaction.key, transaction.rows)

    def close(self) -> None:
        self._open = []


class DiscardWriter:
    def write(self, batch: Batch) -> None: ...

    def prepare_commit(self) -> Sequence[Any]:
        return ()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None: ...

    def close(self) -> None: ...


class Preview(NamedTuple):
    """Rows that a subtask delivered together."""

    attempt: int
    rows: Sequence[Any]


def newest_rows(previews: Sequence[Preview]) -> list[Any]:
    """Return the rows of the newest attempt, in the order of arrival."""
    newest = max((preview.attempt for preview in previews), default=0)
    return [row for preview in previews if preview.attempt == newest for row in preview.rows]


@dataclass(frozen=True)
class PreviewSink:
    """A sink that delivers each `Preview` at once; each subtask delivers `limit` rows at most."""

    target: Collector
    limit: int | None = None

    def writer(self, context: ConnectorContext) -> PreviewWriter:
        return PreviewWriter(self.target, self.limit, context)


class PreviewWriter(DiscardWriter):
    """Delivers rows when they are written, and has nothing to commit."""

    def __init__(self, target: Collector, limit: int | None, context: ConnectorContext) -> None:
        self._target = target
        self._left = limit
        self._origin = (context.job_id, context.operator_id, context.subtask, context.attempt)
        self._attempt = context.attempt
        self._number = 0

    def write(self, batch: Batch) -> None:
        if self._left == 0:
            return
        rows = list(rows_of(batch))
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
        self._target.add((*self._origin, self._number), [Preview(self._attempt, rows)])
        self._number += 1


@dataclass(frozen=True)
class DiscardSink(metaclass=NearestNames):
    """A sink that keeps nothing."""

    only_reads: ClassVar[bool] = True

    def writer(self, context: ConnectorContext) -> DiscardWriter:
        """Make the writer of one subtask."""
        return DiscardWriter()
