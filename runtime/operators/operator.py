"""`Operator`: one step of a chain, working on batches; users write their own for `stream.transform`.

An operator produces its output batches with generators. So the chain may stop after any output (no credit,
the end of a slice) and continue later. Unfinished work stays in the generator's frame. Checkpoints happen
between batches only, never inside one call of `process`.

A user's operator reaches state, metrics and its coordinator through its `OperatorContext` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from penstock.runtime.errors import OperatorLocation, PenstockError
from penstock.runtime.operators.keyed_state_requests import AsksForKeyedState, RequestedStates, needed_backend
from penstock.runtime.operators.last_commit import LastCommit
from penstock.runtime.operators.metrics import AsksForMetrics, Metrics
from penstock.runtime.operators.operator_state import AsksForLists, ListStates, RawState, RestoredRawState
from penstock.runtime.operators.operator_state import SavedList as SavedList
from penstock.runtime.operators.source import ConnectorContext, RunsInSubtask
from penstock.runtime.operators.user_code.failure import CurrentRecord
from penstock.runtime.ports import EventLoopOpener
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import Batch, BatchFormat, StreamStatus, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.state.key_groups import key_group_of
from penstock.runtime.state.state_backend import KeyedStateBackend


@dataclass(frozen=True, slots=True)
class Tagged:
    """A batch for a side output."""

    tag: str
    batch: Batch


Output: TypeAlias = Batch | Tagged | Watermark | StreamStatus

#: Formats of batches that an operator accepts.
BatchFormats: TypeAlias = Literal[BatchFormat, "both"]


@dataclass(frozen=True, slots=True)
class OperatorContext(AsksForKeyedState, AsksForLists, AsksForMetrics, RunsInSubtask):
    """The context of an operator: the place where it runs, its state, its coordinator.

    The properties, the methods and `is_restored` are for users' operators. The other attributes are for the
    operators of Penstock itself.

    Attributes:
        location: Operator, subtask and the user's line, for errors.
        connector: Job, operator, subtask, attempt and clock.
        keyed_state: The subtask's keyed state, already restored; `None` when not keyed.
        restored: Restored lists of this subtask by name; empty on a fresh start.
        is_restored: Whether this attempt starts from a snapshot, such as the last checkpoint.
        transactional: Whether checkpoints are taken, so that sinks commit with them.
        restored_permit: Permit of the restored checkpoint; `None` on a fresh start.
        keyed_rows: Iterates over a batch with its keys; `None` when not keyed.
        send: Sends an event to the operator's coordinator; `None` without one.
        requested: The keyed states that were declared or requested.
        watermark_of: Event time of an input by its number; `None` for an operator that reads no channels.
        warn: Shows a warning to the user; by default only the log has it.
        batches: Codec of batches that are kept in state.
        open_event_loop: Makes an event loop for coroutines of users.
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
    batches: BatchCodec = field(default_factory=BatchCodec)
    open_event_loop: EventLoopOpener | None = None
    watermark_of: Callable[[int], int | None] | None = None
    warn: Callable[[str], None] | None = None

    def input_watermark(self, input_index: int) -> int | None:
        """Event time of one input of a `TwoInputOperator` in microseconds; `None` before the first watermark.

        It is never behind the operator's event time, which is the lower event time of the two inputs. So the
        watermark of an idle input advances with the other input. A restored job begins without watermarks.

        Args:
            input_index: 0 for the first input, 1 for the second one.
        """
        if self.watermark_of is None:
            msg = "input_watermark works only in the first operator of a chain that begins without a source"
            raise PenstockError(msg)
        return self.watermark_of(input_index)

    @property
    def raw(self) -> RawState:
        """Restored raw state of this subtask; empty on a fresh start.

        Once an operator has read the state, its `snapshot_raw` must return it. Until then every snapshot
        keeps the state unchanged.
        """
        return self.restored_raw.read()

    @property
    def key_groups(self) -> range:
        """The key groups of this subtask, for raw keyed state."""
        own = needed_backend(self.keyed_state, "key_groups").key_groups
        return range(own.first, own.last + 1)

    def by_key(self, batch: Batch) -> Iterator[tuple[Any, Any]]:
        """Yield each row of a batch with its key; the key is current until the next row."""
        needed_backend(self.keyed_state, "by_key")
        assert self.keyed_rows is not None, "the runtime sets keyed_rows for a user's keyed operator"
        return self.keyed_rows(batch)

    def set_current_key(self, key: Any) -> None:
        """Set the current key where no row is processed, such as in `process_watermark`.

        Raises:
            PenstockError: The stream is not keyed, or the key belongs to another subtask.
        """
        backend = needed_backend(self.keyed_state, "set_current_key")
        if key_group_of(key, backend.max_parallelism) not in backend.key_groups:
            msg = f"key {key!r:.100} belongs to another subtask, which would not find this state"
            raise PenstockError(msg)
        backend.current_key = key

    def send_event(self, event: Any) -> None:
        """Send an event, any value that the codec can encode, to the operator's coordinator.

        Events of one subtask are handled in the order in which they were sent, exactly once relative to
        checkpoints. An event that is sent after the end of the data may be lost in a failure.

        Raises:
            CodecError: The event can't be encoded.
            PenstockError: The operator has no coordinator.
        """
        if self.send is None:
            msg = f"operator {self.operator_id!r} has no coordinator: give its class a method `coordinator`"
            raise PenstockError(msg)
        self.send(event)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the operator."""
        return self.connector.metrics

    @property
    def _metrics(self) -> Metrics:
        return self.connector.metrics

    @property
    def _place(self) -> ConnectorContext:
        return self.connector

    @property
    def _list_states(self) -> ListStates:
        return self.lists

    @property
    def _requests(self) -> tuple[RequestedStates, KeyedStateBackend | None]:
        return self.requested, self.keyed_state


class Operator:
    """Base of all operators: those of Penstock and those of users (`stream.transform`).

    Every method runs in the task thread of its subtask and may block for a short while. Each subtask has an
    object of its own. Write methods that return batches with `yield`; the runtime may pause them after each
    batch. It calls `flush`, `tick` and `process_status` only on operators of Penstock.

    Example:
        >>> from penstock.operators import Operator, RowBatch
        >>> from penstock.testing import OperatorHarness
        >>> class Sums(Operator):
        ...     '''Adds numbers up and emits the sum in front of each checkpoint.'''
        ...
        ...     def open(self, context):
        ...         self.total = context.operator_list_state("total")
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

    #: Format of the batches for `process` of a user's operator: `"rows"`, `"arrow"`, or `"both"` unconverted.
    batch_format: ClassVar[BatchFormats] = "rows"

    #: Whether the operator needs a keyed state backend.
    keyed = False

    #: Whether mutable records are copied when they are emitted; false if all functions only read.
    isolates = True

    #: Whether the operator yields its own watermarks; upstream watermarks except the end of time stop here.
    makes_watermarks = False

    @property
    def only_reads(self) -> bool:
        """Whether no user code can change or keep a record here; then no record is copied."""
        return False

    @property
    def holds_watermark(self) -> bool:
        """Whether `process_watermark` has left work, so that the watermark must wait.

        `flush` is then called repeatedly before any input. It does the work in portions, so that checkpoints
        may come in between, and yields the watermark at the end. The end of time can't be held, unless the
        operator `waits_for_answers`.
        """
        return False

    #: Whether results may be emitted later, after an external system has answered. If so, the end of the data
    #: waits until `is_drained`. The subtask asks for `room`. The operator may also hold the end of time.
    waits_for_answers: ClassVar[bool] = False

    @property
    def room(self) -> int | None:
        """Rows that the operator can take now; `None` for any number. At 0 the subtask begins no slice."""
        return None

    @property
    def is_drained(self) -> bool:
        """Whether all results have been emitted."""
        return True

    def open(self, context: OperatorContext) -> None:
        """Prepare the operator; called once per attempt before anything else."""

    def process(self, batch: Any) -> Iterator[Output]:
        """Process one batch and yield its results in order."""
        raise NotImplementedError

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Yield the results of an advance of event time; the chain then forwards the watermark."""
        return iter(())

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        """Handle idle or active input; the chain then forwards the status.

        Emit held results before `IDLE`: receivers do not wait for this stream after that.
        """
        return self.flush() if status is StreamStatus.IDLE else iter(())

    def end_of_data(self) -> Iterator[Output]:
        """Yield the remaining results; no more input will come."""
        return iter(())

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        """Yield results that must be sent before a checkpoint's barrier, such as local sums.

        Also called when the job stops with a savepoint, before the end of the data. It is not called
        after `end_of_data`. A lack of credits does not pause it, so keep its results small.
        """
        return iter(())

    @property
    def flush_at(self) -> float | None:
        """Monotonic time at which `flush` is due; `None` for never. Checked between two batches."""
        return None

    def flush(self) -> Iterator[Output]:
        """Yield held results that have waited long enough."""
        return iter(())

    @property
    def tick_at(self) -> float | None:
        """Time at which `tick` is due, in seconds on the clock of `InputTime`; `None` for never."""
        return None

    def tick(self, now: float) -> Iterator[Output]:
        """Yield the results that are due at `now`, in seconds on the clock of `InputTime`."""
        return iter(())

    def handle_event(self, event: Any) -> None:
        """Handle an event of the operator's coordinator (`HasCoordinator`); nothing can be emitted here.

        Called between two batches. An event that was sent after a checkpoint is handled after it.
        """
        msg = f"{type(self).__name__} was sent {event!r:.80} but has no handle_event"
        raise PenstockError(msg)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList] | None:
        """Bring the lists of the context up to date for a snapshot.

        Operators of Penstock return lists here instead. The backend takes the snapshot of keyed state.
        """
        return None

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        """Return state that the operator has encoded itself; called right after `snapshot`."""
        return RawState()

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """React to a completed checkpoint; called in the order of ids; some ids may be skipped."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """React to an aborted checkpoint; the next checkpoint covers the same changes."""

    @property
    def doing(self) -> str:
        """Name of the running code in errors: `map function parse (job.py:12)`."""
        return type(self).__name__

    @property
    def current_record(self) -> CurrentRecord | None:
        """The record that is being processed, for errors; `None` where it is unknown."""
        return None

    def built_in_counts(self) -> Mapping[str, int]:
        """Penstock's own counters of the operator, such as late records; the chain counts records."""
        return {}

    @property
    def last_commit(self) -> LastCommit | None:
        """The newest commit of a sink; any thread reads it."""
        return None

    def close(self) -> None:
        """Release everything; called once, even after a failure."""


