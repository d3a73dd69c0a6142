"""The log of one job as pages of lines with numbers, so that a browser asks only for new ones."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.actors.client.logs import LogLine, LogReader

#: Lines that are kept of each job.
KEPT: Final = 20_000
#: Lines of one answer at most.
MOST: Final = 2_000
#: Lines of the first answer to a page.
TAIL: Final = 500


class JobLog:
    """Reads a job's log, and keeps its last lines. Its methods block; threads may share it.

    Args:
        reader: Gives the lines since its last call.
    """

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lines: deque[LogLine] = deque(maxlen=KEPT)
        self._end = 0
        self._lock = threading.Lock()

    def page(self, offset: int | None, is_wanted: Callable[[LogLine], bool]) -> dict[str, Any]:
        """Lines from a number on.

        Args:
            offset: Number of the first line; `None` for the last 500.

        Returns:
            The lines, and the number with which to ask for those behind them.
        """
        with self._lock:
            new = self._reader.read()
            self._lines.extend(new)
            self._end += len(new)
            first = self._end - len(self._lines)
            lines = list(self._lines)
            silent = list(self._reader.silent_nodes)
        start = max(first, self._end - TAIL if offset is None else offset)
        chosen: list[LogLine] = []
        number = start
        for line in lines[start - first :]:
            if len(chosen) == MOST:
                break
            number += 1
            if is_wanted(line):
                chosen.append(line)
        return {
            "lines": [_to_dict(line) for line in chosen],
            "next": max(number, start),
            "silent_nodes": silent,
        }


def filter_lines(vertex: str | None, subtask: int | None, text: str) -> Callable[[LogLine], bool]:
    """Lines of one vertex, of one subtask, that hold a text in any case.

    Example:
        >>> line = LogLine("2026-01-02T03:04:05.678901Z", "count", 0, "out", "Hello")
        >>> filter_lines("count", None, "hell")(line), filter_lines("other", None, "")(line)
        (True, False)
    """
    searched = text.casefold()

    def is_wanted(line: LogLine) -> bool:
        return (
            (vertex is None or line.vertex == vertex)
            and (subtask is None or line.subtask == subtask)
            and searched in line.text.casefold()
        )

    return is_wanted


def _to_dict(line: LogLine) -> dict[str, Any]:
    return {
        "at": line.at,
        "vertex": line.vertex,
        "subtask": line.subtask,
        "stream": line.stream,
        "text": line.text,
    }
