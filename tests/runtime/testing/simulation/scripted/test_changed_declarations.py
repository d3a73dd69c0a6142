"""A program that declares other states than the savepoint it starts from: by rule, and said in a warning."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from memory_storages import MemoryPlaces
from savepoint_jobs import KEYS, counting, start
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.keyed_states import MapState, ValueState

pytestmark = pytest.mark.usefixtures("small_files")

Pair = tuple[int, int]


class Before(KeyedProcessFunction[int, Pair, Pair]):
    seen = ValueState(int, default=0)
    unused = ValueState(int)

    def process(self, value: Pair, ctx: RuntimeContext) -> Iterator[Pair]:
        self.seen.update(self.seen.value() + 1)
        self.unused.update(1)
        yield ctx.current_key, self.seen.value()


class After(KeyedProcessFunction[int, Pair, Pair]):
    count = ValueState(str, default="0", renamed_from="seen", migrate=str)
    more = MapState(int, int)

    def process(self, value: Pair, ctx: RuntimeContext) -> Iterator[Pair]:
        self.count.update(str(int(self.count.value()) + 1))
        self.more[value[1]] = 1
        yield ctx.current_key, int(self.count.value())


class OtherKind(After):
    count = MapState(int, int, name="seen")  # type: ignore[assignment]


def graph_of(function: KeyedProcessFunction[int, Pair, Pair], target: InMemoryCollector) -> ExecutionGraph:
    def change(pairs: DataStream[Pair]) -> None:
        counts = pairs.key_by(lambda pair: pair[0]).process("count", function)
        counts.sink("out", CollectSink(target))

    return counting(target, change=change)


@pytest.fixture
def saved(places: MemoryPlaces) -> str:
    """A savepoint in the middle of the job with the states of before."""
    config = JobConfig(
        checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=5, credits=3)
    )
    job = ScriptedJob(graph_of(Before(), InMemoryCollector()), config, MemoryStorage(), open_location=places)
    job.run(300)
    places.move(job.stop_with_savepoint("/saved"), "/saved")
    return "/saved"


def test_each_change_is_named_and_the_state_goes_on(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    job = start(target, places, saved, graph_of(After(), target))
    job.until_it_runs()
    warning = job.scheduler.statistics().warning
    assert warning is not None
    assert "operator 'count': state 'count' takes over the entries saved as 'seen'" in warning
    assert "operator 'count': state 'more' is new and begins empty" in warning
    assert "operator 'count': state 'unused' of the snapshot is no longer declared" in warning
    job.finish()
    last = {key: max(n for k, n in target.rows() if k == key) for key in range(KEYS)}
    assert last == {key: len(range(key, 3000, KEYS)) for key in range(KEYS)}


def test_a_state_of_another_kind_does_not_start(
    saved: str, target: InMemoryCollector, places: MemoryPlaces
) -> None:
    what = r"operator 'count' .*state 'seen' is a MapState, but .* holds a ValueState of this name"
    with pytest.raises(OperatorError, match=what):
        start(target, places, saved, graph_of(OtherKind(), target)).finish()
