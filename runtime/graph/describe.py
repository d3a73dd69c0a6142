"""A picture of a job graph for people, in plain ASCII.

Each vertex is a box with its operators. An arrow leads to the next box where the graph is a line. Where it
forks, a list names the arrows.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, VertexInfo


def describe(graph: GraphInfo) -> str:
    """Draw a job graph.

    Example:
        >>> from penstock.runtime.graph.graph_info import OperatorInfo
        >>> read = VertexInfo("lines", 2, 128, (OperatorInfo("lines", "source", "lines", 2),))
        >>> count = VertexInfo("count", 4, 128, (OperatorInfo("count", "reduce(add)", "count", 4),))
        >>> edge = EdgeInfo("lines", "count", "key_group", key="hash")
        >>> print(describe(GraphInfo("words", (read, count), (edge,))))
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
    lines = [f"{graph.name}: {graph_head(graph)}", ""]
    for vertex, following in zip(graph.vertices, [*graph.vertices[1:], None], strict=True):
        lines += _box(vertex)
        leaving = [edge for edge in graph.edges if edge.source == vertex.id]
        if _is_a_line(graph, leaving, following):
            lines += ["    |", f"    | {_partitioning(leaving[0])}", "    v"]
        else:
            lines += [f"    +--> {edge.target}  ({edge_label(edge)})" for edge in leaving]
            lines += [""] if following is not None else []
    return "\n".join(f"  {line}" if line and i else line for i, line in enumerate(lines))


def graph_head(graph: GraphInfo) -> str:
    """How large a graph is."""
    subtasks = sum(vertex.parallelism for vertex in graph.vertices)
    return f"{_count(len(graph.vertices), 'vertex', 'vertices')}, {_subtasks(subtasks)}"


def vertex_head(vertex: VertexInfo) -> str:
    """How many subtasks a vertex has, and what each of them needs."""
    head = _subtasks(vertex.parallelism)
    for amount, what in _amounts(vertex):
        if amount:
            head += f", {amount:g} {what} each"
    return head


def _is_a_line(graph: GraphInfo, leaving: list[EdgeInfo], following: VertexInfo | None) -> bool:
    """Whether an arrow straight down says everything about what leaves a vertex."""
    if following is None or len(leaving) != 1 or leaving[0].side_output is not None:
        return False
    entering = sum(edge.target == following.id for edge in graph.edges)
    return leaving[0].target == following.id and entering == 1


def _box(vertex: VertexInfo) -> Iterator[str]:
    """The vertex with one line an operator."""
    head = vertex_head(vertex)
    column = max(len(operator.id) for operator in vertex.operators)
    rows = [head, *(f"{operator.id:<{column}}  {operator.name}" for operator in vertex.operators)]
    width = max(map(len, rows))
    rule = f"+{'-' * (width + 2)}+"
    yield rule
    yield from (f"| {row:<{width}} |" for row in rows)
    yield rule


def _amounts(vertex: VertexInfo) -> Iterator[tuple[float, str]]:
    yield vertex.num_cpus, "CPU"
    yield vertex.num_gpus, "GPU"
    yield from ((amount, name) for name, amount in vertex.resources.items())


def edge_label(edge: EdgeInfo) -> str:
    """How the records of an edge find their subtask, and which output they come from."""
    if edge.side_output is not None:
        return f"{_partitioning(edge)}, side output {edge.side_output!r} of {edge.source_operator}"
    return _partitioning(edge)


def _partitioning(edge: EdgeInfo) -> str:
    return edge.partitioning if edge.key is None else f"{edge.partitioning} by {edge.key}"


def _subtasks(number: int) -> str:
    return _count(number, "subtask", "subtasks")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
