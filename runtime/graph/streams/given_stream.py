"""Messages about arguments that should be streams."""

from __future__ import annotations

from penstock.runtime.operators.sinks import Sink
from penstock.runtime.operators.source import Source


def no_stream(given: object) -> str:
    """Return the rest of a message about an argument that is no `DataStream`.

    Example:
        >>> no_stream([1, 2])
        'is not a DataStream but [1, 2]; make a stream with env.from_collection(id, records)'
    """
    hint = ""
    if isinstance(given, Sink):
        hint = "; a stream is written with sink(id, sink)"
    elif isinstance(given, Source):
        hint = "; make a stream with env.from_source(id, source)"
    elif isinstance(given, list | tuple | range):
        hint = "; make a stream with env.from_collection(id, records)"
    elif callable(given):
        hint = "; for a function use map, flat_map or process"
    return f"is not a DataStream but {given!r:.80}{hint}"
