"""Savepoints that do not fit the job, or are not whole: refused with what to do."""

from __future__ import annotations

from collections import Counter

import pytest
from savepoint_jobs import CONFIG, counting, expected, found_at, start, stop_with_savepoint

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import JobFailedError, OperatorError, RestoreError, StorageError
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.operators.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.testing.memory_places import MemoryPlaces
from penstock.runtime.testing.simulation.scripted.scripted_job import ScriptedJob

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
        JobConfig(checkpointing=Checkpointing(every=1), allow_non_restored_state=True),
        MemoryStorage(),
        restore_from=saved,
        open_location=places,
    )
    job.finish()


def test_an_id_that_belonged_to_another_kind_of_operator_is_refused(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    graph = counting(target, change=as_another_kind)
    config = JobConfig(checkpointing=Checkpointing(every=1), allow_non_restored_state=True)
    with pytest.raises(JobFailedError, match=r"'count' holds keys with values, but sink.*has no such state"):
        ScriptedJob(graph, config, MemoryStorage(), restore_from=saved, open_location=places)


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
