"""Lists the files of a source when a job starts without a snapshot, and reads the splits of one subtask."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem
from penstock.runtime.operators.source import ConnectorContext, Polled, SplitProgress
from penstock.runtime.trust.paths import is_glob, literal_folder


def list_files(
    patterns: Sequence[str],
    filesystem: Callable[[str], FileSystem],
    warn: Callable[[str], None] = lambda warning: None,
) -> list[FileInfo]:
    """List the files of all patterns, each file once, in the order of the patterns and then by path.

    Names that begin with `_` or `.` are hidden, or files of running sinks. They are read only when the last
    part of a pattern begins with the same character.

    Raises:
        ConnectorError: A pattern matches no file, or the location can't be listed.
    """
    files: dict[str, FileInfo] = {}
    for pattern in patterns:
        try:
            found = filesystem(pattern).find(pattern)
        except OSError as error:
            msg = f"{pattern}: can't be listed: {error}. Check that every node may read it"
            raise ConnectorError(msg) from error
        unreadable = [info for info in found if info.unreadable]
        if unreadable:
            found = [info for info in found if not info.unreadable]
            count = "1 file is" if len(unreadable) == 1 else f"{len(unreadable)} files are"
            first = unreadable[0]
            warn(f"{pattern}: {count} left out; the first is {first.path!r}: {first.unreadable}")
        visible = [info for info in found if _is_visible(info.path, pattern)]
        if not visible:
            raise ConnectorError(_nothing_found(pattern, hidden=len(found)))
        if len(visible) < len(found):
            warn(_left_out(pattern, [info.path for info in found if not _is_visible(info.path, pattern)]))
        files.update((info.path, info) for info in visible)
    return list(files.values())


def _is_visible(path: str, pattern: str) -> bool:
    if path == pattern:
        return True
    below = path[len(literal_folder(pattern)) :] if is_glob(pattern) else path[len(pattern.rstrip("/")) + 1 :]
    written_out = set(pattern.split("/"))
    parts = below.split("/")
    wants_hidden = pattern.rsplit("/", 1)[-1][:1] in ("_", ".")
    signs, seen = (".", parts[:-1]) if wants_hidden else ("_.", parts)
    # `_name=value/` is a column, as Spark writes it.
    columns = [part for part in parts[:-1] if "=" in part and part[0] == "_"]
    return not any(
        part[:1] in tuple(signs) and part not in written_out and part not in columns for part in seen
    )


def _left_out(pattern: str, hidden: list[str]) -> str:
    first = min(hidden)
    begin = first.rsplit("/", 1)[-1][:1]
    folder = literal_folder(pattern).rstrip("/") if is_glob(pattern) else pattern.rstrip("/")
    pick = f"{folder}/{begin if begin in ('_', '.') else '_'}*"
    files = "1 file was" if len(hidden) == 1 else f"{len(hidden)} files were"
    return (
        f"{pattern}: {files} left out, because names that begin with '_' or '.' are hidden; the first is "
        f"{first}. A pattern whose last part begins so reads them, such as {pick!r}"
    )


def _nothing_found(pattern: str, *, hidden: int) -> str:
    searched = literal_folder(pattern).rstrip("/") or "/" if is_glob(pattern) else pattern
    left_out = f" ({hidden} files with names beginning with '_' or '.' were left out)" if hidden else ""
    return (
        f"no file matches {pattern!r}; searched in {searched!r}{left_out}. Check the spelling, and that the "
        "place is mounted at this path on every node of the cluster"
    )


#: Maximum number of empty splits that one poll skips.
_EMPTY_SPLITS_PER_POLL: Final = 8


class SplitReader(Protocol):
    def read(self, max_rows: int) -> Polled[Any]:
        """Return the next records; `finished` means that the split has ended and this poll returned none."""
        ...

    def position(self) -> Any: ...

    def close(self) -> None: ...


class FileFormat(Protocol):
    """Cuts and reads files of one kind; a frozen value that is pickled."""

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[Any]: ...

    def open(self, split: Any, filesystem: FileSystem) -> SplitReader: ...


class FileReader:
    """The reader of a `FileSource`; at most one file is open."""

    makes_new_records: ClassVar[bool] = True

    def __init__(
        self,
        context: ConnectorContext,
        splits: Sequence[Any],
        open_split: Callable[[Any, FileSystem], SplitReader],
        filesystem: Callable[[str], FileSystem],
    ) -> None:
        self._clock = context.clock
        self._waiting = deque(splits)
        self._open = open_split
        self._filesystem = filesystem
        self._current: SplitReader | None = None
        self._opened = 0
        self.split_progress = SplitProgress((), bool(splits))

    def poll(self, max_rows: int) -> Polled[Any]:
        for _ in range(_EMPTY_SPLITS_PER_POLL):
            if self._current is None:
                if not self._waiting:
                    return Polled(finished=True)
                split = self._waiting[0]
                self._current = self._open(split, self._filesystem(split.path))
                self._waiting.popleft()
                self._opened += 1
                self.split_progress = SplitProgress((self._opened,), bool(self._waiting))
            polled = self._current.read(max_rows)
            if not polled.finished:
                if polled.batch is not None:
                    return replace(polled, split=self._opened)
                return replace(polled, ready_at=self._clock.monotonic())
            self._current.close()
            self._current = None
            self.split_progress = SplitProgress((), bool(self._waiting))
        return Polled(ready_at=self._clock.monotonic())

    def snapshot(self) -> Sequence[Any]:
        current = () if self._current is None else (self._current.position(),)
        return [*current, *self._waiting]

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None
