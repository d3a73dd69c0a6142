"""Jobs that several benchmarks run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workload import (
    add,
    add_rows,
    doubled,
    doubled_row,
    is_large,
    is_large_row,
    key_of,
    measurement,
    reading,
    sensor_of,
    with_key,
)

from penstock import (
    Checkpointing,
    GeneratorSource,
    JobConfig,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.io.connectors.collect_sink import DiscardSink


def keyed_sum(
    storage: Path, parallelism: int, count: int | None = None, **config: object
) -> StreamEnvironment:
    """Source, map, key_by, running sum, discard; a checkpoint every second. Measure operator `sum`."""
    env = StreamEnvironment(
        "keyed-sum",
        parallelism=parallelism,
        checkpointing=Checkpointing(every=1.0, storage=str(storage)),
        config=JobConfig(**config),  # type: ignore[arg-type]
    )
    (
        env.from_source("numbers", GeneratorSource(reading, count=count))
        .map(with_key)
        .key_by(key_of)
        .reduce("sum", add)
        .sink("discard", DiscardSink())
    )
    return env


def chain(storage: Path, count: int | None = None) -> StreamEnvironment:
    """Source, map, filter, map, discard in one chain; a checkpoint every second. Measure `with_key`."""
    env = StreamEnvironment("chain", checkpointing=Checkpointing(every=1.0, storage=str(storage)))
    (
        env.from_source("numbers", GeneratorSource(reading, count=count))
        .map(with_key, id="with_key")
        .filter(is_large)
        .map(doubled)
        .sink("discard", DiscardSink())
    )
    return env


def sum_of_rows(storage: Path, count: int | None = None) -> StreamEnvironment:
    """`keyed_sum` on dicts, at parallelism 1. Measure operator `sum`."""
    env = StreamEnvironment("sum-of-rows", checkpointing=Checkpointing(every=1.0, storage=str(storage)))
    (
        env.from_source("numbers", GeneratorSource(reading, count=count))
        .map(measurement)
        .key_by(sensor_of)
        .reduce("sum", add_rows)
        .sink("discard", DiscardSink())
    )
    return env


def chain_of_rows(storage: Path, count: int | None = None) -> StreamEnvironment:
    """`chain` on dicts. Measure operator `measurement`."""
    env = StreamEnvironment("chain-of-rows", checkpointing=Checkpointing(every=1.0, storage=str(storage)))
    (
        env.from_source("numbers", GeneratorSource(reading, count=count))
        .map(measurement, id="measurement")
        .filter(is_large_row)
        .map(doubled_row)
        .sink("discard", DiscardSink())
    )
    return env


class CountedSum(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    """A keyed sum that emits flat dicts. Penstock copies each dict, because `process` sets an attribute."""

    total = ValueState(int, default=0)

    def open(self, ctx: RuntimeContext) -> None:
        """Reset the largest value."""
        self.largest = 0

    def process(self, value: dict[str, Any], ctx: RuntimeContext) -> Iterator[dict[str, Any]]:
        """Add a value; keep and emit the sum."""
        self.largest = max(self.largest, value["value"])
        now = self.total.value() + value["value"]
        self.total.update(now)
        yield {"sensor": ctx.current_key, "value": now, "unit": value["unit"]}


def process_of_rows(storage: Path, count: int | None = None) -> StreamEnvironment:
    """`sum_of_rows` with a process function. Measure operator `sum`."""
    env = StreamEnvironment("process-of-rows", checkpointing=Checkpointing(every=1.0, storage=str(storage)))
    (
        env.from_source("numbers", GeneratorSource(reading, count=count))
        .map(measurement)
        .key_by(sensor_of)
        .process("sum", CountedSum())
        .sink("discard", DiscardSink())
    )
    return env


class RunningSum(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """The keyed sum as a process function; calls the same functions as the benchmark of Bytewax."""

    total = ValueState(tuple)

    def process(self, value: tuple[str, int], ctx: RuntimeContext) -> Iterator[tuple[str, int]]:
        """Add a value; keep and emit the sum."""
        before = self.total.value()
        now = value if before is None else add(before, value)
        self.total.update(now)
        yield now


def keyed_process_sum(
    storage: Path, parallelism: int, count: int | None = None, state_backend: StateBackend | None = None
) -> StreamEnvironment:
    """`keyed_sum` with a process function instead of a reduce. Measure operator `sum`."""
    env = StreamEnvironment(
        "keyed-process-sum",
        parallelism=parallelism,
        state_backend=state_backend,
        checkpointing=Checkpointing(every=1.0, storage=str(storage)),
    )
    (
        env.from_source("numbers", GeneratorSource(reading, count=count))
        .map(with_key)
        .key_by(key_of)
        .process("sum", RunningSum())
        .sink("discard", DiscardSink())
    )
    return env
