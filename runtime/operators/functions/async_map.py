"""`map_async`: calls a coroutine function for each record, many calls at once.

**Threads.** The operator and its queue belong to the task thread, like every operator. Only users' coroutines
run on the event loop (the port `EventLoop`). In a job the loop runs in its own thread, in a simulation as a
step of the agenda. The two sides share only the counts of retries and timeouts, which the loop changes. Each
try of a call gets its own copy of the record, so a coroutine's changes affect no other try. The answer is
copied on the loop, before the coroutine can change it again, and is sent to the task thread as mail. So
nothing here needs a lock.

**The path of a record.** `process` puts it into the queue (`async_queue.py`) and into `_waiting`. As soon as
fewer than `capacity` calls run, its call begins. The answer marks the record in the queue. When records may
leave, `flush` is due: it removes and emits them. A watermark or status is queued after the records that came
before it, and `flush` emits it, too. If the queue is empty, it is passed on at once.

**Back pressure.** The queue has room for `capacity` calls. `room` is the free part, and the subtask limits
its slices to it. Without room the subtask begins no slice, and sleeps until an answer arrives as mail. It
never blocks. So a checkpoint can be taken at any time. An aligned barrier is handled when the records before
it have been taken. An unaligned checkpoint also captures the slices that were not begun. An operator earlier
in the chain, or a restore, may add more records than there is room for. These wait in `_waiting`.

**A snapshot** has every record of the queue, answered or not, as bytes that were encoded when it arrived. An
answer that has left is part of the output before the barrier. An answer that has not left is lost with the
attempt. After a restore the function is called for its record again, with the same idempotency key. So each
record of the input has exactly one result in the output: before the barrier, or after a restore. Restored
records above `capacity` wait in `_waiting`, so a restore never blocks and can't deadlock.

Watermarks of the queue are restored at their places. At another parallelism these places have no meaning.
Then the lowest of the watermarks that the old subtasks had reached follows the restored records.

**Idempotency keys** contain the job, the operator, a place, a number and a digest of the record. The place is
the subtask, or with keys the key group, which does not depend on the parallelism. The number counts the
records of the place. Records that are read again after a restore are counted again. They get their old keys
if they arrive in the same order as before. Otherwise the digests differ. Only equal records may swap keys,
which makes no difference to a service. So a service that remembers keys never mistakes one record for
another. A job that starts from a snapshot of another job keeps that job's id in its keys.

**Keys.** `_by_key` makes the calls for one key run one after another, in the order of their records. So their
results leave in this order. `keyed_async_map.py` uses it for keyed streams, and lookups for their keys.

**The end.** The end of the data waits until the queue is empty (`Operator.is_drained`). A stop with a
savepoint, but without a drain, does not wait: the savepoint holds the queue.

Three things must never happen. A result must not leave twice, or after a watermark that its record preceded.
A call must not have two outcomes. A record must not be in two queues after a rescale.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import xxhash

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.operators.functions.async_call import (
    CallCounts,
    CallSettings,
    OnTimeout,
    Retry,
    answer_of,
)
from penstock.runtime.operators.functions.async_queue import (
    AsyncQueue,
    AwaitedRecord,
    CallsByKey,
    Leaving,
    OrderedQueue,
    Passing,
    UnorderedQueue,
)
from penstock.runtime.operators.functions.async_values import argument_of, outputs_of, results_of
from penstock.runtime.operators.functions.function_operator import (
    FunctionOperator,
    rows_of,
)
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.failure import CurrentRecord
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.result_collector import OUTPUT_SLICE
from penstock.runtime.ports import EventLoop
from penstock.runtime.record.elements import (
    END_OF_TIME,
    Batch,
    BatchFormat,
    Buffer,
    RowBatch,
    StreamStatus,
    Watermark,
)
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.user_location import function_location

#: Names of the states: records that wait, and the progress of each subtask.
CALLS: Final = "async_calls"
PROGRESS: Final = "async_progress"

#: Names of the built-in counts.
IN_FLIGHT: Final = "async_in_flight"
RETRIES: Final = "async_retries"
TIMEOUTS: Final = "async_timeouts"

#: A batch in a snapshot: its sequence number, its idempotency key, its number of rows, and its bytes.
SavedEntry: TypeAlias = tuple[int, str, int, bytes]


@dataclass(frozen=True, slots=True)
class AsyncSettings:
    """Valid settings of `map_async`.

    Attributes:
        capacity: Maximum number of calls whose results have not been emitted.
        timeout: Maximum seconds of a whole call; `None` for no limit.
        batch: Maximum number of records in the list that a call receives; `None` to call with single records.
            With Arrow batches, maximum number of rows of a call.
        linger: Maximum seconds that an incomplete batch waits for more records.
    """

    capacity: int = 100
    timeout: float | None = None
    retry: Retry | None = None
    ordered: bool = True
    on_timeout: OnTimeout | None = None
    batch: int | None = None
    linger: float = 0.0
    batch_format: BatchFormat = "rows"


class AsyncMapOperator(FunctionOperator):
    """Replaces each record with the result of a coroutine function; see the module's docstring."""

    kind: ClassVar[str] = "map_async"
    waits_for_answers: ClassVar[bool] = True

    def __init__(
        self, function: Callable[..., Any] | FunctionClass, settings: AsyncSettings = AsyncSettings()
    ) -> None:
        super().__init__(function)
        self._settings = settings
        self._arrow = settings.batch_format == "arrow"
        self._queue: AsyncQueue = OrderedQueue() if settings.ordered else UnorderedQueue()
        self._waiting: deque[AwaitedRecord] = deque()
        self._running = 0
        self._sequence = 0
        self._counts = CallCounts()
        self._failure: BaseException | None = None
        self._failed: CurrentRecord | None = None
        self._is_open = self._holds = False
        self._linger, self._linger_until = settings.linger, 0.0
        self._reached: int | None = None
        self._loop: EventLoop | None = None
        self._by_key: CallsByKey | None = None

    # -- lifecycle ----------------------------------------------------------------------------------------

    def open(self, context: OperatorContext) -> None:
        assert context.open_event_loop is not None, "a subtask gives its operators an event loop"
        connector = context.connector
        self._context = context
        self._clock = connector.clock
        self._lineage = connector.job_id
        self._subtask = connector.subtask, connector.parallelism
        self._place = f"{connector.subtask}"
        context.lists.refuse(
            f"a function of {self.kind} has no state: its calls run concurrently, and again after a restore. "
            "Keep state in a function of `process` before or after the calls"
        )
        super().open(context)
        self._calls = CallSettings(
            self._function,
            self._settings.timeout,
            self._settings.retry,
            self._settings.on_timeout,
        )
        self._restore(context)
        self._loop = context.open_event_loop(self._blocked_loop)
        opening = getattr(self._made, "open", None)
        if inspect.iscoroutinefunction(opening):
            user_context = self._context_of(context)
            self._loop.start(lambda: opening(user_context), self._opened, self._failed_to_open)
        else:
            self._opened(None)

    def _check_function(self) -> None:
        function = self._function
        if not callable(function):
            msg = f"{self.kind} needs a coroutine function, not {type(function).__name__}"
            raise ConfigurationError(msg)
        if self._made is None and not inspect.isroutine(function):
            self._made = function  # an object with methods

    def _call_method(self, owner: object, name: str, *arguments: object) -> None:
        if name in ("open", "close") and inspect.iscoroutinefunction(getattr(owner, name, None)):
            return  # runs on the event loop
        super()._call_method(owner, name, *arguments)

    def close(self) -> None:
        loop, self._loop = self._loop, None
        closing = getattr(self._made, "close", None)
        try:
            if loop is not None:
                loop.close(closing if self._is_open and inspect.iscoroutinefunction(closing) else None)
        finally:
            super().close()

    @property
    def only_reads(self) -> bool:
        return False

    @property
    def current_record(self) -> CurrentRecord | None:
        return self._failed or super().current_record

    def built_in_counts(self) -> Mapping[str, int]:
        counts = self._counts
        return {IN_FLIGHT: len(self._queue), RETRIES: counts.retries, TIMEOUTS: counts.timeouts}

    # -- records and time ---------------------------------------------------------------------------------

    @property
    def room(self) -> int | None:
        settings = self._settings
        if self._arrow:
            return 0 if len(self._queue) >= settings.capacity else None
        return max(0, settings.capacity * (settings.batch or 1) - len(self._queue))

    @property
    def is_drained(self) -> bool:
        return self._queue.is_empty and self._failure is None

    @property
    def holds_watermark(self) -> bool:
        return self._holds

    def process(self, batch: Batch) -> Iterator[Output]:
        for part, of_key in self._parts(batch):
            self._accept(part, of_key)
        self._cursor.done()
        self._begin_calls()
        return iter(())

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        if watermark.timestamp != END_OF_TIME:
            self._reached = watermark.timestamp
        else:  # no more records will complete a batch
            self._linger = self._linger_until = 0.0
            self._begin_calls()
        return self._pass(watermark)

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        return self._pass(status)

    @property
    def flush_at(self) -> float | None:
        if self._failure is not None or self._queue.is_ready:
            return 0.0
        lingers = self._settings.batch is not None and self._waiting and self._can_begin
        return self._linger_until if lingers else None

    def flush(self) -> Iterator[Output]:
        if self._failure is not None:
            raise self._failure
        self._begin_calls()
        yield from self._emitted(list(self._queue.take()))

    def _pass(self, element: Watermark | StreamStatus) -> Iterator[Output]:
        self._holds = not self._queue.is_empty
        if self._holds:
            self._queue.add(Passing(self._sequence, element))
        return iter(())

    def _parts(self, batch: Batch) -> Iterator[tuple[Batch, Any]]:
        """Split a batch into entries of the queue: batches of one row, or batches of columns."""
        if self._arrow:
            for part in arrow_parts(batch):
                for piece in part.slices(self._settings.batch or max(1, len(part))):
                    yield piece, None
            return
        rows = rows_of(batch)
        stamps = rows.timestamps
        for place, row in enumerate(self._cursor.over(rows.rows)):
            yield RowBatch([row], None if stamps is None else [stamps[place]]), None

    def _accept(self, part: Batch, of_key: Any) -> None:
        encoded = self._context.batches.encode(part).payload
        key = self._idempotency_key(self._number(of_key), encoded)
        saved = encoded if self._context.transactional else b""
        self._enqueue(AwaitedRecord(self._sequence, key, part, saved, of_key))

    def _enqueue(self, entry: AwaitedRecord) -> None:
        self._sequence = entry.sequence + 1
        self._queue.add(entry)
        if not self._waiting:
            self._linger_until = self._clock.monotonic() + self._linger
        self._waiting.append(entry)

    def _number(self, of_key: Any) -> str:
        """Return the place and number of the next record, for its idempotency key."""
        return f"{self._place}/{self._sequence}"

    def _idempotency_key(self, number: str, encoded: bytes) -> str:
        digest = xxhash.xxh3_64_hexdigest(encoded)
        return f"{self._lineage}/{self._context.connector.operator_id}/{number}/{digest}"

    # -- calls --------------------------------------------------------------------------------------------

    @property
    def _can_begin(self) -> bool:
        return self._is_open and self._running < self._settings.capacity

    def _begin_calls(self) -> None:
        while self._waiting and self._can_begin and self._failure is None:
            entries = self._next_entries()
            if not entries:
                return
            self._running += 1
            self._begin(entries)

    def _next_entries(self) -> list[AwaitedRecord]:
        """Take the records of the next call; none if it waits for more records, or for calls of its keys."""
        size = 1 if self._arrow else self._settings.batch or 1
        if len(self._waiting) < size and self._clock.monotonic() < self._linger_until:
            return []
        taken: list[AwaitedRecord] = []
        while self._waiting and len(taken) < size:
            entry = self._waiting.popleft()
            if self._may_call(entry):
                taken.append(entry)
        self._linger_until = self._clock.monotonic() + self._linger
        return taken

    def _may_call(self, entry: AwaitedRecord) -> bool:
        """Whether a record becomes part of the next call; otherwise it waits outside of `_waiting`."""
        return self._by_key is None or self._by_key.may_call(entry)

    def _given(self, entries: list[AwaitedRecord]) -> Callable[[], Any]:
        """Return a function that makes the argument of each try."""
        return partial(argument_of, entries, as_list=self._settings.batch is not None)

    def _results(self, answered: Any, entries: list[AwaitedRecord]) -> list[Any]:
        """Return one checked result for each record; runs on the event loop."""
        return results_of(answered, entries, as_list=self._settings.batch is not None)

    def _begin(self, entries: list[AwaitedRecord]) -> None:
        assert self._loop is not None, "calls begin between open and close"
        if self._by_key is not None:
            self._by_key.begin(entries)
        calls, counts = self._calls, self._counts
        given, key = self._given(entries), entries[0].key

        async def answer() -> list[Any]:
            answered = await answer_of(calls, given, key, counts)
            return self._results(answered, entries)

        self._loop.start(answer, partial(self._answered, entries), partial(self._call_failed, entries))

    def _answered(self, entries: Sequence[AwaitedRecord], results: Sequence[Any]) -> None:
        self._running -= 1
        for entry, result in zip(entries, results, strict=True):
            self._queue.answered(entry, result)
        if self._by_key is not None:
            self._waiting.extendleft(reversed(self._by_key.end(entries)))
        self._begin_calls()

    def _call_failed(self, entries: Sequence[AwaitedRecord], error: BaseException) -> None:
        batch = entries[0].value
        if self._failure is None and isinstance(batch, RowBatch):
            rows = [entry.rows[0] for entry in entries]
            self._failed = CurrentRecord(rows[0] if self._settings.batch is None else rows)
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def _opened(self, result: object) -> None:
        self._is_open = True
        self._begin_calls()

    def _failed_to_open(self, error: BaseException) -> None:
        self._running_method = function_location(self._made.open)
        self._fail(error)

    def _blocked_loop(self, where: str, seconds: float) -> None:
        if not self._is_open:
            return  # an import or a model that `open` loads may block: no call waits yet
        msg = (
            f"a coroutine has blocked the event loop for {seconds:.1f} seconds, at {where}. All other calls "
            "of the subtask wait for it. Await there instead of blocking, run the code with "
            "`await asyncio.to_thread(...)`, or use map for a function that computes"
        )
        self._fail(PenstockError(msg))

    def _emitted(self, leaving: Sequence[Leaving]) -> Iterator[Output]:
        run: list[AwaitedRecord] = []
        for element in leaving:
            if isinstance(element, Passing):
                yield from self._outputs(run)
                run = []
                yield element.element
                continue
            differs = run and (run[-1].value.timestamps is None) != (element.value.timestamps is None)
            if differs or len(run) >= OUTPUT_SLICE:
                yield from self._outputs(run)
                run = []
            run.append(element)
        yield from self._outputs(run)

    def _outputs(self, entries: Sequence[AwaitedRecord]) -> Iterator[Output]:
        """The output of successive records; all of them have timestamps, or none."""
        return outputs_of(entries)

    # -- snapshots ----------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        super().snapshot(checkpoint_id)
        passing = [
            (element.after, element.element.timestamp)
            for element in self._queue
            if isinstance(element, Passing)
            and isinstance(element.element, Watermark)
            and element.element.timestamp != END_OF_TIME
        ]
        progress = (*self._subtask, self._sequence, self._lineage, self._reached, passing)
        return {**self._saved_calls(), PROGRESS: SavedList([progress], RedistributionMode.UNION)}

    def _saved_calls(self) -> Mapping[str, SavedList]:
        return {CALLS: SavedList([saved_entry(e) for e in self._queue if isinstance(e, AwaitedRecord)])}

    def _restored_calls(self, context: OperatorContext) -> Iterable[tuple[Any, SavedEntry]]:
        return [(None, saved) for saved in context.restored.get(CALLS, ())]

    def _restore(self, context: OperatorContext) -> None:
        progress = list(context.restored.get(PROGRESS, ()))
        own = next((old for old in progress if tuple(old[:2]) == self._subtask), None)
        saved = sorted(self._restored_calls(context), key=lambda one: one[1][0])
        if not progress:
            return
        self._lineage = progress[0][3]
        begin = max(old[2] for old in progress) if own is None else own[2]
        watermarks = self._restored_watermarks(progress, own)
        decode = context.batches.decode
        for place, (of_key, (sequence, key, rows, payload)) in enumerate(saved):
            while watermarks and watermarks[0][0] <= sequence:
                self._queue.add(Passing(*watermarks.popleft()))
            number = begin + place if own is None else sequence  # several subtasks have the same numbers
            self._enqueue(AwaitedRecord(number, key, decode(Buffer(payload, rows)), payload, of_key))
        for after, watermark in watermarks:
            self._queue.add(Passing(max(after, self._sequence), watermark))
        self._sequence = max(begin, self._sequence)

    def _restored_watermarks(
        self, progress: Sequence[Sequence[Any]], own: Sequence[Any] | None
    ) -> deque[tuple[int, Watermark]]:
        """Restored watermarks, each with the number of the first record after it."""
        reached = [old[4] for old in progress] if own is None else [own[4]]
        self._reached = None if None in reached else min(reached)
        if own is not None:
            return deque((after, Watermark(timestamp)) for after, timestamp in own[5])
        last = max(old[2] for old in progress)
        return deque() if self._reached is None else deque([(2 * last + 1, Watermark(self._reached))])


def saved_entry(entry: AwaitedRecord) -> SavedEntry:
    return entry.sequence, entry.key, len(entry.value), entry.saved
