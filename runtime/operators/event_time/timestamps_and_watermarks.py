"""`assign_timestamps_and_watermarks`: event time begins here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from penstock.runtime.operators.event_time.timestamper import Timestamper, strategy_only_reads
from penstock.runtime.operators.event_time.watermark_progress import WatermarkProgress
from penstock.runtime.operators.functions.function_operator import FunctionOperator
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.record.elements import Batch, StreamStatus, Watermark
from penstock.runtime.time.instants import micros_of
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.user_location import function_location


class TimestampsAndWatermarksOperator(FunctionOperator):
    """Gives records their timestamps and says after each batch how far event time has come.

    A watermark stands after a whole batch. The stream may be cut at the end of a batch anyway. Time alone
    brings watermarks only where a generator of the user's own emits them. The newest timestamp is in no
    snapshot: after a restart the watermark restarts with the first batch, and can only be lower.

    The status follows the same rule. A stream begins active, also after a restart. It says that it is active
    in front of the first batch after a pause, and that it is idle behind its last watermark.

    Args:
        strategy: Whence timestamps come and how much out of order they are.
    """

    kind: ClassVar[str] = "timestamp"
    makes_watermarks = True

    def __init__(self, strategy: WatermarkStrategy[Any]) -> None:
        super().__init__(strategy.timestamp_assigner or micros_of)  # the latter is not called
        self._strategy = strategy
        self._timestamper = Timestamper(strategy, self._cursor)
        self._progress: WatermarkProgress | None = None
        self._making = ""
        self._emitted: int | None = None
        self._is_idle = False

    def open(self, context: OperatorContext) -> None:
        """Check the assigner, and make the generator.

        Raises:
            ConfigurationError: The assigner can't give moments.
            PenstockError: The generator is none.
        """
        super().open(context)
        named_by = self._strategy.named_by
        self._making = "" if named_by is None else f"watermark generator {function_location(named_by)}"
        self._progress = WatermarkProgress(self._strategy, self._cursor)

    @property
    def only_reads(self) -> bool:
        """Whether no function of the user's can change or keep a record."""
        return strategy_only_reads(self._strategy)

    @property
    def doing(self) -> str:
        """The function or the column that gives timestamps, or the generator of watermarks."""
        generator = self._making if self._progress is None else self._progress.doing
        return generator or self._timestamper.doing

    def process(self, batch: Batch) -> Iterator[Output]:
        """Emit the batch with timestamps, and a watermark if event time advances."""
        self._records_in += len(batch)
        if not len(batch):
            return
        progress = self._opened
        stamped = self._timestamper.stamped(batch)
        if self._is_idle:
            self._is_idle = False
            yield StreamStatus.ACTIVE
        progress.observe(stamped)
        self._records_out += len(batch)
        yield stamped.batch
        yield from self._changes()

    @property
    def tick_at(self) -> float | None:
        """When the generator or the idleness is due."""
        return None if self._progress is None else self._progress.tick_at

    def tick(self, now: float) -> Iterator[Output]:
        """Emit what time alone brings."""
        self._opened.tick(now)
        yield from self._changes()

    def _changes(self) -> Iterator[Output]:
        """The watermark and the status, where they are not those that were emitted last."""
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
