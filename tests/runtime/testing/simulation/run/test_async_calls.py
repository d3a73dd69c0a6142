"""`simulate` of jobs with asynchronous calls: thousands of kills, and no result is lost or given twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import (
    Checkpointing,
    CollectSink,
    FunctionContext,
    ProcessFunction,
    Retry,
    StreamEnvironment,
    async_call,
)
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.state import OperatorListState
from penstock.testing import SimulationReport, simulate

NUMBERS = range(30)


async def tripled(number: int) -> int:
    if async_call().attempt <= number % 2:
        raise ConnectionError(number)
    await asyncio.sleep(number * 7 % 5 / 1000)
    return 3 * number


async def tripled_together(numbers: list[int]) -> list[int]:
    await asyncio.sleep(len(numbers) / 1000)
    return [3 * number for number in numbers]


async def slow_copy(number: int) -> int:
    await asyncio.sleep(0.004)
    return number


class InOrder(ProcessFunction[int, int]):
    """Fails when a number is not greater than the last one."""

    last = OperatorListState(int)

    def process(self, value: int, ctx: FunctionContext) -> Iterator[int]:
        last = max(self.last.get(), default=-1)
        assert value > last, f"{value} came behind {last}"
        self.last.update([value])
        yield value


class WithTotal(Operator):
    """Passes numbers on, and behind the last one how many there were."""

    def open(self, context: OperatorContext) -> None:
        self.state = context.operator_list_state("count")
        self.count = sum(self.state.get())

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.count += len(batch.rows)
        yield batch

    def snapshot(self, checkpoint_id: int) -> None:
        self.state.update([self.count])

    def end_of_data(self) -> Iterator[RowBatch]:
        yield RowBatch([self.count])


RETRY = Retry(2, delay=0.001)


def ordered(numbers: Any) -> Any:
    called = numbers.map_async(tripled, id="calls", capacity=4, retry=RETRY)
    return called.process("in-order", InOrder())


def unordered(numbers: Any) -> Any:
    return numbers.rebalance().map_async(tripled, id="calls", capacity=3, retry=RETRY, ordered=False)


def by_key(numbers: Any) -> Any:
    return numbers.key_by(lambda n: n % 5).map_async(tripled, id="calls", capacity=3, retry=RETRY)


def in_batches(numbers: Any) -> Any:
    return numbers.rebalance().map_async(tripled_together, id="calls", capacity=2, batch=4, linger=0.002)


def between_last_records(numbers: Any) -> Any:
    """Operators of one chain emit their last record at the end of the data, in front of calls."""
    first = numbers.transform("first", WithTotal()).map_async(tripled, id="calls", capacity=4, retry=RETRY)
    second = first.transform("second", WithTotal())
    return second.map_async(slow_copy, id="more", capacity=4)


def correct(results: InMemoryCollector) -> list[int]:
    """The output, of which each row is right."""
    rows = sorted(results.rows())
    assert set(rows) <= {3 * number for number in NUMBERS}
    return rows


#: Jobs and their parallelism; one subtask alone keeps the order of all records, so it is not rescaled.
JOBS: list[tuple[Callable[[Any], Any], int]] = [(ordered, 1), (unordered, 2), (by_key, 2), (in_batches, 2)]


def run(
    add: Callable[[Any], Any],
    parallelism: int,
    seeds: range,
    faults: tuple[Any, ...] = (),
    output: Callable[[InMemoryCollector], list[int]] = correct,
    **checkpointing: Any,
) -> SimulationReport:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        settings = Checkpointing(every=1, **checkpointing)
        env = StreamEnvironment(parallelism=parallelism, checkpointing=settings)
        source = env.from_collection("numbers", NUMBERS, parallelism=1)
        add(source).sink("out", CollectSink(results))
        return env, results

    report = simulate(
        build,
        output=output,
        seeds=seeds,
        rescale=parallelism > 1,
        faults=faults,
        interleavings=3,
    )
    assert report.passed
    assert report.uncontrolled == (), "coroutines run in simulated time"
    return report


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize(("add", "parallelism"), JOBS)
def test_no_result_is_lost_or_given_twice_when_processes_die(
    add: Callable[[Any], Any], parallelism: int, unaligned: bool
) -> None:
    run(add, parallelism, range(6), unaligned=unaligned)


def test_last_records_of_the_operators_of_a_chain_are_called_too() -> None:
    expected = sorted([3 * number for number in NUMBERS] + [3 * len(NUMBERS), len(NUMBERS) + 1])

    def output(results: InMemoryCollector) -> list[int]:
        rows = sorted(results.rows())
        assert rows == expected
        return rows

    run(between_last_records, 1, range(8), output=output)
    run(between_last_records, 1, range(8), output=output, unaligned=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize(("add", "parallelism"), JOBS)
def test_no_result_is_lost_or_given_twice_in_a_thousand_kills(
    add: Callable[[Any], Any], parallelism: int, unaligned: bool
) -> None:
    report = run(add, parallelism, range(300), ("zombies",), unaligned=unaligned)
    assert report.restarts > 300
