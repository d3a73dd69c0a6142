"""Reads the output and the log lines of a job's processes from all nodes and attempts.

Every node of the cluster has files with the output of its actors (`output_capture`). This process reads the
files of its own node, and a small task on each other node reads the files there. Then the lines are sorted by
time. Files are found by name, including files of dead actors and ended jobs, for as long as their node and
Ray's session live.

Any user may put a file, a pipe or a link into the folder of these files. Only plain files are opened, and a
line is shown only if it has a signature with the job's key (`actors/shared/output_capture`).
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any, BinaryIO, Final

import ray

from penstock.actors.shared.node_processes import alive_nodes, answers_of_nodes, own_node
from penstock.actors.shared.output_capture import (
    known_log_key,
    log_file_name,
    log_file_pattern,
    logs_folder,
    sign,
)
from penstock.runtime.error_text import escaped

#: Maximum bytes read from one file at a time; the end of a longer file is read.
_MOST: Final = 4 * 1024 * 1024
_NODE_TIMEOUT: Final = 30.0
#: Maximum length of a file's first line, in bytes.
_LONGEST_HEADER: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a process of a job printed or logged, or a notice of Ray.

    The text form escapes control characters.

    Attributes:
        at: Time of the line, as ISO 8601 in UTC.
        vertex: Id of the vertex (the chain of operators) that printed it. `job-master` is the JobMaster.
            `ray` is Ray itself, for its notices to the program that submitted the job.
        subtask: Index of the subtask; `None` for the JobMaster and for Ray.
        stream: `out`, `err` or `log`.

    Example:
        >>> str(LogLine("2026-01-02T03:04:05.678901Z", "count", 0, "out", "hello"))
        '03:04:05.678 count[0] | hello'
    """

    at: str
    vertex: str
    subtask: int | None
    stream: str
    text: str

    def __str__(self) -> str:
        who = self.vertex if self.subtask is None else f"{self.vertex}[{self.subtask}]"
        return escaped(f"{self.at[11:23]} {who} | {self.text}")


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of one file, up to the end of a line; `is_refused` when this process can't read the file."""

    name: str
    header: dict[str, Any]
    data: bytes
    end: int
    is_refused: bool = False


