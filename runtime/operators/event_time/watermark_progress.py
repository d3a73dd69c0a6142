"""`WatermarkProgress`: how far event time has come in one stream of records, and whether the stream is idle.

A stream is what one subtask reads, or one split of a source. Rows and Arrow batches go the same way. The
newest timestamp of a batch is all that bounded out-of-orderness looks at. A generator of the user's own is
shown each record. An Arrow batch makes dicts for it, and flows on as an Arrow batch.

Watermarks are due behind batches, and when time has passed. `tick` tells it of time. It measures idleness and
the interval of `on_periodic` on a clock that stands still under back pressure. Otherwise a slow receiver
would make its senders idle, and their records late.

Nothing of it is in a snapshot. A restored stream is active and has no watermark. So event time stands still
until records come, or until the stream has been quiet for as long as the strategy says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.event_time.timestamper import TimedBatch
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.plain_methods import check_has_run
from penstock.runtime.operators.user_code.record_cursor import RecordCursor
from penstock.runtime.state.own_copy import own_copies
from penstock.runtime.time.idleness_timer import IdlenessTimer
from penstock.runtime.time.watermark_generator import (
    PunctuatedWatermarks,
    WatermarkGenerator,
    WatermarkOutput,
)
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.user_location import function_location


class WatermarkProgress:
    """Follows one stream; see the module's text.

    Args:
        cursor: Knows which record is being looked at, for errors.

    Attributes:
        doing: The user's code that runs; empty while none does.

    Raises:
        PenstockError: The strategy's generator is no `WatermarkGenerator`.
    """

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
        """The watermark in microseconds; `None` before the first one."""
        return self._output.reached

    @property
    def is_idle(self) -> bool:
        """Whether nobody need wait for the stream."""
        return self._output.is_idle

    def observe(self, stamped: TimedBatch) -> None:
        """Records have come.

        Raises:
            Exception: The user's generator failed; `doing` says where.
        """
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

    def begin(self) -> None:
        """Records come: the stream is active."""
        self._output.is_idle = False
        if self._timer is not None:
            self._timer.activity()

    def hold(self) -> None:
        """The stream is paused: that it is quiet means nothing."""
        if self._timer is not None and not self._timer.is_idle:
            self._timer.activity()

    @property
    def tick_at(self) -> float | None:
        """Seconds at which `tick` is due; `None` for never."""
        timer = self._timer
        if timer is not None and timer.is_idle:
            return None
        idle_at = None if timer is None else timer.due_at
        if not self._is_periodic:
            return idle_at
        at = self._on_periodic_at or 0.0
        return at if idle_at is None else min(idle_at, at)

    def tick(self, now: float) -> None:
        """Time has passed.

        Args:
            now: Seconds on a clock that stands still under back pressure.

        Raises:
            Exception: The user's generator failed; `doing` says where.
        """
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
                f"for_generator: the function gave {short_repr(made)} of type {type(made).__name__}; "
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
