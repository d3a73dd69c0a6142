"""`GraphInfo`: a job graph as plain values; `describe` draws it in ASCII.

A `GraphInfo` has vertices with their operators, and the edges between them. A job's report and its archive
hold one. It has names instead of the users' functions, so a process without the users' modules can read it.

`describe` draws each vertex as a box with its operators. Where the graph is a line, an arrow leads to the
next box. Elsewhere a list of arrows names the receiving vertices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.runtime.errors import UserLocation
from penstock.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.runtime.state.known_states import StateInfo
from penstock.runtime.user_location import function_name


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """One operator of a job.

    Attributes:
        name: Readable description, such as `map(parse)`.
        vertex: Id of the vertex (the chain) that it is in.
        parallelism: Number of its subtasks.
        states: The states that its function's class declares.
        defined_at: The user's line that added it to the graph; `None` if unknown.
        reads: Id of the operator of its chain whose main output it reads; `None` for the first operator.
    """

    id: str
    name: str
    vertex: str
    parallelism: int
    is_source: bool = False
    is_sink: bool = False
    states: tuple[StateInfo, ...] = ()
    defined_at: UserLocation | None = None
    reads: str | None = None


@dataclass(frozen=True, slots=True)
class VertexInfo:
    """A chain of operators; each of its subtasks runs the whole chain.

    Attributes:
        id: Id of the chain's first operator.
        operators: The chain, in topological order.
        num_cpus: CPUs that Ray reserves for each subtask.
        num_gpus: GPUs that Ray reserves for each subtask.
        resources: Custom resources that Ray reserves for each subtask, by name.
    """

    id: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorInfo, ...]
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EdgeInfo:
    """An exchange between two vertices.

    Attributes:
        source: Id of the vertex that sends.
        target: Id of the vertex that receives.
        partitioning: Partitioning of the records: `forward`, `rebalance`, `broadcast`, `key_group`,
            `global` or `custom`.
        key: Name of the user's key selector or partition function; `None` without one.
        source_operator: Operator of the source vertex whose output is sent.
        side_output: Name of the side output that is sent; `None` for the main output.
        input_index: Input of the target; 0 except for operators with two inputs.
    """

    source: str
    target: str
    partitioning: str
    key: str | None = None
    source_operator: str = ""
    side_output: str | None = None
    input_index: int = 0


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """A whole job graph.

    Attributes:
        name: The user's name for the job.
        vertices: Vertices in topological order, sources first.
        edges: Edges in the order in which they were built.
    """

    name: str = ""
    vertices: tuple[VertexInfo, ...] = ()
    edges: tuple[EdgeInfo, ...] = ()

    @property
    def operators(self) -> tuple[OperatorInfo, ...]:
        """All operators, sources first."""
        return tuple(operator for vertex in self.vertices for operator in vertex.operators)


def graph_info(job: JobGraph) -> GraphInfo:
    return GraphInfo(job.name, tuple(map(_vertex, job.vertices)), tuple(map(_edge, job.edges)))


def _vertex(vertex: JobVertex) -> VertexInfo:
    operators = tuple(
        OperatorInfo(
            o.id,
            o.name,
            vertex.id,
            vertex.parallelism,
            o.source is not None,
            o.is_sink,
            o.states,
            o.defined_at,
            vertex.operators[vertex.producer(index)].id if index else None,
        )
        for index, o in enumerate(vertex.operators)
    )
    return VertexInfo(
        vertex.id,
        vertex.parallelism,
        vertex.max_parallelism,
        operators,
        vertex.num_cpus,
        vertex.num_gpus,
        dict(vertex.resources),
    )


def _edge(edge: JobEdge) -> EdgeInfo:
    selector = edge.partitioner.key_selector
    return EdgeInfo(
        edge.source_vertex,
        edge.target_vertex,
        edge.partitioner.partitioning.value,
        None if selector is None else function_name(selector),
        edge.source_operator,
        edge.tag,
        edge.input_index,
    )


def describe(graph: GraphInfo) -> str:
    lines = [f"{graph.name}: {graph_head(graph)}", ""]
    for vertex, following in zip(graph.vertices, [*graph.vertices[1:], None], strict=True):
        lines += _box(vertex)
        leaving = [edge for edge in graph.edges if edge.source == vertex.id]
        if _is_a_line(graph, leaving, following) and not leaves_inside(leaving[0], vertex):
            lines += ["    |", f"    | {_partitioning(leaving[0])}", "    v"]
        else:
            lines += [f"    +--> {edge.target}  ({edge_label(edge, vertex)})" for edge in leaving]
            lines += [""] if following is not None else []
    return "\n".join(f"  {line}" if line and i else line for i, line in enumerate(lines))


def graph_head(graph: GraphInfo) -> str:
    subtasks = sum(vertex.parallelism for vertex in graph.vertices)
    return f"{_count(len(graph.vertices), 'vertex', 'vertices')}, {_subtasks(subtasks)}"


def vertex_head(vertex: VertexInfo) -> str:
    head = _subtasks(vertex.parallelism)
    for amount, what in _amounts(vertex):
        if amount:
            head += f", {amount:g} {what} each"
    return head


def vertex_lines(vertex: VertexInfo) -> list[str]:
    """The head of a vertex, and a line with id and name for each operator."""
    column = max(len(operator.id) for operator in vertex.operators)
    lines = [vertex_head(vertex)]
    before = None
    for operator in vertex.operators:
        fork = "" if operator.reads in (None, before) else f"  (reads {operator.reads})"
        lines.append(f"{operator.id:<{column}}  {operator.name}{fork}")
        before = operator.id
    return lines


def _is_a_line(graph: GraphInfo, leaving: list[EdgeInfo], following: VertexInfo | None) -> bool:
    if following is None or len(leaving) != 1 or leaving[0].side_output is not None:
        return False
    entering = sum(edge.target == following.id for edge in graph.edges)
    return leaving[0].target == following.id and entering == 1


def _box(vertex: VertexInfo) -> Iterator[str]:
    rows = vertex_lines(vertex)
    width = max(map(len, rows))
    rule = f"+{'-' * (width + 2)}+"
    yield rule
    yield from (f"| {row:<{width}} |" for row in rows)
    yield rule


def _amounts(vertex: VertexInfo) -> Iterator[tuple[float, str]]:
    yield vertex.num_cpus, "CPU"
    yield vertex.num_gpus, "GPU"
    yield from ((amount, name) for name, amount in vertex.resources.items())


def edge_label(edge: EdgeInfo, sender: VertexInfo) -> str:
    if edge.side_output is not None:
        return f"{_partitioning(edge)}, side output {edge.side_output!r} of {edge.source_operator}"
    of = f", output of {edge.source_operator}" if leaves_inside(edge, sender) else ""
    return f"{_partitioning(edge)}{of}"


def leaves_inside(edge: EdgeInfo, sender: VertexInfo) -> bool:
    """Whether an edge leaves an operator other than the last one of its vertex."""
    return edge.source_operator not in ("", sender.operators[-1].id)


def _partitioning(edge: EdgeInfo) -> str:
    """Partitioning, and key; `2: broadcast` for an edge to the second input of its target."""
    second = f"{edge.input_index + 1}: " if edge.input_index else ""
    return f"{second}{edge.partitioning}{'' if edge.key is None else f' by {edge.key}'}"


def _subtasks(number: int) -> str:
    return _count(number, "subtask", "subtasks")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
