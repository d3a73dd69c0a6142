"""A job graph at another parallelism.

Vertices are rescaled, and with each its whole chain. A forward edge between two vertices whose parallelism
now differs becomes a rebalance, as if the program had said so. Edges by key need no change, because keys keep
their key groups. Always begin with the graph that was submitted: then a forward edge whose ends are equal
again is forward again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.job_graph import JobEdge, JobGraph, JobVertex, Partitioner, Partitioning
from penstock.runtime.misspelt_names import nearest_name


def with_parallelism(job: JobGraph, parallelism: Mapping[str, int]) -> JobGraph:
    """The graph with some vertices at another parallelism.

    Args:
        job: As it was submitted.
        parallelism: By vertex id; the others stay.

    Example:
        >>> from penstock.runtime.graph.job_graph import OperatorSpec
        >>> vertices = [JobVertex(name, (OperatorSpec(name, name, None),), 2) for name in ("read", "parse")]
        >>> edge = JobEdge("read", "read", None, "parse", 0, Partitioner(Partitioning.FORWARD))
        >>> larger = with_parallelism(JobGraph("j", tuple(vertices), (edge,)), {"parse": 3})
        >>> [v.parallelism for v in larger.vertices], larger.edges[0].partitioner.partitioning.value
        ([2, 3], 'rebalance')
    """
    vertices = tuple(replace(v, parallelism=parallelism.get(v.id, v.parallelism)) for v in job.vertices)
    of = {vertex.id: vertex.parallelism for vertex in vertices}
    return replace(job, vertices=vertices, edges=tuple(_edge(edge, of) for edge in job.edges))


def has_room_for_in_flight_data(before: JobGraph, after: JobGraph) -> bool:
    """Whether what an unaligned checkpoint has captured in one graph fits the other.

    It does not where a rebalance becomes forward again: a forward channel takes only what was sent on it.

    Args:
        before: The graph that the checkpoint was taken in.
        after: The same job at another parallelism.
    """
    exchanges = zip(before.edges, after.edges, strict=True)
    return all(
        new.partitioner.partitioning.can_be_redistributed
        for old, new in exchanges
        if old.partitioner.partitioning.can_be_redistributed
    )


def parallelism_of_vertices(job: JobGraph, wanted: Mapping[str, int]) -> dict[str, int]:
    """The parallelism of vertices that follows from that of operators.

    Args:
        wanted: By operator id; an operator takes its whole chain along.

    Raises:
        ConfigurationError: There is no such operator, the number is not possible, or two operators of one
            chain are given different ones.
    """
    if not wanted:
        msg = "nothing to rescale: give operators and their new parallelism, such as {'count': 4}"
        raise ConfigurationError(msg)
    chain_of = {operator.id: vertex for vertex in job.vertices for operator in vertex.operators}
    found: dict[str, int] = {}
    for operator, number in wanted.items():
        vertex = chain_of.get(operator)
        if vertex is None:
            near = nearest_name(str(operator), chain_of)
            msg = f"the job has no operator {operator!r}; it has: {', '.join(chain_of)}{near}"
            raise ConfigurationError(msg)
        _check(operator, number, vertex)
        if found.setdefault(vertex.id, number) != number:
            msg = (
                f"operator {operator!r} runs in one chain with others of {vertex.id!r}, so they have one "
                f"parallelism, not {found[vertex.id]} and {number}"
            )
            raise ConfigurationError(msg)
    return found


def _check(operator: str, number: object, vertex: JobVertex) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        msg = f"operator {operator!r}: parallelism must be a whole number of at least 1, not {number!r}"
        raise ConfigurationError(msg)
    if number > vertex.max_parallelism:
        msg = (
            f"operator {operator!r}: parallelism {number} is more than its max_parallelism "
            f"{vertex.max_parallelism}, which can't change once the job has saved state"
        )
        raise ConfigurationError(msg)


def _edge(edge: JobEdge, parallelism: Mapping[str, int]) -> JobEdge:
    same = parallelism[edge.source_vertex] == parallelism[edge.target_vertex]
    if edge.partitioner.partitioning is not Partitioning.FORWARD or same:
        return edge
    return replace(edge, partitioner=Partitioner(Partitioning.REBALANCE))
