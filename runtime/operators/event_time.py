"""Assigns timestamps to records, and makes watermarks.

`TimestampsAndWatermarksOperator` is the operator. Sources with a strategy use the same parts: `Timestamper`
and `WatermarkProgress`.

`WatermarkProgress` tracks the event time of one stream of records, and whether it is idle. A stream is the
input of one subtask, or one split of a source. Bounded out-of-orderness uses only the newest timestamp of a
batch. A user's generator receives each record; rows of an Arrow batch come as dicts.

Watermarks are emitted after batches, and when time has passed (`tick`). Idleness and the interval of
`on_periodic` are measured on a clock that stops under back pressure. Otherwise a slow receiver would make its
senders idle, and their records late.

No snapshot holds the progress of a stream. A restored stream is active and has no watermark. So event time
does not advance until records arrive, or until the strategy's idleness timeout has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError
from penstock.runtime.names import nearest_name
from penstock.runtime.operators.functions.function_operator import FunctionOperator, rows_of
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.user_code.failure import RecordCursor, short_repr
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.result_collector import reading
from penstock.runtime.record.column_key import only_column
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.state.own_copy import own_copies
from penstock.runtime.time.durations import is_near, micros_of
from penstock.runtime.time.time_units import (
    FLOAT_UNITS,
    MICROS_PER,
    NANOS_PER_MICRO,
    TimeUnit,
    doubt_about,
    micros_of_number,
)
from penstock.runtime.time.watermarks import (
    IdlenessTimer,
    PunctuatedWatermarks,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from penstock.runtime.user_location import function_location

logger = logging.getLogger(__name__)


def micros_of_column(batch: pa.RecordBatch, name: str, unit: TimeUnit = "us") -> pa.Int64Array:
    """The timestamps of a column in microseconds: numbers, or timestamps with a time zone, rounded down.

    Example:
        >>> batch = pa.record_batch({"at": pa.array([5_000], pa.timestamp("ms", "UTC"))})
        >>> micros_of_column(batch, "at").to_pylist()
        [5000000]
    """
    column = only_column(batch, name, " for timestamps")
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        import pyarrow.compute as pc  # takes 50 ms, and most subtasks never need it

        place = pc.index(column.is_null(), True).as_py()
        msg = f"the timestamp column {name!r} is null in row {place} of a batch; filter such rows out first"
        raise PenstockError(msg)
    return _micros(column, name, unit)


def _micros(column: pa.Array, name: str, unit: TimeUnit) -> pa.Int64Array:
    kind = column.type
    try:
        if kinds.is_timestamp(kind) and kind.tz is not None:
            if kind.unit == "ns":
                return _micros_of_nanos(column.view(pa.int64()))
            return column.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
        if kinds.is_integer(kind):
            return _micros_of_integers(column.cast(pa.int64()), unit)
        if kinds.is_floating(kind) and unit in FLOAT_UNITS:
            return _micros_of_floats(column.cast(pa.float64()), unit)
    except pa.ArrowInvalid as error:
        msg = (
            f"the timestamp column {name!r} of type {kind} holds a timestamp too far from the epoch: {error}"
        )
        raise PenstockError(msg) from error
    what = "has no time zone; cast it to one, for example pa.timestamp('us', 'UTC')"
    if not kinds.is_timestamp(kind):
        what = "holds no timestamps; it takes timestamps with a time zone, or integers in the given unit"
        if kinds.is_floating(kind):
            what += '; with unit="s" or unit="ms" it takes floats, too'
    msg = f"the timestamp column {name!r} of type {kind} {what}"
    raise PenstockError(msg)


def _micros_of_nanos(nanos: pa.Int64Array) -> pa.Int64Array:
    return pa.array(np.floor_divide(nanos.to_numpy(), NANOS_PER_MICRO))


def _micros_of_integers(numbers: pa.Int64Array, unit: TimeUnit) -> pa.Int64Array:
    if unit == "us":
        return numbers
    if unit == "ns":
        return _micros_of_nanos(numbers)
    import pyarrow.compute as pc  # takes 50 ms, and most subtasks never need it

    return pc.multiply_checked(numbers, MICROS_PER[unit])


def _micros_of_floats(numbers: pa.DoubleArray, unit: TimeUnit) -> pa.Int64Array:
    """Round down; the cast raises `ArrowInvalid` for NaN, infinities and numbers beyond 64 bits."""
    scaled = np.floor(numbers.to_numpy() * MICROS_PER[unit])
    return pa.array(scaled, pa.float64()).cast(pa.int64())


_TOO_FAR = (
    "which is too far from the epoch for microseconds; is it in nanoseconds, or a placeholder for no time? "
    "Convert it in a timestamp assigner: with_timestamp_assigner(function)"
)


class TimedBatch(NamedTuple):
    batch: Batch
    newest: int


def strategy_only_reads(strategy: WatermarkStrategy[Any]) -> bool:
    assigner = strategy.timestamp_assigner
    return strategy.generator is None and (assigner is None or only_reads(assigner))


class Timestamper:
    """Gives records the timestamps of a strategy; Arrow batches become rows for a user's function.

    Logs one warning if its timestamps seem to be in another unit. Until then it checks the oldest and the
    newest timestamp of each batch.

    Attributes:
        warn: Shows that warning to the user, too; `None` outside of a job.
    """

    def __init__(self, strategy: WatermarkStrategy[Any], cursor: RecordCursor) -> None:
        self._strategy = strategy
        self._cursor = cursor
        has_own = strategy.timestamp_column is not None or strategy.timestamp_assigner is not None
        self._may_doubt = has_own
        self.warn: Callable[[str], None] | None = None

    @property
    def doing(self) -> str:
        if self._strategy.timestamp_column is not None:
            return f"timestamp column {self._strategy.timestamp_column!r}"
        if self._strategy.timestamp_assigner is None:
            return "assign_timestamps_and_watermarks"
        return f"timestamp assigner {function_location(self._strategy.timestamp_assigner)}"

    def stamped(self, batch: Batch) -> TimedBatch:
        if isinstance(batch, ArrowBatch) and self._strategy.timestamp_assigner is None:
            return self._of_columns(batch)
        rows = rows_of(batch)
        stamps = self._stamps(rows)
        newest = max(stamps)
        self.check_unit(min(stamps), newest)
        return TimedBatch(RowBatch(rows.rows, stamps), newest)

    def check_unit(self, oldest: int, newest: int) -> None:
        """Warn once if timestamps in microseconds are likely in another unit."""
        if not self._may_doubt:
            return
        doubt = doubt_about(oldest, newest, self._strategy.timestamp_unit)
        if doubt is not None:
            logger.warning("%s: %s", self.doing, doubt)
            if self.warn is not None:
                self.warn(f"{self.doing}: {doubt}")
            self._may_doubt = False

    def _of_columns(self, batch: ArrowBatch) -> TimedBatch:
        column = self._strategy.timestamp_column
        unit = self._strategy.timestamp_unit
        stamps = batch.timestamps if column is None else micros_of_column(batch.batch, column, unit)
        if stamps is None:
            raise _no_timestamps()
        import pyarrow.compute as pc  # takes 50 ms, and most subtasks never need it

        ends = pc.min_max(stamps).as_py()
        for end in ends.values():
            if not is_near(end):
                msg = f"a record came with the timestamp {end}, {_TOO_FAR}"
                raise PenstockError(msg)
        self.check_unit(ends["min"], ends["max"])
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
        unit = self._strategy.timestamp_unit
        if unit == "us":
            stamps = [micros_of(assign(row)) for row in self._cursor.over(rows.rows)]
        else:
            stamps = [micros_of_number(assign(row), unit) for row in self._cursor.over(rows.rows)]
        self._cursor.done()
        return stamps

    def _checked(self, rows: Sequence[Any], stamps: list[int]) -> list[int]:
        """Check timestamps that the source gave; a placeholder for "no time" would end event time."""
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
            what = "is not a dict"
            if isinstance(row, dict):
                what = f"has no such field{nearest_name(name, map(str, row))}"
            msg = f"the timestamp column {name!r}: the record {short_repr(row)} {what}"
            raise PenstockError(msg) from None

    return moment


class WatermarkProgress:
    """Event time of one stream; `doing` is the name of running user code, empty while none runs."""

    def __init__(self, strategy: WatermarkStrategy[Any], cursor: RecordCursor) -> None:
        self._bound = strategy.out_of_orderness + 1
        self._interval = strategy.interval
        self._cursor = cursor
        self._output = WatermarkOutput()
        self._timer = None if strategy.idle_after is None else IdlenessTimer(strategy.idle_after)
        self._named_by = strategy.named_by
        self.doing = ""
        self._generator = self._made(strategy)
        self._on_periodic_at: float | None = None
        self._is_periodic = (
            self._generator is not None
            and type(self._generator).on_periodic is not WatermarkGenerator.on_periodic
        )

    @property
    def reached(self) -> int | None:
        return self._output.reached

    @property
    def is_idle(self) -> bool:
        return self._output.is_idle

    def observe(self, stamped: TimedBatch) -> None:
        """Observe new records; after an error of the user's generator, `doing` still names the generator."""
        self.begin()
        if self._generator is None:
            self._output.advance(stamped.newest - self._bound)
            return
        rows = rows_of(stamped.batch)
        on_event: Callable[..., Any] = self._generator.on_event
        output = self._output
        self.doing = self._doing("on_event")
        for value, stamp in zip(self._cursor.over(own_copies(rows.rows)), rows.timestamps or (), strict=True):
            given: Any = on_event(value, stamp, output)
            if given is not None:
                check_has_run("on_event", given)
        self._cursor.done()
        self.doing = ""

    def advance(self, reached: int) -> None:
        """Take a watermark that was made elsewhere."""
        self._output.advance(reached)

    def begin(self) -> None:
        self._output.is_idle = False
        if self._timer is not None:
            self._timer.activity()

    def hold(self) -> None:
        if self._timer is not None and not self._timer.is_idle:
            self._timer.activity()

    @property
    def tick_at(self) -> float | None:
        """Time at which `tick` is due, in seconds on the clock of `InputTime`; `None` for never."""
        timer = self._timer
        if timer is not None and timer.is_idle:
            return None
        idle_at = None if timer is None else timer.due_at
        if not self._is_periodic:
            return idle_at
        at = self._on_periodic_at or 0.0
        return at if idle_at is None else min(idle_at, at)

    def tick(self, now: float) -> None:
        if self._timer is not None and self._timer.ask(now):
            self._output.is_idle = True
            return
        if not self._is_periodic or self._generator is None:
            return
        if self._on_periodic_at is not None and now >= self._on_periodic_at:
            self.doing = self._doing("on_periodic")
            on_periodic: Callable[..., Any] = self._generator.on_periodic
            check_has_run("on_periodic", on_periodic(self._output))
            self.doing = ""
            self._on_periodic_at = None
        if self._on_periodic_at is None:
            self._on_periodic_at = now + self._interval

    def _made(self, strategy: WatermarkStrategy[Any]) -> WatermarkGenerator[Any] | None:
        if strategy.generator is None:
            return None
        made = strategy.generator()
        if not isinstance(made, WatermarkGenerator):
            msg = (
                f"for_generator: the function returned {short_repr(made)} of type {type(made).__name__}; "
                "derive the class of a generator from WatermarkGenerator"
            )
            raise PenstockError(msg)
        return made

    def _doing(self, method: str) -> str:
        generator = self._generator
        if isinstance(generator, PunctuatedWatermarks):
            assert self._named_by is not None, "a punctuated strategy has a function"
            return f"watermark function {function_location(self._named_by)}"
        return f"watermark generator {function_location(getattr(generator, method))}"


