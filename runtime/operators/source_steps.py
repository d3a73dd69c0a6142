"""Steps that run where a source's rows are, for example in Spark's Python workers, and not in the job.

The steps are the job's own operators in a chain of their own (`StepsAtSource`), so they give the same rows.
Their places in the job are taken by `PassesOn`, so ids, chains and snapshots of the job stay as they are.

A part of the input, such as a partition of a DataFrame, may be computed several times. What the steps emit
must then be the same. So it depends on the batches of the part alone: no clock and no barrier decides when a
combiner sends its partial results. It sends them after `FLUSH_ROWS` rows, and at the end of the part.

If a step assigns timestamps, the batches come in the frames in which the job would read them. The combiner of
windows sends its partial results at the end of each frame, with the watermarks (`run_frames`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain as chained
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.runtime.errors import OperatorLocation
from penstock.runtime.operators.carried_watermarks import with_timestamps, with_watermarks
from penstock.runtime.operators.chain import OperatorChain, TimeElement, Work
from penstock.runtime.operators.operator import (
    BatchFormats,
    Operator,
    OperatorContext,
    OperatorFactory,
    Output,
)
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import ArrowBatch, Batch, Watermark

#: Rows of the input after which a combiner sends its partial results.
FLUSH_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceStep:
    """A step behind a source: its place in the job, for errors, and its operator."""

    location: OperatorLocation
    factory: OperatorFactory


class PassesOn(Operator):
    """Stands in the job for a step that has run where the source's rows are."""

    batch_format: ClassVar[BatchFormats] = "both"
    isolates = False

    @property
    def only_reads(self) -> bool:
        return True

    def process(self, batch: Batch) -> Iterator[Output]:
        yield batch


class StepsAtSource:
    """Runs the steps on one part of the input.

    Args:
        part: Number of the part, for the context of the operators.

    Raises:
        OperatorError: A step failed; names it, and the user's line.

    Example:
        >>> import pyarrow.compute as pc
        >>> from penstock.runtime.operators.expression_operators import FilterExpressionOperator
        >>> from penstock.runtime.testing.manual_time import ManualClock
        >>> step = SourceStep(OperatorLocation("odd"), lambda: FilterExpressionOperator(pc.field("n") > 1))
        >>> steps = StepsAtSource([step], "job", 0, ManualClock())
        >>> [batch.to_pydict() for batch in steps.run([pa.record_batch({"n": [1, 2]})])]
        [{'n': [2]}]
    """

    def __init__(self, steps: Sequence[SourceStep], job_id: str, part: int, clock: Clock) -> None:
        self._emitted: list[pa.RecordBatch] = []
        #: The newest watermark; and, for each batch in `_emitted`, the newest one before the batch.
        self._reached: int | None = None
        self._before: list[int | None] = []
        operators = [(step.location, step.factory()) for step in steps]
        #: Whether a step assigns timestamps; then the batches must come in frames.
        self.has_event_time = any(operator.makes_watermarks for _, operator in operators)
        self._chain = OperatorChain(operators, self._emit, self._advance)
        self._contexts = {
            step.location.operator: OperatorContext(
                step.location, ConnectorContext(job_id, job_id, step.location.operator, part, 1, 1, clock)
            )
            for step in steps
        }

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        """Put the batches of a part through the steps; yields what they emit.

        Yields `None` after partial results that should be sent before the end of the part.
        """
        chain, rows = self._chain, 0
        try:
            chain.open(self._contexts)
            for batch in batches:
                yield from self._done(chain.process(ArrowBatch(batch)))
                rows += batch.num_rows
                if rows >= FLUSH_ROWS:
                    rows = 0
                    yield from self._done(chain.prepare_snapshot_pre_barrier())
                    yield None
            yield from self._done(chain.end_of_data())
        finally:
            chain.close()

    def run_frames(self, frames: Iterable[Sequence[pa.RecordBatch]]) -> Iterator[pa.RecordBatch | None]:
        """Put the frames of a part through steps that assign timestamps.

        Yields, for each frame, the batches that the steps emit, with their watermarks, and then `None`.
        """
        chain = self._chain
        try:
            chain.open(self._contexts)
            for frame in frames:
                works = (chain.process(ArrowBatch(batch)) for batch in frame)
                for work in chained(works, [chain.prepare_snapshot_pre_barrier()]):
                    for _ in work:
                        pass
                yield from self._with_watermarks()
                yield None
            for _ in chain.end_of_data():
                pass
            assert not self._emitted, "the steps keep nothing beyond a frame"
        finally:
            chain.close()

    def _with_watermarks(self) -> Iterator[pa.RecordBatch]:
        """The emitted batches; the last one has the watermark that the steps have reached."""
        emitted, self._emitted = self._emitted, []
        before, self._before = self._before, []
        if not emitted and self._reached is not None:
            yield with_watermarks(None, None, self._reached)
        for number, batch in enumerate(emitted, 1):
            after = self._reached if number == len(emitted) else None
            yield with_watermarks(batch, before[number - 1], after)

    def _advance(self, passing: TimeElement) -> None:
        if isinstance(passing, Watermark):
            self._reached = passing.timestamp

    def _emit(self, _: int, tag: str | None, batch: Any) -> None:
        assert tag is None, "no step with a side output runs at a source"
        assert isinstance(batch, ArrowBatch), "the steps work on columns"
        self._emitted.append(with_timestamps(batch))
        self._before.append(self._reached)

    def _done(self, work: Work) -> Iterator[pa.RecordBatch]:
        for _ in work:
            emitted, self._emitted = self._emitted, []
            yield from emitted
        emitted, self._emitted = self._emitted, []
        yield from emitted
