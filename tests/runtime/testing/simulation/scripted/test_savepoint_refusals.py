"""Savepoints that do not fit the job, or are incomplete: refused with what to do."""

from __future__ import annotations

from collections import Counter

import pytest
from memory_storages import MemoryPlaces
from savepoint_jobs import CONFIG, counting, expected, found_at, start, stop_with_savepoint
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointFailed
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import JobFailedError, OperatorError, RestoreError, StorageError
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.job.job_state import JobState, StopRequest
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.snapshot.storage import MemoryStorage

pytestmark = pytest.mark.usefixtures("small_files")


def without_count(pairs: DataStream[tuple[int, int]]) -> None:
    pairs.sink("out", CollectSink(InMemoryCollector()))


def as_another_kind(pairs: DataStream[tuple[int, int]]) -> None:
    pairs.sink("count", CollectSink(InMemoryCollector()))


@pytest.fixture
def saved(running: ScriptedJob, places: MemoryPlaces) -> str:
    stop_with_savepoint(running, places, "/saved")
    return "/saved"


def test_state_whose_operator_is_gone_is_named_and_left_out_only_on_demand(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    graph = counting(target, change=without_count)
    with pytest.raises(JobFailedError, match=r"'count', which the job does not have.*have state: 'numbers"):
        start(target, places, saved, graph)
    job = ScriptedJob(
        graph,
        JobConfig(checkpointing=Checkpointing(every=1)),
        MemoryStorage(),
        restore_from=saved,
        allow_non_restored_state=True,
        open_location=places,
    )
    job.finish()


def test_an_id_that_belonged_to_another_kind_of_operator_is_refused(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    graph = counting(target, change=as_another_kind)
    config = JobConfig(checkpointing=Checkpointing(every=1))
    with pytest.raises(JobFailedError, match=r"'count' holds keys with values, but sink.*has no such state"):
        ScriptedJob(
            graph,
            config,
            MemoryStorage(),
            restore_from=saved,
            allow_non_restored_state=True,
            open_location=places,
        )


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

    job = ScriptedJob(counting(target, change=processed), CONFIG, MemoryStorage(), open_location=places)
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
    with pytest.raises(JobFailedError, match=r"max_parallelism=32 and.*64.*max_parallelism=32\)"):
        start(target, places, saved, counting(target, max_parallelism=64))


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("metadata", "there is no snapshot at /saved"),
        ("count-0-0", "is incomplete: /saved/count-0-0 is"),
    ],
)
def test_a_savepoint_that_is_not_whole_is_refused(
    saved: str, places: MemoryPlaces, lost: str, message: str
) -> None:
    places(saved).delete([lost])
    places("", create=True)
    with pytest.raises(RestoreError, match=message):
        found_at(places, saved)


def test_a_place_that_is_not_there_is_named(places: MemoryPlaces) -> None:
    with pytest.raises(RestoreError, match="/nowhere is not a folder"):
        found_at(places, "/nowhere")


class ReadOnlyPlaces(MemoryPlaces):
    """Places in which nothing can be made any more, from a moment on."""

    is_read_only = False

    def __call__(self, url: str, *, create: bool = False) -> MemoryStorage:
        if create and self.is_read_only:
            msg = f"{url} can't be opened: it is read-only"
            raise StorageError(msg)
        return super().__call__(url, create=create)


def barriers_of(job: ScriptedJob) -> int:
    """Barriers that the subtasks have met since they were built: each is taken or declined."""
    seen = [task.subtask.statistics().checkpoints for task in job.tasks.values()]
    return sum(each.taken + each.declined for each in seen)


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_savepoint_whose_place_can_not_be_written_sends_no_barrier(
    target: InMemoryCollector, seed: int, stops: bool
) -> None:
    places = ReadOnlyPlaces()
    job = ScriptedJob(counting(target), CONFIG, MemoryStorage(), seed, open_location=places)
    job.run(60)
    places.is_read_only = True
    answers: list[CheckpointAnswer] = []
    if stops:
        job.scheduler.stop_with_savepoint(StopRequest(False, "/saved"), answers.append)
    else:
        job.scheduler.take_savepoint("/saved", answers.append)
    job.until(lambda: bool(answers), "the answer")
    [answer] = answers
    assert isinstance(answer, CheckpointFailed)
    assert "/saved can't be opened: it is read-only" in answer.detail
    job.run(60)
    assert barriers_of(job) == 0
    assert places.storages == {}
    assert job.scheduler.state is JobState.RUNNING
    places.is_read_only = False
    job.complete_checkpoint()
    assert barriers_of(job) > 0, "they are counted"
    job.finish()
    assert Counter(target.rows()) == expected()
