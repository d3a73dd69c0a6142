"""Where the boxes of a picture are, and the curves between them, from top to bottom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.runtime.graph.drawing.layers import Layered, into_layers
from penstock.runtime.graph.drawing.ordering import order_layers
from penstock.runtime.graph.drawing.placement import place_nodes

#: Between two boxes of a layer, and between two layers.
_GAP: Final = 36.0
_RISE: Final = 64.0
#: Width of a bend, and the most between two ends of edges at a box.
_BEND: Final = 8.0
_SPREAD: Final = 28.0


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a vertex; `x` and `y` are of its corner at the top left."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Its middle, from the left."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture without its words.

    Attributes:
        boxes: Of each vertex.
        curves: Of each edge: the points between which it runs, from top to bottom. It leaves and enters all
            of them straight down.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    curves: tuple[tuple[tuple[float, float], ...], ...]


def lay_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay a graph out.

    Args:
        sizes: Width and height of each vertex; vertices are in topological order.
        edges: Source and target of each.

    Example:
        >>> layout = lay_out([(100, 20), (60, 20)], [(0, 1)])
        >>> layout.boxes[1]
        Box(x=20.0, y=84.0, width=60, height=20)
        >>> layout.curves
        (((50.0, 20.0), (50.0, 84.0)),)
    """
    graph = into_layers(len(sizes), edges)
    widths = {node: sizes[node][0] if node < len(sizes) else _BEND for row in graph.layers for node in row}
    middles = place_nodes(graph, order_layers(graph), widths, _GAP)
    spans = _spans(graph, sizes)
    boxes = {
        vertex: Box(middles[vertex] - sizes[vertex][0] / 2, spans[row][0], *sizes[vertex])
        for row, layer in enumerate(graph.layers)
        for vertex in layer
        if vertex < len(sizes)
    }
    row_of = {node: row for row, layer in enumerate(graph.layers) for node in layer}
    starts, ends = _ports(graph, middles, boxes, leaving=True), _ports(graph, middles, boxes, leaving=False)
    curves = []
    for number, route in enumerate(graph.routes):
        source, target = boxes[route[0]], boxes[route[-1]]
        points = [(starts[number], source.y + source.height)]
        for bend in route[1:-1]:
            points += [(middles[bend], y) for y in spans[row_of[bend]]]
        curves.append((*points, (ends[number], target.y)))
    width = max((middles[node] + widths[node] / 2 for node in middles), default=0.0)
    height = max((bottom for _, bottom in spans), default=0.0)
    return Layout(width, height, tuple(boxes[vertex] for vertex in range(len(sizes))), tuple(curves))


def _spans(graph: Layered, sizes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Top and bottom of each layer."""
    spans, top = [], 0.0
    for layer in graph.layers:
        bottom = top + max(sizes[node][1] for node in layer if node < len(sizes))
        spans.append((top, bottom))
        top = bottom + _RISE
    return spans


def _ports(
    graph: Layered, middles: Mapping[int, float], boxes: Mapping[int, Box], *, leaving: bool
) -> dict[int, float]:
    """Where each edge leaves its source, or enters its target; edges side by side do not cross there."""
    at_box: dict[int, list[int]] = defaultdict(list)
    for number, route in enumerate(graph.routes):
        at_box[route[0 if leaving else -1]].append(number)
    found = {}
    for vertex, numbers in at_box.items():
        following = 1 if leaving else -2
        numbers.sort(key=lambda number: middles[graph.routes[number][following]])
        step = min(_SPREAD, boxes[vertex].width / (len(numbers) + 1))
        for index, number in enumerate(numbers):
            found[number] = round(boxes[vertex].middle + (index - (len(numbers) - 1) / 2) * step, 1)
    return found
