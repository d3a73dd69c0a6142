"""`OperatorChain`: drives the chained operators of one subtask, which form a tree.

Every operator is a generator of output batches, and the chain pulls. It resumes the unfinished generator of
the operator that is nearest to the end. The yielded batch passes all operators below before the generator is
resumed again. So order is kept, and each operator has at most one batch in flight. The operators' generators
are on an explicit stack and do not call each other. So

* the driver can stop after any batch that left the chain (no credit, or end of a slice) and continue later,
* an exception comes from the operator that runs, never from an earlier one that merely produced the batch.
  Only the chain resumes generators.

**Forks.** The output of an operator may have several readers: operators of the chain, and edges. They get a
batch one after the other. If a function of the subtask could change a record, each reader but the last gets a
copy.

A watermark uses the same stack. When an operator has fired its timers, the next operator in the list gets the
watermark. After the last operator the watermark leaves the chain on all edges. So a watermark that an
operator makes between two batches keeps its place among them. The list is in topological order, so each
operator has processed all earlier records before it gets a watermark. While an operator of one branch holds a
watermark, other branches wait for it, too. An operator that makes watermarks is never chained below a fork,
because its watermarks say nothing about other branches (`graph/chaining.py`). A status (idle or active) goes
the same way, and ends at an operator that makes watermarks. An operator with many timers to fire may hold the
watermark and continue in `flush`, which comes before any other input. Nothing overtakes the watermark, and a
checkpoint may be taken meanwhile. An operator whose records wait for answers also holds the watermarks and
statuses that follow these records.

Side outputs of all operators receive only the watermarks that leave the chain. They get no watermark that a
later operator holds or drops. So an operator that makes watermarks is never chained after an operator whose
side output is read and already has event time.

**Runs.** Neighbouring `map`, `filter` and `flat_map` operators process a batch together, in a generated loop
(`functions/fused_loop.py`). On the stack such a run is its last operator: the loop emits what that operator
emits. Watermarks, statuses and the end of the data still pass the operators of the run one by one.

Three things must never happen. A snapshot while the stack holds anything would lose half-done work. Two
batches must not be in progress at once. No output may leave after a watermark or an end of data that must
follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import methodcaller
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.runtime.errors import OperatorLocation, PenstockError
from penstock.runtime.operators.functions.function_operator import FunctionOperator
from penstock.runtime.operators.functions.fused_loop import FusedLoop, can_fuse, ends_run
from penstock.runtime.operators.metrics import RECORDS_OF_INPUT, Metrics, OperatorStatistics
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, Tagged, TwoInputOperator
from penstock.runtime.operators.operator_state import ListStates, RawState, SavedList
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.user_code.failure import (
    OPERATOR_ERRORS,
    close_all,
    error_at,
    short_repr,
)
from penstock.runtime.operators.user_code.result_collector import isolated
from penstock.runtime.record.elements import END_OF_TIME, Batch, StreamStatus, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

T = TypeVar("T")

#: An operator's index, the call of its method, and the watermark or status that it processes, if any.
_Call: TypeAlias = "tuple[int, Callable[[Operator], Iterator[Output]], TimeElement | None]"


class _Run(NamedTuple):
    """Operators that one loop runs, by their indices."""

    operators: Sequence[int]
    loop: FusedLoop


#: Called with the operator's index, the tag of a side output or `None`, and the batch.
Emit: TypeAlias = Callable[[int, str | None, Batch], None]

#: An element that passes through the operators in order with the batches.
TimeElement: TypeAlias = Watermark | StreamStatus

#: Called with a watermark or a status that has passed all operators.
EmitTime: TypeAlias = Callable[[TimeElement], None]

#: Work that can pause after any step: `next` resumes it, `close` abandons it.
Work: TypeAlias = Generator[None, None, None]

_END: Final = object()

#: Method of the first operator for a batch of each input.
_PROCESS: Final = "process", "process_element2"


class _Running(NamedTuple):
    """A running call of an operator, and the watermark or status that it processes, if any."""

    operator: int
    outputs: Iterator[Output]
    passing: TimeElement | None


#: A source and its location.
LocatedSource: TypeAlias = tuple[OperatorLocation, SourceOperator]


class OperatorChain:
    """A tree of operators after a source or channels.

    Args:
        operators: Location (its `operator` is the id) and operator, in topological order; may be empty.
        emit: Takes the main outputs of `emitting` and all side outputs. Indices of operators include the
            source.
        emit_time: Takes statuses, and watermarks after all output that they fired.
        source: The source that feeds the operators; the caller opens and polls it.
        producers: Index of the operator whose main output each operator reads, -1 for the source or the
            channels. By default each operator reads the one before it.
        emitting: Indices of the operators whose main outputs leave the chain, -1 for the source. By default
            the last one.
    """

    def __init__(
        self,
        operators: Sequence[tuple[OperatorLocation, Operator]],
        emit: Emit,
        emit_time: EmitTime,
        source: LocatedSource | None = None,
        producers: Sequence[int] | None = None,
        emitting: Collection[int] | None = None,
    ) -> None:
        self._locations = tuple(location for location, _ in operators)
        self.ids = tuple(location.operator for location in self._locations)
        self.operators = tuple(operator for _, operator in operators)
        self._to_close: list[int] = []
        self._last = len(self.operators) - 1
        self._emit = emit
        self._emit_time = emit_time
        self._source = source
        self._first_index = 0 if source is None else 1
        self.is_busy = False
        producers = range(-1, self._last) if producers is None else producers
        self._emitting = frozenset((self._last,) if emitting is None else emitting)
        #: Readers of each operator's main output, the last one first. The entry of the source is at the end.
        self._readers: list[list[int]] = [[] for _ in range(len(operators) + 1)]
        for index, producer in reversed(list(enumerate(producers))):
            self._readers[producer].append(index)
        self._are_isolated = any(operator.isolates for operator in self.operators)
        #: Records that have reached each operator, and records of its main output.
        self._records_in = [0] * len(operators)
        self._records_out = [0] * len(operators)
        #: Records that have reached the first operator on its second input.
        self._of_second_input = 0
        #: Runs by the index of their first operator and of their last one; made by `open`.
        self._runs_by_first: dict[int, _Run] = {}
        self._runs_by_last: dict[int, _Run] = {}
        self._lists: Sequence[ListStates] = ()
        self._metrics: Mapping[str, Metrics] = {}
        self._flushing = [
            index for index, op in enumerate(self.operators) if type(op).flush is not Operator.flush
        ]
        self._ticking = [
            index for index, op in enumerate(self.operators) if type(op).tick is not Operator.tick
        ]
        self._answered_later = [op for op in self.operators if op.waits_for_answers]
        self._limiting = [op for op in self.operators if type(op).room is not Operator.room]

    def open(self, contexts: Mapping[str, OperatorContext]) -> None:
        """Open all operators, the last one first: when an operator emits, all operators after it are open."""
        self._lists = [contexts[operator_id].lists for operator_id in self.ids]
        self._metrics = {operator_id: contexts[operator_id].metrics for operator_id in self.ids}
        for index in reversed(range(len(self.operators))):
            self._to_close.append(index)
            self.call(index, self.operators[index].open, contexts[self.ids[index]])
        for run in self._find_runs():
            self._runs_by_first[run.operators[0]] = self._runs_by_last[run.operators[-1]] = run

    def process(self, batch: Batch, input_index: int = 0) -> Work:
        """Put a batch through the chain; yield after every batch that left it.

        No operator receives an empty batch, and empty batches that operators yield are dropped.

        Args:
            input_index: Number of the first operator's input; 1 for the second one of a `TwoInputOperator`.

        Raises:
            OperatorError: An operator failed; the message names it, the user's line and the record.
        """
        if -1 in self._emitting:
            self._emit(self._first_index - 1, None, self._copied(-1, batch, is_last=not self._readers[-1]))
            yield
        if self._readers[-1] and (rows := len(batch)):
            if input_index:
                self._of_second_input += rows
            yield from self._drive_all(self._calls_of_readers(-1, batch, _PROCESS[input_index]))

    def process_time(self, passing: TimeElement) -> Work:
        """Pass a watermark or status through the operators in order, in each after the output that it causes.

        An operator that makes its own watermarks forwards only the end of time.
        """
        if self._last < 0:
            self._emit_time(passing)
            return
        yield from self._drive(0, partial(_process_time, passing), passing)

    def end_of_data(self) -> Work:
        """End the input of the operators in order; each passes on its last outputs before the next ends."""
        for work in self.end_in_steps():
            yield from work

    def end_in_steps(self) -> Iterator[Work]:
        """End the input of one operator after another; yields one `Work` for each."""
        for index in range(len(self.operators)):
            yield self._drive(index, lambda operator: operator.end_of_data())

    def prepare_snapshot_pre_barrier(self) -> Work:
        """Let the operators, in order, emit the records that must precede a barrier."""
        for index in range(len(self.operators)):
            yield from self._drive(index, lambda operator: operator.prepare_snapshot_pre_barrier())

    @property
    def flush_at(self) -> float | None:
        """Monotonic time at which the next operator has to emit buffered output; `None` for never."""
        if not self._flushing:
            return None
        times = (self.operators[index].flush_at for index in self._flushing)
        return min((at for at in times if at is not None), default=None)

    def flush(self, now: float) -> Work:
        """Let the operators that are due emit buffered output; `now` is in monotonic seconds."""
        for index in self._flushing:
            at = self.operators[index].flush_at
            if at is not None and at <= now:
                yield from self._drive(index, lambda operator: operator.flush())

    @property
    def waits_for_answers(self) -> bool:
        """Whether an operator emits results only after an external system has answered."""
        return bool(self._answered_later)

    @property
    def room(self) -> int | None:
        """Rows that all operators can take now; `None` for any number."""
        if not self._limiting:
            return None
        return min((room for op in self._limiting if (room := op.room) is not None), default=None)

    @property
    def is_drained(self) -> bool:
        return all(op.is_drained for op in self._answered_later)

    @property
    def tick_at(self) -> float | None:
        """Time at which the next operator needs a `tick`, in seconds on the clock of `InputTime`."""
        if not self._ticking:
            return None
        times = (self.operators[index].tick_at for index in self._ticking)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> Work:
        """Pass time to the operators that are due; `now` is in seconds on the clock of `InputTime`."""
        for index in self._ticking:
            at = self.operators[index].tick_at
            if at is not None and at <= now:
                yield from self._drive(index, lambda operator: operator.tick(now))

    def handle_event(self, operator_id: str, event: Any) -> None:
        """Hand an event from a coordinator to its operator; nothing may be in progress in the chain.

        Raises:
            ValueError: The chain has no operator with this id.
        """
        if self._source is not None and operator_id == self._source[0].operator:
            self._source[1].handle_event(event)
            return
        index = self.ids.index(operator_id)
        self.call(index, self.operators[index].handle_event, event)

    def snapshot(self, checkpoint_id: int) -> dict[str, Mapping[str, SavedList]]:
        """The list states of all operators, by operator id; nothing may be in progress in the chain."""
        if self.is_busy:
            msg = f"checkpoint {checkpoint_id} was taken in the middle of a batch"
            raise RuntimeError(msg)
        taken: dict[str, Mapping[str, SavedList]] = {}
        if self._source is not None:
            location, source = self._source
            taken[location.operator] = source.snapshot(checkpoint_id)
        for index, operator in enumerate(self.operators):
            own = self.call(index, operator.snapshot, checkpoint_id) or {}
            asked = self.call(index, self._lists[index].saved)
            taken[self.ids[index]] = {**asked, **own}
        return taken

    def snapshot_raw(self, checkpoint_id: int) -> dict[str, RawState]:
        """The raw state of the operators that have any, by operator id; call it after `snapshot`."""
        found = self._call_all(lambda operator: operator.snapshot_raw(checkpoint_id))
        return {operator: raw for operator, raw in found.items() if raw}

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """Notify the source and all operators of a completed checkpoint; sinks commit."""
        if self._source is not None and permit.checkpoint_id is not None:
            self._source[1].notify_checkpoint_complete(permit.checkpoint_id)
        self._call_all(lambda operator: operator.notify_checkpoint_complete(permit))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._call_all(lambda operator: operator.notify_checkpoint_aborted(checkpoint_id))

    def statistics(self) -> Mapping[str, OperatorStatistics]:
        counts = self._call_all(lambda operator: operator.built_in_counts())
        statistics = {
            operator_id: OperatorStatistics(
                taken, passed, extra=counts[operator_id], last_commit=operator.last_commit
            )
            for operator_id, operator, taken, passed in zip(
                self.ids, self.operators, self._records_in, self._records_out, strict=True
            )
        }
        if self.operators and isinstance(self.operators[0], TwoInputOperator):
            first = statistics[self.ids[0]]
            by_input = first.records_in - self._of_second_input, self._of_second_input
            counted = dict(zip(RECORDS_OF_INPUT, by_input, strict=True))
            statistics[self.ids[0]] = replace(first, extra={**first.extra, **counted})
        for operator_id, metrics in self._metrics.items():
            statistics[operator_id] = statistics[operator_id].with_metrics(metrics.statistics())
        if self._source is not None:
            location, source = self._source
            statistics[location.operator] = source.statistics()
        return statistics

    def close(self) -> None:
        """Close the source, then all operators that were opened, the last one first, even when one fails."""
        opened, self._to_close = self._to_close, []
        sources = () if self._source is None else (self._source[1].close,)
        close_all(*sources, *(partial(self.call, index, self.operators[index].close) for index in opened))

    def call(self, index: int, call: Callable[..., T], *arguments: Any) -> T:
        """Call an operator; its exception becomes an error that names the operator."""
        try:
            return call(*arguments)
        except OPERATOR_ERRORS:
            raise
        except BaseException as error:
            # SystemExit, too: it would end a task's thread silently.
            raise self._error_of(index, error) from error

    def _error_of(self, index: int, error: BaseException) -> BaseException:
        operator = self.operators[index]
        record = operator.current_record
        run = self._runs_by_last.get(index)
        if run is not None and run.loop.is_running:
            failed = run.loop.failed_call(error)
            index, record = run.operators[failed.place], failed.record
            operator = self.operators[index]
        return error_at(self._locations[index], operator.doing, error, record)

    def doing(self, index: int, frame: FrameType | None = None) -> str:
        """Name of the code that an operator runs; `frame` is a frame of a generated loop, if one runs."""
        run = self._runs_by_last.get(index)
        if run is not None and frame is not None:
            index = run.operators[run.loop.place_at(frame)]
        return self.operators[index].doing

    def _find_runs(self) -> Iterator[_Run]:
        """Find neighbouring operators that can run in one loop; nothing else reads what they pass on."""
        run: list[tuple[int, FunctionOperator]] = []
        for index, operator in enumerate(self.operators):
            follows = bool(run) and self._readers[run[-1][0]] == [index] and run[-1][0] not in self._emitting
            if run and not (follows and can_fuse(operator) and not ends_run(run[-1][1])):
                yield from self._run_of(run)
                run = []
            if can_fuse(operator):
                assert isinstance(operator, FunctionOperator)
                run.append((index, operator))
        yield from self._run_of(run)

    def _run_of(self, run: Sequence[tuple[int, FunctionOperator]]) -> Iterator[_Run]:
        if len(run) < 2:
            return
        indices = [index for index, _ in run]
        # Not `self`: the chain refers to the loop, and a circle would keep both until the next collection.
        records_in, records_out = self._records_in, self._records_out

        def passed(place: int, records: int) -> None:
            records_out[indices[place]] += records
            records_in[indices[place + 1]] += records

        yield _Run(indices, FusedLoop([operator for _, operator in run], passed))

    def _call_all(self, call: Callable[[Operator], T]) -> dict[str, T]:
        """Results of `call` for every operator, from the first to the last, by operator id."""
        return {
            operator_id: self.call(index, call, self.operators[index])
            for index, operator_id in enumerate(self.ids)
        }

    def _drive(
        self,
        start: int,
        begin: Callable[[Operator], Iterator[Output]],
        passing: TimeElement | None = None,
    ) -> Work:
        """Pull all output of the generator that `begin` starts in operator `start` through the chain.

        `passing` is the watermark or status that the first operator receives, if any.
        """
        return self._drive_all([(start, begin, passing)])

    def _drive_all(self, calls: Sequence[_Call]) -> Work:
        """Make calls of operators, the last one first, and pull all output through the chain."""
        if self.is_busy:
            msg = "the chain got new work before the last was finished"
            raise RuntimeError(msg)
        self.is_busy = True
        stack: list[_Running] = []
        try:
            for call in calls:
                self._push(stack, *call)
            while stack:
                index, outputs, time = stack[-1]
                output = self.call(index, next, outputs, _END)
                if output is _END:
                    stack.pop()
                    if time is not None:
                        self._pass_on(stack, index, time)
                elif isinstance(output, TimeElement):
                    self._pass_on(stack, index, output, made_here=True)
                elif isinstance(output, Batch) and index not in self._emitting:
                    self._push_readers(stack, index, output)
                else:
                    self._emit_from(index, output)
                    yield
                    if isinstance(output, Batch):
                        self._push_readers(stack, index, output)
        finally:
            self.is_busy = False
            self._drop(stack)

    def _push_readers(self, stack: list[_Running], index: int, batch: Batch) -> None:
        if rows := len(batch):
            self._records_out[index] += rows
            for call in self._calls_of_readers(index, batch):
                self._push(stack, *call)

    def _calls_of_readers(self, index: int, batch: Batch, method: str = "process") -> list[_Call]:
        """Calls of the operators that read a batch, the last one first."""
        readers = self._readers[index]
        for reader in readers:
            self._records_in[reader] += len(batch)
        return [
            self._call_of(reader, method, self._copied(index, batch, is_last=not number))
            for number, reader in enumerate(readers)
        ]

    def _call_of(self, reader: int, method: str, batch: Batch) -> _Call:
        run = self._runs_by_first.get(reader)
        if run is None:
            return reader, methodcaller(method, batch), None
        loop = run.loop
        return run.operators[-1], lambda _: loop.process(batch), None

    def _copied(self, index: int, batch: Batch, *, is_last: bool) -> Batch:
        """A batch for one of several readers; the last one may have the batch itself."""
        if is_last or not self._are_isolated:
            return batch
        try:
            return isolated(batch)
        except BaseException as error:
            raise error_at(self._location(index), "copying its output for several readers", error) from error

    def _location(self, index: int) -> OperatorLocation:
        """The location of an operator; -1 is the source, or the first operator of a chain without one."""
        return self._source[0] if index < 0 and self._source is not None else self._locations[max(index, 0)]

    def _push(
        self,
        stack: list[_Running],
        index: int,
        begin: Callable[[Operator], Iterator[Output]],
        passing: TimeElement | None = None,
    ) -> None:
        stack.append(_Running(index, self.call(index, begin, self.operators[index]), passing))

    def _pass_on(
        self,
        stack: list[_Running],
        index: int,
        passing: TimeElement,
        *,
        made_here: bool = False,
    ) -> None:
        """Pass a watermark or status that an operator has processed or made to the next one, or out."""
        operator = self.operators[index]
        keeps = operator.makes_watermarks or operator.holds_watermark
        can_wait = passing != Watermark(END_OF_TIME) or operator.waits_for_answers
        if keeps and not made_here and can_wait:
            return
        if index == self._last:
            self._emit_time(passing)
        else:
            self._push(stack, index + 1, partial(_process_time, passing), passing)

    def _emit_from(self, index: int, output: Any) -> None:
        """Emit a batch; if it can't be sent, the error names the operator that emitted it."""
        tag, batch = (output.tag, output.batch) if isinstance(output, Tagged) else (None, output)
        is_last = tag is not None or not self._readers[index]
        try:
            if not isinstance(batch, Batch):
                msg = f"an operator yields RowBatch, ArrowBatch or Tagged, not {short_repr(batch)}"
                raise PenstockError(msg)
            if len(batch):
                self._emit(self._first_index + index, tag, self._copied(index, batch, is_last=is_last))
        except OPERATOR_ERRORS:
            raise
        except BaseException as error:
            raise error_at(self._locations[index], "sending its output", error) from error

    def _drop(self, stack: list[_Running]) -> None:
        """Close unfinished generators, so that users' `finally` blocks run now."""
        while stack:
            index, outputs, _ = stack.pop()
            close = getattr(outputs, "close", None)
            if close is not None:
                self.call(index, close)


def _process_time(passing: TimeElement, operator: Operator) -> Iterator[Output]:
    if isinstance(passing, Watermark):
        return operator.process_watermark(passing)
    return operator.process_status(passing)
