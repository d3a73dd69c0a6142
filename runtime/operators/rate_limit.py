"""`RateLimitOperator`: limits the records per second by pacing the input of its subtask.

The operator holds no record. It passes each batch on, and computes the time at which the rate allows the next
batch. Until then it has no room (`Operator.room`). So the subtask takes no records, while barriers, control
messages and timers continue. Records wait where back pressure keeps them: in the source, in channels, and in
the rest of a batch. Checkpoints treat them as usual. The room for a batch is small, so pauses are short.

A subtask that wakes late or has no input falls behind. It may then exceed its rate, to make up for at most a
tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output
from penstock.runtime.record.elements import Batch

#: Maximum time that the records of a batch take at the subtask's rate, in seconds.
_BATCH: Final = 0.02
#: Maximum unused time that a subtask may make up for, in seconds.
_CATCH_UP: Final = 0.1


class RateLimitOperator(Operator):
    """Passes records on at a limited rate; each subtask has an equal share of it.

    Args:
        per_second: Records per second, in all subtasks together.
    """

    batch_format: ClassVar[BatchFormats] = "both"
    only_reads = True

    _monotonic: Callable[[], float]

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._share = per_second
        self._paid_until = 0.0
        self._wakes = False

    def open(self, context: OperatorContext) -> None:
        self._share = self._per_second / context.parallelism
        self._monotonic = context.connector.clock.monotonic
        self._paid_until = self._monotonic()

    def process(self, batch: Batch) -> Iterator[Output]:
        begins = max(self._paid_until, self._monotonic() - _CATCH_UP)
        self._paid_until = begins + len(batch) / self._share
        self._wakes = True
        yield batch

    @property
    def room(self) -> int | None:
        return 0 if self._monotonic() < self._paid_until else max(1, int(self._share * _BATCH))

    @property
    def flush_at(self) -> float | None:
        return self._paid_until if self._wakes else None

    def flush(self) -> Iterator[Output]:
        """Emit nothing: the call only wakes the subtask, which then finds room."""
        self._wakes = False
        return iter(())

    @property
    def doing(self) -> str:
        return "limiting the rate"
