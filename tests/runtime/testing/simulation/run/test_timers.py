"""Timers of a user's job under the faults that the simulation draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    Checkpointing,
    CollectSink,
    KeyedProcessFunction,
    ListState,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.operators import held_watermark
from penstock.testing import simulate

Row = tuple[str, int]


class Waiting(KeyedProcessFunction[str, Row, Row]):
    """Keeps each record until the first timer of its key fires, of whichever kind of time."""

    waiting = ListState(tuple)

    def process(self, value: Row, ctx: RuntimeContext) -> None:
        timers = ctx.timer_service
        self.waiting.add(value)
        timers.register_processing_time_timer(timers.current_processing_time + 20_000)
        for later in range(5):
            timers.register_event_time_timer(value[1] + later)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        yield from self.waiting.get()
        self.waiting.clear()
        if ctx.time_domain == "event_time":
            yield f"timer of {ctx.current_key}", at


class NoneLate(KeyedProcessFunction[str, Row, Row]):
    """Passes on what event time has not passed."""

    def process(self, value: Row, ctx: RuntimeContext) -> Iterator[Row]:
        reached = ctx.timer_service.current_watermark
        if None not in (ctx.timestamp, reached) and ctx.timestamp <= reached:
            msg = f"{value} comes behind the watermark {reached}"
            raise AssertionError(msg)
        yield value


def build() -> tuple[StreamEnvironment, Any]:
    results = InMemoryCollector()
    env = StreamEnvironment("timers", parallelism=2, checkpointing=Checkpointing(every=60, unaligned=True))
    rows = [(key, 10 * n) for n in range(8) for key in "abc"]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row[1])
    timed = env.from_collection("rows", rows, parallelism=1).assign_timestamps_and_watermarks(strategy)
    held = timed.key_by(lambda row: row[0]).process("waiting", Waiting())
    held.key_by(lambda row: row[0]).process("late", NoneLate()).sink("out", CollectSink(results))
    return env, results


def test_timers_fire_once_and_in_front_of_their_watermark_under_failures_and_rescales(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_watermark, "MOST_FIRED", 2)  # so that few timers are a storm
    report = simulate(build, output=lambda results: results.rows(), seeds=range(6), interleavings=2)
    assert report.passed
