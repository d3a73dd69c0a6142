"""`Shape`: the graph of a simulated job as plain data, and the job graph that is built from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import Source
from simulated_jobs.columns import ColumnShape
from simulated_jobs.connected import ConnectedShape
from simulated_jobs.operators import (
    NumberRecords,
    SimulatedSink,
    SimulatedSource,
    StepOperator,
)
from simulated_jobs.records import Copies, Key, Record, key_of
from simulated_jobs.split_source import (
    HookedSource,
    HookedSplitsOnRequest,
    JobPorts,
    SplitsOnRequest,
)
from simulated_jobs.timed import TimedShape, timestamps, windows


class OperatorKind(Enum):
    """The work of an operator of a simulated job."""

    SOURCE = "source"
    STEP = "step"
    KEYED = "keyed"
    TIMES = "times"
    WINDOW = "window"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """One operator.

    Attributes:
        number: Its number in the graph.
        kind: What it does.
        copies: For a step: how many records it makes of one.
        keys: For a keyed one and for windows: how many keys there are.
        text_keys: Whether these are texts.
        is_padded: Whether its state is large enough for files.
        length: Of windows, in positions of a split; for timestamps, how far behind records may be.
    """

    number: int
    kind: OperatorKind
    copies: Copies = Copies.ONE
    keys: int = 0
    text_keys: bool = False
    is_padded: bool = False
    length: int = 0

    @property
    def id(self) -> str:
        """Its id in the job."""
        return f"{self.kind.value}-{self.number}"

    @property
    def shows_in_routes(self) -> bool:
        """Whether records tell that they passed it."""
        return self.kind is not OperatorKind.TIMES


@dataclass(frozen=True, slots=True)
class VertexShape:
    """A chain of operators with its inputs.

    Attributes:
        operators: The chain.
        parallelism: Number of subtasks.
        inputs: Positions of the vertices that it reads, and how their records are spread.
        counts: For a source: how many records each split has.
        chunk: For a source: most records of one poll.
        pause: For a source: seconds between two polls.
        is_on_request: For a source: whether its splits are assigned on request.
        has_hook: For a source: whether it has a master hook.
    """

    operators: tuple[OperatorShape, ...]
    parallelism: int
    inputs: tuple[tuple[int, Partitioning], ...] = ()
    counts: tuple[int, ...] = ()
    chunk: int = 1
    pause: float = 0.0
    is_on_request: bool = False
    has_hook: bool = False

    @property
    def has_broadcast(self) -> bool:
        """Whether each of its subtasks gets every record of some input."""
        return any(how is Partitioning.BROADCAST for _, how in self.inputs)

    @property
    def head(self) -> OperatorShape:
        """The first operator."""
        return self.operators[0]

    @property
    def last_in_routes(self) -> OperatorShape:
        """The last operator that records tell of."""
        return [operator for operator in self.operators if operator.shows_in_routes][-1]

    @property
    def reads_in_order(self) -> bool:
        """For a source: whether a subtask reads the split that is furthest behind."""
        return any(operator.kind is OperatorKind.TIMES for operator in self.operators)

    def __str__(self) -> str:
        chain = " -> ".join(operator.id for operator in self.operators)
        reads = ", ".join(f"{where} by {how.value}" for where, how in self.inputs)
        what = f"reads {reads}" if reads else f"{sum(self.counts)} records in {len(self.counts)} splits"
        what += " on request" * self.is_on_request + ", with a master hook" * self.has_hook
        return f"{chain} x{self.parallelism}: {what}"


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph.

    Attributes:
        vertices: In topological order, sources first.
        key_groups: Number of key groups of every vertex.
        columns: A part that moves Arrow batches, beside the vertices; `None` for none.
        timed: A part that lives by time, likewise.
        connected: A part with an operator of two inputs, likewise.
    """

    vertices: tuple[VertexShape, ...]
    key_groups: int
    columns: ColumnShape | None = None
    timed: TimedShape | None = None
    connected: ConnectedShape | None = None

    @property
    def operators(self) -> tuple[OperatorShape, ...]:
        """All operators."""
        return tuple(operator for vertex in self.vertices for operator in vertex.operators)

    @property
    def broadcasts(self) -> frozenset[tuple[int, int]]:
        """Pairs of operators where all subtasks of the second get every record of the first."""
        return frozenset(
            (self.vertices[where].last_in_routes.number, vertex.head.number)
            for vertex in self.vertices
            for where, how in vertex.inputs
            if how is Partitioning.BROADCAST
        )

    @property
    def subtasks(self) -> int:
        """Number of subtasks."""
        return sum(vertex.parallelism for vertex in self.vertices)

    def paths(self) -> Iterator[tuple[int, ...]]:
        """All ways from a source to a sink, as positions of vertices."""
        readers: dict[int, list[int]] = {position: [] for position in range(len(self.vertices))}
        for position, vertex in enumerate(self.vertices):
            for where, _ in vertex.inputs:
                readers[where].append(position)
        open_paths: list[tuple[int, ...]] = [
            (p,) for p, vertex in enumerate(self.vertices) if not vertex.inputs
        ]
        while open_paths:
            path = open_paths.pop()
            if not readers[path[-1]]:
                yield path
            open_paths += [(*path, reader) for reader in readers[path[-1]]]

    def build(self, ports: JobPorts) -> JobGraph:
        """The job graph."""
        vertices, edges = [], []
        for vertex in self.vertices:
            specs = tuple(_spec(operator, vertex, ports) for operator in vertex.operators)
            vertices.append(JobVertex(vertex.head.id, specs, vertex.parallelism, self.key_groups))
            for where, how in vertex.inputs:
                sender = self.vertices[where]
                edges.append(
                    JobEdge(
                        sender.head.id,
                        sender.operators[-1].id,
                        None,
                        vertex.head.id,
                        0,
                        Partitioner(
                            how, _key_selector(vertex.head) if how is Partitioning.KEY_GROUP else None
                        ),
                    )
                )
        if self.columns is not None:
            of_columns, edge = self.columns.build(self.key_groups, ports)
            vertices += of_columns
            edges.append(edge)
        if self.timed is not None:
            of_time, to_them = self.timed.build(self.key_groups, ports)
            vertices += of_time
            edges += to_them
        if self.connected is not None:
            both, to_both = self.connected.build(self.key_groups, ports)
            vertices += both
            edges += to_both
        return JobGraph("simulated", tuple(vertices), tuple(edges))


