"""A graph in the output of a notebook's cell."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.describe import graph_head
from penstock.runtime.graph.drawing.svg import draw_graph
from penstock.runtime.graph.graph_info import graph_info
from penstock.runtime.graph.job_graph import JobGraph


def graph_page(what: str, build: Callable[[], JobGraph], note: str = "") -> str:
    """A picture with a caption; a graph that can't be built is answered with the reason.

    Args:
        what: The object that is shown, as text.
        build: Called once; what it raises of Penstock's own is shown instead of the picture.
        note: A sentence more for the caption.
    """
    try:
        graph = graph_info(build())
    except PenstockError as error:  # a cell that shows an object must not fail
        return f"<div><code>{escape(what)}</code><br>{escape(str(error))}</div>"
    caption = " &middot; ".join(escape(part) for part in (what, graph_head(graph), note) if part)
    return (
        f'<div style="overflow-x:auto"><div style="margin:0 0 6px">{caption}</div>{draw_graph(graph)}</div>'
    )
