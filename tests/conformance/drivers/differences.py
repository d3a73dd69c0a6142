"""The common parts of drivers: events as the suites write them, and values that are not as expected."""

from __future__ import annotations

from typing import Any

from penstock.runtime.record.elements import Buffer, EndOfPartition, StreamElement

Event = dict[str, Any]


def taken(channel: int, element: StreamElement) -> Event:
    """The event of a task that is handed an element."""
    if isinstance(element, Buffer):
        return {"deliver": element.payload.decode()}
    assert isinstance(element, EndOfPartition), element
    return {"end_of_partition": channel}


def different(where: str, expected: dict[str, Any], observed: dict[str, Any]) -> list[str]:
    """Values that are not as expected; `None` is not checked."""
    return [
        f"{where}: expected {key} = {value}, observed {observed[key]}"
        for key, value in expected.items()
        if value is not None and observed[key] != value
    ]
