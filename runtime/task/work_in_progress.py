"""The current work of a subtask: a batch, an advance of event time, or the end of its input.

Work is a generator that pauses after every batch that left the chain. It stops when the time of a slice is
over or an output has no credit, and continues in a later step. A batch is cut into slices. Subsequent work
(such as the end of the input) waits until the batch is processed.

An unfinished generator is in no snapshot. So an aligned checkpoint waits until nothing is in progress. An
unaligned one must not wait for credits: it *settles* the work, which runs the current generator to its end
and ignores credits. That is at most a slice. Its output waits in the outputs and becomes part of the
checkpoint there; so do the pending slices. Settling again before the outputs have moved does nothing, so
consecutive checkpoints don't accumulate data.

A user's function may emit without end for one record. So `settle` emits a bounded number of records for a
batch. Work beyond that continues as credits allow, and the checkpoint waits for its end.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.operators.chain import OperatorChain, Work
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.slicing import MOST_ROWS, BatchRemainder, SliceSizer

#: Maximum records that settling may emit for one batch; each output batch counts as several.
MOST_SETTLED: Final = 65_536
_LEAST_OF_A_BATCH: Final = 64

_END: Final = object()


class WorkInProgress:
    """Processes one piece of work after the other, slice by slice; see the module's docstring.

    Args:
        duration: Intended seconds of a slice.
        whole_batches: Whether `settle` processes the whole batch, because a source can't take the rest back.
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
        self._settled = 0
        self._is_awaited = False
        self._is_columnar = False

    @property
    def is_idle(self) -> bool:
        return self._work is None and self._remainder is None and self._following is None

    @property
    def is_between_calls(self) -> bool:
        """Whether no operator is in the middle of a call."""
        return self._work is None

    @property
    def slice_rows(self) -> int:
        """Rows to request from a source: one slice of its lists or Arrow batches."""
        return self._sizer.rows if self._is_columnar else min(self._sizer.rows, MOST_ROWS)

    def begin_batch(self, batch: Batch) -> None:
        """Begin a batch; nothing else may be in progress."""
        self._settled = 0
        self._is_columnar = isinstance(batch, ArrowBatch)
        if len(batch):
            self._remainder = BatchRemainder(batch)

    def then(self, work: Work) -> None:
        """Add work that begins after the current batch, if any."""
        self._following = work

    def go_on(self, begun: float) -> None:
        """Work until everything is done, the time is over, an output has no credit, or a checkpoint can come.

        Args:
            begun: Monotonic time at which the step began.
        """
        monotonic, now = self._clock.monotonic, begun
        deadline = begun + self._duration
        while (work := self._current()) is not None:
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

        Returns:
            Whether the work has ended. If not, it continues in its turn; call again in a later step.
        """
        monotonic = self._clock.monotonic
        while self._work is not None or (self._whole_batches and self._remainder is not None):
            work, resumed = self._current(), monotonic()
            assert work is not None
            if not self._exhaust(work):
                self._spent += monotonic() - resumed
                self._is_awaited = True
                return False
            self._ended(monotonic() - resumed)
        self._is_awaited = False
        return True

    def rest(self) -> Batch | None:
        """The pending slices of the batch; `None` when there are none."""
        return None if self._remainder is None else next(self._remainder.rest(), None)

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
                batch = self._remainder.take(self._sizer.rows_of(self._remainder.batch))
                if self._remainder.is_empty:
                    self._remainder = None
                self._slice_rows = len(batch)
                self._work = self._chain.process(batch)
            else:
                self._work, self._following = self._following, None
        return self._work

    def _exhaust(self, work: Work) -> bool:
        """Finish work; return whether it stays within the limit of records."""
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
