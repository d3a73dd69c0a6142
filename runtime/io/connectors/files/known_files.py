"""`KnownFiles`: the files of a watched folder that the source has found, as a compact set.

A file takes 20 bytes in memory, and 12 in the state.

**A name identifies a file.** The set holds a 64-bit digest of each path, sorted, in one array. A new file is
taken for a known one with probability n / 2^64, for n known files: a million files make that 5e-14. Each
digest has a 32-bit stamp of size and modification time. The stamp shows that a file has changed since.

**Modification times decide nothing.** Spark drops files that are older than the newest one by a limit. Then a
file with an old time is lost: after `mv`, `cp -p` or rsync, or by the clock of another machine. Here each
listing is compared with the whole set, so a late file is found whatever its time.

**What bounds the set.** Flink's enumerator keeps all paths ever seen, so its state grows for ever. Here a
file that is gone from the folder is forgotten. It is not forgotten at once, because an empty mount point
looks like an empty folder. All files would be read again when the disk is back. So the set counts how long a
file has been missing, and forgets it after `forget_after`. Only time in which the folder was listed counts:
time in which no job ran forgets nothing. Files that the source itself has deleted or archived are forgotten
at once. So the set is as large as the folder, plus the files that other programs have removed recently.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from penstock.runtime.io.connectors.filesystem import FileInfo

#: Value of `missing_for` for a file that a listing misses for the first time; 0 would mean present.
_JUST_NOW: Final = 1e-6


class KnownState(TypedDict):
    """The set in a checkpoint; arrays are little-endian.

    Attributes:
        missing: Positions of the files that are missing.
        missing_for: Seconds for which each of these has been missing.
    """

    names: bytes
    stamps: bytes
    missing: bytes
    missing_for: bytes


@dataclass(frozen=True, slots=True, eq=False)
class KnownFiles:
    """An immutable set of files.

    Attributes:
        names: Digests of paths, sorted.
        stamps: Checksums of size and modification time.
        missing_for: Seconds for which each file has been missing; 0 for a present file.

    Example:
        >>> a, b = FileInfo("/in/a", 5, modified=1), FileInfo("/in/b", 7, modified=2)
        >>> call = RollCall(KnownFiles.empty().with_files([a]))
        >>> [info.path for info in call.unknown([a, b])]
        ['/in/b']
    """

    names: npt.NDArray[np.uint64]
    stamps: npt.NDArray[np.uint32]
    missing_for: npt.NDArray[np.float64]

    @staticmethod
    def empty() -> KnownFiles:
        return KnownFiles(np.empty(0, "<u8"), np.empty(0, "<u4"), np.empty(0, "<f8"))

    @staticmethod
    def restored(state: KnownState) -> KnownFiles:
        names = np.frombuffer(state["names"], "<u8")
        missing_for = np.zeros(len(names), "<f8")
        missing_for[np.frombuffer(state["missing"], "<u4")] = np.frombuffer(state["missing_for"], "<f8")
        return KnownFiles(names, np.frombuffer(state["stamps"], "<u4"), missing_for)

    def state(self) -> KnownState:
        missing = np.flatnonzero(self.missing_for)
        return {
            "names": self.names.tobytes(),
            "stamps": self.stamps.tobytes(),
            "missing": missing.astype("<u4").tobytes(),
            "missing_for": self.missing_for[missing].tobytes(),
        }

    def __len__(self) -> int:
        return len(self.names)

    def with_files(self, files: Sequence[FileInfo]) -> KnownFiles:
        """Add files that are not in the set."""
        if not files:
            return self
        names = np.concatenate([self.names, names_of(info.path for info in files)])
        order = np.argsort(names, kind="stable")
        return KnownFiles(
            names[order],
            np.concatenate([self.stamps, _stamps_of(files)])[order],
            np.concatenate([self.missing_for, np.zeros(len(files), "<f8")])[order],
        )

    def without(self, paths: Sequence[str]) -> KnownFiles:
        return self.where(~np.isin(self.names, names_of(paths))) if paths else self

    def where(self, kept: npt.NDArray[np.bool_]) -> KnownFiles:
        return KnownFiles(self.names[kept], self.stamps[kept], self.missing_for[kept])


class RollCall:
    """One listing of the folder: finds the files that are not known, and those that are missing.

    Attributes:
        changed: Paths of known files that have another size or modification time than before.
    """

    def __init__(self, known: KnownFiles) -> None:
        self._known = known
        self._is_present = np.zeros(len(known), np.bool_)
        self._stamps = known.stamps.copy()
        self.changed: list[str] = []

    def unknown(self, listed: Sequence[FileInfo]) -> list[FileInfo]:
        """Mark the known ones among some listed files as present, and return the others."""
        known = self._known.names
        if not len(known):
            return list(listed)
        names = names_of(info.path for info in listed)
        at = np.minimum(np.searchsorted(known, names), len(known) - 1)
        is_known = known[at] == names
        self._is_present[at[is_known]] = True
        stamps = _stamps_of(listed)
        has_changed = is_known & (self._stamps[at] != stamps)
        self._stamps[at[has_changed]] = stamps[has_changed]
        self.changed += [listed[index].path for index in np.flatnonzero(has_changed).tolist()]
        return [listed[index] for index in np.flatnonzero(~is_known).tolist()]

    def ended(self, seconds: float, forget_after: float) -> KnownFiles:
        """Return the known files after this listing, which came `seconds` after the previous one."""
        before, is_missing = self._known.missing_for, ~self._is_present
        missing_for = np.where(is_missing, np.maximum(before + seconds, _JUST_NOW), 0).astype("<f8")
        known = replace(self._known, stamps=self._stamps, missing_for=missing_for)
        # A file that is missed for the first time is kept.
        is_forgotten = is_missing & (before > 0) & (missing_for > forget_after)
        return known.where(~is_forgotten) if is_forgotten.any() else known


def names_of(paths: Iterable[str]) -> npt.NDArray[Any]:
    """64-bit digests of paths."""
    digests = [blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest() for path in paths]
    return np.frombuffer(b"".join(digests), "<u8")


def _stamps_of(files: Sequence[FileInfo]) -> npt.NDArray[Any]:
    stamps = [zlib.crc32(b"%d %d" % (info.size, info.modified or 0)) for info in files]
    return np.array(stamps, "<u4")
