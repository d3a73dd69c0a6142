"""Chaining: from the operators that the user wrote to the vertices that are deployed.

Two chained operators run in the same subtask and hand each other batches by plain calls, which costs almost
nothing. Two operators that are not chained exchange encoded buffers between actors. So everything is chained
that can be (Flink: `StreamingJobGraphGenerator#isChainable`). A consumer is chained to its producer when

* it reads nothing else, and reads the main output without an explicit partitioning,
* both have the same parallelism and the same number of key groups,
* it asks for no other CPUs or GPUs than the chain has,
* nobody else reads the producer's main output (readers of side outputs don't count: they get edges),
* it does not make watermarks, or nobody reads a side output of the chain. Watermarks that leave a chain go to
  all of its edges. Those of a second event time say nothing about late records of the first. Side outputs of
  a source have no event time before, unless the source has a strategy,
* chaining is not switched off for either of them.

What is not chained becomes an edge: forward between equal parallelisms, else rebalance, unless the user asked
for a partitioning. What must never happen: a chain that forks. The operator graph inside of a vertex is a
line, and edges lead only to the first operator of a chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.graph.push_down import with_push_down
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, Upstream


@dataclass(slots=True)
class _Chain:
    """A vertex in the making."""

    head: StreamNode
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    is_read_aside: bool = False
    operators: list[OperatorSpec] = field(default_factory=list)

    def vertex(self) -> JobVertex:
        return JobVertex(
            self.operators[0].id,
            tuple(self.operators),
            self.head.parallelism,
            self.head.max_parallelism,
            self.num_cpus,
            self.num_gpus,
            self.resources,
        )


def build_job_graph(graph: StreamGraph, name: str, *, chaining: bool = True) -> JobGraph:
    """Chain a stream graph and lay its edges.

    Args:
        graph: What the user wrote.
        chaining: `False` gives every operator a vertex of its own.
    """
    ids = graph.operator_ids()
    readers = Counter(up.node for node in graph.nodes for up in node.inputs if up.tag is None)
    read_aside = {up.node for node in graph.nodes for up in node.inputs if up.tag is not None}
    chains: list[_Chain] = []
    chain_of: list[_Chain] = []
    edges: list[JobEdge] = []
    for number, (node, operator_id) in enumerate(zip(with_push_down(graph), ids, strict=True)):
        chain = _chain_to_join(node, graph, chain_of, readers) if chaining else None
        if chain is None:
            chain = _Chain(node, node.num_cpus or 0.0, node.num_gpus or 0.0, dict(node.resources or {}))
            chains.append(chain)
            edges += [_edge(up, graph, ids, chain_of, node, operator_id) for up in node.inputs]
        chain_of.append(chain)
        has_event_time = node.source is None or node.watermarks is not None
        chain.is_read_aside |= number in read_aside and has_event_time
        chain.operators.append(
            OperatorSpec(
                operator_id,
                node.name,
                node.factory,
                node.source,
                node.defined_at,
                node.stateful,
                node.keyed,
                node.is_sink,
                node.coordinator,
                node.states,
                node.watermarks,
                node.state_backend,
                node.in_columns,
            )
        )
    # Sources have no inputs, so moving them to the front keeps the order topological.
    vertices = sorted((chain.vertex() for chain in chains), key=lambda vertex: not vertex.is_source)
    return JobGraph(name, tuple(vertices), tuple(edges))


def _chain_to_join(
    node: StreamNode, graph: StreamGraph, chain_of: list[_Chain], readers: Counter[int]
) -> _Chain | None:
    """The chain whose last operator this node can follow, if any."""
    if len(node.inputs) != 1 or node.start_new_chain or node.disable_chaining:
        return None
    (upstream,) = node.inputs
    if upstream.tag is not None or upstream.partitioner is not None or readers[upstream.node] != 1:
        return None
    producer, chain = graph.node(upstream.node), chain_of[upstream.node]
    joins = (
        not producer.disable_chaining
        and producer.parallelism == node.parallelism
        and producer.max_parallelism == node.max_parallelism
        and node.num_cpus in (None, chain.num_cpus)
        and node.num_gpus in (None, chain.num_gpus)
        and node.resources in (None, chain.resources)
        and not (node.makes_watermarks and chain.is_read_aside)
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
    return JobEdge(source_vertex, ids[upstream.node], upstream.tag, operator_id, 0, partitioner)
