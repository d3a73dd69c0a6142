"""`Source` and `Sink`: what a user implements to connect anything to a graph.

Both are plain protocols; no base class is needed. All methods of a reader or writer are called by one
thread, the task thread of its subtask; they may block for a short while.

A source is cut into *splits*. A split is any value that the codec carries: a dataclass, a tuple, a dict. It
includes how far it was read, so a reader's snapshot is just its unfinished splits.

A sink is transactional: `prepare_commit` makes everything written so far durable but invisible, `commit`
makes it visible. `commit` may be called again for something that is already committed and must then do
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from penstock.runtime.operators.metrics import (
    BUILT_IN,
    GaugeStatistics,
    HistogramStatistics,
    MetricValue,
    metric_from_json,
    sum_by_name,
)
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from penstock.runtime.operators.sinks import SinkContext


T_co = TypeVar("T_co", covariant=True)

T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be read or processed, as it flows on a dead-letter stream.

    Attributes:
        record: The record as it was found (text, or the undecodable bytes).
        error: What was wrong with it.
        origin: Where it came from, for example `file:offset`.
    """

    record: Any
    error: str
    origin: str


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """Context of a reader or writer: the place where it runs.

    Attributes:
        job_id: The job's id: lower-case letters, digits and `-`.
        job_name: The name that the user gave.
        operator_id: Id of the source or sink operator.
        subtask: Index of this subtask, from 0.
        parallelism: Number of subtasks of this operator.
        attempt: Number of the attempt, from 1. Each restart, rescale and take-over by another JobMaster has a
            higher one than all before it, so it serves as a fencing token. Of two writers of one subtask
            of a job, the one with the lower number is cut off. After the restart of a region it differs
            between subtasks.
        clock: Where time comes from.
    """

    job_id: str
    job_name: str
    operator_id: str
    subtask: int
    parallelism: int
    attempt: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class Polled(Generic[T_co]):
    """Result of one `poll` of a reader.

    Attributes:
        batch: Records, or `None` when there are none right now.
        dead_letters: Records that could not be read; they go to the dead-letter stream.
        skipped: How many bad records were skipped silently (`on_error="skip"`).
        ready_at: With nothing to give: monotonic time (the context's clock) at which to poll again; `None`
            for a little later.
        finished: All splits are read to their end; the reader is not polled again.
        split: Which split the records are from, for a reader that `ReportsSplits`.
    """

    batch: Batch | None = None
    dead_letters: Sequence[DeadLetter] = ()
    skipped: int = 0
    ready_at: float | None = None
    finished: bool = False
    split: Hashable = None


class SourceReader(Protocol[T_co]):
    """Reads the splits of one subtask."""

    def poll(self, max_rows: int) -> Polled[T_co]:
        """Read the next records, about `max_rows` of them and at most a few times that.

        Must return within some milliseconds; says `ready_at` instead of waiting.
        """
        ...

    def snapshot(self) -> Sequence[Any]:
        """The unfinished splits, each positioned right after the last record that `poll` returned."""
        ...

    def close(self) -> None:
        """Release everything; called once, also after a failure."""
        ...


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """The splits of a reader.

    Attributes:
        reading: Names of the splits that it reads now, of its own choice. A name is not used again for
            another split.
        has_waiting: Whether it has splits that it will begin later.
    """

    reading: Collection[Hashable]
    has_waiting: bool = False


@runtime_checkable
class ReportsSplits(Protocol):
    """Optional for a reader: says which splits it has, so that each split has a watermark of its own.

    Each batch then names its split: `Polled(batch, split=...)`. Without this, a reader counts as one split.

    Example:
        >>> class Partitions:
        ...     '''Reads some partitions in turn.'''
        ...
        ...     def __init__(self, partitions):
        ...         self._left = dict(partitions)
        ...
        ...     @property
        ...     def split_progress(self):
        ...         return SplitProgress(tuple(self._left))
        ...
        ...     def poll(self, max_rows):
        ...         name, rows = next(iter(self._left.items()))
        ...         del self._left[name]
        ...         return Polled(RowBatch(rows), split=name, finished=not self._left)
        >>> from penstock.operators import RowBatch
        >>> reader = Partitions({"a": [1, 2], "b": [3]})
        >>> isinstance(reader, ReportsSplits), reader.poll(10).split, reader.split_progress.reading
        (True, 'a', ('b',))
    """

    @property
    def split_progress(self) -> SplitProgress:
        """The splits that are not read to their end; asked for after each poll.

        The same object as before, if nothing has changed: then less has to be compared.
        """
        ...


