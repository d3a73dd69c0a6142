"""A job with timers of both kinds and with session windows, whose results do not depend on any clock.

Numbers come one hundredth of a second after another in event time. Six in a row have the same key, and are a
session. Of such six, the odd ones set timers of processing time and the even ones timers of event time. The
last one deletes the timer of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jobs.all_windows import Numbers, Reading

from penstock import KeyedProcessFunction, MapState, RuntimeContext, StreamEnvironment, WatermarkStrategy
from penstock.connectors import Sink
from penstock.windows import EventTimeSessionWindows, TimeWindow

BLOCK: Final = 6
KEYS: Final = 3
STEP: Final = 10_000

Row = tuple[str, int]


def number_of(reading: Reading) -> int:
    return reading[1]


def moment(reading: Reading) -> int:
    return number_of(reading) * STEP


def key_of(reading: Reading) -> int:
    return number_of(reading) // BLOCK % KEYS


class Remind(KeyedProcessFunction[int, Reading, Row]):
    """Emits each number when its timer fires, or is deleted."""

    due = MapState(int, int)

    def process(self, value: Reading, ctx: RuntimeContext) -> Iterator[Row]:
        number, timers = number_of(value), ctx.timer_service
        if number % BLOCK == BLOCK - 1:
            at = (number - 1 + BLOCK) * STEP
            timers.delete_event_time_timer(at)
            yield "deleted", self.due.pop(at)
        elif number % 2:
            at = timers.current_processing_time + 200_000 + number  # its own moment for each number
            timers.register_processing_time_timer(at)
            self.due[at] = number
        else:
            at = (number + BLOCK) * STEP
            timers.register_event_time_timer(at)
            self.due[at] = number

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        yield str(ctx.time_domain), self.due.pop(at)


def session(key: int, window: TimeWindow, readings: list[Reading]) -> Iterator[list[int]]:
    yield [key, *map(number_of, readings)]


def add_to(env: StreamEnvironment, source: Numbers, reminders: Sink[Any], sessions: Sink[Any]) -> None:
    """Add the source, the operators `remind` and `sessions`, and their sinks."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(moment)
    keyed = env.from_source("numbers", source, watermarks=strategy).key_by(key_of)
    keyed.process("remind", Remind()).sink("reminders", reminders)
    windows = keyed.window(EventTimeSessionWindows(5 * STEP / 1_000_000))
    windows.apply("sessions", session).sink("sessions-out", sessions)


def expected_reminders(count: int) -> list[Row]:
    rows = []
    for number in range(count):
        place = number % BLOCK
        if place == BLOCK - 1:
            rows[-1] = "deleted", number - 1
        else:
            rows.append(("processing_time" if place % 2 else "event_time", number))
    return sorted(rows)


def expected_sessions(count: int) -> list[list[int]]:
    blocks = (range(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))
    return sorted([block[0] // BLOCK % KEYS, *block] for block in blocks)
