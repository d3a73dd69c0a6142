"""Whatever a user builds: chains are trees, and both ends of every channel name the same number."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, Partitioning
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink

STEPS = ("source", "map", "reduce", "union", "rebalance", "broadcast", "dead_letters", "sink")


@st.composite
def jobs(draw: st.DrawFn) -> JobGraph:
    env = StreamEnvironment(parallelism=draw(st.integers(1, 3)), chaining=draw(st.booleans()))
    streams: list[DataStream[Any]] = [env.from_collection("in", [1])]
    sources = [streams[0]]
    broadcast: list[DataStream[Any]] = []
    for number, step in enumerate(draw(st.lists(st.sampled_from(STEPS), max_size=12))):
        options: dict[str, Any] = {"parallelism": draw(st.sampled_from([None, None, 1, 2]))}
        options["num_cpus"] = draw(st.sampled_from([None, None, 0, 1]))
        # An exchange behind broadcast() is refused, as it would lose the copies.
        exchanges = step in ("reduce", "rebalance")
        stream = draw(st.sampled_from([one for one in streams if not (exchanges and one in broadcast)]))
        if step == "source":
            sources.append(env.from_collection(f"in-{number}", [1], **options))
            streams.append(sources[-1])
        elif step == "map":
            streams.append(stream.map(abs, disable_chaining=draw(st.booleans()), **options))
        elif step == "reduce":
            streams.append(stream.key_by(abs).reduce(f"reduce-{number}", max, **options))
        elif step == "union":
            other = draw(st.sampled_from(streams))
            streams.append(stream.union(other))
            if stream in broadcast or other in broadcast:
                broadcast.append(streams[-1])
        elif step == "dead_letters":
            streams.append(draw(st.sampled_from(sources)).dead_letters())
        elif step == "sink":
            stream.sink(f"sink-{number}", DiscardSink(), **options)
        else:
            streams.append(getattr(stream, step)())
            if step == "broadcast":
                broadcast.append(streams[-1])
    draw(st.sampled_from(streams)).sink("out", DiscardSink())
    return env.build()


@given(jobs())
def test_every_operator_is_in_one_chain_and_edges_lead_to_heads(job: JobGraph) -> None:
    owners = Counter(operator.id for vertex in job.vertices for operator in vertex.operators)
    assert set(owners.values()) == {1}
    for vertex in job.vertices:
        assert vertex.id == vertex.operators[0].id
        assert [o.source is not None for o in vertex.operators[1:]] == [False] * (len(vertex.operators) - 1)
    for edge in job.edges:
        assert edge.source_operator in [o.id for o in job.vertex(edge.source_vertex).operators]
        job.vertex(edge.target_vertex)


@given(jobs())
def test_a_chain_is_a_tree_in_topological_order(job: JobGraph) -> None:
    for vertex in job.vertices:
        assert vertex.producer(0) == -1
        assert all(0 <= vertex.producer(n) < n for n in range(1, len(vertex.operators)))
        assert all(producer != index - 1 for index, producer in vertex.forks.items())


@given(jobs())
def test_vertices_are_in_topological_order_with_sources_first(job: JobGraph) -> None:
    place = {vertex.id: number for number, vertex in enumerate(job.vertices)}
    assert all(place[edge.source_vertex] < place[edge.target_vertex] for edge in job.edges)
    kinds = [vertex.is_source for vertex in job.vertices]
    assert kinds == sorted(kinds, reverse=True)


@given(jobs())
def test_both_ends_of_a_channel_agree(job: JobGraph) -> None:
    graph = build_execution_graph(job)
    sent = Counter(
        (subtask.id, channel.receiver, channel.channel, partition.partitioner.partitioning)
        for subtask in graph.subtasks
        for partition in subtask.outputs
        for channel in partition.channels
    )
    received = Counter(
        (channel.sender, subtask.id, channel.index, channel.partitioner.partitioning)
        for subtask in graph.subtasks
        for channel in subtask.inputs
    )
    assert sent == received
    assert set(sent.values()) <= {1}
    for subtask in graph.subtasks:
        assert [channel.index for channel in subtask.inputs] == list(range(len(subtask.inputs)))


@given(jobs())
def test_a_gate_holds_the_channels_of_exactly_one_edge(job: JobGraph) -> None:
    for subtask in build_execution_graph(job).subtasks:
        entering = [edge for edge in job.edges if edge.target_vertex == subtask.vertex.id]
        for gate, edge in enumerate(entering):
            senders = [channel.sender for channel in subtask.inputs if channel.gate == gate]
            forward = edge.partitioner.partitioning is Partitioning.FORWARD
            parallelism = job.vertex(edge.source_vertex).parallelism
            expected = [subtask.id.index] if forward else list(range(parallelism))
            assert [sender.index for sender in senders] == expected
            assert {sender.vertex for sender in senders} == {edge.source_vertex}
        assert {channel.gate for channel in subtask.inputs} == set(range(len(entering)))
