"""From the stream graph to the job graph: chaining, and push-down into sources.

Two chained operators run in the same subtask and pass batches to each other by plain calls, which cost almost
nothing. Two operators that are not chained exchange encoded buffers between actors. So operators are chained
where possible (Flink: `StreamingJobGraphGenerator#isChainable`). A consumer is chained to its producer when

* it reads only the producer's main output, without an explicit partitioning,
* both have the same parallelism and the same number of key groups,
* it requests no other CPUs, GPUs or resources than the chain has,
* it does not make watermarks, or no operator reads a side output of the chain and the chain has no fork.
  Watermarks that leave a chain go to all of its edges. New watermarks say nothing about late records of the
  old event time, or about other branches. Side outputs of a source without a strategy don't count, because
  they have no event time,
* chaining is not switched off for either of them, and the consumer does not start a new chain.

All other connections become edges: forward between equal parallelisms, else rebalance, unless the user asked
for a partitioning. Edges lead only to the first operator of a chain. A chain forks where the main output of
an operator has several readers, some of which are chained.

Push-down: `source.filter(pc.field("v") > 3).select("k", "v")` needs two columns, and only the parts of the
files that may hold matching rows. So the source receives the needed columns and the filter as a hint, which
it may use in part or not at all. The operators, their ids and their states stay as the user wrote them.

A walk follows the steps after a source while each output has exactly one reader:

* A filter by an expression is pushed unless a step before it computes columns or assigns timestamps. A
  source with a watermark strategy counts as such a step. A filter after the timestamps is not pushed, because
  the rows that it drops must still move the watermark.
* Columns are pushed only if the walk reaches a step that passes on no further columns: `select`, or an
  aggregation. The source then reads all columns that the steps up to this one read.

A column that an operator reads is never left out. So the walk ends at a step of another kind, a key by a
function, or a second reader. A reader of a side output ends the walk, too: late records have all columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc

from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, Upstream
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator, KeyedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.session_aggregate import SessionAggregateOperator
from penstock.runtime.operators.aggregation.window_aggregate import WindowedAggregateOperator
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expression_operators import (
    FilterExpressionOperator,
    SelectOperator,
)
from penstock.runtime.operators.source import DescribesPart, NeededColumns, ReadsInPart
from penstock.runtime.record.column_key import ColumnKey

_AGGREGATIONS: Final = (
    CombineOperator,
    KeyedAggregateOperator,
    WindowedAggregateOperator,
    SessionAggregateOperator,
)


@dataclass(slots=True)
class _Walk:
    """Columns and filters of the steps that a walk has passed."""

    names: list[str] = field(default_factory=list)
    expressions: list[pc.Expression] = field(default_factory=list)
    wanted: pc.Expression | None = None
    computed: set[str] = field(default_factory=set)
    pushes_filters: bool = True
    is_closed: bool = False

    def needed(self) -> NeededColumns:
        if not self.is_closed:
            return NeededColumns(wanted=self.wanted)
        return NeededColumns(tuple(dict.fromkeys(self.names)), tuple(self.expressions), self.wanted)

    def reads(self, names: Sequence[str]) -> None:
        """Note the columns that a step reads, except those that earlier steps have computed."""
        self.names += [name for name in names if name not in self.computed]


def _pushed_down(number: int, graph: StreamGraph) -> StreamNode:
    """The node, with a source that reads only what the steps after it need."""
    node = graph.node(number)
    source, strategy = node.operator.source, node.operator.watermarks
    if not isinstance(source, ReadsInPart):
        return node
    walk = _Walk()
    if strategy is not None and not _takes_operator(walk, TimestampsAndWatermarksOperator, (strategy,)):
        return node
    for step in _steps_behind(number, graph):
        if not _takes(walk, step) or walk.is_closed:
            break
    needed = walk.needed()
    if needed.is_all:
        return node
    part = source.reading(needed)
    described = part.part if isinstance(part, DescribesPart) else ""
    name = f"{node.operator.name}, {described}" if described else node.operator.name
    return replace(node, operator=replace(node.operator, source=part, name=name))


def _steps_behind(number: int, graph: StreamGraph) -> Iterator[StreamNode]:
    """The steps after a node, as long as each is the only reader of the step before it."""
    while True:
        readers = [(at, up) for at, node in enumerate(graph.nodes) for up in node.inputs if up.node == number]
        if len(readers) != 1:
            return
        ((number, upstream),) = readers
        step = graph.node(number)
        if upstream.tag is not None or len(step.inputs) != 1 or _is_read_aside(number, graph):
            return
        yield step


def _is_read_aside(number: int, graph: StreamGraph) -> bool:
    return any(up.node == number and up.tag is not None for node in graph.nodes for up in node.inputs)


def _takes(walk: _Walk, step: StreamNode) -> bool:
    """Note what a step needs; return whether the walk may pass it."""
    (upstream,) = step.inputs
    selector = None if upstream.partitioner is None else upstream.partitioner.key_selector
    if selector is not None:
        if not isinstance(selector, ColumnKey):
            return False
        walk.reads(selector.names)
    factory = step.operator.factory
    return isinstance(factory, partial) and _takes_operator(walk, factory.func, factory.args)


def _takes_operator(walk: _Walk, operator: Any, given: tuple[Any, ...]) -> bool:
    match operator, given:
        case _, (pc.Expression() as wanted,) if operator is FilterExpressionOperator:
            walk.expressions.append(wanted)
            if walk.pushes_filters:
                walk.wanted = wanted if walk.wanted is None else walk.wanted & wanted
        case _, (names, columns) if operator is SelectOperator:
            walk.reads(names or ())
            walk.expressions += columns.values()
            walk.computed.update(columns)
            walk.pushes_filters = walk.pushes_filters and not columns
            walk.is_closed = names is not None
        case _, (strategy,) if operator is TimestampsAndWatermarksOperator:
            if strategy.timestamp_assigner is not None or strategy.generator is not None:
                return False
            walk.reads([] if strategy.timestamp_column is None else [strategy.timestamp_column])
            walk.pushes_filters = False
        case _, (key, aggregation, *_) if operator is WindowCombineOperator:
            # This operator passes on late records unchanged; the windows after it may read them.
            walk.reads([*key.names, *aggregation.inputs])
        case _, (key, aggregation, *_) if operator in _AGGREGATIONS:
            walk.reads([*key.names, *aggregation.inputs])
            walk.is_closed = True
        case _:
            return False
    return True


@dataclass(slots=True)
class _Chain:
    head: StreamNode
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    is_read_aside: bool = False
    is_forked: bool = False
    operators: list[OperatorSpec] = field(default_factory=list)
    forks: dict[int, int] = field(default_factory=dict)

    def vertex(self) -> JobVertex:
        return JobVertex(
            self.operators[0].id,
            tuple(self.operators),
            self.head.parallelism,
            self.head.max_parallelism,
            self.num_cpus,
            self.num_gpus,
            self.resources,
            self.forks,
        )


def build_job_graph(graph: StreamGraph, name: str, *, chaining: bool = True) -> JobGraph:
    """Chain a stream graph; without `chaining` every operator gets a vertex of its own."""
    ids = graph.operator_ids()
    readers = Counter(up.node for node in graph.nodes for up in node.inputs if up.tag is None)
    read_aside = {up.node for node in graph.nodes for up in node.inputs if up.tag is not None}
    chains: list[_Chain] = []
    chain_of: list[_Chain] = []
    place_of: list[int] = []
    edges: list[JobEdge] = []
    for number, operator_id in enumerate(ids):
        node = _pushed_down(number, graph)
        chain = _chain_to_join(node, graph, chain_of) if chaining else None
        if chain is None:
            chain = _Chain(node, node.num_cpus or 0.0, node.num_gpus or 0.0, dict(node.resources or {}))
            chains.append(chain)
            edges += [_edge(up, graph, ids, chain_of, node, operator_id) for up in node.inputs]
        elif place_of[node.inputs[0].node] != len(chain.operators) - 1:
            chain.forks[len(chain.operators)] = place_of[node.inputs[0].node]
        chain_of.append(chain)
        place_of.append(len(chain.operators))
        operator = node.operator
        has_event_time = operator.source is None or operator.watermarks is not None
        chain.is_read_aside |= number in read_aside and has_event_time
        chain.is_forked |= readers[number] > 1
        chain.operators.append(replace(operator, id=operator_id))
    # Sources have no inputs, so moving them to the front keeps the order topological.
    vertices = sorted((chain.vertex() for chain in chains), key=lambda vertex: not vertex.is_source)
    return JobGraph(name, tuple(vertices), tuple(edges))


def _chain_to_join(node: StreamNode, graph: StreamGraph, chain_of: list[_Chain]) -> _Chain | None:
    if len(node.inputs) != 1 or node.start_new_chain or node.disable_chaining:
        return None
    (upstream,) = node.inputs
    if upstream.tag is not None or upstream.partitioner is not None:
        return None
    producer, chain = graph.node(upstream.node), chain_of[upstream.node]
    joins = (
        not producer.disable_chaining
        and producer.parallelism == node.parallelism
        and producer.max_parallelism == node.max_parallelism
        and node.num_cpus in (None, chain.num_cpus)
        and node.num_gpus in (None, chain.num_gpus)
        and node.resources in (None, chain.resources)
        and not (node.makes_watermarks and (chain.is_read_aside or chain.is_forked))
    )
    return chain if joins else None


def _edge(
    upstream: Upstream,
    graph: StreamGraph,
    ids: list[str],
    chain_of: list[_Chain],
    node: StreamNode,
    operator_id: str,
) -> JobEdge:
    producer = graph.node(upstream.node)
    partitioner = upstream.partitioner
    if partitioner is None:
        same = producer.parallelism == node.parallelism
        partitioner = Partitioner(Partitioning.FORWARD if same else Partitioning.REBALANCE)
    source_vertex = chain_of[upstream.node].operators[0].id
    input_index = upstream.input_index
    return JobEdge(source_vertex, ids[upstream.node], upstream.tag, operator_id, input_index, partitioner)
