"""A job graph as plain values."""

from __future__ import annotations

import json

from penstock import DiscardSink, StreamEnvironment
from penstock.runtime.graph.graph_info import GraphInfo, graph_info
from penstock.runtime.snapshot.plain_values import from_plain, to_plain


def parity(number: int) -> int:
    return number % 2


def graph() -> GraphInfo:
    env = StreamEnvironment("sums", parallelism=2)
    stream = env.from_collection("numbers", [1]).map(abs, id="abs")
    stream.key_by(parity).reduce("sum", max).sink("out", DiscardSink())
    return graph_info(env.build())


def test_vertices_hold_their_operators_in_order() -> None:
    vertices = {vertex.id: vertex for vertex in graph().vertices}
    assert [o.id for o in vertices["numbers"].operators] == ["numbers", "abs"]
    assert [o.id for o in vertices["sum"].operators] == ["sum", "out"]
    assert (vertices["sum"].parallelism, vertices["sum"].max_parallelism) == (2, 128)


def test_operators_know_their_vertex_and_the_ends_of_the_graph() -> None:
    found = {info.id: info for info in graph().operators}
    assert [i.id for i in found.values() if i.is_source] == ["numbers"]
    assert [i.id for i in found.values() if i.is_sink] == ["out"]
    assert (found["out"].vertex, found["out"].parallelism) == ("sum", 2)


def test_an_edge_names_its_ends_its_partitioning_and_the_key() -> None:
    [edge] = graph().edges
    assert (edge.source, edge.source_operator, edge.target) == ("numbers", "abs", "sum")
    assert (edge.partitioning, edge.key, edge.side_output) == ("key_group", "parity", None)


def test_a_graph_comes_back_whole_from_json() -> None:
    known = graph()
    assert from_plain(GraphInfo, json.loads(json.dumps(to_plain(known)))) == known
