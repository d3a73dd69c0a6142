"""The job graph: chains of operators (vertices) and the exchanges between them (edges), as they are deployed.

The graph is plain data. It is pickled with Ray's cloudpickle, because its factories hold users' functions.

A vertex is rescaled with its whole chain. A forward edge between two vertices whose parallelism now differs
becomes a rebalance, as if the program had asked for it. Edges by key need no change, because keys keep their
key groups. A rescale always begins with the submitted graph. So an edge that became a rebalance is forward
again once its ends have equal parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.errors import ConfigurationError, OperatorLocation, UserLocation
from penstock.runtime.names import nearest_name
from penstock.runtime.operators.committed_sink import StagingOperator
from penstock.runtime.operators.coordinators import HasCoordinator
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.sinks import Sink, SinkOperator
from penstock.runtime.operators.source import Source
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.state.known_states import StateInfo
from penstock.runtime.time.watermarks import WatermarkStrategy

#: Tag of a source's side output for records that it could not read, as `DeadLetter`s.
DEAD_LETTERS: Final = "dead_letters"


class Partitioning(Enum):
    FORWARD = "forward"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"
    KEY_GROUP = "key_group"
    GLOBAL = "global"
    CUSTOM = "custom"

    @property
    def can_be_redistributed(self) -> bool:
        """Whether in-flight elements of such an edge may be restored at another parallelism."""
        return self in (Partitioning.REBALANCE, Partitioning.KEY_GROUP)


@dataclass(frozen=True, slots=True)
class Partitioner:
    """The partitioning of an edge.

    Attributes:
        key_selector: The user's key selector if records go by key group; the user's partition function if the
            partitioning is custom.
        batch_format: Whether a partition function takes a record (`rows`) or an Arrow batch.
    """

    partitioning: Partitioning
    key_selector: Callable[..., Any] | None = None
    batch_format: BatchFormat = "rows"


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator as it is deployed.

    Attributes:
        id: The user's id, or a generated id; unique in the graph. Empty in a stream graph if the user has
            chosen none.
        name: Readable description: `flat_map(split_words)`.
        factory: Makes the operator in the subtask; `None` for a source.
        coordinator: The user's operator if it has a coordinator in the JobMaster; `None` for sources.
        state_backend: `None` for the job's backend.
        is_committer: Whether it commits what the writers of a sink have staged (`committed_sink.py`).
        has_committer: Whether it only stages the output of a sink, and another operator commits it.
    """

    id: str
    name: str
    factory: OperatorFactory | None
    source: Source[Any] | None = None
    defined_at: UserLocation | None = None
    stateful: bool = False
    keyed: bool = False
    is_sink: bool = False
    coordinator: HasCoordinator | None = None
    states: tuple[StateInfo, ...] = ()
    watermarks: WatermarkStrategy[Any] | None = None
    state_backend: StateBackend | None = None
    in_columns: bool = False
    is_committer: bool = False
    has_committer: bool = False

    @property
    def has_transactions(self) -> bool:
        """Whether its state may hold transactions that a restored subtask must commit."""
        return (self.is_sink and not self.has_committer) or self.is_committer


@dataclass(frozen=True, slots=True)
class JobVertex:
    """A chain of operators without an exchange in between, which may fork; each subtask runs all of it.

    Attributes:
        operators: In topological order.
        forks: For the index of each operator that does not read the operator before it: the index of the
            operator whose main output it reads.
    """

    id: str
    operators: tuple[OperatorSpec, ...]
    parallelism: int
    max_parallelism: int = 128
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    forks: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Readable description of the chain: `lines -> flat_map(split)`, with forks as in Flink.

        Example:
            >>> steps = tuple(OperatorSpec(name, name, None) for name in ("read", "parse", "keep", "count"))
            >>> JobVertex("read", steps, 1, forks={3: 0}).name
            'read -> (parse -> keep, count)'
        """
        return self._name_from(0)

    def _name_from(self, index: int) -> str:
        name = self.operators[index].name
        branches = [self._name_from(reader) for reader in self.readers(index)]
        if not branches:
            return name
        return f"{name} -> {branches[0]}" if len(branches) == 1 else f"{name} -> ({', '.join(branches)})"

    def producer(self, index: int) -> int:
        """Index of the operator whose main output an operator reads; -1 for the first operator."""
        return self.forks.get(index, index - 1)

    def readers(self, index: int) -> list[int]:
        """Indices of the operators that read the main output of an operator."""
        return [other for other in range(1, len(self.operators)) if self.producer(other) == index]

    @property
    def is_source(self) -> bool:
        return self.operators[0].source is not None

    def locations(self, subtask: int) -> list[OperatorLocation]:
        """Locations of the chain's operators in one subtask, in order.

        Example:
            >>> vertex = JobVertex("count", (OperatorSpec("count", "reduce(add)", None),), 2)
            >>> str(vertex.locations(0)[0])
            "operator 'count' (subtask 1 of 2)"
        """
        return [OperatorLocation(o.id, subtask, self.parallelism, o.defined_at) for o in self.operators]


@dataclass(frozen=True, slots=True)
class JobEdge:
    """An exchange between two vertices.

    Attributes:
        tag: Name of a side output; `None` for the main output.
        input_index: Number of the target's input: 0, or 1 for the second one.
    """

    source_vertex: str
    source_operator: str
    tag: str | None
    target_vertex: str
    input_index: int
    partitioner: Partitioner


@without_secrets
@dataclass(frozen=True, slots=True)
class JobGraph:
    """A whole job, ready to be deployed.

    Attributes:
        vertices: In topological order, sources first.
        classes: Classes of the user's `__main__`, which subtasks can't import.
        restore_from: Path or URL of the snapshot that the job starts from.
        allow_non_restored_state: Whether to ignore the snapshot's state of operators that the job lacks.
    """

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...] = field(default=())
    classes: tuple[type, ...] = ()
    restore_from: str | None = None
    allow_non_restored_state: bool = False

    def vertex(self, vertex_id: str) -> JobVertex:
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)


def with_parallelism(job: JobGraph, parallelism: Mapping[str, int]) -> JobGraph:
    """Return the graph with a new parallelism for the vertices that `parallelism` names by id.

    Example:
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
    """Whether in-flight data of one graph can be restored in the other.

    False if a rebalance becomes forward again: a forward channel takes only elements that were sent on it.
    """
    exchanges = zip(before.edges, after.edges, strict=True)
    return all(
        new.partitioner.partitioning.can_be_redistributed
        for old, new in exchanges
        if old.partitioner.partitioning.can_be_redistributed
    )


def parallelism_of_vertices(job: JobGraph, wanted: Mapping[str, int]) -> dict[str, int]:
    """Convert requested numbers of subtasks by operator id to numbers by vertex id.

    Raises:
        ConfigurationError: No operator is given, an operator is unknown, a parallelism is invalid, or
            operators of one chain differ.
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
                f"operator {operator!r} is chained to others of vertex {vertex.id!r}, so they must have the "
                f"same parallelism, not {found[vertex.id]} and {number}"
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


def sinks_of(job: JobGraph) -> Iterator[tuple[OperatorSpec, Sink[Any]]]:
    """Iterate over the sinks of a job."""
    for spec in (spec for vertex in job.vertices for spec in vertex.operators):
        operator = spec.factory() if spec.is_sink and spec.factory is not None else None
        if isinstance(operator, SinkOperator | StagingOperator):
            sink: Any = operator.sink
            yield spec, sink
