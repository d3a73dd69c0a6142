"""`Source`: the interface of a job's inputs, their readers and their enumerators.

`Source` and `Sink` are plain protocols; no base class is needed. The task thread of the subtask calls all
methods of a reader or writer, except `lag`; they may block for a short while.

A source is divided into *splits*. A split is any value that the codec can encode: a dataclass, a tuple, a
dict. It includes its read position, so a reader's snapshot is just its unfinished splits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.metrics import AsksForMetrics, Metrics
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import Batch
from penstock.runtime.time.durations import Duration

if TYPE_CHECKING:
    import pyarrow.compute as pc


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a dead-letter stream: it could not be read or processed.

    Attributes:
        record: The unchanged record: text, or undecodable bytes.
        error: Description of the error.
        origin: Place of the record, for example `file:offset`.
    """

    record: Any
    error: str
    origin: str


@dataclass(frozen=True, slots=True)
class ConnectorContext(AsksForMetrics):
    """Context of a reader or writer: the place where it runs, and its metrics.

    Attributes:
        job_id: Id of the job, made of lower-case letters, digits and `-`.
        operator_id: Id of the source or sink operator.
        subtask: Index of this subtask, from 0.
        parallelism: Number of subtasks of this operator.
        attempt: Number of the attempt, from 1. It grows with each restart, rescale and take-over by another
            JobMaster. So it is a fencing token: of two writers of one subtask, the one with the lower number
            is fenced. After the restart of a region it differs between subtasks.
    """

    job_id: str
    job_name: str
    operator_id: str
    subtask: int
    parallelism: int
    attempt: int
    clock: Clock
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def _metrics(self) -> Metrics:
        return self.metrics


class RunsInSubtask:
    """Properties of a context: its operator and subtask."""

    __slots__ = ()

    @property
    @abstractmethod
    def _place(self) -> ConnectorContext: ...

    @property
    def operator_id(self) -> str:
        """The operator's id."""
        return self._place.operator_id

    @property
    def subtask(self) -> int:
        """Index of this subtask, from 0."""
        return self._place.subtask

    @property
    def parallelism(self) -> int:
        """Number of subtasks of this operator."""
        return self._place.parallelism


@dataclass(frozen=True, slots=True)
class Polled(Generic[T_co]):
    """Result of one `poll` of a reader.

    Attributes:
        batch: Records, or `None` when there are none right now.
        dead_letters: Records that could not be read; they go to the dead-letter stream.
        skipped: Number of bad records that were skipped silently (`on_error="skip"`).
        ready_at: Monotonic time (the context's clock) of the next poll, if there are no records; with `None`
            the next poll follows after a short pause.
        finished: Whether all splits are read to their end; the reader is not polled again.
        split: Name of the records' split, for a reader that `ReportsSplits`.
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
        """Read the next records: about `max_rows`, and at most a few times this number.

        Must return within a few milliseconds; return `ready_at` instead of waiting. A call that blocks
        belongs in a thread of the reader, which puts its records into a queue: docs/own-connectors.md.
        """
        ...

    def snapshot(self) -> Sequence[Any]:
        """The unfinished splits, each positioned right after the last record that `poll` returned."""
        ...

    def close(self) -> None:
        """Release everything; called once, even after a failure."""
        ...


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """The splits of a reader.

    Attributes:
        reading: Names, chosen by the reader, of the splits that it reads now. A name is never reused.
        has_waiting: Whether the reader has splits that it will begin later.
    """

    reading: Collection[Hashable]
    has_waiting: bool = False


@runtime_checkable
class ReportsSplits(Protocol):
    """Optional for a reader: reports its splits, so that each split has its own watermark.

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
        """The splits that are not read to their end yet; the runtime asks for them after each poll.

        Return the same object if nothing has changed, to save comparisons.
        """
        ...


@runtime_checkable
class ReportsLag(Protocol):
    """Optional for a reader: measures the rest of its input, for job reports, the web page and metrics.

    Example:
        >>> class Pages:
        ...     '''Reads pages by their numbers.'''
        ...
        ...     def __init__(self, first, last):
        ...         self._next, self._last = first, last
        ...
        ...     def lag(self):
        ...         return SourceLag.of([SplitLag("pages", records=self._last + 1 - self._next)])
        >>> from penstock.connectors import SourceLag, SplitLag
        >>> reader = Pages(3, 7)
        >>> isinstance(reader, ReportsLag), reader.lag().records
        (True, 5)
    """

    def lag(self) -> SourceLag | None:
        """The rest of the input; `None` if it is not known yet.

        Unlike the other methods, this one is called by another thread, about every two seconds, even while
        the task thread works, waits or hangs. So it must not block, and must only read what the reader keeps
        anyway. An error in it fails the attempt, as in any other method.
        """
        ...


