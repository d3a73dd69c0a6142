"""`NexmarkSource`: the events as a source, in rows or in Arrow batches, at a chosen rate."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal

import numpy as np
from nexmark_events import NexmarkConfig, as_rows, events

from penstock import DataStream, GeneratorSource, StreamEnvironment, WatermarkStrategy
from penstock.connectors import ConnectorContext, NeededColumns, Polled, SplitProgress
from penstock.operators import ArrowBatch, RowBatch

#: Maximum out-of-orderness of events, as in the suite.
_LATENESS: Final = timedelta(seconds=4)

STRATEGY: Final = WatermarkStrategy.for_bounded_out_of_orderness(_LATENESS).with_timestamp_column("dateTime")


@dataclass(frozen=True)
class NexmarkSource:
    """Events of a configuration; wraps a `GeneratorSource` that generates the numbers of event blocks.

    Attributes:
        count: Number of events; `None` for an unbounded source.
        rate: Events per second, across all subtasks; `None` for no limit.
        batch_format: `"rows"` gives each event as a dict, `"arrow"` gives record batches.
        block: Number of successive events in a block. Positions count blocks, not events.
        fields: Paths of the fields that Arrow batches have; `None` for all. `reading` sets it.
    """

    config: NexmarkConfig
    count: int | None = None
    rate: float | None = None
    batch_format: Literal["rows", "arrow"] = "rows"
    block: int = 4_096
    fields: tuple[tuple[str, ...], ...] | None = None

    #: No code here changes or keeps an event.
    only_reads: ClassVar[bool] = True

    @property
    def _blocks(self) -> GeneratorSource[int]:
        count = None if self.count is None else -(-self.count // self.block)
        return GeneratorSource(int, count, None if self.rate is None else self.rate / self.block)

    def reading(self, needed: NeededColumns) -> NexmarkSource:
        """Return a source that makes only the fields that later steps need."""
        return replace(self, fields=needed.fields) if self.batch_format == "arrow" else self

    def splits(self, parallelism: int) -> Sequence[Any]:
        """One range of interleaved blocks per subtask."""
        return self._blocks.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> NexmarkReader:
        """Make the reader of one subtask."""
        return NexmarkReader(self, self._blocks.reader(context, splits))


class NexmarkReader:
    """Makes the events of the blocks that the wrapped reader returns."""

    makes_new_records: ClassVar[bool] = True

    def __init__(self, source: NexmarkSource, blocks: Any) -> None:
        self._source = source
        self._blocks = blocks

    @property
    def split_progress(self) -> SplitProgress:
        """The ranges of blocks, each of which has its own watermark."""
        progress: SplitProgress = self._blocks.split_progress
        return progress

    def pause_splits(self, paused: Set[Any]) -> None:
        """Make no events of these ranges until the next call."""
        self._blocks.pause_splits(paused)

    def poll(self, max_rows: int) -> Polled[Any]:
        """Return the events of the next blocks of one range."""
        source = self._source
        polled = self._blocks.poll(max(1, max_rows // source.block))
        if polled.batch is None:
            return polled
        starts = np.array(polled.batch.rows, np.int64)[:, np.newaxis] * source.block
        numbers = (starts + np.arange(source.block)).ravel()
        if source.count is not None:
            numbers = numbers[numbers < source.count]
        made = events(source.config, numbers, source.fields)
        return replace(
            polled, batch=ArrowBatch(made) if source.batch_format == "arrow" else RowBatch(as_rows(made))
        )

    def snapshot(self) -> Sequence[Any]:
        """Return the positions in the ranges."""
        return self._blocks.snapshot()

    def close(self) -> None:
        """Close the wrapped reader."""
        self._blocks.close()


def add_events(env: StreamEnvironment, source: NexmarkSource) -> DataStream[Any]:
    """Add the events to a job, with their event time."""
    return env.from_source("events", source, watermarks=STRATEGY)
