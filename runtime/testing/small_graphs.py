"""The execution graph that tests of the job's side need: readers that send to counters."""

from __future__ import annotations

from typing import Any

from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
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