class TimestampsAndWatermarksOperator(FunctionOperator):
    """Gives records their timestamps and emits the watermark after each batch.

    Between two batches only a user's generator emits watermarks. After a restart the watermark starts with
    the first batch. `ACTIVE` comes before the first batch after a pause, and `IDLE` after the last watermark.
    """

    kind: ClassVar[str] = "timestamp"
    makes_watermarks = True

    def __init__(self, strategy: WatermarkStrategy[Any]) -> None:
        super().__init__(strategy.timestamp_assigner or micros_of)  # `micros_of` is never called
        self._strategy = strategy
        self._timestamper = Timestamper(strategy, self._cursor)
        self._progress: WatermarkProgress | None = None
        self._making = ""
        self._emitted: int | None = None
        self._is_idle = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._timestamper.warn = context.warn
        named_by = self._strategy.named_by
        self._making = "" if named_by is None else f"watermark generator {function_location(named_by)}"
        self._progress = WatermarkProgress(self._strategy, self._cursor)

    @property
    def only_reads(self) -> bool:
        return strategy_only_reads(self._strategy)

    @property
    def doing(self) -> str:
        generator = self._making if self._progress is None else self._progress.doing
        return generator or self._timestamper.doing

    def process(self, batch: Batch) -> Iterator[Output]:
        progress = self._opened
        stamped = self._timestamper.stamped(batch)
        if self._is_idle:
            self._is_idle = False
            yield StreamStatus.ACTIVE
        progress.observe(stamped)
        yield stamped.batch
        yield from self._changes()

    @property
    def tick_at(self) -> float | None:
        return None if self._progress is None else self._progress.tick_at

    def tick(self, now: float) -> Iterator[Output]:
        self._opened.tick(now)
        yield from self._changes()

    def _changes(self) -> Iterator[Output]:
        progress = self._opened
        if self._is_idle and not progress.is_idle:
            self._is_idle = False
            yield StreamStatus.ACTIVE
        reached = progress.reached
        if reached is not None and (self._emitted is None or reached > self._emitted):
            self._emitted = reached
            yield Watermark(reached)
        if progress.is_idle and not self._is_idle:
            self._is_idle = True
            yield StreamStatus.IDLE

    @property
    def _opened(self) -> WatermarkProgress:
        assert self._progress is not None, "open() comes first"
        return self._progress
