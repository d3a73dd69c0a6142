"""Slows a user's source down, so that checkpoints and failures come while it still reads.

Otherwise a test's input of some dozen records would be read in one step. Only `poll` changes: it gives fewer
records, and none during a pause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.runtime.operators.protocols import ConnectorContext, Polled, Source


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast sources are read.

    Attributes:
        chunk: Most records of one poll.
        pause: Virtual seconds between two polls.
        rows: Most records that an operator is given at a time; 0 for as many as there are.
    """

    chunk: int
    pause: float
    rows: int = 1


def paced(source: Source[Any], pace: Pace) -> Source[Any]:
    """The same source, read at this pace; as it was where its class can't be extended."""

    def reader(self: Any, context: ConnectorContext, splits: Any) -> Any:
        return _paced_reader(kind.reader(self, context, splits), context, pace)

    kind = type(source)
    _extend(source, {"reader": reader})
    return source


def _paced_reader(reader: Any, context: ConnectorContext, pace: Pace) -> Any:
    kind = type(reader)
    ready_at = [0.0]

    def poll(self: Any, max_rows: int) -> Any:
        now = context.clock.monotonic()
        if now < ready_at[0]:
            return Polled(ready_at=ready_at[0])
        ready_at[0] = now + pace.pause
        return kind.poll(self, min(max_rows, pace.chunk))

    _extend(reader, {"poll": poll})
    return reader


def _extend(thing: Any, methods: dict[str, Any]) -> None:
    """Give one object other methods, whatever class it has; errors go on showing that class."""
    kind = type(thing)
    try:
        extended = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
        object.__setattr__(thing, "__class__", extended)
    except TypeError:  # a class of C, a final one, or one that counts its subclasses' arguments
        return
