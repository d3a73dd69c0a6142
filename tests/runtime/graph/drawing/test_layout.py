"""Layers, order and places, on graphs by hand and on random ones."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.graph.drawing import crossings, into_layers, lay_out, nearest_in_order, order_layers


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    """Sizes of vertices, and edges that go from lower numbers to higher ones."""
    count = draw(st.integers(1, 9))
    size = st.tuples(st.integers(10, 300), st.integers(10, 90))
    pairs = list(combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    return [draw(size) for _ in range(count)], edges


@given(graphs())
def test_no_box_lies_on_another_and_all_are_inside_of_the_picture(
    graph: tuple[list[tuple[float, float]], list[tuple[int, int]]],
) -> None:
    layout = lay_out(*graph)
    for one, other in combinations(layout.boxes, 2):
        beside = one.x + one.width <= other.x + 1 or other.x + other.width <= one.x + 1
        assert beside or one.y + one.height <= other.y or other.y + other.height <= one.y
    for box in layout.boxes:
        assert box.x + 1 >= 0
        assert box.x + box.width <= layout.width + 1
        assert box.y >= 0
        assert box.y + box.height <= layout.height


@given(graphs())
def test_every_edge_goes_down_from_its_source_to_its_target(
    graph: tuple[list[tuple[float, float]], list[tuple[int, int]]],
) -> None:
    layout = lay_out(*graph)
    for (source, target), curve in zip(graph[1], layout.curves, strict=True):
        above, below = layout.boxes[source], layout.boxes[target]
        assert curve[0][1] == above.y + above.height
        assert curve[-1][1] == below.y
        assert above.x <= curve[0][0] <= above.x + above.width
        assert below.x <= curve[-1][0] <= below.x + below.width
        assert all(upper[1] < lower[1] for upper, lower in pairwise(curve))


@given(graphs())
def test_no_order_has_more_crossings_than_the_first_one(
    graph: tuple[list[tuple[float, float]], list[tuple[int, int]]],
) -> None:
    layered = into_layers(len(graph[0]), graph[1])
    below = layered.neighbours(above=False)
    order = order_layers(layered)
    assert crossings(order, below) <= crossings(layered.layers, below)
    assert [sorted(layer) for layer in order] == [sorted(layer) for layer in layered.layers]


def test_a_source_lies_right_above_its_reader() -> None:
    layered = into_layers(4, [(0, 2), (2, 3), (1, 3)])
    assert layered.layers == ((0,), (1, 2), (3,))


def test_an_edge_that_passes_a_layer_runs_beside_its_boxes() -> None:
    layout = lay_out([(100, 20)] * 3, [(0, 1), (1, 2), (0, 2)])
    passed, bends = layout.boxes[1], layout.curves[2][1:-1]
    assert len(bends) == 2
    assert all(x < passed.x or x > passed.x + passed.width for x, _ in bends)


def test_a_knot_that_can_be_undone_is_undone() -> None:
    layered = into_layers(6, [(0, 5), (1, 4), (2, 3)])
    below = layered.neighbours(above=False)
    assert crossings(layered.layers, below) == 3
    assert crossings(order_layers(layered), below) == 0


@pytest.mark.parametrize(
    ("upper", "lower", "edges", "expected"),
    [
        ([0, 1], [2, 3], {0: [2], 1: [3]}, 0),
        ([0, 1], [2, 3], {0: [3], 1: [2]}, 1),
        ([0, 1], [2, 3], {0: [2, 3], 1: [2, 3]}, 1),
        ([0, 1], [2], {0: [2], 1: [2]}, 0),
    ],
)
def test_crossings_are_counted(
    upper: list[int], lower: list[int], edges: dict[int, list[int]], expected: int
) -> None:
    assert crossings([upper, lower], edges) == expected


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=6))
def test_the_nearest_places_in_order_keep_their_distance_and_their_mean(wanted: list[int]) -> None:
    offsets = [10.0 * index for index in range(len(wanted))]
    places = nearest_in_order(wanted, offsets)
    assert all(right - left >= 10 - 1e-6 for left, right in pairwise(places))
    assert sum(places) == pytest.approx(sum(wanted), abs=1e-6)


def test_the_same_graph_is_always_the_same_picture() -> None:
    edges = [(i, j) for i in range(6) for j in range(i + 1, 8) if (i * j) % 3 == 0]
    assert lay_out([(50, 20)] * 8, edges) == lay_out([(50, 20)] * 8, edges)
