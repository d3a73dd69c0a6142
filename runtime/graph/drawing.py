"""Draws a `GraphInfo` as SVG.

Lines and letters have the colour of the surrounding text (`currentColor`), so the picture matches a light or
dark page. The font has a fixed width, so the width of a text is known without the font. All text from users
is escaped, and the picture has no script, no link and no reference to another file.

1. Layers: a vertex lies one layer below its lowest producer, and a source right above its highest reader. An
   edge that crosses layers gets a *bend* in each of them. So every link joins two neighbouring layers.
2. Order: the order with the fewest crossings is NP-hard to find. The median heuristic comes close. Layer by
   layer, down and up, a node moves to the median place of its neighbours. The best of these orders is kept.
   Ties keep their order, so the same graph always gives the same picture.
3. Places: the ideal place of a node is the mean of its neighbours' places. The nodes of a layer keep their
   order and a minimum distance. An isotonic regression finds the places nearest to the ideal places (least
   squares). Several sweeps down and up align the layers with each other.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.graph_info import (
    EdgeInfo,
    GraphInfo,
    VertexInfo,
    edge_label,
    graph_head,
    graph_info,
    vertex_lines,
)
from penstock.runtime.graph.job_graph import JobGraph


@dataclass(frozen=True, slots=True)
class Layered:
    """A graph in layers.

    Attributes:
        layers: The nodes of each layer, the highest first. Nodes numbered `vertices` or higher are bends.
        routes: The nodes that each edge passes, from its source to its target.
    """

    layers: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]
    vertices: int

    def neighbours(self, *, above: bool) -> dict[int, list[int]]:
        """For each node, the linked nodes in the layer above or below."""
        found: dict[int, list[int]] = {}
        for route in self.routes:
            for upper, lower in pairwise(route):
                node, other = (lower, upper) if above else (upper, lower)
                found.setdefault(node, []).append(other)
        return found


def into_layers(vertices: int, edges: Sequence[tuple[int, int]]) -> Layered:
    """Put a graph into layers; vertices are numbered in topological order."""
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
    for source, target in sorted(edges, key=lambda edge: edge[1]):  # producers come first
        layer_of[target] = max(layer_of[target], layer_of[source] + 1)
    read = {target for _, target in edges}
    for vertex in range(vertices):
        below = [layer_of[target] for source, target in edges if source == vertex]
        if vertex not in read and below:
            layer_of[vertex] = min(below) - 1
    return layer_of


_ORDER_SWEEPS: Final = 12


def order_layers(graph: Layered) -> list[list[int]]:
    """The nodes of each layer from left to right."""
    above, below = graph.neighbours(above=True), graph.neighbours(above=False)
    order = [list(layer) for layer in graph.layers]
    best, fewest = [list(layer) for layer in order], crossings(order, below)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        if sweep % 2 == 0:
            for upper, layer in pairwise(order):
                _sort(layer, upper, above)
        else:
            for layer, lower in reversed(list(pairwise(order))):
                _sort(layer, lower, below)
        crossed = crossings(order, below)
        if crossed < fewest:
            best, fewest = [list(layer) for layer in order], crossed
    return best


def crossings(order: Sequence[Sequence[int]], below: Mapping[int, Sequence[int]]) -> int:
    count = 0
    for upper, lower in pairwise(order):
        place = {node: index for index, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[other] for other in below.get(node, ()))
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _sort(layer: list[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]) -> None:
    """Sort a layer by its neighbours' places in the fixed layer; nodes without neighbours hardly move."""
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
    """The x coordinate of each node's middle; `gap` is the minimum distance between two nodes.

    Example:
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
            wanted = [fmean(middle[other] for other in neighbours.get(node, (node,))) for node in layer]
            middle.update(zip(layer, nearest_in_order(wanted, layer_offsets), strict=True))
    left = min((middle[node] - widths[node] / 2 for node in middle), default=0.0)
    return {node: round(middle[node] - left, 1) for node in sorted(middle)}


def nearest_in_order(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The places nearest to `wanted` that are at least as far apart as the offsets."""
    pools: list[tuple[float, int]] = []  # sum and number of nodes that move together
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


#: Distance between neighbouring boxes of a layer, and between neighbouring layers.
_GAP: Final = 36.0
_RISE: Final = 64.0
#: Width of a bend, and the maximum distance between the ends of two edges at a box.
_BEND: Final = 8.0
_SPREAD: Final = 28.0


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a vertex; `x` and `y` are its top left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture without its text.

    Attributes:
        curves: The points of each edge from top to bottom; the edge is vertical at each of them.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    curves: tuple[tuple[tuple[float, float], ...], ...]


