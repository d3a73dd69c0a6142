"""`Operator`: one step of a chain, working on batches; users write their own for `stream.transform`.

An operator is a generator of output batches. That gives slicing for free. The chain may stop after any output
(no credit, a slice is over) and go on later. Unfinished work stays in the generator's frame. Checkpoints
happen between batches only, never inside one call of `process`.

A user's operator reaches everything outside of itself through its `OperatorContext`: state, counters, its
coordinator. So a new ability of the runtime is a new method there and changes no operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from penstock.runtime.errors import OperatorLocation, PenstockError
from penstock.runtime.operators.keyed_state_requests import AsksForKeyedState, RequestedStates
from penstock.runtime.operators.metrics import AsksForMetrics, Metrics, OperatorStatistics
from penstock.runtime.operators.operator_state import ListStates, RawState, RestoredRawState
from penstock.runtime.operators.operator_state import SavedList as SavedList
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.user_code.failure import CurrentRecord
from penstock.runtime.record.elements import Batch, BatchFormat, StreamStatus, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.state.declared_state import ListStateMode, OperatorListState
from penstock.runtime.state.key_groups import key_group_of
from penstock.runtime.state.keyed_states import ListState
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.time_to_live import Ttl


@dataclass(frozen=True, slots=True)
class Tagged:
    """A batch for a side output."""

    tag: str
    batch: Batch


Output: TypeAlias = Batch | Tagged | Watermark | StreamStatus

#: Batches that an operator takes.
BatchFormats: TypeAlias = Literal[BatchFormat, "both"]


@dataclass(frozen=True, slots=True)
class OperatorContext(AsksForKeyedState, AsksForMetrics):
    """The context that an operator gets when it opens: where it runs, its state, its coordinator.

    The properties, the methods and `is_restored` are for users' operators. The other attributes are for the
    operators of Penstock itself.

    Attributes:
        location: For errors.
        connector: Job, operator, subtask, attempt and clock.
        keyed_state: The subtask's keyed state for this operator, already restored; `None` when not keyed.
        restored: List states by name that this subtask got from the snapshot; empty on a fresh start.
        is_restored: Whether the job starts from a snapshot.
        transactional: Whether checkpoints are taken, so that sinks commit with them.
        restored_permit: Permit of the completed checkpoint that was restored; `None` on a fresh start.
        restored_raw: Raw state that this subtask got from the snapshot.
        keyed_rows: Goes through a batch key by key; `None` when not keyed.
        send: Carries an event to the operator's coordinator; `None` when it has none.
        lists: The list states, asked for and restored.
        requested: The keyed states that were declared or asked for.
        metrics: The metrics that were asked for.
    """

    location: OperatorLocation
    connector: ConnectorContext
    keyed_state: KeyedStateBackend | None = None
    restored: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    is_restored: bool = False
    transactional: bool = True
    restored_permit: CommitPermit | None = None
    restored_raw: RestoredRawState = field(default_factory=RestoredRawState)
    keyed_rows: Callable[[Batch], Iterator[tuple[Any, Any]]] | None = None
    send: Callable[[Any], None] | None = None
    lists: ListStates = field(default_factory=ListStates)
    requested: RequestedStates = field(default_factory=RequestedStates)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def operator_id(self) -> str:
        """The operator's id."""
        return self.connector.operator_id

    @property
    def subtask(self) -> int:
        """Index of this subtask, from 0."""
        return self.connector.subtask

    @property
    def parallelism(self) -> int:
        """Number of subtasks of this operator."""
        return self.connector.parallelism

    @property
    def raw(self) -> RawState:
        """Raw state that this subtask got from the snapshot; empty on a fresh start.

        Once it was read, `snapshot_raw` has to give it. Until then every snapshot keeps it as it is.
        """
        return self.restored_raw.read()

    @property
    def key_groups(self) -> range:
        """The key groups of this subtask, for raw keyed state.

        Raises:
            PenstockError: The stream is not keyed.
        """
        own = self._backend("key_groups").key_groups
        return range(own.first, own.last + 1)

    def list_state(
        self,
        name: str,
        mode: ListStateMode = "split_distribute",
        *,
        of_type: type | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> OperatorListState[Any]:
        """The list state of this name, with what was restored; the same object whenever it is asked for.

        Ask for it in `open` or later. A restored list that is not asked for stays in every checkpoint. A
        class can also declare it; see `OperatorListState`.

        Args:
            name: Unique in the operator.
            mode: How a restore shares the values out. `"split_distribute"` gives each value to one subtask.
                `"union"` gives all values of all subtasks to each. `"broadcast"` gives each a copy of one
                subtask's list.
            of_type: The type of the values; by default anything goes.
            migrate: Makes a value of `of_type` of a restored one that is none.

        Raises:
            ConfigurationError: There is no such mode, or the list has another one, or another type.
            StateMismatchError: The job starts from a snapshot that holds the list with another mode or type.
        """
        some: Any = of_type
        declaration: Any = OperatorListState(some, mode=mode, name=name, migrate=migrate)
        return self.lists.ask(declaration)

    def keyed_list_state(
        self,
        name: str,
        *,
        of_type: type | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> ListState[Any]:
        """State with a list a key, for the key that `by_key` or `set_current_key` has set; see `ListState`.

        Args:
            of_type: The type of the elements; by default anything goes.
            ttl: How long an element lives after it was added: a `timedelta`, seconds, or a `StateTtl`.
            migrate: Makes an element of `of_type` of a restored one that is none.

        Raises:
            ConfigurationError: The type is not that given first.
            PenstockError: The stream is not keyed.
            StateMismatchError: The job starts from a snapshot that holds something else under this name.
        """
        return self._keyed_list(name, of_type, ttl, migrate)

    def by_key(self, batch: Batch) -> Iterator[tuple[Any, Any]]:
        """Each row of a batch with its key, which is the current key until the next row.

        Raises:
            PenstockError: The stream is not keyed.
        """
        self._backend("by_key")
        assert self.keyed_rows is not None, "a keyed operator of a user is given its rows by key"
        return self.keyed_rows(batch)

    def set_current_key(self, key: Any) -> None:
        """Make a key current where no row is processed, such as in `process_watermark`.

        Raises:
            PenstockError: The stream is not keyed, or the key belongs to another subtask.
        """
        backend = self._backend("set_current_key")
        if key_group_of(key, backend.max_parallelism) not in backend.key_groups:
            msg = f"key {key!r:.100} belongs to another subtask, where its state would not be found"
            raise PenstockError(msg)
        backend.current_key = key

    def send_event(self, event: Any) -> None:
        """Send an event to the operator's coordinator, any value that the codec carries.

        Events of one subtask are handled in the order in which they were sent, each exactly once relative to
        checkpoints. One that is sent after the end of the data may be lost with a failure.

        Raises:
            CodecError: The event can't be encoded.
            PenstockError: The operator has no coordinator.
        """
        if self.send is None:
            msg = f"operator {self.operator_id!r} has no coordinator: give its class a method `coordinator`"
            raise PenstockError(msg)
        self.send(event)

    @property
    def _metrics(self) -> Metrics:
        return self.metrics

    @property
    def _requests(self) -> tuple[RequestedStates, KeyedStateBackend | None]:
        return self.requested, self.keyed_state

    def _backend(self, what: str) -> KeyedStateBackend:
        if self.keyed_state is None:
            msg = f"{what} needs a keyed stream: call key_by(function) before transform"
            raise PenstockError(msg)
        return self.keyed_state


class Operator:
    """Base of all operators: those of Penstock and those of users (`stream.transform`).

    Every method runs in the task thread of its subtask and may block for a short while. Each subtask has an
    object of its own. A method that returns an iterator of batches is best written with `yield`; the runtime
    may pause it after each batch.

    Example:
        >>> from penstock.operators import Operator, RowBatch
        >>> from penstock.testing import OperatorHarness
        >>> class Sums(Operator):
        ...     '''Adds numbers up and emits the sum in front of each checkpoint.'''
        ...
        ...     def open(self, context):
        ...         self.total = context.list_state("total")
        ...         self.sum = sum(self.total.get())
        ...
        ...     def process(self, batch):
        ...         self.sum += sum(batch.rows)
        ...
        ...     def prepare_snapshot_pre_barrier(self):
        ...         yield RowBatch([self.sum])
        ...
        ...     def snapshot(self, checkpoint_id):
        ...         self.total.update([self.sum])
        >>> with OperatorHarness.of(lambda numbers: numbers.transform("sums", Sums())) as harness:
        ...     pushed = harness.push([1, 2]), harness.push([3])
        ...     snapshot = harness.snapshot()
        ...     pushed, harness.outputs
        (([], []), [6])
        >>> with OperatorHarness.of(lambda n: n.transform("sums", Sums()), restored=[snapshot]) as harness:
        ...     harness.push([10])
        ...     again = harness.snapshot()
        ...     harness.outputs
        []
        [16]
    """

    #: The batches that `process` of a user's operator gets: `"rows"`, `"arrow"`, or `"both"` as they come.
    batch_format: ClassVar[BatchFormats] = "rows"

    #: Whether the operator needs a keyed state backend.
    keyed = False

    #: Whether what a user's function emits is copied unless it can't change: not if all functions only read.
    isolates = True

    #: Whether it yields watermarks of its own; those from before it then end here, but for the end of time.
    makes_watermarks = False

    @property
    def only_reads(self) -> bool:
        """Whether no code of a user's can change or keep a record here; then nothing has to be copied."""
        return False

    @property
    def holds_watermark(self) -> bool:
        """Whether `process_watermark` has left work over, so that the watermark may not go on yet.

        `flush` is then due at once, again and again, before any input. It does the work bit by bit, so that
        checkpoints come in between, and yields the watermark at the end. The end of time can't be held.
        """
        return False

    def open(self, context: OperatorContext) -> None:
        """Get ready; called once per attempt before anything else."""

    def process(self, batch: Any) -> Iterator[Output]:
        """Process one batch and yield what comes of it, in order."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Event time has advanced; yield what that fires. The chain forwards the watermark afterwards."""
        return iter(())

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        """The input has become idle or active. The chain forwards the status afterwards.

        What was kept back leaves in front of `IDLE`: receivers do not wait for it behind that.
        """
        return self.flush() if status is StreamStatus.IDLE else iter(())

    def end_of_data(self) -> Iterator[Output]:
        """No more input will come; yield what is left."""
        return iter(())

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        """A checkpoint begins: yield what must go out in front of its barrier, such as local sums.

        Also called when the job stops with a savepoint, in front of the end of the data. It is not called
        after `end_of_data`. What it yields is sent whatever credits say, so keep it small.
        """
        return iter(())

    @property
    def flush_at(self) -> float | None:
        """Monotonic time at which `flush` is due; `None` for never. Looked at between two batches."""
        return None

    def flush(self) -> Iterator[Output]:
        """Yields elements that were kept back and have waited long enough."""
        return iter(())

    @property
    def tick_at(self) -> float | None:
        """Time at which `tick` is due, in seconds on the clock of `InputTime`; `None` for never."""
        return None

    def tick(self, now: float) -> Iterator[Output]:
        """Time has passed: yield what that brings. Comes only after the input was asked for more.

        Args:
            now: Seconds on the clock of `InputTime`.
        """
        return iter(())

    def handle_event(self, event: Any) -> None:
        """The operator's coordinator has sent something (`HasCoordinator`); nothing can be emitted here.

        Called between two batches. An event that was sent behind a checkpoint is handled behind it.

        Raises:
            PenstockError: The operator takes no events.
        """
        msg = f"{type(self).__name__} was sent {event!r:.80} but has no handle_event"
        raise PenstockError(msg)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList] | None:
        """State is taken now: bring the list states of the context up to date.

        Operators of Penstock return list states here instead. Keyed state is taken by its backend.
        """
        return None

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        """State that the operator has encoded itself; called right after `snapshot`."""
        return RawState()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """A checkpoint is complete; called in the order of ids, some may be left out."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was aborted; its work stays for the next one."""

    @property
    def doing(self) -> str:
        """The operator's code as errors call it: `map function parse (job.py:12)`."""
        return type(self).__name__

    @property
    def current_record(self) -> CurrentRecord | None:
        """The record that is being processed, for errors; `None` where it is unknown."""
        return None

    def statistics(self) -> OperatorStatistics:
        """The operator's counters."""
        return OperatorStatistics()

    def close(self) -> None:
        """Release everything; called once, also after a failure."""


OperatorFactory: TypeAlias = Callable[[], Operator]
