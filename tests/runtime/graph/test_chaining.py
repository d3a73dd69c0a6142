from __future__ import annotations

from typing import Any

import pytest

from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.job_graph import JobEdge, JobGraph, Partitioning
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import TumblingEventTimeWindows


def chains(job: JobGraph) -> dict[str, list[str]]:
    return {vertex.id: [operator.id for operator in vertex.operators] for vertex in job.vertices}


def edges(job: JobGraph) -> list[tuple[str, str, Partitioning]]:
    return [(e.source_operator, e.target_vertex, e.partitioner.partitioning) for e in job.edges]


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("test", parallelism=2)


@pytest.fixture
def source(env: StreamEnvironment) -> DataStream[int]:
    return env.from_collection("in", [1, 2, 3])


def test_a_line_of_equal_operators_is_one_chain(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.map(abs).filter(bool).sink("out", discard)
    job = env.build()
    assert chains(job) == {"in": ["in", "map-1", "filter-1", "out"]}
    assert job.edges == ()
    assert job.vertices[0].parallelism == 2


def test_key_by_begins_a_new_chain(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.key_by(abs).reduce("sum", max).map(abs).sink("out", discard)
    job = env.build()
    assert chains(job) == {"in": ["in"], "sum": ["sum", "map-1", "out"]}
    assert edges(job) == [("in", "sum", Partitioning.KEY_GROUP)]
    assert job.edges[0].partitioner.key_selector is abs
    assert (job.vertex("sum").operators[0].keyed, job.vertex("sum").operators[0].stateful) == (True, True)


def test_another_parallelism_rebalances(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.map(abs, parallelism=3).sink("out", discard, parallelism=3)
    job = env.build()
    assert chains(job) == {"in": ["in"], "map-1": ["map-1", "out"]}
    assert edges(job) == [("in", "map-1", Partitioning.REBALANCE)]


@pytest.mark.parametrize(
    ("method", "partitioning"),
    [("rebalance", Partitioning.REBALANCE), ("broadcast", Partitioning.BROADCAST)],
)
def test_an_explicit_partitioning_is_an_edge(
    env: StreamEnvironment, source: Any, discard: Any, method: str, partitioning: Partitioning
) -> None:
    getattr(source, method)().sink("out", discard)
    assert edges(env.build()) == [("in", "out", partitioning)]


def test_a_chain_forks_where_an_output_has_several_readers(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.sink("a", discard)
    mapped = source.map(abs)
    mapped.sink("b", discard)
    mapped.key_by(abs).reduce("sum", max).sink("c", discard)
    job = env.build()
    assert chains(job) == {"in": ["in", "a", "map-1", "b"], "sum": ["sum", "c"]}
    assert job.vertex("in").forks == {2: 0}
    assert [job.vertex("in").producer(n) for n in range(4)] == [-1, 0, 0, 2]
    assert edges(job) == [("map-1", "sum", Partitioning.KEY_GROUP)]


def test_readers_of_one_output_are_chained_only_if_chaining_is_on_and_the_parallelism_is_equal(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.sink("a", discard, disable_chaining=True)
    source.sink("b", discard, start_new_chain=True)
    source.sink("c", discard, parallelism=1)
    source.sink("d", discard)
    assert chains(env.build()) == {"in": ["in", "d"], "a": ["a"], "b": ["b"], "c": ["c"]}


def test_an_operator_that_makes_watermarks_is_not_chained_below_a_fork(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(abs)
    timed = source.map(abs).assign_timestamps_and_watermarks(strategy)
    timed.sink("a", discard)
    timed.map(abs).assign_timestamps_and_watermarks(strategy).sink("b", discard)
    job = env.build()
    assert chains(job) == {
        "in": ["in", "map-1", "timestamps-1", "a", "map-2"],
        "timestamps-2": ["timestamps-2", "b"],
    }
    assert edges(job) == [("map-2", "timestamps-2", Partitioning.FORWARD)]


def test_a_stream_in_a_union_is_an_input_edge(env: StreamEnvironment, source: Any, discard: Any) -> None:
    other = env.from_collection("other", [4])
    source.union(other.rebalance()).map(abs).sink("out", discard)
    job = env.build()
    assert chains(job) == {"in": ["in"], "other": ["other"], "map-1": ["map-1", "out"]}
    assert edges(job) == [("in", "map-1", Partitioning.FORWARD), ("other", "map-1", Partitioning.REBALANCE)]


def test_a_union_of_a_stream_with_itself_reads_it_twice(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.union(source).sink("out", discard)
    assert edges(env.build()) == [("in", "out", Partitioning.FORWARD)] * 2


def test_all_streams_of_a_union_are_grouped_by_the_same_key(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    other = env.from_collection("other", [4])
    source.union(other).key_by(abs).reduce("sum", max).sink("out", discard)
    job = env.build()
    assert [(e.source_vertex, e.partitioner.key_selector) for e in job.edges] == [("in", abs), ("other", abs)]


def test_readers_of_side_outputs_do_not_break_the_chain(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.map(abs).sink("out", discard)
    source.dead_letters().sink("bad", discard)
    job = env.build()
    assert chains(job) == {"in": ["in", "map-1", "out"], "bad": ["bad"]}
    (edge,) = job.edges
    assert isinstance(edge, JobEdge)
    assert (edge.source_vertex, edge.source_operator, edge.tag) == ("in", "in", "dead_letters")


def test_a_side_output_alone_does_not_chain(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.dead_letters().sink("bad", discard)
    assert chains(env.build()) == {"in": ["in"], "bad": ["bad"]}


STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(abs)


def windowed(source: Any) -> DataStream[int]:
    stamped = source.assign_timestamps_and_watermarks(STRATEGY)
    largest: DataStream[int] = stamped.key_by(abs).window(TumblingEventTimeWindows(1)).reduce("largest", max)
    return largest


def test_a_second_event_time_is_not_chained_behind_a_side_output_that_is_read(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    """Its watermarks must not reach the readers of the first one's late records."""
    largest = windowed(source)
    largest.map(abs).assign_timestamps_and_watermarks(STRATEGY).sink("out", discard)
    largest.side_output("late_records").sink("late", discard)
    job = env.build()
    assert chains(job) == {
        "in": ["in", "timestamps-1"],
        "largest": ["largest", "map-1"],
        "timestamps-2": ["timestamps-2", "out"],
        "late": ["late"],
    }
    assert ("map-1", "timestamps-2", Partitioning.FORWARD) in edges(job)


def test_a_second_event_time_is_chained_where_nobody_reads_a_side_output(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    windowed(source).assign_timestamps_and_watermarks(STRATEGY).sink("out", discard)
    assert chains(env.build())["largest"] == ["largest", "timestamps-2", "out"]


def test_event_time_begins_in_the_sources_chain_also_when_dead_letters_are_read(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.assign_timestamps_and_watermarks(STRATEGY).sink("out", discard)
    source.dead_letters().sink("bad", discard)
    assert chains(env.build()) == {"in": ["in", "timestamps-1", "out"], "bad": ["bad"]}


def test_a_second_event_time_is_not_chained_behind_a_source_with_a_strategy_whose_dead_letters_are_read(
    env: StreamEnvironment, discard: Any
) -> None:
    timed = env.from_source("in", CollectionSource([1]), watermarks=STRATEGY)
    timed.assign_timestamps_and_watermarks(STRATEGY).sink("out", discard)
    timed.dead_letters().sink("bad", discard)
    assert chains(env.build()) == {"in": ["in"], "timestamps-1": ["timestamps-1", "out"], "bad": ["bad"]}


def test_start_new_chain_cuts_before_an_operator(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.map(abs, start_new_chain=True).sink("out", discard)
    assert chains(env.build()) == {"in": ["in"], "map-1": ["map-1", "out"]}


def test_disable_chaining_cuts_on_both_sides(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.map(abs, disable_chaining=True).sink("out", discard)
    assert chains(env.build()) == {"in": ["in"], "map-1": ["map-1"], "out": ["out"]}


def test_chaining_can_be_switched_off_for_a_job(discard: Any) -> None:
    env = StreamEnvironment("test", chaining=False)
    env.from_collection("in", [1]).map(abs).sink("out", discard)
    forward = Partitioning.FORWARD
    assert edges(env.build()) == [("in", "map-1", forward), ("map-1", "out", forward)]


def test_other_resources_begin_a_chain_that_others_join(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.map(abs, num_cpus=1, num_gpus=0.5).map(abs).sink("out", discard, num_cpus=1)
    job = env.build()
    assert chains(job) == {"in": ["in"], "map-1": ["map-1", "map-2", "out"]}
    resources = [(vertex.num_cpus, vertex.num_gpus) for vertex in job.vertices]
    assert resources == [(0.0, 0.0), (1, 0.5)]


def test_named_resources_begin_a_chain_like_cpus(env: StreamEnvironment, source: Any, discard: Any) -> None:
    source.map(abs, resources={"tpu": 1}).map(abs).map(abs, resources={}).sink("out", discard)
    job = env.build()
    assert chains(job) == {"in": ["in"], "map-1": ["map-1", "map-2"], "map-3": ["map-3", "out"]}
    assert [vertex.resources for vertex in job.vertices] == [{}, {"tpu": 1}, {}]


def test_resources_that_are_the_chains_own_do_not_cut_it(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.sink("out", discard, num_cpus=0)
    assert len(env.build().vertices) == 1


def test_sources_come_first_and_producers_before_consumers(env: StreamEnvironment, discard: Any) -> None:
    first = env.from_collection("first", [1]).rebalance().map(abs)
    second = env.from_collection("second", [1])
    first.union(second).sink("out", discard)
    assert [vertex.id for vertex in env.build().vertices] == ["first", "second", "map-1", "out"]


def test_the_number_of_key_groups_follows_the_parallelism(discard: Any) -> None:
    env = StreamEnvironment("test")
    env.from_collection("in", [1]).sink("out", discard, parallelism=200)
    assert [v.max_parallelism for v in env.build().vertices] == [128, 512]


def test_a_given_number_of_key_groups_holds_for_all(discard: Any) -> None:
    env = StreamEnvironment("test", max_parallelism=30)
    env.from_collection("in", [1]).sink("out", discard, parallelism=30)
    assert [v.max_parallelism for v in env.build().vertices] == [30, 30]


def test_operators_keep_the_users_line_and_a_name_for_people(
    env: StreamEnvironment, source: Any, discard: Any
) -> None:
    source.map(abs).sink("out", discard)
    (vertex,) = env.build().vertices
    assert vertex.name == "source(CollectionSource) -> map(abs) -> sink(DiscardSink)"
    lines = [operator.defined_at for operator in vertex.operators]
    assert all(line is not None and line.file.endswith("test_chaining.py") for line in lines)
    assert vertex.operators[1].defined_at == vertex.operators[2].defined_at != vertex.operators[0].defined_at
