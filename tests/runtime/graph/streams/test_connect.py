"""Connected streams in the graph: their inputs, ids and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import GraphError, StreamEnvironment
from penstock.connected import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastState,
    ConnectedStreams,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from penstock.runtime.graph.chaining import build_job_graph
from penstock.runtime.graph.drawing import draw_graph
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.graph_info import graph_info
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.io.connectors.collect_sink import DiscardSink


class Both(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> None: ...

    def process_element2(self, value: Any, ctx: Any) -> None: ...


class BothByKey(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> None: ...

    def process_element2(self, value: Any, ctx: Any) -> None: ...


def two_streams(**settings: Any) -> tuple[StreamEnvironment, Any, Any]:
    env = StreamEnvironment("job", **settings)
    return env, env.from_collection("left", [1]), env.from_collection("right", [2])


def job(env: StreamEnvironment) -> JobGraph:
    return build_job_graph(env._builder.graph, "job")


def edges_into(graph: JobGraph, vertex: str) -> list[tuple[str, int]]:
    return [(e.source_operator, e.input_index) for e in graph.edges if e.target_vertex == vertex]


def test_edges_of_the_second_stream_lead_to_the_second_input() -> None:
    env, left, right = two_streams()
    more = env.from_collection("more", [3])
    left.union(more).connect(right).co_map(str, str, id="both").sink("sink", DiscardSink())
    assert edges_into(job(env), "both") == [("left", 0), ("more", 0), ("right", 1)]


def test_operator_with_two_inputs_begins_a_chain_and_others_join_it() -> None:
    env, left, right = two_streams(parallelism=1)
    left.connect(right).co_map(str, str, id="both").map(str, id="next").sink("sink", DiscardSink())
    vertices = [[operator.id for operator in vertex.operators] for vertex in job(env).vertices]
    assert vertices == [["left"], ["right"], ["both", "next", "sink"]]


def test_stream_connected_to_itself_arrives_on_both_inputs() -> None:
    env, left, _ = two_streams()
    left.connect(left).co_map(str, str, id="both").sink("sink", DiscardSink())
    graph = job(env)
    assert edges_into(graph, "both") == [("left", 0), ("left", 1)]
    channels = next(s for s in build_execution_graph(graph).subtasks if s.id.vertex == "both").inputs
    assert [(c.gate, c.edge.input_index) for c in channels] == [(0, 0), (1, 1)]


def test_connected_keyed_streams_keep_their_own_key_functions() -> None:
    env, left, right = two_streams(parallelism=2)
    left.key_by(abs).connect(right.key_by(int)).process("both", BothByKey()).sink("sink", DiscardSink())
    selectors = [e.partitioner.key_selector for e in job(env).edges if e.target_vertex == "both"]
    assert selectors == [abs, int]


@pytest.mark.parametrize("method", ["co_map", "co_flat_map"])
def test_methods_of_functions_take_an_id_and_options(method: str) -> None:
    env, left, right = two_streams()
    connected = left.connect(right)
    getattr(connected, method)(str, str, id="one", parallelism=3)
    getattr(connected, method)(str, str, id="two")
    getattr(connected, method)(str, str)
    nodes = env._builder.graph.nodes[2:]
    assert [node.operator.id for node in nodes] == ["one", "two", ""]
    assert nodes[0].parallelism == 3
    assert nodes[0].operator.name == f"{method}(str, str)"
    with pytest.raises(GraphError, match="the id 'one' of this"):
        getattr(connected, method)(str, str, id="one")


def refusal(call: Any) -> str:
    with pytest.raises(GraphError) as caught:
        call()
    text = str(caught.value)
    assert __file__.rpartition("/")[2] in text.partition(" ")[0], "it begins with the user's line"
    return text


def test_both_streams_are_keyed_or_neither() -> None:
    _, left, right = two_streams()
    assert "call key_by on both streams, or on neither" in refusal(lambda: left.connect(right.key_by(abs)))
    assert "call key_by on both streams, or on neither" in refusal(lambda: left.key_by(abs).connect(right))


def test_keys_of_different_numbers_of_columns_are_refused() -> None:
    _, left, right = two_streams()
    text = refusal(lambda: left.key_by("k").connect(right.key_by(["a", "b"])))
    assert "keyed by column 'k' and the second by columns 'a', 'b'" in text
    left.key_by(["k"]).connect(right.key_by("a"))


def test_streams_of_two_environments_are_refused() -> None:
    (_, left, _), (_, right, _) = two_streams(), two_streams()
    assert "stream of another StreamEnvironment" in refusal(lambda: left.connect(right))
    assert "stream of another" in refusal(lambda: left.key_by(abs).connect(right.key_by(abs)))
    assert "is not a DataStream but 3" in refusal(lambda: left.connect(3))


def test_functions_must_fit_the_connected_streams() -> None:
    _, left, right = two_streams()
    plain, keyed = left.connect(right), left.key_by(abs).connect(right.key_by(abs))
    assert "call key_by on both streams before connect" in refusal(lambda: plain.process("x", BothByKey()))
    assert "is not a KeyedCoProcessFunction" in refusal(lambda: keyed.process("x", Both()))
    assert "co_map needs a function, not 3" in refusal(lambda: plain.co_map(str, 3))
    assert "for plain functions use co_map" in refusal(lambda: plain.process("x", abs))
    assert "give an object, Both(...)" in refusal(lambda: plain.process("x", Both))


def test_method_of_one_stream_names_the_step_between() -> None:
    _, left, right = two_streams()
    text = refusal(lambda: left.connect(right).map(str))
    assert "a ConnectedStreams has no map: combine both streams with process(id, function)" in text
    assert "a KeyedConnectedStreams has no map" in refusal(
        lambda: left.key_by(abs).connect(right.key_by(abs)).map(str)
    )


@pytest.mark.parametrize(
    "then",
    [
        lambda stream: stream.key_by(abs),
        lambda stream: stream.rebalance(),
        lambda stream: stream.count_window_all(2),
    ],
)
def test_exchange_that_would_lose_the_copies_of_a_broadcast_is_refused(then: Any) -> None:
    _, left, right = two_streams()
    assert "broadcast() came before" in refusal(lambda: then(left.union(right.broadcast())))
    assert "broadcast() came before" in refusal(lambda: then(right.broadcast()))
    right.broadcast().broadcast()


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    rules = BroadcastState(str, int)

    def process_element(self, value: Any, ctx: Any) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


class RulesByKey(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...


class RulesWithoutBroadcast(Both):
    rules = BroadcastState(str, int)


def test_broadcast_stream_goes_to_all_subtasks_on_the_second_input() -> None:
    env, left, right = two_streams(parallelism=2)
    left.key_by(abs).connect(right.broadcast()).process("x", RulesByKey()).sink("sink", DiscardSink())
    edges = [
        (e.input_index, e.partitioner.partitioning.value) for e in job(env).edges if e.target_vertex == "x"
    ]
    assert edges == [(0, "key_group"), (1, "broadcast")]


def test_declared_broadcast_state_is_a_state_of_the_operator() -> None:
    env, left, right = two_streams()
    left.connect(right.broadcast()).process("x", Rules())
    (state,) = env._builder.graph.nodes[-1].operator.states
    assert (state.name, state.kind, state.of_type, state.is_keyed) == (
        "rules",
        "broadcast",
        "str: int",
        False,
    )


def test_union_of_broadcast_streams_is_broadcast() -> None:
    env, left, right = two_streams()
    more = env.from_collection("more", [3])
    assert isinstance(left.connect(right.broadcast().union(more.broadcast())), BroadcastConnectedStream)
    assert isinstance(left.connect(right.union(more)), ConnectedStreams)
    text = refusal(lambda: left.connect(right.broadcast().union(more)))
    assert "part of the second stream is broadcast" in text


def test_rules_that_are_keyed_are_refused() -> None:
    _, left, right = two_streams()
    assert "leave key_by out" in refusal(lambda: right.key_by(abs).broadcast())
    assert "data.connect(rules.broadcast())" in refusal(lambda: left.connect(right.key_by(abs)))
    assert "broadcast() came before" in refusal(
        lambda: left.key_by(abs).connect(right.broadcast().key_by(abs))
    )


def test_functions_with_broadcast_state_need_a_broadcast_stream() -> None:
    _, left, right = two_streams()
    text = refusal(lambda: left.connect(right).process("x", RulesWithoutBroadcast()))
    assert "RulesWithoutBroadcast declares broadcast state ('rules'), so it needs a second stream" in text
    assert "data.connect(rules.broadcast())" in refusal(lambda: left.connect(right).process("x", Rules()))
    broadcast = left.connect(right.broadcast())
    assert "call key_by on the data before connect" in refusal(lambda: broadcast.process("x", RulesByKey()))
    assert "is not a BroadcastProcessFunction" in refusal(lambda: broadcast.process("x", Both()))
    assert "stream of another" in refusal(lambda: two_streams()[1].key_by(abs).connect(right.broadcast()))


def test_picture_and_text_of_the_graph_name_the_second_input() -> None:
    env, left, right = two_streams()
    left.connect(right.broadcast()).process("x", Rules()).sink("sink", DiscardSink())
    assert "(2: broadcast)" in env.describe()
    assert "2: broadcast" in draw_graph(graph_info(job(env)))