@runtime_checkable
class AddsSplits(Protocol):
    """Optional for a reader of a source with an enumerator: takes further splits while it reads.

    For sources whose splits have no end, such as partitions. Without this, splits that are assigned later
    wait until the reader has finished.
    """

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Read these splits, too; `snapshot` includes them from now on."""
        ...


@runtime_checkable
class PausesSplits(Protocol):
    """Optional for a reader that `ReportsSplits`: pauses splits that are too far ahead of others.

    For sources with `WatermarkStrategy.with_alignment`. Without this, the whole subtask pauses.
    """

    def pause_splits(self, paused: Set[Hashable]) -> None:
        """Read no split named in `paused` (by `SplitProgress.reading`) until the next call."""
        ...


@runtime_checkable
class FollowsCheckpoints(Protocol):
    """Optional for a reader or an enumerator: learns which snapshots became part of a completed checkpoint.

    For sources that acknowledge messages, commit offsets or delete data when a checkpoint covers them. An
    aborted checkpoint is never completed; a later one covers its records.
    """

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """Record that the last snapshot belongs to this checkpoint."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Release records read before this checkpoint's snapshot: they are never read again.

        After a restore, this includes the records that the restored state counts as read.
        """
        ...


class SplitsWithWarnings(list[Any]):
    """Splits with warnings for the user, which the job's report shows.

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
    """An input of a job. The object itself is pickled and sent to the subtasks.

    A source whose code never changes or keeps a returned record may have an attribute `only_reads = True`.
    If all functions of the subtask also only read, no record is copied. A reader that creates each record
    may have `makes_new_records = True`: the source then copies none of its records.
    """

    def splits(self, parallelism: int) -> Sequence[Any]:
        """List all splits; called in the JobMaster for each attempt that restores no state of this source.

        Raises:
            PenstockError: The source does not exist; the message says what to do.
        """
        ...

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T_co]:
        """Make the reader of one subtask for its share of the splits (fresh or restored)."""
        ...


@dataclass(frozen=True, eq=False)
class NeededColumns:
    """Columns and rows of a source's records that the steps need; the source may return more.

    Attributes:
        names: Needed columns, in addition to those of `expressions`; `None` for all columns.
        expressions: Expressions whose columns are also needed.
        wanted: Filter for the needed rows; `None` for all rows. The filtering step still runs.
        fields: Paths of `names` and of columns and nested fields in `expressions`; `None` for all columns.
    """

    names: tuple[str, ...] | None = None
    expressions: tuple[pc.Expression, ...] = ()
    wanted: pc.Expression | None = None
    fields: tuple[tuple[str, ...], ...] | None = None

    @property
    def is_all(self) -> bool:
        """Whether the steps need all columns of all rows."""
        return self.names is None and self.wanted is None


@runtime_checkable
class ReadsInPart(Protocol):
    """Optional for a source: it skips columns and records that no step needs."""

    def reading(self, needed: NeededColumns) -> Source[Any]:
        """A source of the same records with at least the needed columns and rows.

        The splits must stay the same: a job that starts from a savepoint may need other columns.
        """
        ...


@runtime_checkable
class DescribesPart(Protocol):
    """Optional for a source that `ReadsInPart`: describes its part of the records in the operator's name."""

    @property
    def part(self) -> str:
        """Short text such as `reads 2 of 16 columns`; empty if the source reads everything."""
        ...


@runtime_checkable
class RunsSteps(Protocol):
    """Optional for Penstock's own sources: runs column steps where the rows are made, such as in Spark."""

    @property
    def steps_run_in(self) -> str:
        """Name of the place where the steps run."""
        ...

    def running(self, steps: Sequence[Any]) -> RunsSteps | None:
        """A source that puts its records through these steps (`SourceStep`); `None` if it can't."""
        ...


class SplitEnumeratorContext(Protocol):
    """Calls that an enumerator may make."""

    @property
    def operator_id(self) -> str:
        """Id of the source's operator."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of readers."""
        ...

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        """Assign splits to a reader, which owns them from now on.

        Splits wait for a reader that has not started yet, so `start` may assign.
        """
        ...

    def signal_no_more_splits(self, subtask: int) -> None:
        """Signal to a reader that no more splits follow; it finishes after its last split."""
        ...

    def run_in_background(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run blocking work, such as listing a folder; the callback runs in the enumerator's thread.

        Without `on_error` an error fails the attempt. A restore of the job drops earlier callbacks.
        """
        ...

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        """Call back after a delay, in the enumerator's thread; a restore of the job drops the call."""
        ...


class SplitEnumerator(Protocol):
    """Assigns the splits of one source. All calls come from one thread and must not block."""

    def start(self) -> None:
        """Begin, or continue from the restored state; called once, before all other methods."""
        ...

    def handle_split_request(self, subtask: int) -> None:
        """Handle an idle reader's request: assign splits now or later, or signal that there are no more."""
        ...

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        """Take back the splits of a failed reader that the restored checkpoint does not contain."""
        ...

    def snapshot(self) -> Any:
        """All splits that no reader has, and any other state: a value that the codec can encode.

        The value must not be `None`.
        """
        ...

    def close(self) -> None:
        """Release resources at the end of the attempt or the job; called once."""
        ...


@runtime_checkable
class HearsOfFailedReaders(Protocol):
    """A `SplitEnumerator` that remembers which readers wait, so it must forget failed readers."""

    def reader_failed(self, subtask: int) -> None:
        """Drop a failed reader; it requests again after its restart if it has nothing to read."""
        ...


@runtime_checkable
class EnumeratesSplits(Protocol):
    """A `Source` that has an enumerator; the job does not call its `splits`."""

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> SplitEnumerator:
        """Make the enumerator from a checkpoint's state; `None` for a fresh start."""
        ...