class TwoInputOperator(Operator):
    """An operator with two inputs, for `a.connect(b).transform(id, operator)`.

    Its event time is the lower event time of the two inputs. Batches of one input keep their order; the order
    between the inputs is not defined. Everything else is as in an `Operator`, `batch_format` included.

    Example:
        >>> from penstock.operators import RowBatch, TwoInputOperator
        >>> from penstock.testing import OperatorHarness
        >>> class Marked(TwoInputOperator):
        ...     def process_element1(self, batch):
        ...         yield RowBatch([("left", row) for row in batch.rows])
        ...
        ...     def process_element2(self, batch):
        ...         yield RowBatch([("right", row) for row in batch.rows])
        >>> with OperatorHarness.of(lambda a, b: a.connect(b).transform("marked", Marked())) as harness:
        ...     harness.push([1]), harness.push([2], input_index=1)
        ([('left', 1)], [('right', 2)])
    """

    def process_element1(self, batch: Any) -> Iterator[Output]:
        """Process one batch of the first input and yield its results in order."""
        raise NotImplementedError

    def process_element2(self, batch: Any) -> Iterator[Output]:
        """Process one batch of the second input and yield its results in order."""
        raise NotImplementedError

    def process(self, batch: Any) -> Iterator[Output]:
        """Process a batch of the first input; the runtime calls it, so define `process_element1`."""
        return self.process_element1(batch)


OperatorFactory: TypeAlias = Callable[[], Operator]
