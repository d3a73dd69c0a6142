"""`SharedFiles`: which files are still named by a checkpoint (Flink's `SharedStateRegistry`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock.runtime.snapshot.handles import FileHandle


class SharedFiles:
    """Counts for each file how many checkpoints name it.

    Example:
        >>> files, a, b = SharedFiles(), FileHandle("a", 1, ""), FileHandle("b", 1, "")
        >>> files.retain([a, b])
        >>> files.retain([b])
        >>> files.release([a, b])
        [FileHandle(path='a', size=1, checksum='')]
    """

    def __init__(self) -> None:
        self._holders: Counter[str] = Counter()
        self._pinned: set[str] = set()

    def retain(self, files: Iterable[FileHandle]) -> None:
        """A checkpoint names these files; how often does not matter."""
        self._holders.update({handle.path for handle in files})

    def release(self, files: Iterable[FileHandle]) -> list[FileHandle]:
        """A checkpoint does not name these files any more; those that nobody names now, by path.

        Raises:
            KeyError: Nobody named one of them (a bug).
        """
        free = []
        for path, handle in sorted({handle.path: handle for handle in files}.items()):
            if path not in self._holders:
                raise KeyError(path)
            self._holders[path] -= 1
            if self._holders[path] == 0:
                del self._holders[path]
                if path not in self._pinned:
                    free.append(handle)
        return free

    def pin(self, paths: Iterable[str]) -> None:
        """Never give these files back: savepoints, which the job does not own, name them."""
        self._pinned.update(paths)

    def __contains__(self, path: str) -> bool:
        return path in self._holders or path in self._pinned

    def __len__(self) -> int:
        return len(self._holders.keys() | self._pinned)
