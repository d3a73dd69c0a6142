"""A picture of a job graph for people, in plain ASCII.

One box a vertex with its operators, an arrow to the next box where the graph is a line, and a list of
arrows by name where it forks.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.runtime.user_location import function_name


def describe(job: JobGraph) -> str:
    """Draw a job graph.

    Example:
        >>> from penstock.runtime.graph.job_graph import OperatorSpec, Partitioner, Partitioning
        >>> read = JobVertex("lines", (OperatorSpec("lines", "source", None),), 2)
        >>> count = JobVertex("count", (OperatorSpec("count", "reduce(add)", None),), 4)
        >>> edge = JobEdge("lines", "lines", None, "count", 0, Partitioner(Partitioning.KEY_GROUP, hash))
        >>> print(describe(JobGraph("words", (read, count), (edge,))))
        words: 2 vertices, 6 subtasks
        <BLANKLINE>
          +---------------+
          | 2 subtasks    |
          | lines  source |
          +---------------+
              |
              | key_group by hash
              v
          +--------------------+
          | 4 subtasks         |
          | count  reduce(add) |
          +--------------------+
    """
    subtasks = sum(vertex.parallelism for vertex in job.vertices)
    lines = [f"{job.name}: {_count(len(job.vertices), 'vertex', 'vertices')}, {_subtasks(subtasks)}", ""]
    for vertex, following in zip(job.vertices, [*job.vertices[1:], None], strict=True):
        lines += _box(vertex)
        leaving = [edge for edge in job.edges if edge.source_vertex == vertex.id]
        if _is_a_line(job, leaving, following):
            lines += ["    |", f"    | {_partitioning(leaving[0])}", "    v"]
        else:
            lines += [f"    +--> {edge.target_vertex}  ({_label(edge)})" for edge in leaving]
            lines += [""] if following is not None else []
    return "\n".join(f"  {line}" if line and i else line for i, line in enumerate(lines))


def _is_a_line(job: JobGraph, leaving: list[JobEdge], following: JobVertex | None) -> bool:
    """Whether an arrow straight down says everything about what leaves a vertex."""
    if following is None or len(leaving) != 1 or leaving[0].tag is not None:
        return False
    entering = sum(edge.target_vertex == following.id for edge in job.edges)
    return leaving[0].target_vertex == following.id and entering == 1


def _box(vertex: JobVertex) -> Iterator[str]:
    """The vertex with one line an operator."""
    head = _subtasks(vertex.parallelism)
    for amount, what in ((vertex.num_cpus, "CPU"), (vertex.num_gpus, "GPU")):
        if amount:
            head += f", {amount:g} {what} each"
    column = max(len(operator.id) for operator in vertex.operators)
    rows = [head, *(f"{operator.id:<{column}}  {operator.name}" for operator in vertex.operators)]
    width = max(map(len, rows))
    rule = f"+{'-' * (width + 2)}+"
    yield rule
    yield from (f"| {row:<{width}} |" for row in rows)
    yield rule


def _label(edge: JobEdge) -> str:
    """An edge where its ends are not next to each other."""
    if edge.tag is not None:
        return f"{_partitioning(edge)}, side output {edge.tag!r} of {edge.source_operator}"
    return _partitioning(edge)


def _partitioning(edge: JobEdge) -> str:
    selector = edge.partitioner.key_selector
    name = edge.partitioner.partitioning.value
    return name if selector is None else f"{name} by {function_name(selector)}"


def _subtasks(number: int) -> str:
    return _count(number, "subtask", "subtasks")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
