"""`OperatorHarness`: one operator in one subtask, without a cluster.

The harness runs the same code as a job: operator chain, keyed state backend with incremental snapshots, value
codec and redistribution of state. So tests of restored state, and of commits that wait for their checkpoint,
also hold on a cluster. Time passes only when a test advances it, or while `end_of_data` waits for coroutines.
Snapshots stay in memory. The harness resembles Flink's `OneInputStreamOperatorTestHarness` and the
`TopologyTestDriver` of Kafka Streams.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

from penstock.runtime.config.job_config import ON_HEAP, StateBackend
from penstock.runtime.errors import GraphError, OperatorLocation, PenstockError
from penstock.runtime.graph.stream_graph import StreamNode
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.names import NearestMembers, NearestNames, checked_keywords, normal_name
from penstock.runtime.operators.chain import OperatorChain, Work
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.operator import Operator, OperatorContext, TwoInputOperator
from penstock.runtime.operators.operator_state import ListStates, RawState, RestoredRawState
from penstock.runtime.operators.user_operator import UserOperator
from penstock.runtime.record.elements import Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.snapshot.metadata import RAW
from penstock.runtime.state.key_groups import key_group_of, key_group_range, own_parts, redistribute
from penstock.runtime.state.own_copy import own_copies
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.harness_state import (
    FilesInHandles,
    HarnessSnapshot,
    connector_of,
    encoded_lists,
    restored_backend,
)
from penstock.runtime.testing.manual_event_loop import HarnessEventLoop
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.time.input_watermarks import InputWatermarks

#: Adds one operator to a stream, or to two streams.
BuildsOperator: TypeAlias = (
    Callable[[DataStream[Any]], object] | Callable[[DataStream[Any], DataStream[Any]], object]
)


def single_operator(build: BuildsOperator) -> StreamNode:
    """The operator that `build` adds to a stream, or to two streams if it takes two.

    Example:
        >>> single_operator(lambda numbers: numbers.map(abs).map(str))
        Traceback (most recent call last):
        penstock.runtime.errors.GraphError: a harness drives one operator, but `build` adds map(abs), map(str)
    """
    environment = StreamEnvironment("harness")
    inputs: list[DataStream[Any]] = [environment.from_collection("input", ())]
    if _takes_two(build):
        inputs.append(environment.from_collection("second-input", ()))
    add: Callable[..., object] = build
    add(*inputs)
    added = environment._builder.graph.nodes[len(inputs) :]
    if len(added) != 1:
        names = ", ".join(node.operator.name for node in added) or "none"
        msg = f"a harness drives one operator, but `build` adds {names}"
        raise GraphError(msg)
    return added[0]


def _takes_two(build: Callable[..., object]) -> bool:
    try:
        needed = [p for p in inspect.signature(build).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):  # a callable written in C has no signature
        return False
    return len(needed) == 2


class HarnessSettings(TypedDict, total=False):
    """Arguments of an `OperatorHarness`, described there."""

    job_id: str
    operator_id: str
    subtask: int
    parallelism: int
    max_parallelism: int
    restored: Sequence[HarnessSnapshot]
    transactional: bool
    attempt: int
    clock: ManualClock | None
    state_backend: StateBackend


class OperatorHarness(NearestMembers, metaclass=NearestNames):
    """Drives one operator step by step; `of` makes a harness for an operator that is written as in a job.

    Args:
        operator: A new operator; the harness opens it and closes it.
        max_parallelism: Number of key groups.
        restored: Snapshots of all old subtasks of one completed checkpoint, by index. The harness restores
            its share, even at another parallelism.
        transactional: Whether the job takes checkpoints.

    Raises:
        OperatorError: The operator failed; each method may raise this.

    Example:
        >>> def count(pairs):
        ...     return pairs.key_by(lambda pair: pair[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
        >>> with OperatorHarness.of(count) as harness:
        ...     first = harness.push([("a", 1), ("b", 1), ("a", 1)])
        ...     snapshot = harness.snapshot()
        >>> first
        [('a', 1), ('b', 1), ('a', 2)]
        >>> with OperatorHarness.of(count, restored=[snapshot]) as harness:
        ...     harness.push([("a", 1)])
        [('a', 3)]
    """

    def __init__(
        self,
        operator: Operator,
        *,
        job_id: str = "harness",
        operator_id: str = "operator",
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        restored: Sequence[HarnessSnapshot] = (),
        transactional: bool = True,
        attempt: int = 1,
        clock: ManualClock | None = None,
        state_backend: StateBackend = ON_HEAP,
    ) -> None:
        self.clock = clock or ManualClock()
        self._job_id = job_id
        self._attempt = attempt
        self._max_parallelism = max_parallelism
        self._key_groups = key_group_range(subtask, parallelism, max_parallelism)
        self._codec = ValueCodec()
        self._files = FilesInHandles()
        self._operator = operator
        self._main: list[Batch] = []
        self._side: dict[str, list[Any]] = {}
        self._watermarks: list[Watermark] = []
        self._has_two_inputs = isinstance(operator, TwoInputOperator)
        self._valve = InputWatermarks((0, 1) if self._has_two_inputs else (0,))
        self._is_idle = False
        self._has_ended = self._is_closed = False
        self._events: list[Any] = []
        self._loops: list[HarnessEventLoop] = []
        self._last_id = max((s.checkpoint_id for s in restored), default=0)
        self._completed_id = self._last_id if restored else -1
        setup = BackendSetup("operator", max_parallelism, self._key_groups, self._codec, clock=self.clock)
        self._backend = (
            restored_backend(state_backend, setup, restored, self._files) if operator.keyed else None
        )
        location = OperatorLocation(operator_id, subtask, parallelism)
        self._chain = OperatorChain([(location, operator)], self._take, self._take_time)
        try:
            self._chain.open({operator_id: self._context(location, restored, transactional)})
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, build: BuildsOperator, **settings: Unpack[HarnessSettings]) -> Self:
        """Make a harness for an operator that is written as in a job.

        Args:
            build: Takes a stream and adds one operator to it, or a sink. Or takes two streams and adds one
                operator to the connected streams.
            **settings: Arguments of the class, except `operator`.

        Raises:
            GraphError: `build` adds no operator, or several.

        Example:
            >>> count = lambda words: words.key_by(str).reduce("longest", max)
            >>> with OperatorHarness.of(count) as harness:
            ...     harness.push(["a", "b", "a"])
            ['a', 'b', 'a']
        """
        node = single_operator(build)
        operator = node.operator
        settings.setdefault("operator_id", operator.id or node.kind)
        assert operator.factory is not None, f"{operator.name} has no factory"
        return cls(operator.factory(), **settings)

    @checked_keywords
    def push(
        self,
        rows: Sequence[Any],
        timestamps: Sequence[int] | None = None,
        *,
        input_index: int = 0,
        stop_after: int | None = None,
    ) -> list[Any]:
        """Process rows as one batch.

        Args:
            rows: The records.
            timestamps: Event time of each row in microseconds.
            input_index: Number of the operator's input; 1 is the second input.
            stop_after: Number of output rows after which the rest of the batch is dropped, for functions that
                never end.

        Returns:
            The emitted rows of the main output.
        """
        return self.push_batch(RowBatch(rows, timestamps), input_index=input_index, stop_after=stop_after)

    @checked_keywords
    def push_batch(self, batch: Batch, *, input_index: int = 0, stop_after: int | None = None) -> list[Any]:
        """Process a batch of any kind; see `push`."""
        self._inputs(input_index)
        if isinstance(batch, RowBatch) and not self._operator.only_reads:
            batch = RowBatch(own_copies(batch.rows), batch.timestamps)
        return self._drain(self._chain.process(batch, input_index), stop_after)

    @checked_keywords
    def push_watermark(
        self, timestamp: int, *, input_index: int | None = None, stop_after: int | None = None
    ) -> list[Any]:
        """Advance event time, and return the emitted rows.

        At most 1,024 timers or windows fire at once. Call `flush` to fire further timers and windows, as a
        job does.

        Args:
            timestamp: Event time in microseconds.
            input_index: Number of the input whose event time advances. The operator's event time is the lower
                event time of its inputs. By default all inputs advance.
            stop_after: Number of output rows after which the rest is dropped, as for `push`.
        """
        watermark = Watermark(timestamp)
        if not self._has_two_inputs:
            self._inputs(input_index)
            self._valve.watermark(0, watermark)
            return self._drain(self._chain.process_time(watermark), stop_after)
        rows = []
        for index in self._inputs(input_index):
            advanced = self._valve.watermark(index, watermark)
            if advanced is not None:
                rows += self._drain(self._chain.process_time(advanced), stop_after)
        return rows

    @checked_keywords
    def push_status(self, *, idle: bool, input_index: int | None = None) -> list[Any]:
        """Make an input, or by default all inputs, idle or active, and return the emitted rows."""
        status = StreamStatus.IDLE if idle else StreamStatus.ACTIVE
        if not self._has_two_inputs:
            self._inputs(input_index)
            return self._drain(self._chain.process_time(status))
        rows = []
        for index in self._inputs(input_index):
            changed, advanced = self._valve.status(index, status)
            changes = (changed, advanced) if changed is StreamStatus.ACTIVE else (advanced, changed)
            for change in changes:
                rows += [] if change is None else self._drain(self._chain.process_time(change))
        return rows

    @checked_keywords
    def advance(self, duration: Duration) -> list[Any]:
        """Let time pass without input, run the operator's due work, and return the emitted rows."""
        until, rows = self.clock.monotonic() + seconds_in("duration", duration), self._tick()
        while (at := self._next_at) is not None and at <= until:
            self.clock.advance_to(at)
            rows += self._tick()
        self.clock.advance_to(until)
        return rows + self.flush()

    def flush(self) -> list[Any]:
        """Let the operator emit the due records that it holds; return these rows.

        Also deletes some of the expired state, as an idle job does.
        """
        return self._drain(self._chain.flush(self.clock.monotonic()))

    def end_of_data(self) -> list[Any]:
        """End the input, and return the emitted rows; time advances until all calls of coroutines have ended.

        Raises:
            PenstockError: A coroutine waits for something that never comes.
        """
        rows = self._answers()
        while not self._chain.is_drained:
            at = self._next_at
            if at is None:
                msg = "a coroutine waits for something that never comes in a test, so the data can't end"
                raise PenstockError(msg)
            self.clock.advance_to(at)
            rows += self._answers()
        self._has_ended = True
        return rows + self._drain(self._chain.end_of_data())

    @property
    def outputs(self) -> list[Any]:
        """All rows of the main output so far; each row of an Arrow batch is a dict."""
        return [row for batch in self._main for row in rows_of(batch).rows]

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All batches of the main output so far, with their timestamps."""
        return tuple(self._main)

    @property
    def watermarks(self) -> tuple[int, ...]:
        """Timestamps of all watermarks that the operator forwarded or made, in microseconds."""
        return tuple(watermark.timestamp for watermark in self._watermarks)

    @property
    def is_idle(self) -> bool:
        """Whether the last status that the operator forwarded or made is idle."""
        return self._is_idle

    def handle_event(self, event: Any) -> None:
        """Pass an event of its coordinator to the operator.

        Raises:
            CodecError: The event can't be encoded.
        """
        self._chain.handle_event(self._chain.ids[0], self._codec.loads(self._codec.dumps(event)))

    @property
    def events(self) -> list[Any]:
        """All events that the operator has sent to its coordinator so far."""
        return list(self._events)

    def side_output(self, tag: str) -> list[Any]:
        """All rows of a side output so far."""
        return list(self._side.get(normal_name(tag), ()))

    def state(self, name: str) -> dict[Any, Any]:
        """A copy of a keyed state's live entries: a value, a list or a map for each key."""
        return {} if self._backend is None else self._backend.contents(normal_name(name))

    def owns(self, key: Any) -> bool:
        """Whether this subtask owns a key; a snapshot fails with keys of other subtasks."""
        return key_group_of(key, self._max_parallelism) in self._key_groups

    def snapshot(self, checkpoint_id: int | None = None) -> HarnessSnapshot:
        """Take a checkpoint's snapshot; `complete_checkpoint` completes the checkpoint.

        Rows that the operator emits before the barrier are in `outputs`.

        Args:
            checkpoint_id: Id greater than all earlier ids; by default the next number.

        Raises:
            CodecError: A value can't be encoded.
        """
        self._last_id = self._last_id + 1 if checkpoint_id is None else checkpoint_id
        if not self._has_ended:
            self._drain(self._chain.prepare_snapshot_pre_barrier())
        (states,) = self._chain.snapshot(self._last_id).values()
        lists = encoded_lists(states, self._codec)
        keyed = None
        if self._backend is not None:
            keyed = self._backend.snapshot(self._last_id, self._completed_id).finish(self._files)
            self._backend.snapshot_finished(self._last_id, keyed)
        raw = self._chain.snapshot_raw(self._last_id)
        return HarnessSnapshot(self._last_id, lists, keyed, next(iter(raw.values()), RawState()))

    def complete_checkpoint(self, snapshot: HarnessSnapshot) -> None:
        """Notify the operator that the checkpoint is complete; a sink then commits."""
        self._completed_id = snapshot.checkpoint_id
        if self._backend is not None:
            self._backend.confirm(snapshot.checkpoint_id)
        self._chain.notify_checkpoint_complete(
            permit_of_completed_checkpoint(snapshot.checkpoint_id, self._attempt)
        )

    def abort_checkpoint(self, snapshot: HarnessSnapshot) -> None:
        """Notify the operator that the checkpoint was aborted."""
        self._chain.notify_checkpoint_aborted(snapshot.checkpoint_id)

    def statistics(self) -> OperatorStatistics:
        """The operator's counters, and the metrics of users and connectors."""
        (statistics,) = self._chain.statistics().values()
        return statistics

    def close(self) -> None:
        """Close the operator; a second call does nothing."""
        try:
            self._chain.close()
        finally:
            if self._backend is not None and not self._is_closed:
                self._backend.close()
            self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _inputs(self, input_index: int | None) -> Sequence[int]:
        """The given input, or all inputs; refuses an input that the operator does not have."""
        every = (0, 1) if self._has_two_inputs else (0,)
        if input_index is None:
            return every
        if input_index not in every:
            has = "two inputs, 0 and 1" if self._has_two_inputs else "one input, 0"
            msg = f"input_index is {input_index!r}, but the operator has {has}"
            raise ValueError(msg)
        return (input_index,)

    def _take(self, index: int, tag: str | None, batch: Batch) -> None:
        if tag is None:
            self._main.append(batch)
        else:
            self._side.setdefault(tag, []).extend(rows_of(batch).rows)

    def _take_time(self, change: Watermark | StreamStatus) -> None:
        if isinstance(change, Watermark):
            self._watermarks.append(change)
        else:
            self._is_idle = change is StreamStatus.IDLE

    @property
    def _next_at(self) -> float | None:
        """Time of the next tick, timer of a coroutine, or call that waits for more records."""
        lingering = self._chain.flush_at if self._chain.waits_for_answers else None
        times = [self._chain.tick_at, lingering, *(loop.loop.next_at for loop in self._loops)]
        return min((at for at in times if at is not None), default=None)

    def _open_event_loop(self, on_blocked: Callable[[str, float], None]) -> HarnessEventLoop:
        loop = HarnessEventLoop(self.clock, on_blocked)
        self._loops.append(loop)
        return loop

    def _answers(self) -> list[Any]:
        """Run coroutines until all of them wait, and return the rows that their answers emit."""
        first = len(self._main)
        for loop in self._loops:
            loop.loop.run_ready()
        while self._loops and (at := self._chain.flush_at) is not None and at <= self.clock.monotonic():
            for _ in self._chain.flush(self.clock.monotonic()):
                pass
            for loop in self._loops:
                loop.loop.run_ready()
        return [row for batch in self._main[first:] for row in rows_of(batch).rows]

    def _tick(self) -> list[Any]:
        return self._drain(self._chain.tick(self.clock.monotonic()))

    def _drain(self, work: Work, stop_after: int | None = None) -> list[Any]:
        first = len(self._main)
        for _ in work:
            if stop_after is not None and sum(map(len, self._main[first:])) >= stop_after:
                work.close()
                break
        if self._loops:
            self._answers()
        return [row for batch in self._main[first:] for row in rows_of(batch).rows]

    def _context(
        self, location: OperatorLocation, restored: Sequence[HarnessSnapshot], transactional: bool
    ) -> OperatorContext:
        subtask = location.subtask or 0
        old = [s.old_states for s in restored]
        shares = redistribute(old, location.parallelism)
        unasked = {n: part for n, part in own_parts(old, shares)[subtask].items() if n != RAW}
        lists = shares[subtask]
        keyed = [pair for snapshot in restored for pair in snapshot.raw.keyed.items()]
        raw = RawState(
            lists.pop(RAW, ()), {group: data for group, data in keyed if group in self._key_groups}
        )
        loads = self._codec.loads
        decoded = {name: list(map(loads, atoms)) for name, atoms in lists.items()}
        return OperatorContext(
            location=location,
            connector=connector_of(location, self._attempt, self.clock, self._job_id),
            keyed_state=self._backend,
            restored=decoded,
            is_restored=bool(restored),
            transactional=transactional,
            restored_permit=permit_of_completed_checkpoint(self._last_id, self._attempt - 1)
            if restored
            else None,
            restored_raw=RestoredRawState(raw),
            send=self._send if _may_send(self._operator) else None,
            lists=ListStates(unasked, loads, decoded),
            watermark_of=self._valve.of_input,
            open_event_loop=self._open_event_loop,
        )

    def _send(self, event: Any) -> None:
        self._events.append(self._codec.loads(self._codec.dumps(event)))


def _may_send(operator: Operator) -> bool:
    return not isinstance(operator, UserOperator) or operator.has_coordinator
