"""`assign_timestamps_and_watermarks`: event time begins here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow.compute as pc

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.failure import short_repr
from penstock.runtime.operators.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.operator import Output
from penstock.runtime.operators.timestamp_columns import micros_of_column
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch, Watermark
from penstock.runtime.time.instants import is_near, micros_of
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.user_location import function_location

_TOO_FAR = (
    "which is too far from the epoch for microseconds; is it in nanoseconds, or does it stand for no time? "
    "Give the strategy with_timestamp_assigner(function), which knows better"
)


class TimestampsAndWatermarksOperator(FunctionOperator):
    """Gives records their timestamps and says after each batch how far event time has come.

    A watermark stands after a whole batch and needs no timer. The stream may be cut at the end of a batch
    anyway, and no watermark is due while there is nothing to read. The newest timestamp is in no
    snapshot: after a restart the watermark restarts with the first batch, and can only be lower.

    An Arrow batch stays one unless a function gives the timestamps.

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
        """The function or the column that gives timestamps."""
        if self._strategy.timestamp_column is not None:
            return f"timestamp column {self._strategy.timestamp_column!r}"
        if self._strategy.timestamp_assigner is None:
            return "assign_timestamps_and_watermarks"
        return f"timestamp assigner {function_location(self._function)}"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Emit the batch with timestamps, and a watermark if event time advances."""
        self._records_in += len(batch)
        if not len(batch):
            return
        if isinstance(batch, ArrowBatch) and self._strategy.timestamp_assigner is None:
            stamped, newest = self._stamped(batch)
        else:
            rows = rows_of(batch)
            stamps = self._stamps(rows)
            stamped, newest = RowBatch(rows.rows, stamps), max(stamps)
        self._records_out += len(batch)
        yield stamped
        reached = newest - self._strategy.out_of_orderness - 1
        if self._reached is None or reached > self._reached:
            self._reached = reached
            yield Watermark(reached)

    def _stamped(self, batch: ArrowBatch) -> tuple[Batch, int]:
        """An Arrow batch with its timestamps, and the newest of them."""
        column = self._strategy.timestamp_column
        stamps = batch.timestamps if column is None else micros_of_column(batch.batch, column)
        if stamps is None:
            raise _no_timestamps()
        ends = pc.min_max(stamps).as_py()
        for end in ends.values():
            if not is_near(end):
                msg = f"a record came with the timestamp {end}, {_TOO_FAR}"
                raise PenstockError(msg)
        return (batch if column is None else ArrowBatch(batch.batch, stamps)), ends["max"]

    def _stamps(self, rows: RowBatch) -> list[int]:
        if self._strategy.timestamp_column is not None:
            assign: Callable[[Any], Any] = _of_column(self._strategy.timestamp_column)
        elif self._strategy.timestamp_assigner is not None:
            assign = self._strategy.timestamp_assigner
        elif rows.timestamps is None:
            raise _no_timestamps()
        else:
            return self._checked(rows.rows, list(rows.timestamps))
        stamps = [micros_of(assign(row)) for row in self._cursor.over(rows.rows)]
        self._cursor.done()
        return stamps

    def _checked(self, rows: Sequence[Any], stamps: list[int]) -> list[int]:
        """Timestamps that records had before; one that stands for "no time" would end event time."""
        if not (is_near(min(stamps)) and is_near(max(stamps))):
            for _, stamp in zip(self._cursor.over(rows), stamps, strict=True):
                if not is_near(stamp):
                    msg = f"a record came with the timestamp {stamp}, {_TOO_FAR}"
                    raise PenstockError(msg)
        return stamps


def _no_timestamps() -> PenstockError:
    return PenstockError(
        "the records have no timestamps; give the strategy with_timestamp_assigner(function) or "
        "with_timestamp_column(name)"
    )


def _of_column(name: str) -> Callable[[Any], Any]:
    get = itemgetter(name)

    def moment(row: Any) -> Any:
        try:
            return get(row)
        except (KeyError, TypeError, IndexError):
            what = "has no such name" if isinstance(row, dict) else "is no dict"
            msg = f"the timestamp column {name!r}: the record {short_repr(row)} {what}"
            raise PenstockError(msg) from None

    return moment
