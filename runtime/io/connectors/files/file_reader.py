"""Reads the file splits of one subtask, one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol

from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem
from penstock.runtime.operators.protocols import ConnectorContext, Polled, SplitProgress

#: Maximum number of empty splits that one poll skips.
_EMPTY_SPLITS_PER_POLL: Final = 8


class SplitReader(Protocol):
    """Reads one split of a file format."""

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
        self._progress = SplitProgress((), bool(splits))

    def poll(self, max_rows: int) -> Polled[Any]:
        for _ in range(_EMPTY_SPLITS_PER_POLL):
            if self._current is None:
                if not self._waiting:
                    return Polled(finished=True)
                split = self._waiting[0]
                self._current = self._open(split, self._filesystem(split.path))
                self._waiting.popleft()
                self._opened += 1
                self._progress = SplitProgress((self._opened,), bool(self._waiting))
            polled = self._current.read(max_rows)
            if not polled.finished:
                if polled.batch is not None:
                    return replace(polled, split=self._opened)
                return replace(polled, ready_at=self._clock.monotonic())
            self._current.close()
            self._current = None
            self._progress = SplitProgress((), bool(self._waiting))
        return Polled(ready_at=self._clock.monotonic())

    @property
    def split_progress(self) -> SplitProgress:
        return self._progress

    def snapshot(self) -> Sequence[Any]:
        current = () if self._current is None else (self._current.position(),)
        return [*current, *self._waiting]

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None
