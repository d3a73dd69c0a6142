"""`SnapshotPaths`: the only place that formats paths of a job's snapshots, log and ids.

    <job>/log/<slot>                                       a decision; the slot has 20 digits
    <job>/log/compaction                                   the slot of a compaction
    <job>/chk-<id>-<attempt>/metadata                      a checkpoint
    <job>/chk-<id>-<attempt>/channels-<vertex>-<subtask>   in-flight data of a checkpoint
    <job>/savepoint-<id>-<attempt>/metadata                a savepoint; all its files are in its folder
    <job>/shared/<attempt>-<id>-<operator>-<subtask>-<n>   state files, which later checkpoints may share
    <job>/same-storage                                     used to test that all nodes see the same storage
    <job>/ids/<id>                                         the newest id that was given to a checkpoint

Names of metadata and state files contain the attempt, so a superseded attempt that still runs never
overwrites its successor's files. A file that a completed checkpoint uses is deleted only if `may_delete`
allows it, because it may belong to a savepoint or to another job. Files with other names belong to no job,
and stay.

The file in `ids` prevents a later JobMaster from reusing an id. If an id were reused, a reader of an
externally induced source could mistake an old checkpoint's mark for the mark of the new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import xxhash

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.trust.paths import check_path

_JOB_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,98}[a-z0-9])?")

_SLOT: Final = re.compile(r"[0-9]{20}")
#: Ids, attempts and counters are below 2^62, so they have at most 19 digits.
_NUMBER: Final = "[0-9]{1,19}"
#: Pattern of an escaped name (`escape_name`).
_ESCAPED: Final = "[a-z0-9_.]*"

_STATE: Final = f"{_ESCAPED}-{_NUMBER}-{_NUMBER}"

_SHARED: Final = re.compile(f"shared/(?P<attempt>{_NUMBER})-(?P<checkpoint>{_NUMBER})-{_STATE}")

_FOLDER: Final = f"(?P<checkpoint>{_NUMBER})-(?P<attempt>{_NUMBER})"

_CHECKPOINT: Final = re.compile(f"chk-{_FOLDER}/(?:metadata|channels-{_ESCAPED}-{_NUMBER})")

_SAVEPOINT: Final = re.compile(f"savepoint-{_FOLDER}/(?:metadata|{_STATE})")

_GIVEN: Final = re.compile(_NUMBER)
#: Name of the metadata file in a snapshot's folder.
METADATA: Final = "metadata"

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_")

#: Maximum length of an escaped operator id; longer ones are cut and get a hash.
_LONGEST_NAME: Final = 100


def check_folder(prefix: str) -> str:
    if prefix:
        check_path(prefix.removesuffix("/") if prefix.endswith("/") else prefix + "//")
    return prefix


def check_job_id(job_id: str) -> str:
    if not isinstance(job_id, str) or _JOB_ID.fullmatch(job_id) is None:
        msg = (
            f"job id {job_id!r}: use 1 to 100 lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit"
        )
        raise ConfigurationError(msg)
    return job_id


def escape_name(name: str) -> str:
    """Escape any text for a file name; different texts give different results.

    Example:
        >>> escape_name("count"), escape_name("Zähler/1")
        ('count', '.5a.c3.a4hler.2f1')
    """
    data = name.encode("utf-8", "surrogatepass")
    escaped = "".join(chr(byte) if byte in _PLAIN else f".{byte:02x}" for byte in data)
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:60]}..{xxhash.xxh3_128_hexdigest(data)}"


class SnapshotPaths:
    """Formats the paths of one job, relative to the storage's root.

    Example:
        >>> paths = SnapshotPaths("word-count")
        >>> paths.metadata(SnapshotKind.CHECKPOINT, 7, 2)
        'word-count/chk-7-2/metadata'
        >>> paths.log_slot(3)
        'word-count/log/00000000000000000003'
    """

    def __init__(self, job_id: str) -> None:
        self.job_id = check_job_id(job_id)

    @property
    def log(self) -> str:
        return f"{self.job_id}/log/"

    def log_slot(self, slot: int) -> str:
        return f"{self.log}{slot:020d}"

    @property
    def log_hint(self) -> str:
        return f"{self.log}compaction"

    def slot_of(self, path: str) -> int | None:
        """The slot of a file in the log's folder; `None` for a file that is not a record."""
        name = path.removeprefix(self.log)
        return int(name) if _SLOT.fullmatch(name) else None

    def snapshot_folder(self, kind: SnapshotKind, checkpoint_id: int, attempt: int) -> str:
        name = "savepoint" if kind.is_savepoint else "chk"
        return f"{self.job_id}/{name}-{checkpoint_id}-{attempt}/"

    def metadata(self, kind: SnapshotKind, checkpoint_id: int, attempt: int) -> str:
        return f"{self.snapshot_folder(kind, checkpoint_id, attempt)}{METADATA}"

    def shared_file(
        self, *, checkpoint_id: int, attempt: int, operator_id: str, subtask: int, number: int
    ) -> str:
        """A state file that later checkpoints may also refer to.

        Example:
            >>> place = {"checkpoint_id": 7, "attempt": 2, "operator_id": "a-b", "subtask": 0, "number": 1}
            >>> SnapshotPaths("j").shared_file(**place)
            'j/shared/2-7-a.2db-0-1'
        """
        return f"{self.shared}{attempt}-{checkpoint_id}-{escape_name(operator_id)}-{subtask}-{number}"

    def savepoint_file(
        self, *, checkpoint_id: int, attempt: int, operator_id: str, subtask: int, number: int
    ) -> str:
        """A state file in a savepoint's own folder, which can be moved or deleted as a whole."""
        folder = self.snapshot_folder(SnapshotKind.SAVEPOINT, checkpoint_id, attempt)
        return folder + self.savepoint_file_name(operator_id=operator_id, subtask=subtask, number=number)

    def savepoint_location(self, target: str, checkpoint_id: int, attempt: int) -> str:
        """URL of a savepoint's own folder below a target folder of the user."""
        return f"{target.rstrip('/')}/savepoint-{self.job_id}-{checkpoint_id}-{attempt}"

    @staticmethod
    def savepoint_file_name(*, operator_id: str, subtask: int, number: int) -> str:
        """A state file in a savepoint's own folder, relative to that folder."""
        return f"{escape_name(operator_id)}-{subtask}-{number}"

    def channel_state(self, *, checkpoint_id: int, attempt: int, vertex: str, subtask: int) -> str:
        """The file of a subtask's in-flight data, in the folder of its checkpoint."""
        folder = self.snapshot_folder(SnapshotKind.CHECKPOINT, checkpoint_id, attempt)
        return f"{folder}channels-{escape_name(vertex)}-{subtask}"

    @property
    def assigned_ids(self) -> str:
        return f"{self.job_id}/ids/"

    def assigned_id(self, checkpoint_id: int) -> str:
        return f"{self.assigned_ids}{checkpoint_id}"

    def assigned_id_of(self, path: str) -> int | None:
        """The checkpoint id that a file of `assigned_ids` records; `None` for any other file."""
        name = path.removeprefix(self.assigned_ids)
        return int(name) if name != path and _GIVEN.fullmatch(name) else None

    @property
    def shared(self) -> str:
        return f"{self.job_id}/shared/"

    @property
    def same_storage(self) -> str:
        return f"{self.job_id}/same-storage"

    def may_delete(self, handle: FileHandle) -> bool:
        """Return whether the file belongs to this job's checkpoints, not to a savepoint or another job."""
        return self.writer_of(handle.path) is not None

    def writer_of(self, path: str) -> int | None:
        """The attempt that wrote a file of a checkpoint; `None` for other files, even a savepoint's."""
        written = self._written(path)
        return None if written is None or written.re is _SAVEPOINT else int(written["attempt"])

    def attempt_of(self, path: str) -> int | None:
        """The attempt that wrote a file of a checkpoint or savepoint; `None` for any other file."""
        written = self._written(path)
        return None if written is None else int(written["attempt"])

    def checkpoint_of(self, path: str) -> int | None:
        """The checkpoint or savepoint that wrote a file of this job; `None` for any other file."""
        written = self._written(path)
        return None if written is None else int(written["checkpoint"])

    def _written(self, path: str) -> re.Match[str] | None:
        if not path.startswith(f"{self.job_id}/"):
            return None
        start = len(self.job_id) + 1
        matches = (pattern.fullmatch(path, start) for pattern in (_SHARED, _CHECKPOINT, _SAVEPOINT))
        return next(filter(None, matches), None)


def assigned_ids(paths: SnapshotPaths, present: Iterable[str]) -> dict[int, str]:
    return {given: path for path in present if (given := paths.assigned_id_of(path)) is not None}


def highest_assigned_id(storage: SnapshotStorage, job_id: str) -> int:
    """The highest id that was given to a checkpoint or savepoint, -1 for none; blocks."""
    paths = SnapshotPaths(job_id)
    return max(assigned_ids(paths, storage.list(paths.assigned_ids)), default=-1)
