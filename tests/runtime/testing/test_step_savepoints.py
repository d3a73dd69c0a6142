"""Savepoints in a job that is moved by hand: whole, movable, and at another parallelism exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from penstock.runtime.checkpoint import state_files
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.errors import OperatorError, RestoreError, StateMismatchError, StorageError
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.graph.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.testing.step_job import StepJob
from penstock.runtime.testing.step_savepoints import (
    MemoryPlaces,
    found_at,
    stop_with_savepoint,
    take_savepoint,
)
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.time.windows import TimeWindow, TumblingEventTimeWindows

COUNT, KEYS = 3000, 7
CONFIG = JobConfig(checkpointing=Checkpointing(every=1), buffer_rows=5, credits=3)


def numbers(env: StreamEnvironment) -> DataStream[int]:
    return env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT))


def counting(
    target: InMemoryCollector,
    parallelism: int = 2,
    *,
    change: Callable[[DataStream[tuple[int, int]]], object] | None = None,
    max_parallelism: int = 32,
) -> ExecutionGraph:
    """Running counts of numbers by remainder; `change` sees the pairs before they are counted."""
    env = StreamEnvironment("count", parallelism=parallelism, max_parallelism=max_parallelism)
    pairs = numbers(env).map(lambda i: (i % KEYS, 1))
    if change is None:
        counts = pairs.key_by(lambda p: p[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
        counts.sink("out", CollectSink(target))
    else:
        change(pairs)
    return build_execution_graph(env.build())


def expected() -> Counter[tuple[int, int]]:
    return Counter((key, n + 1) for key in range(KEYS) for n in range(len(range(key, COUNT, KEYS))))


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small state is in files, too."""
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 40)


@pytest.fixture
def target() -> InMemoryCollector:
    return InMemoryCollector()


@pytest.fixture
def places() -> MemoryPlaces:
    return MemoryPlaces()


@pytest.fixture
def running(target: InMemoryCollector, places: MemoryPlaces) -> StepJob:
    """A job in the middle, with a checkpoint to build on."""
    job = StepJob(counting(target), CONFIG, MemoryStorage(), Random(3).randrange, open_location=places)
    job.run(80)
    job.complete_checkpoint()
    job.run(20)
    assert not job.is_finished
    return job


def start(
    target: InMemoryCollector, places: MemoryPlaces, url: str, graph: ExecutionGraph | None = None
) -> StepJob:
    return StepJob(
        graph or counting(target),
        CONFIG,
        MemoryStorage(),
        job_id=f"after-{url.strip('/').replace('/', '-')}",
        restore=found_at(places, url),
        open_location=places,
    )


