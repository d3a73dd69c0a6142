from __future__ import annotations

import pytest

from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.snapshot.ids import SubtaskId


def vertex(name: str, parallelism: int, *, source: bool = False) -> JobVertex:
    spec = OperatorSpec(name, name, None, CollectionSource([]) if source else None)
    return JobVertex(name, (spec,), parallelism, max_parallelism=64)


def edge(source: str, target: str, partitioning: Partitioning, input_index: int = 0) -> JobEdge:
    return JobEdge(source, source, None, target, input_index, Partitioner(partitioning))


def test_every_sender_is_connected_with_every_receiver() -> None:
    job = JobGraph("j", (vertex("a", 2), vertex("b", 3)), (edge("a", "b", Partitioning.KEY_GROUP),))
    graph = build_execution_graph(job)
    (partition,) = graph.subtask(SubtaskId("a", 1)).outputs
    ends = [(str(channel.receiver), channel.channel) for channel in partition.channels]
    assert ends == [("b[0]", 1), ("b[1]", 1), ("b[2]", 1)]
    assert partition.max_parallelism == 64
    inputs = graph.subtask(SubtaskId("b", 2)).inputs
    assert [(c.index, str(c.sender), c.partitioner.partitioning) for c in inputs] == [
        (0, "a[0]", Partitioning.KEY_GROUP),
        (1, "a[1]", Partitioning.KEY_GROUP),
    ]


def test_forward_connects_equal_numbers_only() -> None:
    job = JobGraph("j", (vertex("a", 2), vertex("b", 2)), (edge("a", "b", Partitioning.FORWARD),))
    graph = build_execution_graph(job)
    for i in range(2):
        (partition,) = graph.subtask(SubtaskId("a", i)).outputs
        assert [(c.receiver, c.channel) for c in partition.channels] == [(SubtaskId("b", i), 0)]
        assert [c.sender for c in graph.subtask(SubtaskId("b", i)).inputs] == [SubtaskId("a", i)]


def test_forward_between_different_parallelisms_is_refused() -> None:
    job = JobGraph("j", (vertex("a", 2), vertex("b", 3)), (edge("a", "b", Partitioning.FORWARD),))
    with pytest.raises(ValueError, match="a -> b between 2 and 3 subtasks"):
        build_execution_graph(job)


def test_channels_are_numbered_through_over_all_edges_with_one_gate_an_edge() -> None:
    job = JobGraph(
        "j",
        (vertex("a", 2), vertex("b", 1), vertex("c", 1)),
        (
            edge("a", "c", Partitioning.REBALANCE),
            edge("b", "c", Partitioning.BROADCAST, input_index=1),
            edge("a", "c", Partitioning.KEY_GROUP),
        ),
    )
    inputs = build_execution_graph(job).subtask(SubtaskId("c", 0)).inputs
    assert [(c.index, c.gate, c.edge.input_index, str(c.sender)) for c in inputs] == [
        (0, 0, 0, "a[0]"),
        (1, 0, 0, "a[1]"),
        (2, 1, 1, "b[0]"),
        (3, 2, 0, "a[0]"),
        (4, 2, 0, "a[1]"),
    ]


def test_sources_are_where_barriers_begin() -> None:
    vertices = (vertex("a", 2, source=True), vertex("b", 1))
    job = JobGraph("j", vertices, (edge("a", "b", Partitioning.REBALANCE),))
    subtasks = build_execution_graph(job).subtasks
    assert [str(s.id) for s in subtasks if s.vertex.is_source] == ["a[0]", "a[1]"]


def test_an_unknown_subtask_or_vertex_is_a_key_error() -> None:
    graph = build_execution_graph(JobGraph("j", (vertex("a", 1),)))
    with pytest.raises(KeyError):
        graph.subtask(SubtaskId("a", 1))
    with pytest.raises(KeyError):
        graph.job.vertex("b")
