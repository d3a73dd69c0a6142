"""Jobs with open windows that are stopped: with a savepoint the windows go on, drained they come out."""

from __future__ import annotations

from collections import Counter

import pytest
from memory_storages import MemoryPlaces
from savepoint_jobs import CONFIG, COUNT, KEYS, numbers, start, stop_with_savepoint
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import TimeWindow, TumblingEventTimeWindows

pytestmark = pytest.mark.usefixtures("small_files")

LONG = 250

#: Key, start and numbers of a window.
Window = tuple[int, int, tuple[int, ...]]


def held(key: int, window: TimeWindow, rows: list[int]) -> list[Window]:
    return [(key, window.start_timestamp, tuple(sorted(rows)))]


def windowing(target: InMemoryCollector, parallelism: int = 2) -> ExecutionGraph:
    """Numbers, each its own moment in microseconds, in windows by remainder."""
    env = StreamEnvironment("windows", parallelism=2, max_parallelism=32)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda i: i)
    keyed = numbers(env).assign_timestamps_and_watermarks(strategy).key_by(lambda i: i % KEYS)
    windows = keyed.window(TumblingEventTimeWindows(LONG / 1_000_000))
    windows.apply("held", held, parallelism=parallelism).sink(
        "out", CollectSink(target), parallelism=parallelism
    )
    return build_execution_graph(env.build())


def whole_windows() -> list[Window]:
    starts = range(0, COUNT, LONG)
    return [
        (key, start, tuple(i for i in range(start, start + LONG) if i % KEYS == key))
        for start in starts
        for key in range(KEYS)
    ]


def stopped_in_a_window(target: InMemoryCollector, places: MemoryPlaces, *, drain: bool) -> list[Window]:
    """Stop a job in the middle; what has come out."""
    job = ScriptedJob(windowing(target), CONFIG, MemoryStorage(), 3, open_location=places)
    job.run(150)
    job.complete_checkpoint()
    job.run(40)
    stop_with_savepoint(job, places, "/saved", drain=drain)
    return target.rows()


@pytest.mark.parametrize("parallelism", [2, 1, 5])
def test_a_stop_leaves_unfinished_windows_in_the_savepoint(
    target: InMemoryCollector, places: MemoryPlaces, parallelism: int
) -> None:
    """The output is whole, and each other window comes out once and whole from the next job."""
    stopped = stopped_in_a_window(target, places, drain=False)
    assert 0 < len(stopped) < len(whole_windows())
    assert set(stopped) < set(whole_windows())
    start(target, places, "/saved", windowing(target, parallelism)).finish()
    assert sorted(target.rows()) == sorted(whole_windows())


@pytest.mark.parametrize("parallelism", [2, 1, 5])
def test_a_drain_makes_the_open_windows_come_out(
    target: InMemoryCollector, places: MemoryPlaces, parallelism: int
) -> None:
    """They are not in the savepoint, so their other records come out as windows of their own, not as late."""
    stopped = stopped_in_a_window(target, places, drain=True)
    unfinished = set(stopped) - set(whole_windows())
    assert 0 < len(unfinished) <= 2 * KEYS
    again = start(target, places, "/saved", windowing(target, parallelism))
    again.finish()
    rows = target.rows()
    assert Counter(i for *_, held in rows for i in held) == Counter(range(COUNT))
    twice = Counter((key, start) for key, start, _ in rows)
    assert {window for window, times in twice.items() if times > 1} <= {(k, s) for k, s, _ in unfinished}
    assert max(twice.values()) == 2
