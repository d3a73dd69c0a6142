"""`RowJoinOperator`: the base of the joins of two streams over rows.

It reads keys, and emits late records to side outputs. Due rows are handled in portions, and the watermark
waits for them (`held_watermark.py`). The output's watermark may stay behind the input's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, TypeAlias

from penstock.runtime.operators.functions.function_operator import (
    KeyedFunctionOperator,
    check_function,
    rows_of,
)
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.held_watermark import HeldWatermark, ReachedWatermark, some_of
from penstock.runtime.operators.joins.interval_join import LEFT, REACHED, RIGHT, Side, no_timestamps
from penstock.runtime.operators.joins.join_shape import SHAPE, JoinShape
from penstock.runtime.operators.joins.output_rows import OutputRows
from penstock.runtime.operators.metrics import LATE_OF_SIDE, ROWS_OF_SIDE, Gauge
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList, Tagged, TwoInputOperator
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.result_collector import ResultCollector, reading
from penstock.runtime.ports import Clock
from penstock.runtime.record.column_names import ColumnNames
from penstock.runtime.record.elements import Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.user_location import function_location

#: Late records with their timestamps.
Late: TypeAlias = list[tuple[Any, int]]


class RowJoinOperator(TwoInputOperator, KeyedFunctionOperator):
    """Joins the rows of both inputs, and handles the items that a watermark makes due.

    Args:
        join: Settings of the join; `str(join)` is part of the `JoinShape`.
        late_tags: Names of the side outputs for late records of each side.
    """

    kind: ClassVar[str] = "join"

    _clock: Clock
    _collector: ResultCollector
    _reached: ReachedWatermark
    _hold: HeldWatermark

    def __init__(
        self,
        join: object,
        key_selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        output: OutputRows,
        late_tags: tuple[str, str],
    ) -> None:
        super().__init__(key_selectors[LEFT], output.function)
        self._selectors = key_selectors
        self._key_names = tuple(map(ColumnNames.of_key, key_selectors))
        self._shape = JoinShape.of(join, key_selectors)
        self._output = output
        self._late_tags = late_tags
        self._late = [0, 0]
        self._input_keys = InputKeys()
        #: Timestamps of the results that are being collected.
        self._stamps: list[int] | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        check_function("key_by", self._selectors[RIGHT])
        if self.isolates:
            self._output.isolate()
        self._clock = context.connector.clock
        self._collector = self._collector_of(context)
        self._output.restore(context)
        self._reached = ReachedWatermark(context, REACHED)
        self._hold = HeldWatermark(self._reached, self._next_at, self._fire)
        self._open_state(context)
        if any(self._rows(side) for side in (LEFT, RIGHT)):
            self._shape.check(context.restored.get(SHAPE, ()))
        self._gauges = [context.metrics.built_in(Gauge, name) for name in ROWS_OF_SIDE]
        self._show_state()

    @abstractmethod
    def _open_state(self, context: OperatorContext) -> None:
        """Open the tables, and index their rows by time."""

    @abstractmethod
    def _joined(self, side: Side, keys: Sequence[Any], batch: RowBatch, late: Late) -> Iterator[list[Any]]:
        """Add the rows of a batch to the state, and late rows to `late`; yield results."""

    @abstractmethod
    def _next_at(self) -> int | None:
        """The watermark at which the next row is due."""

    @abstractmethod
    def _pop_due(self, until: int) -> Generator[Any]:
        """Remove and yield the items that are due at a watermark; items that are not consumed stay.

        The caller closes the generator.
        """

    @abstractmethod
    def _results(self, due: Iterable[Any]) -> Iterator[list[Any]]:
        """Change the state for each due item, and yield results; set `_stamps` before each list of them."""

    @abstractmethod
    def _rows(self, side: Side) -> int:
        """Number of rows of a side in state."""

    def _output_watermark(self, watermark: Watermark) -> Watermark:
        return watermark

    @property
    def doing(self) -> str:
        if self._selecting:
            return super().doing
        functions = " and ".join(map(function_location, self._functions))
        return f"{self.kind} function {functions}" if functions else "joining"

    @property
    def only_reads(self) -> bool:
        return super().only_reads and all(map(only_reads, self._selectors))

    def process_element1(self, batch: Batch) -> Iterator[Output]:
        return self._process(LEFT, batch)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        return self._process(RIGHT, batch)

    def _process(self, side: Side, batch: Batch) -> Iterator[Output]:
        yield from self._with_own_watermarks(self._hold.release())
        rows = rows_of(batch)
        if rows.timestamps is None:
            raise no_timestamps(side)
        self._input_index = side
        self._select = select = self._selectors[side]
        self._selector = select if not self.isolates else reading(select)
        keys = self._keys_of(rows)
        self._selecting = True
        self._input_keys.check(side, keys)
        self._selecting = False
        self._output.note(side, rows.rows)
        late: Late = []
        yield from self._collected(self._joined(side, keys, rows, late))
        self._cursor.done()
        if late:
            self._late[side] += len(late)
            yield Tagged(self._late_tags[side], RowBatch([row for row, _ in late], [at for _, at in late]))
        self._gauges[side].set(self._rows(side))

    # -- time --------------------------------------------------------------------------------------------

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        yield from self._hold.advance(watermark)
        if self.makes_watermarks and not self._hold.is_holding:
            yield self._output_watermark(watermark)

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        return self._with_own_watermarks(self._hold.release())

    @property
    def holds_watermark(self) -> bool:
        return self._hold.is_holding

    @property
    def flush_at(self) -> float | None:
        return 0.0 if self._hold.is_due else None

    def flush(self) -> Iterator[Output]:
        return self._with_own_watermarks(self._hold.flush()) if self._hold.is_due else iter(())

    def _with_own_watermarks(self, outputs: Iterator[Output]) -> Iterator[Output]:
        for output in outputs:
            yield self._output_watermark(output) if isinstance(output, Watermark) else output

    def _fire(self, until: int, everything: bool) -> Iterator[Output]:
        with closing(self._pop_due(until)) as popped:
            due = some_of(popped, self._clock.monotonic, everything=everything)
            yield from self._collected(self._results(due))
        self._show_state()

    def _collected(self, results: Iterator[list[Any]]) -> Iterator[Output]:
        return self._collector.collect(self._ended(results), iter(lambda: self._stamps, None))

    def _ended(self, results: Iterator[list[Any]]) -> Iterator[list[Any]]:
        yield from results
        self._stamps = None

    def _show_state(self) -> None:
        for side in (LEFT, RIGHT):
            self._gauges[side].set(self._rows(side))

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {REACHED: self._reached.state(), SHAPE: self._shape.state(), **self._output.state()}

    def built_in_counts(self) -> Mapping[str, int]:
        return dict(zip(LATE_OF_SIDE, self._late, strict=True))