def lay_out(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out a graph, given the width and height of each vertex in topological order.

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
    """The x coordinate of each edge at its source or its target; edges do not cross there."""
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


#: Width of a letter, height of a line, space around a box's text, and margin of the picture, in pixels.
_LETTER: Final = 7.3
_LINE: Final = 18.0
_PADDING: Final = 12.0
_MARGIN: Final = 6.0
#: Maximum letters of a line; a tooltip shows the whole text.
_LONGEST: Final = 56
_FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def draw_graph(graph: GraphInfo) -> str:
    """A graph as one `<svg>` element.

    Example:
        >>> from penstock.runtime.graph.graph_info import OperatorInfo
        >>> read = VertexInfo("lines", 2, 128, (OperatorInfo("lines", "source(<Files>)", "lines", 2),))
        >>> picture = draw_graph(GraphInfo("words", (read,)))
        >>> picture.startswith("<svg "), "source(&lt;Files&gt;)" in picture
        (True, True)
    """
    lines = [_lines(vertex) for vertex in graph.vertices]
    number = {vertex.id: index for index, vertex in enumerate(graph.vertices)}
    sizes = [
        (max(map(len, text)) * _LETTER + 2 * _PADDING, len(text) * _LINE + 1.3 * _PADDING) for text in lines
    ]
    layout = lay_out(sizes, [(number[edge.source], number[edge.target]) for edge in graph.edges])
    shapes = [
        shape
        for vertex, box, text in zip(graph.vertices, layout.boxes, lines, strict=True)
        for shape in _box(vertex, box, text)
    ]
    right = layout.width
    for position, (edge, curve) in enumerate(zip(graph.edges, layout.curves, strict=True)):
        shapes += _edge(edge, graph.vertices[number[edge.source]], curve, position)
        right = max(right, max(x for x, _ in curve) + 10 + len(_label(edge)) * _LETTER)
    width, height = right + 2 * _MARGIN, layout.height + 2 * _MARGIN
    title = escape(f"{graph.name}: the graph of the job", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-_MARGIN:g} {-_MARGIN:g} {width:.0f} {height:.0f}" '
        f'style="max-width:100%;height:auto" font-family="{_FONT}" font-size="12" fill="currentColor" '
        f'stroke="none">{"".join(shapes)}</svg>'
    )


def _lines(vertex: VertexInfo) -> list[str]:
    head, *operators = vertex_lines(vertex)
    return [head, *map(_cut, operators)]


def _box(vertex: VertexInfo, box: Box, lines: list[str]) -> Iterator[str]:
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" '
        'fill-opacity="0.06" stroke="currentColor" stroke-opacity="0.5"/>'
    )
    left, line = box.x + _PADDING, box.y + _PADDING + 4
    yield _text(left, line, lines[0], 'opacity="0.65"')
    for operator, text in zip(vertex.operators, lines[1:], strict=True):
        line += _LINE
        defined_at = "" if operator.defined_at is None else f"\n{operator.defined_at}"
        yield _text(left, line, text, title=f"{operator.id}  {operator.name}{defined_at}")


def _edge(
    edge: EdgeInfo, sender: VertexInfo, curve: tuple[tuple[float, float], ...], position: int
) -> Iterator[str]:
    x, y = curve[0]
    path = f"M{x:.1f},{y:.1f}"
    for to_x, to_y in curve[1:]:
        half = (y + to_y) / 2
        path += f"C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{to_y:.1f}"
        x, y = to_x, to_y
    yield f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    yield f'<path d="M{x - 4:.1f},{y - 8:.1f}h8l-4,8z" fill-opacity="0.5"/>'
    # Labels of neighbouring edges alternate between two heights.
    label = _label(edge)
    height = y - 18 if position % 2 == 0 else y - 34
    yield _text(x + 8, height, label, 'font-size="11" opacity="0.75"', title=edge_label(edge, sender))


def _label(edge: EdgeInfo) -> str:
    """The short label of an edge; `edge_label` returns the full label."""
    key = "" if edge.key is None else f" by {edge.key}"
    tag = "" if edge.side_output is None else f", {edge.side_output!r}"
    second = f"{edge.input_index + 1}: " if edge.input_index else ""
    return _cut(f"{second}{edge.partitioning}{key}{tag}")


def _text(x: float, y: float, text: str, more: str = "", *, title: str = "") -> str:
    tooltip = f"<title>{escape(title)}</title>" if title else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" xml:space="preserve" {more}>{tooltip}{escape(text)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def graph_page(what: str, build: Callable[[], JobGraph], note: str = "") -> str:
    """A picture with a caption, or the text of the `PenstockError` that `build` raises."""
    try:
        graph = graph_info(build())
    except PenstockError as error:  # a notebook's cell that shows an object must not fail
        return f"<div><code>{escape(what)}</code><br>{escape(str(error))}</div>"
    caption = " &middot; ".join(escape(part) for part in (what, graph_head(graph), note) if part)
    return (
        f'<div style="overflow-x:auto"><div style="margin:0 0 6px">{caption}</div>{draw_graph(graph)}</div>'
    )
