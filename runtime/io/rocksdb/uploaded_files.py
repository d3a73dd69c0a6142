"""Which files of a database are in the checkpoint storage already, so that a checkpoint may name them again.

RocksDB never changes a sorted file (`*.sst`), and never gives its number to another one. So within one
database, a file of the same name is the same file. What a checkpoint uploads is those that the newest
*confirmed* checkpoint does not have. The rule is that of the heap's increments (`state/increments.py`), for
the same reason. Files of a checkpoint that is not known to be complete may be deleted any moment, with
whatever was built on them. So only files of the checkpoint that a barrier names as confirmed are named again.

Nothing is lost when that checkpoint is unknown here. The database has everything, and all of it is uploaded.
Names of other databases never meet: each object is about one database. A new attempt begins with the files
that it has restored, under the names that they had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.runtime.snapshot.handles import KeyedStateHandle, StateHandle

_NOTHING: Final = -1
#: Finished snapshots that are remembered while none of them is confirmed.
_MAX_FINISHED: Final = 64
#: How the names of files that never change end.
SORTED_FILE: Final = ".sst"
#: The file that says which manifest counts.
CURRENT: Final = "CURRENT"
#: RocksDB's numbers have 64 bits.
_STATE_FILE: Final = re.compile(rf"[0-9]{{1,20}}\.sst|MANIFEST-[0-9]{{1,20}}|{CURRENT}")


def is_state_file(name: str) -> bool:
    """Whether a restore needs a file of this name: no log, which is empty, nor what each opening writes.

    Example:
        >>> [is_state_file(name) for name in ("000012.sst", "CURRENT", "OPTIONS-000007", "../000012.sst")]
        [True, True, False, False]
    """
    return _STATE_FILE.fullmatch(name) is not None


class UploadedFiles:
    """The sorted files of one database that are stored.

    Example:
        >>> from penstock.runtime.snapshot.handles import InlineHandle, KeyGroupRange
        >>> files, handle = UploadedFiles(), InlineHandle(b"...")
        >>> files.begun(1)
        >>> groups = KeyGroupRange(0, 9)
        >>> files.finished(1, KeyedStateHandle(groups, (handle,), names=("000008.sst",)))
        >>> files.of(-1), files.of(1)
        ({}, {'000008.sst': InlineHandle(data=b'...')})
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Know nothing: the next snapshot uploads everything."""
        self._confirmed_id = _NOTHING
        self._confirmed: Mapping[str, StateHandle] = {}
        self._in_flight: set[int] = set()
        self._finished: dict[int, Mapping[str, StateHandle]] = {}

    def start_from(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """Begin with the files of a completed checkpoint that the database was opened from."""
        self.clear()
        self._confirmed_id, self._confirmed = checkpoint_id, _sorted_files(handle)

    def of(self, confirmed_id: int) -> Mapping[str, StateHandle]:
        """By name, the files of a confirmed checkpoint; none where it is unknown.

        Older checkpoints are forgotten: no barrier names them any more.
        """
        found = self._finished.get(confirmed_id)
        if found is not None:
            self._confirmed_id, self._confirmed = confirmed_id, found
            self._finished = {known: f for known, f in self._finished.items() if known > confirmed_id}
            self._in_flight = {known for known in self._in_flight if known > confirmed_id}
        return self._confirmed if confirmed_id == self._confirmed_id else {}

    def begun(self, checkpoint_id: int) -> None:
        """A snapshot that later ones may build on is being written."""
        self._in_flight.add(checkpoint_id)
        if len(self._in_flight) > _MAX_FINISHED:
            self._in_flight.remove(min(self._in_flight))

    def finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """Its files are written; ignored for a snapshot that is not, or no longer, to be built on."""
        if checkpoint_id not in self._in_flight:
            return
        self._in_flight.remove(checkpoint_id)
        self._finished[checkpoint_id] = _sorted_files(handle)
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[min(self._finished)]

    def forget(self, checkpoint_id: int) -> None:
        """The job gave this snapshot up: no barrier will ever confirm it."""
        self._in_flight.discard(checkpoint_id)
        self._finished.pop(checkpoint_id, None)


def _sorted_files(handle: KeyedStateHandle) -> dict[str, StateHandle]:
    pairs = zip(handle.names, handle.files, strict=True)
    return {name: file for name, file in pairs if name.endswith(SORTED_FILE)}