@runtime_checkable
class PausesSplits(Protocol):
    """Optional for a reader that `ReportsSplits`: leaves out splits that are too far ahead of others.

    For sources with `WatermarkStrategy.with_alignment`. Without this, a subtask waits as a whole.
    """

    def pause_splits(self, paused: Set[Hashable]) -> None:
        """Read nothing of these splits until the next call, and all others again.

        Args:
            paused: Names out of `SplitProgress.reading`.
        """
        ...


@runtime_checkable
class FollowsCheckpoints(Protocol):
    """Optional for a reader: learn which snapshots became part of a completed checkpoint.

    For sources that keep what they have given out until it is safe: they acknowledge messages, commit
    offsets, or let go of data. A checkpoint that is aborted is never completed; a later one covers it.
    """

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """The snapshot that was just taken is this checkpoint's."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing that was read before this checkpoint's snapshot is ever asked for again.

        What a reader is restored with is covered by a completed checkpoint, too.
        """
        ...


class SplitsWithWarnings(list[Any]):
    """Splits, and what the user should know about them; the job's report shows it.

    Example:
        >>> listed = SplitsWithWarnings(["a", "b"], ["c is empty"])
        >>> listed, listed.warnings
        (['a', 'b'], ('c is empty',))
    """

    def __init__(self, splits: Iterable[Any], warnings: Iterable[str]) -> None:
        super().__init__(splits)
        self.warnings = tuple(warnings)


@runtime_checkable
class Source(Protocol[T_co]):
    """A place that records come from. The object itself is pickled and sent to the subtasks.

    A source whose code never changes or keeps a record that it has given says so by an attribute
    `only_reads = True`. Where all functions of the subtask only read, nothing is copied then. A reader that
    makes each record anew may have `makes_new_records = True`: its rows are not copied at all.
    """

    def splits(self, parallelism: int) -> Sequence[Any]:
        """List the splits of a job that starts from nothing; called once, in the JobMaster.

        Raises:
            PenstockError: The source is not there; the message says what to do.
        """
        ...

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T_co]:
        """Make the reader of one subtask for its share of the splits (fresh or restored)."""
        ...


class SinkWriter(Protocol[T_contra]):  # type: ignore[misc] # batches do not name their records' type
    """Writes the records of one subtask, transaction by transaction."""

    def write(self, batch: Batch) -> None:
        """Add records to the open transaction."""
        ...

    def prepare_commit(self) -> Sequence[Any]:
        """Pre-commit: end the open transaction, make it durable and invisible, begin a new one.

        Returns:
            What `commit` needs, as values that the codec carries; empty when nothing was written.
        """
        ...

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Make pre-committed transactions visible; those already visible stay as they are."""
        ...

    def close(self) -> None:
        """Release everything, leaving committed data alone; called once, also after a failure."""
        ...


@runtime_checkable
class RemovesLeftovers(Protocol):
    """Optional for a writer: clean up what earlier attempts of the same job left behind."""

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Remove uncommitted work of attempts before this one.

        Called once per attempt on subtask 0, after the attempt's first completed checkpoint. By then every
        subtask has committed everything that a restored checkpoint covers.
        """
        ...


@runtime_checkable
class RemovesUncovered(Protocol):
    """Optional for a sink: clean up after a job that has ended, unless it finished in its first attempt."""

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        """Remove all uncommitted work of one operator of a job that has ended, except what is covered.

        Called in the background in the JobMaster, not in a subtask, when no checkpoint can complete any more.

        Args:
            covered: What `prepare_commit` gave of transactions that a completed snapshot covers: a job that
                starts from it will commit them, so they stay. Some may be committed already.
        """
        ...


