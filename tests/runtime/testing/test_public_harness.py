"""The harness as users find it: operators are written as in a job, and no internals are imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    CollectionSource,
    CollectSink,
    DataStream,
    GraphError,
    KeyedProcessFunction,
    RuntimeContext,
    WatermarkStrategy,
)
from penstock.operators import RowBatch
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.testing import HarnessSnapshot, OperatorHarness, SourceHarness
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000


class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
    def open(self, ctx: RuntimeContext) -> None:
        self.seen = ctx.value_state("seen", default=0)

    def process(self, value: str, ctx: RuntimeContext) -> Iterator[tuple[str, int]]:
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()


def count(words: DataStream[str]) -> Any:
    return words.key_by(lambda word: word).process("count", Count())


@pytest.mark.parametrize(
    ("build", "given", "expected"),
    [
        (lambda numbers: numbers.map(lambda n: n + 1), [1, 2], [2, 3]),
        (lambda numbers: numbers.filter(lambda n: n > 1), [1, 2], [2]),
        (lambda numbers: numbers.flat_map(lambda n: [n] * n), [1, 2], [1, 2, 2]),
        (
            lambda numbers: numbers.key_by(lambda n: n % 2).reduce("sum", lambda a, b: a + b),
            [1, 2, 3],
            [1, 2, 4],
        ),
    ],
    ids=["map", "filter", "flat_map", "reduce"],
)
def test_an_operator_is_written_as_in_a_job(build: Any, given: list[int], expected: list[int]) -> None:
    with OperatorHarness.of(build) as harness:
        assert harness.push(given) == expected


def test_a_process_function_goes_on_from_its_snapshot_at_another_parallelism() -> None:
    with OperatorHarness.of(count) as harness:
        assert harness.push(["a", "b", "a"]) == [("a", 1), ("b", 1), ("a", 2)]
        snapshot = harness.snapshot()
    states: dict[str, int] = {}
    for subtask in range(3):
        with OperatorHarness.of(count, restored=[snapshot], subtask=subtask, parallelism=3) as harness:
            states |= harness.state("seen")
    assert states == {"a": 2, "b": 1}


def test_windows_fire_when_the_watermark_passes() -> None:
    def sums(numbers: DataStream[int]) -> Any:
        windows = numbers.key_by(lambda n: n % 2).window(TumblingEventTimeWindows(10))
        return windows.reduce("sums", lambda a, b: a + b)

    with OperatorHarness.of(sums) as harness:
        assert harness.push([1, 3, 2], [1 * SECOND, 2 * SECOND, 3 * SECOND]) == []
        assert sorted(harness.push_watermark(10 * SECOND)) == [2, 4]


def test_timestamps_and_watermarks_are_seen() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n)
    with OperatorHarness.of(lambda n: n.assign_timestamps_and_watermarks(strategy)) as harness:
        harness.push([5])
        assert [batch.timestamps for batch in harness.batches if isinstance(batch, RowBatch)] == [[5]]


def test_a_sink_commits_when_the_checkpoint_is_complete_and_once_only() -> None:
    results = InMemoryCollector()

    def out(numbers: DataStream[int]) -> None:
        numbers.sink("out", CollectSink(results))

    with OperatorHarness.of(out) as harness:
        harness.push([1, 2])
        snapshot = harness.snapshot()
        assert results.rows() == []
        harness.complete_checkpoint(snapshot)
        assert results.rows() == [1, 2]
    with OperatorHarness.of(out, restored=[snapshot], attempt=2):
        assert results.rows() == [1, 2]


@pytest.mark.parametrize(
    ("build", "what"),
    [(lambda s: s, "adds none"), (lambda s: s.map(abs).map(str), r"adds map\(abs\), map\(str\)")],
)
def test_none_or_several_operators_are_refused_by_name(build: Any, what: str) -> None:
    with pytest.raises(GraphError, match=what):
        OperatorHarness.of(build)


# -- sources ------------------------------------------------------------------------------------------------


def test_a_source_goes_on_behind_the_last_record_of_its_snapshot() -> None:
    source = CollectionSource(range(10))
    with SourceHarness(source) as harness:
        first = harness.poll(4)
        snapshot = harness.snapshot()
        assert harness.read_all() == [n for n in range(10) if n not in first]
        assert harness.is_finished
    with SourceHarness(source, restored=[snapshot]) as harness:
        assert harness.read_all() == [n for n in range(10) if n not in first]


def test_splits_of_old_subtasks_are_shared_out_anew() -> None:
    source = CollectionSource(range(10))
    read: list[int] = []
    snapshots: list[HarnessSnapshot] = []
    for subtask in range(2):
        with SourceHarness(source, subtask=subtask, parallelism=2) as harness:
            read += harness.poll(2)
            snapshots.append(harness.snapshot())
    for subtask in range(3):
        with SourceHarness(source, subtask=subtask, parallelism=3, restored=snapshots) as harness:
            read += harness.read_all()
    assert sorted(read) == list(range(10))


# -- the package --------------------------------------------------------------------------------------------
