"""Records on an edge as a user sees them."""

from __future__ import annotations

from penstock.actors.shared.edge_records import EdgeRecord, merged, output_edge
from penstock.runtime.graph.graph_info import EdgeInfo
from penstock.runtime.task.output_samples import OutputEdge, SampledRecord


def test_equal_edges_are_told_apart_by_their_copy() -> None:
    edges = [
        EdgeInfo("a", "b", "rebalance", source_operator="a"),
        EdgeInfo("a", "c", "rebalance", source_operator="a"),
        EdgeInfo("a", "b", "rebalance", source_operator="a"),
        EdgeInfo("a", "b", "rebalance", source_operator="a", side_output="late", input_index=1),
    ]
    assert [output_edge(edges, place).copy for place in range(4)] == [0, 0, 1, 0]
    assert output_edge(edges, 3) == OutputEdge("b", "a", "late", 1, 0)


def test_records_of_all_subtasks_share_the_places() -> None:
    found = {
        0: [SampledRecord("a", 1), SampledRecord("b", 2), SampledRecord("c", 3)],
        2: [],
        1: [SampledRecord("x")],
    }
    assert merged(found, 3) == [EdgeRecord(0, 1, "a"), EdgeRecord(1, None, "x"), EdgeRecord(0, 2, "b")]
    assert merged({}, 3) == []