@runtime_checkable
class Sink(Protocol[T_contra]):  # type: ignore[misc] # as above
    """A place that records go to. The object itself is pickled and sent to the subtasks.

    A sink that changes no record, and hands none to other code of the program, says so by an attribute
    `only_reads = True`. Where all functions of the subtask only read, nothing is copied then.
    """

    def writer(self, context: SinkContext) -> SinkWriter[T_contra]:
        """Make the writer of one subtask.

        Its class may declare lists of the subtask (`OperatorListState`).

        Raises:
            PenstockError: The place can't be written; the message says what to do.
        """
        ...


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """Counters of one operator, in one subtask or summed over several.

    Attributes:
        records_in: Records taken.
        records_out: Records emitted on the main output.
        records_skipped: Bad records that were skipped.
        dead_letters: Bad records that went to the dead-letter stream.
        extra: More by name: what Penstock counts for this kind of operator, such as `late_records`, and the
            metrics of the user's own. `counters`, `gauges` and `histograms` are views of the latter.
    """

    records_in: int = 0
    records_out: int = 0
    records_skipped: int = 0
    dead_letters: int = 0
    extra: Mapping[str, MetricValue] = field(default_factory=dict)

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the user's own by name."""
        counted = {name: each for name, each in self.extra.items() if name not in BUILT_IN}
        return {name: each for name, each in counted.items() if isinstance(each, int)}

    @property
    def gauges(self) -> dict[str, GaugeStatistics]:
        """Gauges of the user's own by name."""
        return {name: each for name, each in self.extra.items() if isinstance(each, GaugeStatistics)}

    @property
    def histograms(self) -> dict[str, HistogramStatistics]:
        """Histograms of the user's own by name."""
        return {name: each for name, each in self.extra.items() if isinstance(each, HistogramStatistics)}

    def plus(self, other: OperatorStatistics) -> OperatorStatistics:
        """The sums of both.

        Example:
            >>> OperatorStatistics(1, 2, extra={"late": 3}).plus(OperatorStatistics(10, 20)).records_out
            22
        """
        return OperatorStatistics(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.records_skipped + other.records_skipped,
            self.dead_letters + other.dead_letters,
            sum_by_name(self.extra, other.extra),
        )

    def with_metrics(self, metrics: Mapping[str, MetricValue]) -> OperatorStatistics:
        """The same with metrics of the user's own."""
        return replace(self, extra={**self.extra, **metrics})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OperatorStatistics:
        """Statistics from the dict of `asdict`, maybe by way of JSON.

        Example:
            >>> from dataclasses import asdict
            >>> counted = OperatorStatistics(5, 4, extra={"waiting": GaugeStatistics(1.0, 1.0, 1.0)})
            >>> OperatorStatistics.from_dict(asdict(counted)) == counted
            True
        """
        extra = {name: metric_from_json(each) for name, each in data.get("extra", {}).items()}
        return cls(**{**data, "extra": extra})


@dataclass(frozen=True, eq=False)
class NeededColumns:
    """Parts of a source's records that are needed; others may be there, too.

    Attributes:
        names: Columns that are needed by name; `None` when all are.
        wanted: Only rows for which this is true are needed; `None` for all rows. A step that drops the
            others still does so.
    """

    names: tuple[str, ...] | None = None
    expressions: tuple[pc.Expression, ...] = ()
    wanted: pc.Expression | None = None

    @property
    def is_all(self) -> bool:
        return self.names is None and self.wanted is None


@runtime_checkable
class ReadsInPart(Protocol):
    """Optional for a source: it leaves out columns and records that no step needs."""

    def reading(self, needed: NeededColumns) -> Source[Any]:
        """A source of the same records with at least what is needed.

        The splits must be the same ones: a job that is started from a savepoint may need other columns.
        """
        ...
