"""The current work of a subtask: a batch, an advance of event time, or the end of its input.

Work is a generator that pauses after every batch that left the chain. It stops when the time of a slice is
over or an output has no credit, and continues in a later step. A batch is cut into slices. Subsequent work
(such as the end of the input) waits until the batch is processed.

An unfinished generator is in no snapshot. So an aligned checkpoint waits until nothing is in progress. An
unaligned checkpoint must not wait for credits: it *settles* the work, which runs the current generator to its
end and ignores credits. For a batch from a channel this is the work of at most one slice. The output of this
slice waits in the outputs, where the checkpoint captures it. The checkpoint captures the pending slices as
input. A source can't take pending slices back, so `settle` processes the rest of its batch. Settling again
before the outputs have moved does nothing, so consecutive checkpoints don't accumulate data. A user's
function may emit endlessly for one record. So `settle` emits a bounded number of records for a batch. Work
beyond that continues as credits allow, and the checkpoint waits for its end.

**Slices.** Between slices of about ten milliseconds a subtask serves barriers and control messages. The size
follows the measured time per row: whole batches for cheap operators, a few rows for a slow function. A list
slice has at most a few thousand rows: more would gain nothing, exceed the processor's cache and start
Python's cycle collector. An Arrow batch is a few objects whatever its size, so it may be larger.

A slice has a fixed cost, too. Each Arrow batch calls every operator of the chain, and the cost of calling a
model may hardly depend on the number of rows. Where that cost is large, smaller slices are not faster, only
more numerous. So a slice may take longer than ten milliseconds: its fixed cost is at most a fifth of its
time. `SliceCosts` separates the two costs by fitting a straight line to the times of the last slices (least
squares; older slices count less). Slices of equal size determine no line. While they last, the estimate of
the fixed cost decays, so the sizes change a little, and a line can be fitted again.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.operators.chain import OperatorChain, Work
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.task.outputs import SubtaskOutputs

#: Decay of a slice's weight with each later slice; about sixteen slices count.
_DECAY: Final = 15 / 16

#: Number of slices before a line is fitted.
_LEAST_SLICES: Final = 8

#: Minimum spread of the sizes relative to their mean; with less the line follows noise.
_LEAST_SPREAD: Final = 0.1

#: Minimum share of the time attributed to rows; a nearly flat line follows noise, too.
_LEAST_OF_ROWS: Final = 0.05


class SliceCosts:
    """Estimates the fixed cost of a slice and the cost of a row.

    Attributes:
        fixed: Seconds of a slice without rows; 0 while it is unknown.
        per_row: Seconds of a row.
    """

    def __init__(self) -> None:
        self.fixed = self.per_row = 0.0
        self._seen = 0
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        self._seen += 1
        self._weight = _DECAY * self._weight + 1
        self._rows = _DECAY * self._rows + rows
        self._seconds = _DECAY * self._seconds + seconds
        self._squares = _DECAY * self._squares + rows * rows
        self._products = _DECAY * self._products + rows * seconds
        mean_rows, mean_seconds = self._rows / self._weight, self._seconds / self._weight
        spread = self._squares / self._weight - mean_rows * mean_rows
        if spread <= (_LEAST_SPREAD * mean_rows) ** 2:
            self.fixed *= _DECAY
        elif self._seen >= _LEAST_SLICES:
            slope = (self._products / self._weight - mean_rows * mean_seconds) / spread
            self.fixed = max(0.0, mean_seconds - slope * mean_rows)
        self.fixed = min(self.fixed, (1 - _LEAST_OF_ROWS) * mean_seconds)
        self.per_row = (mean_seconds - self.fixed) / mean_rows


#: Maximum records in a slice of a row batch.
MOST_ROWS: Final = 4_096

#: Minimum time for rows, as a multiple of the fixed cost of a slice.
_TIMES_FIXED: Final = 4


class SliceSizer:
    """Chooses the size of the next slice from the time of the last ones.

    Args:
        target: Intended seconds of a slice.
        maximum: Maximum rows of a slice of any kind.
    """

    def __init__(self, target: float = 0.01, initial: int = 256, maximum: int = 262_144) -> None:
        self._target = target
        self._maximum = maximum
        self.overruns = 0
        self._costs = SliceCosts()
        self.rows = initial

    def rows_of(self, batch: Batch) -> int:
        return self.rows if isinstance(batch, ArrowBatch) else min(self.rows, MOST_ROWS)

    def observe(self, rows: int, seconds: float) -> None:
        if rows <= 0:
            return
        if seconds > 10 * self._target:
            self.overruns += 1
        costs = self._costs
        costs.observe(rows, seconds)
        fitting = self._maximum if seconds <= 0 else int(self._target * rows / seconds)
        paying = int(_TIMES_FIXED * costs.fixed / costs.per_row) if costs.per_row > 0 else 1
        self.rows = max(1, min(self._maximum, max(fitting, paying), self.rows * 4))


class BatchRemainder:
    """A batch that is processed slice by slice; its rest is available at every slice boundary."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._taken = 0

    @property
    def batch(self) -> Batch:
        return self._batch

    @property
    def is_empty(self) -> bool:
        return self._taken >= len(self._batch)

    def take(self, rows: int) -> Batch:
        """Take and return the next rows, at most `rows`; a whole batch that fits is not copied."""
        batch, start = self._batch, self._taken
        size = min(rows, len(batch) - start)
        self._taken += size
        if size == len(batch):
            return batch
        if isinstance(batch, ArrowBatch):
            return batch.slice(start, size)
        stamps = None if batch.timestamps is None else batch.timestamps[start : start + size]
        return RowBatch(batch.rows[start : start + size], stamps)

    def rest(self) -> Batch:
        """Return the rows that were not taken, without taking them."""
        left = BatchRemainder(self._batch)
        left._taken = self._taken
        return left.take(len(self._batch))


