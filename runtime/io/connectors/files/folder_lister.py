"""`FolderLister`: finds the new and complete files of a watched folder, a bounded number at a time.

A file is complete when it has not changed for the time `rest` and, if the watch has a marker, its marker
exists. `rest` is measured between listings of this job, so the clocks of other machines don't matter. Markers
are listed before the files: a file whose marker was seen first was complete when it was listed. A glob
pattern for files need not match their markers, so the markers have a pattern of their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np

from penstock.runtime.io.connectors.files.file_reader import is_visible
from penstock.runtime.io.connectors.files.folder_watch import FileOrder, FolderWatch
from penstock.runtime.io.connectors.files.known_files import KnownFiles, RollCall, names_of
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, WalksFiles
from penstock.runtime.time.durations import as_seconds
from penstock.runtime.trust.paths import is_glob

#: Maximum number of new files that one listing returns, so that memory and state stay bounded.
MOST_NEW_FILES: Final = 10_000

#: Number of files that are compared with the known ones at once.
_CHUNK: Final = 4096


@dataclass(frozen=True, slots=True)
class Resting:
    """A new file that may still be written.

    Attributes:
        rested: Seconds for which the file was seen unchanged.
    """

    info: FileInfo
    rested: float = 0.0


@dataclass(frozen=True, slots=True)
class Listing:
    """Result of one listing.

    Attributes:
        new: New files that are complete, in their order; `known` has them, too.
        resting: New files that have not rested long enough, by path.
        has_more: Whether there are more new files than were returned.
        notes: Facts for the log, without repetitions.
    """

    known: KnownFiles
    new: Sequence[FileInfo] = ()
    resting: Mapping[str, Resting] = field(default_factory=dict)
    has_more: bool = False
    notes: Sequence[str] = ()


class FolderLister:
    """Lists the locations of a source; each call lists them again.

    Attributes:
        most: Maximum number of new files that a listing returns.
    """

    def __init__(
        self,
        locations: Sequence[str],
        watch: FolderWatch,
        filesystem: Callable[[str], FileSystem],
        most: int = MOST_NEW_FILES,
    ) -> None:
        self._locations = locations
        self._watch = watch
        self._filesystem = filesystem
        self.most = most

    def look(self, known: KnownFiles, resting: Mapping[str, Resting], waited: float) -> Listing:
        """List the files, `waited` seconds after the previous listing; blocks.

        Raises:
            OSError: A folder is missing or can't be listed.
            ConnectorError: An object store can't be reached.
        """
        call = RollCall(known)
        count = 0
        unreadable: list[FileInfo] = []

        def candidates() -> Iterator[tuple[FileInfo, float]]:
            nonlocal count
            for location in self._locations:
                rest = self._watch.rest_of(location)
                for info in self._unknown(location, call, unreadable):
                    count += 1
                    yield info, rest

        first = heapq.nsmallest(self.most, candidates(), key=lambda one: _order(self._watch.order, one[0]))
        rests = {info.path: (info, rest) for info, rest in first}
        new: list[FileInfo] = []
        still: dict[str, Resting] = {}
        for path, (info, rest) in rests.items():
            seen = resting.get(path)
            rested = seen.rested + waited if seen is not None and seen.info == info else 0.0
            if rested >= rest:
                new.append(info)
            else:
                still[path] = Resting(info, rested)
        after = call.ended(waited, as_seconds(self._watch.forget_after)).with_files(new)
        return Listing(after, new, still, count > len(first), _notes(call.changed, unreadable))

    def _unknown(self, location: str, call: RollCall, unreadable: list[FileInfo]) -> Iterator[FileInfo]:
        """Yield the files of a location that are not known and have their marker."""
        marker: _Marker | None = None
        marked = names_of(())
        if self._watch.marker is not None:
            marker = _Marker(self._watch.marker)
            marked = marker.seen(self._marker_paths(location, marker))
        for some in _chunks(self._walk(location)):
            present = [info for info in some if info.size and not info.unreadable]
            unreadable += [info for info in some if info.unreadable][: 1 if not unreadable else 0]
            new = [info for info in call.unknown(present) if is_visible(info.path, location)]
            if marker is not None:
                new = [info for info in new if not marker.is_marker(info.path)]
                names = names_of(marker.key(info.path) for info in new)
                new = [new[index] for index in np.flatnonzero(np.isin(names, marked)).tolist()]
            yield from new

    def _marker_paths(self, location: str, marker: _Marker) -> Iterator[str]:
        """Yield the paths of the markers of a location, perhaps among others."""
        beside = marker.beside(location)
        # Wildcard characters may also be part of a name.
        if is_glob(location) and self._filesystem(location).size(location) is None:
            yield from self._paths(beside)
            return
        for info in self._walk(location):
            if info.path == location:
                yield from self._paths(beside)
            yield info.path

    def _paths(self, pattern: str) -> Iterator[str]:
        """Yield the paths that match a pattern, or the path itself if the file exists."""
        if is_glob(pattern):
            yield from (info.path for info in self._walk(pattern))
        elif self._filesystem(pattern).size(pattern) is not None:
            yield pattern

    def _walk(self, location: str) -> Iterable[FileInfo]:
        filesystem = self._filesystem(location)
        return filesystem.walk(location) if isinstance(filesystem, WalksFiles) else filesystem.find(location)


class _Marker:
    """Recognises marker files, and maps a file to the path that its marker names."""

    def __init__(self, marker: str) -> None:
        self._is_of_file = marker.startswith("*")
        self._end = marker[1:] if self._is_of_file else f"/{marker}"

    def is_marker(self, path: str) -> bool:
        return path.endswith(self._end)

    def key(self, path: str) -> str:
        return path if self._is_of_file else path.rpartition("/")[0]

    def beside(self, pattern: str) -> str:
        """Pattern of the markers of the files that match a pattern."""
        folder, _, name = pattern.rpartition("/")
        if name == "**":
            folder, name = pattern, "*"
        return f"{folder}/{name}{self._end}" if self._is_of_file else f"{folder}{self._end}"

    def seen(self, paths: Iterable[str]) -> Any:
        """Digests of the files or folders that the markers among these paths name."""
        return names_of(path[: -len(self._end)] for path in paths if path.endswith(self._end))


def _order(order: FileOrder, info: FileInfo) -> tuple[int, str]:
    return (0 if order == "name" else info.modified or 0), info.path


def _chunks(files: Iterable[FileInfo]) -> Iterator[list[FileInfo]]:
    left = iter(files)
    while some := list(islice(left, _CHUNK)):
        yield some


def _notes(changed: Sequence[str], unreadable: Sequence[FileInfo]) -> list[str]:
    notes = [f"{info.path!r} is left out: {info.unreadable}" for info in unreadable]
    if changed:
        files = "a file has" if len(changed) == 1 else f"{len(changed)} files have"
        notes.append(
            f"{files} changed after the read; the first is {changed[0]!r}. The new content is not read: give "
            "new files new names, and set FolderWatch(rest=...) longer than the pauses of their writers"
        )
    return notes
