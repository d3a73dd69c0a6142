"""Timers of processing time: what has come for a customer is sent together after a while.

When a timer fires depends on the clock, and so do the batches. That each letter is sent once, and in order
within its batch, does not. A timer of event time sends what is left when the input ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    KeyedProcessFunction,
    ListState,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)

#: Customer and number of the letter.
Letter = tuple[str, int]

LONG_AFTER = 10**12


class Batches(KeyedProcessFunction[str, Letter, Letter]):
    """Keeps letters for two hundredths of a second."""

    waiting = ListState(tuple)

    def process(self, value: Letter, ctx: RuntimeContext) -> None:
        if not len(self.waiting):
            timers = ctx.timer_service
            timers.register_processing_time_timer(timers.current_processing_time + 20_000)
            timers.register_event_time_timer(LONG_AFTER)
        self.waiting.add(value)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Letter]:
        letters = self.waiting.get()
        if letters != sorted(letters):
            msg = f"letters out of order: {letters}"
            raise AssertionError(msg)
        yield from letters
        self.waiting.clear()


def make_input(random: Random) -> list[Letter]:
    return [(random.choice("abc"), number) for number in range(40)]


def build(env: StreamEnvironment, letters: list[Letter]) -> DataStream[Letter]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda letter: letter[1])
    source = env.from_source("letters", CollectionSource(letters), watermarks=strategy, parallelism=1)
    return source.key_by(lambda letter: letter[0]).process("batches", Batches())


def expected(letters: list[Letter]) -> list[Letter]:
    return letters
