"""Sums over subtasks, the fill of edges, and the bottleneck."""

from __future__ import annotations

import pytest

from penstock.actors.shared.job_report import SubtaskInfo
from penstock.actors.shared.job_summaries import (
    Bottleneck,
    EdgeSummary,
    VertexSummary,
    find_bottleneck,
    summarize_edges,
    summarize_vertices,
)
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, VertexInfo
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import OutputFill, SubtaskRates, SubtaskStatistics


def graph(*edges: tuple[str, str]) -> GraphInfo:
    """A graph of these edges, with vertices in the order of their first use."""
    names = dict.fromkeys(name for edge in edges for name in edge)
    return GraphInfo(
        "words",
        tuple(VertexInfo(name, 2, 128, ()) for name in names),
        tuple(EdgeInfo(source, target, "rebalance", source_operator=source) for source, target in edges),
    )


CHAIN = graph(("lines", "parse"), ("parse", "enrich"), ("enrich", "out"))


def subtask(
    vertex: str,
    index: int,
    *,
    busy: float = 0.0,
    records: float = 0.0,
    watermark: int | None = None,
    is_idle: bool = False,
    outputs: tuple[OutputFill, ...] = (),
    state_bytes: int | None = None,
) -> SubtaskInfo:
    counted = SubtaskStatistics(
        5, 4, 0, 0, 0.0, 0.0, 0, 0, current_watermark=watermark, is_idle=is_idle, outputs=outputs
    )
    rates = SubtaskRates(10.0, busy, 0.0, 1.0 - busy, records, records, 8 * records, 8 * records)
    return SubtaskInfo(
        SubtaskId(vertex, index),
        1,
        SubtaskStatus.RUNNING,
        statistics=counted,
        rates=rates,
        state_bytes=state_bytes,
    )


def full(target: str, *outstanding: int, operator: str = "lines", copy: int = 0) -> OutputFill:
    return OutputFill(target, operator, None, 0, copy, 8, 0, outstanding, (0,) * len(outstanding))


def test_rates_are_added_up_and_shares_have_an_average_and_a_maximum() -> None:
    subtasks = [
        subtask("lines", 0, busy=1.0, records=10.0, state_bytes=100),
        subtask("lines", 1, busy=0.25, records=5.0, state_bytes=20),
    ]
    lines, parse, *_ = summarize_vertices(CHAIN, subtasks)
    assert (lines.running, lines.total_records_in, lines.total_records_out) == (2, 10, 8)
    assert (lines.records_in, lines.bytes_out) == (15.0, 120.0)
    assert (lines.busy, lines.busy_max, lines.idle) == (0.625, 1.0, 0.375)
    assert lines.state_bytes == 120
    assert parse == VertexSummary("parse", 2), "nothing is known of it"


@pytest.mark.parametrize(
    ("first", "second", "lowest"),
    [
        (subtask("lines", 0, watermark=5), subtask("lines", 1, watermark=3), 3),
        (subtask("lines", 0, watermark=5), subtask("lines", 1), None),
        (subtask("lines", 0, watermark=5), subtask("lines", 1, watermark=3, is_idle=True), 5),
        (subtask("lines", 0), subtask("lines", 1), None),
    ],
)
def test_the_watermark_of_a_vertex_is_the_lowest_of_those_that_somebody_waits_for(
    first: SubtaskInfo, second: SubtaskInfo, lowest: int | None
) -> None:
    assert summarize_vertices(CHAIN, [first, second])[0].watermark == lowest


def test_the_fill_of_an_edge_is_over_all_its_channels() -> None:
    subtasks = [
        subtask("lines", 0, outputs=(full("parse", 8, 0),)),
        subtask("lines", 1, outputs=(full("parse", 4, 4),)),
    ]
    first, second, _ = summarize_edges(CHAIN, subtasks)
    assert first == EdgeSummary("lines", "parse", 0.5, 1.0)
    assert second == EdgeSummary("parse", "enrich"), "nothing is known of it"


def test_equal_edges_are_told_apart() -> None:
    twice = graph(("lines", "parse"), ("lines", "parse"))
    outputs = (full("parse", 8, 8), full("parse", 0, 0, copy=1))
    fills = [edge.fill for edge in summarize_edges(twice, [subtask("lines", 0, outputs=outputs)])]
    assert fills == [1.0, 0.0]


def vertices(**shares: tuple[float, float]) -> list[VertexSummary]:
    """Vertices with their busy and back-pressured shares."""
    return [
        VertexSummary(name, 1, busy_max=busy, backpressured_max=blocked)
        for name, (busy, blocked) in shares.items()
    ]


def test_the_bottleneck_is_the_busy_vertex_behind_those_that_wait() -> None:
    found = find_bottleneck(
        CHAIN, vertices(lines=(0.1, 0.9), parse=(0.7, 0.3), enrich=(0.98, 0.0), out=(0.2, 0.0))
    )
    assert found == Bottleneck("enrich", 0.98, ("parse", "lines"))
    assert str(found) == "`enrich` is busy 98 % of the time; `parse` and `lines` wait for it."


def test_a_busy_vertex_that_waits_itself_is_not_the_bottleneck() -> None:
    found = find_bottleneck(
        CHAIN, vertices(lines=(0.0, 1.0), parse=(0.85, 0.15), enrich=(0.6, 0.0), out=(0.1, 0.0))
    )
    assert found is not None
    assert found.vertex == "enrich"


def test_a_busy_source_that_nobody_waits_for_limits_the_job() -> None:
    found = find_bottleneck(CHAIN, vertices(lines=(0.97, 0.0), parse=(0.3, 0.0), enrich=(0.2, 0.0)))
    assert str(found) == "`lines` is busy 97 % of the time; nothing waits for it."


def test_a_vertex_that_others_wait_for_is_named_before_a_busier_one() -> None:
    apart = graph(("a", "b"), ("c", "d"))
    found = find_bottleneck(apart, vertices(a=(0.1, 0.5), b=(0.9, 0.0), c=(0.99, 0.0), d=(0.0, 0.0)))
    assert found == Bottleneck("b", 0.9, ("a",))


def test_an_unloaded_job_has_no_bottleneck() -> None:
    assert find_bottleneck(CHAIN, vertices(lines=(0.4, 0.0), parse=(0.3, 0.05), enrich=(0.5, 0.0))) is None
    assert find_bottleneck(CHAIN, [VertexSummary("lines", 1)]) is None


def test_one_that_waits_alone_is_named_in_the_singular() -> None:
    assert str(Bottleneck("b", 0.9, ("a",))) == "`b` is busy 90 % of the time; `a` waits for it."
