"""Small graphs that never run: readers that send to counters, and any shape by its edges."""

from __future__ import annotations

from typing import Any, Final

from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)

#: How `graph_of` writes the ways of exchanges.
ARROWS: Final = {
    "->": Partitioning.FORWARD,
    "=>": Partitioning.BROADCAST,
    "~>": Partitioning.KEY_GROUP,
    "%>": Partitioning.REBALANCE,
    "*>": Partitioning.GLOBAL,
}


def graph_of(*edges: str, parallelism: int = 2) -> JobGraph:
    """A job graph of these exchanges, with one operator a vertex; see `ARROWS`.

    Example:
        >>> job = graph_of("read ~> count", "count -> write")
        >>> [vertex.id for vertex in job.vertices], job.edges[0].partitioner.partitioning.value
        (['read', 'count', 'write'], 'key_group')
    """
    parts = [edge.split() for edge in edges]
    names = dict.fromkeys(name for source, _, target in parts for name in (source, target))
    return JobGraph(
        "small",
        tuple(JobVertex(name, (OperatorSpec(name, name, None),), parallelism) for name in names),
        tuple(JobEdge(a, a, None, b, 0, Partitioner(ARROWS[arrow])) for a, arrow, b in parts),
    )


def read_and_count(
    reads: int = 2,
    counts: int = 1,
    partitioner: Partitioner | None = None,
    *,
    keyed: bool = False,
    max_parallelism: int = 128,
) -> ExecutionGraph:
    """A vertex `read` that sends to a vertex `count`; both have state, and neither can be run.

    Args:
        reads: Subtasks of `read`.
        counts: Subtasks of `count`.
        partitioner: How records get from one to the other; by default all go to the first subtask.
        keyed: Whether the state of `count` is by key.
        max_parallelism: Key groups of both.

    Example:
        >>> [str(subtask.id) for subtask in read_and_count().subtasks]
        ['read[0]', 'read[1]', 'count[0]']
    """
    source: Any = object()
    read = OperatorSpec("read", "read", None, source=source, stateful=True)
    count = OperatorSpec("count", "count", None, stateful=True, keyed=keyed)
    vertices = (
        JobVertex("read", (read,), reads, max_parallelism),
        JobVertex("count", (count,), counts, max_parallelism),
    )
    edge = JobEdge("read", "read", None, "count", 0, partitioner or Partitioner(Partitioning.GLOBAL))
    return build_execution_graph(JobGraph("words", vertices, (edge,)))
