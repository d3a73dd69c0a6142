"""Draws a `GraphInfo` as SVG.

Lines and letters have the colour of the text around them (`currentColor`), so the picture is light or dark
as the page is. Letters are of one width, so their room is known without a font. All that a user named is
escaped, and there is no script, no link and no file outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.graph_info import (
    EdgeInfo,
    GraphInfo,
    OperatorInfo,
    VertexInfo,
    edge_label,
    graph_head,
    graph_info,
    vertex_head,
)
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.layout import Box, lay_out

#: Sizes in pixels: of a letter, of a line of text, and around the text of a box.
_LETTER: Final = 7.3

_LINE: Final = 18.0

_PADDING: Final = 12.0
#: Around the picture.
_MARGIN: Final = 6.0
#: Letters of a line that are shown; the whole text is shown when the mouse is over it.
_LONGEST: Final = 56

_FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def draw_graph(graph: GraphInfo) -> str:
    """The picture as one `<svg>` element.

    Example:
        >>> read = VertexInfo("lines", 2, 128, (OperatorInfo("lines", "source(<Files>)", "lines", 2),))
        >>> picture = draw_graph(GraphInfo("words", (read,)))
        >>> picture.startswith("<svg "), "source(&lt;Files&gt;)" in picture
        (True, True)
    """
    lines = [_lines(vertex) for vertex in graph.vertices]
    number = {vertex.id: index for index, vertex in enumerate(graph.vertices)}
    sizes = [
        (max(map(len, each)) * _LETTER + 2 * _PADDING, len(each) * _LINE + 1.3 * _PADDING) for each in lines
    ]
    layout = lay_out(sizes, [(number[edge.source], number[edge.target]) for edge in graph.edges])
    shapes = [
        shape
        for vertex, box, text in zip(graph.vertices, layout.boxes, lines, strict=True)
        for shape in _box(vertex, box, text)
    ]
    right = layout.width
    for position, (edge, curve) in enumerate(zip(graph.edges, layout.curves, strict=True)):
        shapes += _edge(edge, curve, position)
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
    column = max(len(operator.id) for operator in vertex.operators)
    return [
        vertex_head(vertex),
        *(_cut(f"{operator.id:<{column}}  {operator.name}") for operator in vertex.operators),
    ]


def _box(vertex: VertexInfo, box: Box, lines: list[str]) -> Iterator[str]:
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" '
        'fill-opacity="0.06" stroke="currentColor" stroke-opacity="0.5"/>'
    )
    left, line = box.x + _PADDING, box.y + _PADDING + 4
    yield _text(left, line, lines[0], 'opacity="0.65"')
    for operator, text in zip(vertex.operators, lines[1:], strict=True):
        line += _LINE
        yield _text(left, line, text, title=_whole(operator))


def _edge(edge: EdgeInfo, curve: tuple[tuple[float, float], ...], position: int) -> Iterator[str]:
    x, y = curve[0]
    path = f"M{x:.1f},{y:.1f}"
    for to_x, to_y in curve[1:]:
        half = (y + to_y) / 2
        path += f"C{x:.1f},{half:.1f} {to_x:.1f},{half:.1f} {to_x:.1f},{to_y:.1f}"
        x, y = to_x, to_y
    yield f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    yield f'<path d="M{x - 4:.1f},{y - 8:.1f}h8l-4,8z" fill-opacity="0.5"/>'
    # Labels of edges side by side take turns in their height.
    label = _label(edge)
    height = y - 18 if position % 2 == 0 else y - 34
    yield _text(x + 8, height, label, 'font-size="11" opacity="0.75"', title=edge_label(edge))


def _label(edge: EdgeInfo) -> str:
    """An edge in short; `edge_label` says all of it."""
    key = "" if edge.key is None else f" by {edge.key}"
    tag = "" if edge.side_output is None else f", {edge.side_output!r}"
    return _cut(f"{edge.partitioning}{key}{tag}")


def _whole(operator: OperatorInfo) -> str:
    line = "" if operator.defined_at is None else f"\n{operator.defined_at}"
    return f"{operator.id}  {operator.name}{line}"


def _text(x: float, y: float, text: str, more: str = "", *, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" xml:space="preserve" {more}>{told}{escape(text)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def graph_page(what: str, build: Callable[[], JobGraph], note: str = "") -> str:
    """A picture with a caption; a graph that can't be built is answered with the reason.

    Args:
        build: Called once; what it raises of Penstock's own is shown instead of the picture.
    """
    try:
        graph = graph_info(build())
    except PenstockError as error:  # a cell that shows an object must not fail
        return f"<div><code>{escape(what)}</code><br>{escape(str(error))}</div>"
    caption = " &middot; ".join(escape(part) for part in (what, graph_head(graph), note) if part)
    return (
        f'<div style="overflow-x:auto"><div style="margin:0 0 6px">{caption}</div>{draw_graph(graph)}</div>'
    )
