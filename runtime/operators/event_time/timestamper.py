"""`Timestamper`: gives the records of a batch their timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.event_time.timestamp_columns import micros_of_column
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.user_code.emission import reading
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.record_cursor import RecordCursor
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.time.instants import is_near, micros_of
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.user_location import function_location

_TOO_FAR = (
    "which is too far from the epoch for microseconds; is it in nanoseconds, or does it stand for no time? "
    "Give the strategy with_timestamp_assigner(function), which knows better"
)


class TimedBatch(NamedTuple):
    """A batch with timestamps.

    Attributes:
        batch: Every record has a timestamp.
        newest: The newest of them, in microseconds.
    """

    batch: Batch
    newest: int


def strategy_only_reads(strategy: WatermarkStrategy[Any]) -> bool:
    """Whether a strategy has no function of the user's that can change or keep a record."""
    assigner = strategy.timestamp_assigner
    return strategy.generator is None and (assigner is None or only_reads(assigner))


class Timestamper:
    """Gives records the timestamps that a strategy speaks of.

    An Arrow batch stays one unless a function gives the timestamps.

    Args:
        cursor: Knows which record is being looked at, for errors.
    """

    def __init__(self, strategy: WatermarkStrategy[Any], cursor: RecordCursor) -> None:
        self._strategy = strategy
        self._cursor = cursor

    @property
    def doing(self) -> str:
        """The function or the column that gives timestamps."""
        if self._strategy.timestamp_column is not None:
            return f"timestamp column {self._strategy.timestamp_column!r}"
        if self._strategy.timestamp_assigner is None:
            return "assign_timestamps_and_watermarks"
        return f"timestamp assigner {function_location(self._strategy.timestamp_assigner)}"

    def stamped(self, batch: Batch) -> TimedBatch:
        """The batch with its timestamps; it holds at least one record.

        Raises:
            PenstockError: A record has no timestamp, or one that is no time.
        """
        if isinstance(batch, ArrowBatch) and self._strategy.timestamp_assigner is None:
            return self._of_columns(batch)
        rows = rows_of(batch)
        stamps = self._stamps(rows)
        return TimedBatch(RowBatch(rows.rows, stamps), max(stamps))

    def _of_columns(self, batch: ArrowBatch) -> TimedBatch:
        column = self._strategy.timestamp_column
        stamps = batch.timestamps if column is None else micros_of_column(batch.batch, column)
        if stamps is None:
            raise _no_timestamps()
        import pyarrow.compute as pc  # half a tenth of a second that most subtasks never need

        ends = pc.min_max(stamps).as_py()
        for end in ends.values():
            if not is_near(end):
                msg = f"a record came with the timestamp {end}, {_TOO_FAR}"
                raise PenstockError(msg)
        return TimedBatch(batch if column is None else ArrowBatch(batch.batch, stamps), ends["max"])

    def _stamps(self, rows: RowBatch) -> list[int]:
        if self._strategy.timestamp_column is not None:
            assign: Callable[[Any], Any] = _of_column(self._strategy.timestamp_column)
        elif self._strategy.timestamp_assigner is not None:
            assign = reading(self._strategy.timestamp_assigner)
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