def _key_selector(operator: OperatorShape) -> Callable[[Record], Key]:
    def select(record: Record) -> Key:
        return key_of(record[0], operator.number, operator.keys, text=operator.text_keys)

    return select


def _source(vertex: VertexShape, ports: JobPorts) -> Source[Record]:
    source = SimulatedSource(
        vertex.head.number, vertex.counts, vertex.chunk, vertex.pause, in_order=vertex.reads_in_order
    )
    make_hook = partial(ports.make_hook, f"hook of {vertex.head.id}")
    if vertex.is_on_request and vertex.has_hook:
        return HookedSplitsOnRequest(source, ports.watcher, make_hook)
    if vertex.is_on_request:
        return SplitsOnRequest(source, ports.watcher)
    return HookedSource(source, make_hook) if vertex.has_hook else source


def _spec(operator: OperatorShape, vertex: VertexShape, ports: JobPorts) -> OperatorSpec:
    name, number, hooks = operator.id, operator.number, ports.hooks
    if operator.kind is OperatorKind.SOURCE:
        return OperatorSpec(name, name, None, _source(vertex, ports), stateful=True)
    if operator.kind is OperatorKind.STEP:
        return OperatorSpec(name, name, partial(StepOperator, number, operator.copies, hooks), stateful=True)
    if operator.kind is OperatorKind.TIMES:
        return OperatorSpec(name, name, partial(timestamps, operator.length))
    if operator.kind is OperatorKind.WINDOW:
        windowed = partial(windows, number, _key_selector(operator), operator.length)
        return OperatorSpec(name, name, windowed, stateful=True, keyed=True)
    if operator.kind is OperatorKind.SINK:
        sink = partial(SinkOperator, SimulatedSink(ports.system, hooks))
        return OperatorSpec(name, name, sink, stateful=True, is_sink=True)

    def keyed() -> KeyedProcessOperator:
        function = NumberRecords(number, operator.is_padded, hooks)
        return KeyedProcessOperator(_key_selector(operator), function)

    return OperatorSpec(name, name, keyed, stateful=True, keyed=True)
