"""The one operator that a function adds to a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.errors import GraphError
from penstock.runtime.graph.stream_graph import StreamNode
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment


def single_operator(build: Callable[[DataStream[Any]], object]) -> StreamNode:
    """The operator that `build` adds to a stream.

    Raises:
        GraphError: It adds none, or several.

    Example:
        >>> single_operator(lambda numbers: numbers.map(abs)).name
        'map(abs)'
        >>> single_operator(lambda numbers: numbers.map(abs).map(str))
        Traceback (most recent call last):
        penstock.runtime.errors.GraphError: a harness drives one operator, but this adds map(abs), map(str)
    """
    environment = StreamEnvironment("harness")
    build(environment.from_collection("input", ()))
    _, *added = environment._builder.graph.nodes
    if len(added) != 1:
        names = ", ".join(node.name for node in added) or "none"
        msg = f"a harness drives one operator, but this adds {names}"
        raise GraphError(msg)
    return added[0]
