"""From the stream graph to the job graph: chaining. `push_down.py` leaves out unread columns and rows first.

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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorSpec,
    Partitioner,
    Partitioning,
)
from penstock.runtime.graph.push_down import pushed_down
from penstock.runtime.graph.stream_graph import StreamGraph, StreamNode, Upstream


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
    for number, node in enumerate(pushed_down(graph)):
        operator_id = ids[number]
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
