"""Layout of a picture: boxes, and the curves between them, from top to bottom.

Layers: each vertex lies below all that it reads.

A vertex lies one layer below its lowest producer. A source lies right above its highest reader, so that its
edges are short. An edge that passes layers gets a *bend* in each of them. Then every link joins two
neighbouring layers, and the next steps need to know of nothing else.

The order of nodes in each layer, so that few links cross.

The order with the fewest crossings is NP-hard to find. The median heuristic comes near: layer by layer, a
node moves to the median place of its neighbours, down and up again some times. The best order on the way is
kept. Ties keep their order, so the same graph always gives the same picture.

The place of every node from left to right, in a given order.

A node wants to be at the mean of its neighbours. The nodes of a layer must keep their order and distance.
The places that are nearest to the wanted ones, by the sum of squares, are those of an isotonic regression.
It takes each node's distance from the first one away, pools neighbours that are in the wrong order, and adds
the distance again. Some sweeps down and up bring the layers into agreement.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Final


@dataclass(frozen=True, slots=True)
class Layered:
    """A graph in layers.

    Attributes:
        layers: The nodes of each layer, the highest first. Nodes below `vertices` are vertices, others bends.
        routes: For each edge the nodes that it passes, from its source to its target.
    """

    layers: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]
    vertices: int

    def neighbours(self, *, above: bool) -> dict[int, list[int]]:
        """For each node the nodes that it is linked with, in the layer above or in the one below."""
        found: dict[int, list[int]] = {}
        for route in self.routes:
            for upper, lower in itertools.pairwise(route):
                node, other = (lower, upper) if above else (upper, lower)
                found.setdefault(node, []).append(other)
        return found


def into_layers(vertices: int, edges: Sequence[tuple[int, int]]) -> Layered:
    """Put a graph into layers.

    Args:
        vertices: How many there are. They are numbered in topological order.
        edges: Source and target of each; two vertices may have several.

    Example:
        >>> into_layers(3, [(0, 1), (1, 2), (0, 2)])
        Layered(layers=((0,), (1, 3), (2,)), routes=((0, 1), (1, 2), (0, 3, 2)), vertices=3)
    """
    layer_of = _layers(vertices, edges)
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for vertex, layer in enumerate(layer_of):
        layers[layer].append(vertex)
    routes: list[tuple[int, ...]] = []
    node = vertices
    for source, target in edges:
        route = [source]
        for layer in range(layer_of[source] + 1, layer_of[target]):
            layers[layer].append(node)
            route.append(node)
            node += 1
        routes.append((*route, target))
    return Layered(tuple(map(tuple, layers)), tuple(routes), vertices)


def _layers(vertices: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    layer_of = [0] * vertices
    for source, target in sorted(edges, key=lambda edge: edge[1]):  # all that leads to a source comes before
        layer_of[target] = max(layer_of[target], layer_of[source] + 1)
    read = {target for _, target in edges}
    for vertex in range(vertices):
        below = [layer_of[target] for source, target in edges if source == vertex]
        if vertex not in read and below:
            layer_of[vertex] = min(below) - 1
    return layer_of


_ORDER_SWEEPS: Final = 12


def order_layers(graph: Layered) -> list[list[int]]:
    """The nodes of each layer from left to right.

    Example:
        >>> from penstock.runtime.graph.layout import into_layers
        >>> order_layers(into_layers(4, [(0, 3), (1, 2)]))
        [[0, 1], [3, 2]]
    """
    above, below = graph.neighbours(above=True), graph.neighbours(above=False)
    order = [list(layer) for layer in graph.layers]
    best, fewest = [list(layer) for layer in order], crossings(order, below)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        if sweep % 2 == 0:
            for upper, layer in itertools.pairwise(order):
                _sort(layer, upper, above)
        else:
            for layer, lower in reversed(list(itertools.pairwise(order))):
                _sort(layer, lower, below)
        crossed = crossings(order, below)
        if crossed < fewest:
            best, fewest = [list(layer) for layer in order], crossed
    return best


def crossings(order: Sequence[Sequence[int]], below: Mapping[int, Sequence[int]]) -> int:
    count = 0
    for upper, lower in itertools.pairwise(order):
        place = {node: index for index, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[other] for other in below.get(node, ()))
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _sort(layer: list[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]) -> None:
    """Sort a layer by the places of its neighbours in the fixed layer; nodes without any stay about there."""
    place = {node: index for index, node in enumerate(fixed)}
    scale = len(fixed) / len(layer)
    wanted = {
        node: median([place[other] for other in neighbours[node]]) if node in neighbours else index * scale
        for index, node in enumerate(layer)
    }
    layer.sort(key=wanted.__getitem__)


_PLACE_SWEEPS: Final = 8


def place_nodes(
    graph: Layered, order: Sequence[Sequence[int]], widths: Mapping[int, float], gap: float
) -> dict[int, float]:
    """The middle of each node; the left edge of the picture is 0.

    Args:
        gap: Least distance of two nodes in a layer.

    Example:
        >>> from penstock.runtime.graph.layout import into_layers
        >>> place_nodes(into_layers(3, [(0, 1), (0, 2)]), [[0], [1, 2]], {0: 10, 1: 10, 2: 10}, gap=20)
        {0: 20.0, 1: 5.0, 2: 35.0}
    """
    offsets = [_offsets(layer, widths, gap) for layer in order]
    middle = {
        node: offset - layer_offsets[-1] / 2
        for layer, layer_offsets in zip(order, offsets, strict=True)
        for node, offset in zip(layer, layer_offsets, strict=True)
    }
    above, below = graph.neighbours(above=True), graph.neighbours(above=False)
    rows = list(zip(order, offsets, strict=True))
    for sweep in range(_PLACE_SWEEPS):
        neighbours, sequence = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for layer, layer_offsets in sequence:
            wanted = [_mean(middle, neighbours.get(node, (node,))) for node in layer]
            middle.update(zip(layer, nearest_in_order(wanted, layer_offsets), strict=True))
    left = min((middle[node] - widths[node] / 2 for node in middle), default=0.0)
    return {node: round(middle[node] - left, 1) for node in sorted(middle)}


def nearest_in_order(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The nearest places whose distances are at least those of the offsets.

    Example:
        >>> nearest_in_order([0, 0, 50], [0, 10, 20])
        [-5.0, 5.0, 50.0]
    """
    pools: list[tuple[float, int]] = []  # sum and number of those that are moved together
    for place, offset in zip(wanted, offsets, strict=True):
        total, count = place - offset, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    moved = [total / count for total, count in pools for _ in range(count)]
    return [place + offset for place, offset in zip(moved, offsets, strict=True)]


def _offsets(layer: Sequence[int], widths: Mapping[int, float], gap: float) -> list[float]:
    steps = ((widths[a] + widths[b]) / 2 + gap for a, b in pairwise(layer))
    return list(accumulate(steps, initial=0.0))


def _mean(middle: Mapping[int, float], nodes: Sequence[int]) -> float:
    return sum(middle[node] for node in nodes) / len(nodes)


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
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture without its words.

    Attributes:
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
    spans, top = [], 0.0
    for layer in graph.layers:
        bottom = top + max(sizes[node][1] for node in layer if node < len(sizes))
        spans.append((top, bottom))
        top = bottom + _RISE
    return spans


def _ports(
    graph: Layered, middles: Mapping[int, float], boxes: Mapping[int, Box], *, leaving: bool
) -> dict[int, float]:
    """Points where edges leave their source or enter their target; edges side by side do not cross there."""
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
