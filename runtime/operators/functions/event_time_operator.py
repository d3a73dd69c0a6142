"""`KeyedEventTimeOperator`: the base of keyed operators whose results wait for event time.

It counts late records, and holds the watermark until all due work is done (`held_watermark.py`). Subclasses
decide which records are late, by the highest watermark so far. A restart does not change this watermark.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.functions.function_operator import KeyedFunctionOperator
from penstock.runtime.operators.held_watermark import HeldWatermark, ReachedWatermark
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList, Tagged
from penstock.runtime.operators.timers import REACHED as REACHED
from penstock.runtime.operators.user_code.result_collector import ResultCollector
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import RowBatch, StreamStatus, Watermark

#: Tag of the side output of late records, and the name of their count in the statistics.
LATE_RECORDS: Final = "late_records"


def no_timestamps(consequence: str = "they are in no window") -> PenstockError:
    return PenstockError(
        f"the records have no timestamps, so {consequence}; call "
        "assign_timestamps_and_watermarks(...) before key_by. Call it after any map_batches, which keeps "
        "timestamps only if its function returns one batch as long as the input"
    )


class KeyedEventTimeOperator(KeyedFunctionOperator):
    """Does work when a watermark makes it due; the watermark waits until all due work is done."""

    _clock: Clock
    _collector: ResultCollector
    _reached: ReachedWatermark
    _hold: HeldWatermark

    def __init__(
        self, key_selector: Callable[[Any], Any], function: Callable[..., Any], late_tag: str
    ) -> None:
        super().__init__(key_selector, function)
        self._late_tag = late_tag
        self._late = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._clock = context.connector.clock
        self._collector = self._collector_of(context)
        self._reached = ReachedWatermark(context, REACHED)
        self._hold = HeldWatermark(self._reached, self._next_end, self._fire)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        return self._hold.advance(watermark)

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        return self._hold.release()

    @property
    def holds_watermark(self) -> bool:
        return self._hold.is_holding

    @property
    def flush_at(self) -> float | None:
        return 0.0 if self._hold.is_due else None

    def flush(self) -> Iterator[Output]:
        return self._hold.flush() if self._hold.is_due else iter(())

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        super().snapshot(checkpoint_id)
        return {REACHED: self._reached.state()}

    @abstractmethod
    def _next_end(self) -> int | None:
        """Event time at which work is due next."""

    @abstractmethod
    def _fire(self, until: int, everything: bool) -> Iterator[Output]:
        """Do the work up to an event time: all of it, or the part that `some_of` returns."""

    def _late_output(self, rows: list[Any], stamps: list[int] | None) -> Tagged:
        self._late += len(rows)
        return Tagged(self._late_tag, RowBatch(rows, stamps))

    def built_in_counts(self) -> Mapping[str, int]:
        return {LATE_RECORDS: self._late}