#: Maximum records that settling may emit for one batch; each output batch counts as at least 64.
MOST_SETTLED: Final = 65_536

_LEAST_OF_A_BATCH: Final = 64

_END: Final = object()


class WorkInProgress:
    """Processes one piece of work after another, slice by slice; see the module's docstring.

    Args:
        duration: Intended seconds of a slice.
        whole_batches: Whether `settle` processes the whole batch, and the watermark after it, because a
            source can't take the rest back.

    Attributes:
        takes_checkpoints: Whether a checkpoint may come between two pieces of work.
    """

    def __init__(
        self,
        chain: OperatorChain,
        outputs: SubtaskOutputs,
        clock: Clock,
        duration: float,
        *,
        whole_batches: bool,
    ) -> None:
        self._chain = chain
        self._outputs = outputs
        self._clock = clock
        self._duration = duration
        self._whole_batches = whole_batches
        self._sizer = SliceSizer(duration)
        self._work: Work | None = None
        self._slice_rows = 0
        self._spent = 0.0
        self._remainder: BatchRemainder | None = None
        self._following: Work | None = None
        self._is_of_batch = False
        self._settled = 0
        self._is_awaited = False
        self._is_columnar = False
        self._input_index = 0
        self.takes_checkpoints = True

    @property
    def is_idle(self) -> bool:
        return self._work is None and self._remainder is None and self._following is None

    @property
    def is_between_calls(self) -> bool:
        """Whether no operator is in the middle of a call."""
        return self._work is None

    @property
    def is_held(self) -> bool:
        """Whether slices wait because an operator has no room for more records."""
        return self._work is None and self._remainder is not None and self._chain.room == 0

    @property
    def slice_rows(self) -> int:
        """Rows to request from a source: one slice of its lists or Arrow batches."""
        return self._with_room(self._sizer.rows if self._is_columnar else min(self._sizer.rows, MOST_ROWS))

    def begin_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Begin a batch of one of the inputs; nothing else may be in progress."""
        self._settled = 0
        self._input_index = input_index
        self._is_columnar = isinstance(batch, ArrowBatch)
        if len(batch):
            self._remainder = BatchRemainder(batch)

    def then(self, work: Work, *, is_of_batch: bool = False) -> None:
        """Add work that begins after the current batch, if there is one.

        Args:
            is_of_batch: Whether it is a watermark that came with the batch, so a source would not repeat it.
        """
        self._following, self._is_of_batch = work, is_of_batch

    def first(self, work: Work) -> None:
        """Add work that begins before the pending slices; no operator is in the middle of a call."""
        assert self._work is None, "a call is in progress"
        self._work = work

    def run(self, begun: float) -> None:
        """Work until all is done or held, time is over, an output has no credit, or a checkpoint is due.

        `begun` is the monotonic time at which the step began.
        """
        monotonic, now = self._clock.monotonic, begun
        deadline = begun + self._duration
        while not self.is_held and (work := self._current()) is not None:
            resumed = now
            for _ in work:
                now = monotonic()
                if now >= deadline or not self._outputs.are_available:
                    self._spent += now - resumed
                    return
            now = monotonic()
            self._ended(now - resumed)
            if now >= deadline or self._is_awaited:
                return

    @property
    def is_awaited(self) -> bool:
        """Whether a checkpoint waits for started work: `settle` was called and returned false."""
        return self._is_awaited

    def settle(self) -> bool:
        """Finish started work now, regardless of time and credits, unless it emits too much.

        Return whether the work has ended. If not, it continues later; call again in a later step.
        """
        if not self.takes_checkpoints:
            self._is_awaited = True
            return False
        monotonic = self._clock.monotonic
        while self._work is not None or (self._whole_batches and self._is_batch_left):
            work, resumed = self._current(), monotonic()
            assert work is not None
            if not self._exhaust(work):
                self._spent += monotonic() - resumed
                self._is_awaited = True
                return False
            self._ended(monotonic() - resumed)
        self._is_awaited = False
        return True

    @property
    def _is_batch_left(self) -> bool:
        return self._remainder is not None or (self._following is not None and self._is_of_batch)

    def rest(self) -> Batch | None:
        """The pending slices of the batch; `None` when there are none."""
        return None if self._remainder is None else self._remainder.rest()

    def close(self) -> None:
        """Close unfinished work, so that users' `finally` blocks run now."""
        works = (self._work, self._following)
        self._work = self._following = self._remainder = None
        for work in works:
            if work is not None:
                work.close()

    @property
    def slice_overruns(self) -> int:
        return self._sizer.overruns

    def _current(self) -> Work | None:
        """The next work: the current slice, the next slice, or the work after the batch."""
        if self._work is None:
            if self._remainder is not None:
                batch = self._remainder.take(self._with_room(self._sizer.rows_of(self._remainder.batch)))
                if self._remainder.is_empty:
                    self._remainder = None
                self._slice_rows = len(batch)
                self._work = self._chain.process(batch, self._input_index)
            else:
                self._work, self._following = self._following, None
        return self._work

    def _with_room(self, rows: int) -> int:
        """Rows of the next slice; settling ignores a lack of room."""
        return min(rows, self._chain.room or rows)

    def _exhaust(self, work: Work) -> bool:
        """Work to the end or to the limit of records; return whether the work has ended."""
        while self._settled < MOST_SETTLED:
            before = self._outputs.records
            if next(work, _END) is _END:
                return True
            self._settled += max(_LEAST_OF_A_BATCH, self._outputs.records - before)
        return False

    def _ended(self, seconds: float) -> None:
        self._sizer.observe(self._slice_rows, self._spent + seconds)
        self._work = None
        self._slice_rows = 0
        self._spent = 0.0