class LogReader:
    """Reads the lines of a job; each call of `read` returns the new lines.

    Args:
        vertices: Ids of the vertices to read; `None` for all, the JobMaster's included.
        subtask: Index of the only subtask to read; `None` for all.

    Attributes:
        silent_nodes: Prefixes of the ids of nodes that did not answer the last call.
        refused_files: Files of the job that neither this user nor Ray on their node may read.
        foreign_lines: Number of lines in the job's files that no process of the job has written.
        key: Function that returns the key of the job's lines, or `None` while no process of the job has
            begun.
    """

    def __init__(
        self, job_id: str, vertices: Collection[str] | None = None, subtask: int | None = None
    ) -> None:
        self._pattern = log_file_pattern(job_id)
        self._vertices = vertices
        self._subtask = subtask
        self._read_to: dict[str, int] = {}
        self.silent_nodes: tuple[str, ...] = ()
        self.refused_files: tuple[str, ...] = ()
        self.foreign_lines = 0
        self.nodes = alive_nodes
        self.key: Callable[[], bytes | None] = partial(known_log_key, job_id)
        self._key: bytes | None = None
        self._job_id = job_id

    def read(self) -> list[LogLine]:
        """Return the lines since the last call, ordered by time; blocks until the nodes answer."""
        self._key = self.key() if self._key is None else self._key
        if self._key is None:
            return []
        lines: list[LogLine] = []
        parts = list(self._new_parts())
        seen: set[str] = set()
        read = {part.name for part in parts if not part.is_refused}
        self.refused_files = tuple(sorted({part.name for part in parts} - read))
        for part in parts:
            if part.is_refused or part.name in seen:
                continue  # several nodes on one machine share their files
            seen.add(part.name)
            self._read_to[part.name] = part.end
            owner = self._owner(part)
            if owner is None:
                self.foreign_lines += part.data.count(b"\n")
            elif self._is_wanted(*owner):
                lines.extend(self._parse(part, *owner))
        return sorted(lines, key=lambda line: line.at)

    def _owner(self, part: FilePart) -> tuple[str, int | None] | None:
        """Return a file's vertex and subtask index; `None` if its first line does not fit its name."""
        header = part.header
        vertex, index, incarnation = header.get("vertex"), header.get("index"), header.get("incarnation")
        if not isinstance(vertex, str) or not isinstance(incarnation, str):
            return None
        if not (index is None or type(index) is int):
            return None
        name = log_file_name(self._job_id, vertex, index, incarnation)
        return (vertex, index) if part.name.removesuffix(".1") == name else None

    def _is_wanted(self, vertex: str, index: int | None) -> bool:
        if self._vertices is not None and vertex not in self._vertices:
            return False
        return self._subtask is None or index == self._subtask

    def _parse(self, part: FilePart, vertex: str, index: int | None) -> Iterator[LogLine]:
        key, file = self._key or b"", part.name.removesuffix(".1")
        for line in part.data.split(b"\n")[:-1]:
            at, _, rest = line.partition(b" ")
            stream, _, rest = rest.partition(b" ")
            signature, _, text = rest.partition(b" ")
            if not compare_digest(signature, sign(key, file, at, stream, text)):
                self.foreign_lines += 1
                continue
            yield LogLine(at.decode(), vertex, index, stream.decode(), text.decode("utf-8", "replace"))

    def _new_parts(self) -> Iterator[FilePart]:
        here, nodes, wanted = own_node(), self.nodes(), (self._pattern, self._read_to)
        found = read_files(*wanted) if here in nodes else []
        yield from found
        # Ray may run as another user here, who owns the files.
        asked = [node for node in nodes if node != here or any(part.is_refused for part in found)]
        silent = []
        for node, answer in answers_of_nodes(asked, _NODE_TIMEOUT, read_files, *wanted):
            if isinstance(answer, ray.exceptions.RayError):
                silent.append(node[:8])
            else:
                yield from answer
        self.silent_nodes = tuple(silent)


def read_files(pattern: str, read_to: dict[str, int], folder: Path | None = None) -> list[FilePart]:
    parts = []
    for path in sorted((folder or logs_folder()).glob(pattern)):
        start = read_to.get(path.name, 0)
        if path.suffix == ".1" and read_to:
            newest = path.with_suffix("")
            start = read_to.get(newest.name, 0)
            if not _is_shorter(newest, start):
                continue  # it was read while it was the newest file
        part = _read_file(path, start)
        if part is not None:
            parts.append(part)
    return parts


def _is_shorter(path: Path, size: int) -> bool:
    """Whether a file has fewer bytes than were read under its name, because a new file has replaced it."""
    try:
        return path.stat().st_size < size
    except OSError:
        return False  # the new file does not exist yet: the next call finds it


def _read_file(path: Path, start: int) -> FilePart | None:
    """Return the part of a file after `start`.

    Returns `None` if it is not a plain file, was deleted, or has no whole first line yet.
    """
    try:
        with open(path, "rb", opener=_open_plain) as file:
            return _part_of(file, path.name, start)
    except PermissionError:
        return FilePart(path.name, {}, b"", start, is_refused=True)
    except OSError:
        return None  # not a file of the job, or an older file that was replaced meanwhile


def _open_plain(path: str, flags: int) -> int:
    """Open a plain file; never waits for a pipe, and follows no link."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return fd


def _part_of(file: BinaryIO, name: str, start: int) -> FilePart | None:
    first = file.readline(_LONGEST_HEADER)
    try:
        header = json.loads(first)
    except (ValueError, RecursionError):
        return None  # its actor has not written the whole first line yet
    if not isinstance(header, dict):
        return None
    size = file.seek(0, 2)
    begin = len(first) if start > size else max(start, len(first))
    file.seek(max(begin, size - _MOST))
    if size - _MOST > begin:
        file.readline()
    begin = file.tell()
    data = file.read()
    data = data[: data.rfind(b"\n") + 1]
    return FilePart(name, header, data, begin + len(data))
