from __future__ import annotations

from small_graphs import graph_of

from penstock.runtime.graph.aligned_edges import edges_to_align
from penstock.runtime.graph.execution_graph import build_execution_graph


def aligned(*edges: str, parallelism: int = 2) -> list[str]:
    """Those of these edges that must be aligned although what is in flight can be redistributed."""
    job = graph_of(*edges, parallelism=parallelism)
    return [
        edge
        for position, edge in enumerate(edges)
        if position in edges_to_align(job)
        and job.edges[position].partitioner.partitioning.can_be_redistributed
    ]


def test_elements_that_cannot_be_redistributed_are_never_overtaken() -> None:
    job = graph_of("a -> b", "b => c", "c *> d", "d ~> e", "e %> f")
    assert sorted(edges_to_align(job)) == [0, 1, 2]


def test_jobs_whose_ways_never_meet_align_nothing_else() -> None:
    assert aligned("read ~> count", "count -> format", "count %> other", "format %> out") == []


def test_ways_that_meet_again_and_overtake_are_not_aligned() -> None:
    assert aligned("read ~> count", "read %> parse", "parse ~> join", "count ~> join") == []


def test_rules_that_are_broadcast_to_the_data_leave_the_data_alone() -> None:
    assert aligned("read ~> count", "count %> apply", "rules => apply", "apply %> out") == []


def test_a_union_of_ways_of_different_sources_leaves_them_alone() -> None:
    assert aligned("first ~> count", "count -> both", "second ~> sum", "sum -> both") == []


def test_a_way_that_overtakes_is_aligned_beside_a_forward_one() -> None:
    edges = "numbers ~> count", "split ~> count", "split -> join", "count %> join"
    assert aligned(*edges) == ["split ~> count"]


def test_so_is_each_exchange_of_a_long_way() -> None:
    edges = "read ~> a", "a %> b", "other %> b", "b ~> join", "read => join"
    assert aligned(*edges) == ["read ~> a", "a %> b"]


def test_ways_that_wait_for_each_other_across_are_aligned() -> None:
    edges = (
        "other ~> a",
        "left ~> a",
        "other ~> b",
        "right ~> b",
        "a ~> x",
        "right -> x",
        "b ~> y",
        "left -> y",
    )
    assert aligned(*edges) == ["left ~> a", "right ~> b"]


def test_a_forward_sender_that_has_ended_leaves_its_receiver_to_the_others() -> None:
    edges = "others -> map", "numbers -> split", "split %> map", "map => out"
    assert aligned(*edges) == ["split %> map"]
    assert aligned("others ~> map", *edges[1:]) == []


def test_one_subtask_is_not_ahead_of_itself() -> None:
    edges = "read ~> count", "read => join", "count ~> join"
    assert aligned(*edges) == ["read ~> count"]
    assert aligned(*edges, parallelism=1) == []


def test_sender_and_receiver_of_a_channel_agree() -> None:
    edges = "numbers ~> count", "split ~> count", "split -> join", "count %> join"
    subtasks = build_execution_graph(graph_of(*edges)).subtasks
    sent = {(s.id.vertex, p.edge.target_operator): p.supports_unaligned for s in subtasks for p in s.outputs}
    received = {(c.sender.vertex, s.id.vertex): c.supports_unaligned for s in subtasks for c in s.inputs}
    assert sent == received
    assert [channel for channel, supports in sent.items() if not supports] == [
        ("split", "count"),
        ("split", "join"),
    ]
