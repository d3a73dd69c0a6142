"""Watermarks and timestamps that travel in columns of a batch, from steps at a source to the job.

Timestamps may be assigned where a source's rows are (`source_steps.py`). Then an operator in the place of
that step emits the watermarks in the job: `CarriedWatermarksOperator`. Two columns of a batch have them. The
first row has the watermark before the batch, and the last row the watermark after it. So a batch may be
sliced on the way, and each watermark keeps its place among the rows. Records have a column with their
timestamps; partial results have none.

A reader gets several parts of the input in turn, such as partitions of a DataFrame. The operator emits the
highest watermark of all parts. Bounded out-of-orderness follows the newest timestamp of all rows. So the
watermark is the same as without moved steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.elements import ArrowBatch, Batch

#: Columns with the watermark before the first row, and after the last row, in microseconds.
BEFORE: Final = ":watermark-before"
AFTER: Final = ":watermark-after"

#: Column with the timestamps, in microseconds.
TIMESTAMP: Final = ":timestamp"


def with_timestamps(batch: ArrowBatch) -> pa.RecordBatch:
    """The columns of a batch, and its timestamps if it has any."""
    if batch.timestamps is None:
        return batch.batch
    return batch.batch.append_column(TIMESTAMP, batch.timestamps)


def with_watermarks(batch: pa.RecordBatch | None, before: int | None, after: int | None) -> pa.RecordBatch:
    """The batch with its watermarks; without a batch, a row that has only watermarks.

    Example:
        >>> with_watermarks(pa.record_batch({"n": [1, 2]}), None, 7).to_pydict()
        {'n': [1, 2], ':watermark-before': [None, None], ':watermark-after': [None, 7]}
    """
    rows = 1 if batch is None else batch.num_rows
    befores = _runs({1: before, rows: None} if rows > 1 else {1: before})
    afters = _runs({rows - 1: None, rows: after} if rows > 1 else {1: after})
    fields = [pa.field(BEFORE, befores.type), pa.field(AFTER, afters.type)]
    if batch is None:
        return pa.RecordBatch.from_arrays([befores, afters], schema=pa.schema(fields))
    schema = pa.schema([*batch.schema, *fields], batch.schema.metadata)
    return pa.RecordBatch.from_arrays([*batch.columns, befores, afters], schema=schema)


def _runs(values: Mapping[int, int | None]) -> pa.RunEndEncodedArray:
    """A column with these values, by the end of their run of rows."""
    return pa.RunEndEncodedArray.from_arrays(
        pa.array(list(values), pa.int32()), pa.array(list(values.values()), pa.int64())
    )


class CarriedWatermarksOperator(TimestampsAndWatermarksOperator):
    """Emits the watermarks of batches, and marks the stream idle as the strategy says."""

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, ArrowBatch), "the steps work on columns"
        columns = batch.batch
        self._opened.begin()
        yield from self._advanced(columns.column(BEFORE)[0].as_py())
        names = [name for name in columns.schema.names if name not in (BEFORE, AFTER, TIMESTAMP)]
        if names:
            has_timestamps = TIMESTAMP in columns.schema.names
            yield ArrowBatch(columns.select(names), columns.column(TIMESTAMP) if has_timestamps else None)
        yield from self._advanced(columns.column(AFTER)[-1].as_py())

    def _advanced(self, reached: int | None) -> Iterator[Output]:
        if reached is not None:
            # The log of a worker is far from the user, so the warning about units is given here.
            newest = reached + self._strategy.out_of_orderness + 1
            self._timestamper.check_unit(newest, newest)
            self._opened.advance(reached)
        yield from self._changes()
