"""`assign_timestamps_and_watermarks`: event time begins here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.elements import Batch, RowBatch, Watermark
from penstock.runtime.time.instants import is_near, micros_of
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.user_location import function_location


class TimestampsAndWatermarksOperator(FunctionOperator):
    """Gives records their timestamps and says after each batch how far event time has come.

    A watermark stands after a whole batch and needs no timer. The stream may be cut at the end of a batch
    anyway, and no watermark is due while there is nothing to read. The newest timestamp is in no
    snapshot: after a restart the watermark restarts with the first batch, and can only be lower.

    Args:
        strategy: Whence timestamps come and how much out of order they are.
    """

    kind: ClassVar[str] = "timestamp"
    makes_watermarks = True

    def __init__(self, strategy: WatermarkStrategy[Any]) -> None:
        super().__init__(strategy.timestamp_assigner or micros_of)  # the latter is not called
        self._strategy = strategy
        self._reached: int | None = None

    @property
    def doing(self) -> str:
        """The function that gives timestamps."""
        if self._strategy.timestamp_assigner is None:
            return "assign_timestamps_and_watermarks"
        return f"timestamp assigner {function_location(self._function)}"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Emit the batch with timestamps, and a watermark if event time advances."""
        rows = rows_of(batch)
        self._records_in += len(rows)
        if not len(rows):
            return
        stamps = self._stamps(rows)
        self._records_out += len(rows)
        yield RowBatch(rows.rows, stamps)
        reached = max(stamps) - self._strategy.out_of_orderness - 1
        if self._reached is None or reached > self._reached:
            self._reached = reached
            yield Watermark(reached)

    def _stamps(self, rows: RowBatch) -> list[int]:
        assign = self._strategy.timestamp_assigner
        if assign is None:
            if rows.timestamps is None:
                msg = "the records have no timestamps; give the strategy with_timestamp_assigner(function)"
                raise PenstockError(msg)
            return self._checked(rows.rows, list(rows.timestamps))
        stamps = [micros_of(assign(row)) for row in self._cursor.over(rows.rows)]
        self._cursor.done()
        return stamps

    def _checked(self, rows: Sequence[Any], stamps: list[int]) -> list[int]:
        """Timestamps that records had before; one that stands for "no time" would end event time."""
        if not (is_near(min(stamps)) and is_near(max(stamps))):
            for _, stamp in zip(self._cursor.over(rows), stamps, strict=True):
                if not is_near(stamp):
                    msg = (
                        f"a record came with the timestamp {stamp}, which is too far from the epoch for "
                        "microseconds; is it in nanoseconds, or does it stand for no time? Give the strategy "
                        "with_timestamp_assigner(function), which knows better"
                    )
                    raise PenstockError(msg)
        return stamps