def test_a_savepoint_is_whole_in_its_own_folder_and_can_be_moved(
    running: StepJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    own = set(running.storage.list(""))
    stop_with_savepoint(running, places, "/saved/one")
    assert set(running.storage.list("")) <= own
    assert len(places("/saved/one").list("")) > 2
    running.storage.delete(running.storage.list(""))
    places.move("/saved/one", "/elsewhere")
    again = start(target, places, "/elsewhere")
    again.finish()
    assert Counter(target.rows()) == expected()


def test_a_stopped_job_has_committed_exactly_what_its_savepoint_covers(
    running: StepJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    stop_with_savepoint(running, places, "/saved")
    saved, committed = found_at(places, "/saved"), Counter(target.rows())
    assert 0 < committed.total() < COUNT
    again = start(target, places, "/saved")
    again.run(10)
    assert Counter(target.rows()) == committed
    assert again.complete_checkpoint() > saved.checkpoint_id
    again.finish()
    assert Counter(target.rows()) == expected()


# -- open windows -------------------------------------------------------------------------------------------

LONG = 250

#: Key, start and numbers of a window.
Window = tuple[int, int, tuple[int, ...]]


def held(key: int, window: TimeWindow, rows: list[int]) -> list[Window]:
    return [(key, window.start, tuple(sorted(rows)))]


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
    job = StepJob(windowing(target), CONFIG, MemoryStorage(), Random(3).randrange, open_location=places)
    job.run(150)
    job.complete_checkpoint()
    job.run(40)
    stop_with_savepoint(job, places, "/saved", drain=drain)
    return target.rows()


@pytest.mark.parametrize("parallelism", [2, 1, 5])
def test_a_stop_leaves_unfinished_windows_in_the_savepoint(
    target: InMemoryCollector, places: MemoryPlaces, parallelism: int
) -> None:
    """What has come out is whole, and each other window comes out once and whole from the next job."""
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


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_a_job_starts_from_a_savepoint_at_another_parallelism(
    running: StepJob, target: InMemoryCollector, places: MemoryPlaces, parallelism: int
) -> None:
    stop_with_savepoint(running, places, "/saved")
    again = start(target, places, "/saved", counting(target, parallelism))
    again.run(50)
    again.crash()
    again.finish()
    assert Counter(target.rows()) == expected()


def test_a_savepoint_on_the_way_changes_nothing_for_the_job(
    running: StepJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    take_savepoint(running, places, "/saved")
    running.run(30)
    running.crash()
    running.complete_checkpoint()
    del places.storages["/saved"]  # the user's to delete
    running.run(30)
    running.crash()
    running.finish()
    assert Counter(target.rows()) == expected()


def test_a_place_that_takes_no_files_declines_the_savepoint_and_not_the_job(
    running: StepJob, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    class Full(MemoryStorage):
        def put(self, path: str, data: bytes, *, create: bool = False) -> None:
            msg = "disk full"
            raise StorageError(msg)

    places.storages["/full"] = Full()
    checkpoint_id = running.trigger_checkpoint(SnapshotKind.SAVEPOINT, location="/full")
    while checkpoint_id in running.checkpoints.running:
        assert running.move()
    assert running.checkpoints.newest is not None
    assert running.checkpoints.newest.checkpoint_id != checkpoint_id
    running.finish()
    assert Counter(target.rows()) == expected()


# -- what does not fit --------------------------------------------------------------------------------------


def without_count(pairs: DataStream[tuple[int, int]]) -> None:
    pairs.sink("out", CollectSink(InMemoryCollector()))


def as_another_kind(pairs: DataStream[tuple[int, int]]) -> None:
    pairs.sink("count", CollectSink(InMemoryCollector()))


@pytest.fixture
def saved(running: StepJob, places: MemoryPlaces) -> str:
    stop_with_savepoint(running, places, "/saved")
    return "/saved"


def test_state_whose_operator_is_gone_is_named_and_left_out_only_on_demand(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    graph = counting(target, change=without_count)
    with pytest.raises(
        StateMismatchError, match=r"'count', which the job does not have.*have state: 'numbers"
    ):
        start(target, places, saved, graph)
    job = StepJob(
        graph,
        JobConfig(checkpointing=Checkpointing(every=1), allow_non_restored_state=True),
        MemoryStorage(),
        restore=found_at(places, saved),
        open_location=places,
    )
    job.finish()


def test_an_id_that_belonged_to_another_kind_of_operator_is_refused(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    graph = counting(target, change=as_another_kind)
    config = JobConfig(checkpointing=Checkpointing(every=1), allow_non_restored_state=True)
    with pytest.raises(
        StateMismatchError, match=r"'count' holds keys with values, but sink.*has no such state"
    ):
        StepJob(graph, config, MemoryStorage(), restore=found_at(places, saved), open_location=places)


class Seen(KeyedProcessFunction[int, tuple[int, int], tuple[int, int]]):
    def process(self, value: tuple[int, int], ctx: RuntimeContext) -> list[tuple[int, int]]:
        seen = ctx.value_state("seen", default=0)
        seen.update(seen.value() + 1)
        return [(value[0], seen.value())]


def test_the_state_of_a_process_function_is_not_taken_for_that_of_a_reduce(
    target: InMemoryCollector, places: MemoryPlaces
) -> None:
    def processed(pairs: DataStream[tuple[int, int]]) -> None:
        pairs.key_by(lambda p: p[0]).process("count", Seen()).sink("out", CollectSink(target))

    job = StepJob(counting(target, change=processed), CONFIG, MemoryStorage(), open_location=places)
    job.run(60)
    stop_with_savepoint(job, places, "/saved")
    with pytest.raises(
        OperatorError, match=r"'count'.*holds 'seen'.*not to a reduce. Give the operator a new"
    ):
        start(target, places, "/saved")
    start(target, places, "/saved", counting(target, change=processed)).finish()
    assert Counter(target.rows()) == expected()


def test_another_number_of_key_groups_is_refused_with_what_to_do(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    with pytest.raises(StateMismatchError, match=r"max_parallelism=32 and.*64.*max_parallelism=32\)"):
        start(target, places, saved, counting(target, max_parallelism=64))


@pytest.mark.parametrize(
    ("lost", "message"),
    [("metadata", "there is no snapshot at /saved"), ("count-0-0", "not whole: /saved/count-0-0 is part")],
)
def test_a_savepoint_that_is_not_whole_is_refused(
    saved: str, places: MemoryPlaces, lost: str, message: str
) -> None:
    places(saved).delete([lost])
    places("", create=True)
    with pytest.raises(RestoreError, match=message):
        found_at(places, saved)


def test_a_place_that_is_not_there_is_named(places: MemoryPlaces) -> None:
    with pytest.raises(StorageError, match="/nowhere is no folder"):
        found_at(places, "/nowhere")


@pytest.mark.parametrize("seed", range(12))
def test_stops_and_starts_at_any_moment_lose_nothing(seed: int, places: MemoryPlaces) -> None:
    """Stopped and started again and again, each time at another parallelism, drained now and then."""
    random, target = Random(seed), InMemoryCollector()
    job = StepJob(counting(target), CONFIG, MemoryStorage(), random.randrange, open_location=places)
    for stop in range(3):
        job.run(random.randint(0, 120))
        if job.is_finished:
            break
        url = f"/saved/{stop}"
        stop_with_savepoint(job, places, url, drain=random.random() < 0.3)
        job = start(target, places, url, counting(target, random.randint(1, 4)))
    job.finish()
    assert Counter(target.rows()) == expected()
