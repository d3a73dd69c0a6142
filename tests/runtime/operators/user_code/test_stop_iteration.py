"""An exception of a user's function is never the end of anything: a StopIteration loses no record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from penstock import (
    AggregateFunction,
    AggregatingState,
    KeyedProcessFunction,
    OperatorError,
    ProcessFunction,
    ReducingState,
    WatermarkStrategy,
)
from penstock.operators import ArrowBatch
from penstock.testing import OperatorHarness
from penstock.windows import CountEvictor, TumblingProcessingTimeWindows


def ends(*_given: object, **_named: object) -> NoReturn:
    """A function that asks an iterator of its own for more than it has."""
    next(iter(()))
    raise AssertionError


class Ends(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        return [*accumulator, value]

    get_result = ends

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


class Process(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value
        yield ends()


class Keyed(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> Any:
        return ends()


class Timer(KeyedProcessFunction[Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> None:
        ctx.timer_service.register_processing_time_timer(ctx.timer_service.current_processing_time + 1)

    def on_timer(self, timestamp: Any, ctx: Any) -> Any:
        return ends()


class Reduces(KeyedProcessFunction[Any, Any, Any]):
    sum = ReducingState(ends)

    def process(self, value: Any, ctx: Any) -> None:
        self.sum.add(value)


class Aggregates(KeyedProcessFunction[Any, Any, Any]):
    sum = AggregatingState(Ends())

    def process(self, value: Any, ctx: Any) -> Any:
        self.sum.add(value)
        return [self.sum.get()]


class Evictor(CountEvictor):
    evict_before = ends


def windows(stream: Any, key: Callable[[Any], Any] = abs) -> Any:
    return stream.key_by(key).window(TumblingProcessingTimeWindows(1))


JOBS: dict[str, Callable[[Any], object]] = {
    "map": lambda s: s.map(ends),
    "flat_map": lambda s: s.flat_map(ends),
    "flat_map, what it returns": lambda s: s.flat_map(lambda row: (ends() for _ in range(2))),
    "filter": lambda s: s.filter(ends),
    "map_batches": lambda s: s.map_batches(ends, id="batches"),
    "split": lambda s: s.split({"none": ends}),
    "key": lambda s: s.key_by(ends).reduce("reduce", max),
    "reduce": lambda s: s.key_by(abs).reduce("reduce", ends),
    "process": lambda s: s.process("process", Process()),
    "keyed process": lambda s: s.key_by(abs).process("process", Keyed()),
    "timer": lambda s: s.key_by(abs).process("process", Timer()),
    "reducing state": lambda s: s.key_by(abs).process("process", Reduces()),
    "aggregating state": lambda s: s.key_by(abs).process("process", Aggregates()),
    "timestamps": lambda s: s.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ends)
    ),
    "punctuation": lambda s: s.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_punctuated(ends).with_timestamp_assigner(lambda row: 0)
    ),
    "window key": lambda s: windows(s, ends).reduce("window", max),
    "window reduce": lambda s: windows(s).reduce("window", ends),
    "window aggregate": lambda s: windows(s).aggregate("window", Ends()),
    "window function": lambda s: windows(s).apply("window", ends),
    "evictor": lambda s: windows(s).evictor(Evictor(1)).apply("window", lambda key, window, rows: rows),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_stop_iteration_fails_with_the_name_of_what_raised_it(job: str) -> None:
    def driven() -> None:
        with OperatorHarness.of(JOBS[job]) as harness:
            harness.push([5, 5, 5])
            harness.advance(timedelta(seconds=10).total_seconds())
            harness.end_of_data()

    with pytest.raises(OperatorError, match="StopIteration"):
        driven()


def test_a_stop_iteration_over_an_arrow_batch_fails_too() -> None:
    with (
        OperatorHarness.of(lambda s: s.map_batches(ends, id="batches", batch_format="arrow")) as harness,
        pytest.raises(OperatorError, match="StopIteration"),
    ):
        harness.push_batch(ArrowBatch(pa.record_batch({"n": [1]})))
