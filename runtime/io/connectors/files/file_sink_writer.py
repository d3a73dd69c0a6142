"""The writer of one subtask of a `FileSink`: writes, commits and removes files.

**Names.** Only a file's name identifies its writer (`PartNames`):
`_inprogress-<job>-<operator>-<subtask>-<attempt>-<n>.<ext>` until it is committed, `part-...` afterwards. A
job id and an operator id may contain `-`. The operator id is escaped so that it has no `-`. So a name can be
parsed in only one way, from the right.

**Folders.** With `partition_by` a subtask has an open file for each folder, up to `MOST_OPEN`. A file is
moved into its folder when it is committed. Until then it is in the sink's directory, where leftovers are
found.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import shown
from penstock.runtime.io.connectors.file_formats.encoders import ClosesEncoders, CountingOutput, FileEncoder
from penstock.runtime.io.connectors.files.folders import Folders
from penstock.runtime.io.connectors.filesystem import FileSystem, Publication
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.trust.paths import UntrustedPathError, check_directory, check_file_name

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.files.file_sink import FileSink

IN_PROGRESS: Final = "_inprogress-"

COMMITTED: Final = "part-"

#: Maximum number of open files of a subtask; beyond it, the least recently written file ends.
MOST_OPEN: Final = 100

_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")

_LONGEST_OPERATOR: Final = 96
# obstore's local store appends `#<n>` while it uploads.
_NUMBERS: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.[A-Za-z0-9.]+(?:#\d+)?")


_COMMITTED_BY: Final = re.compile(rf"{COMMITTED}(.+)-[A-Za-z0-9_.=]*-{_NUMBERS.pattern}")


def committing_job(name: str) -> str | None:
    """Return the job that committed the file of this name; `None` for any other file.

    Example:
        >>> committing_job("part-job-1-to=20files-0-1-0.jsonl"), committing_job("part-0.jsonl")
        ('job-1', None)
    """
    match = _COMMITTED_BY.fullmatch(name)
    return None if match is None else match[1]


def file_safe(text: str) -> str:
    """Escape any text to ASCII letters, digits, `_`, `.` and `=XX`; long texts end in a hash.

    Example:
        >>> file_safe("count-words/é")
        'count=2Dwords=2F=C3=A9'
    """
    escaped = "".join(
        char if char in _SAFE else "".join(f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )
    if len(escaped) <= _LONGEST_OPERATOR:
        return escaped
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{escaped[: _LONGEST_OPERATOR - 22]}=={digest}"


@dataclass(frozen=True, slots=True)
class PartNames:
    """Names of the files that one subtask of one attempt writes."""

    job_id: str
    operator_id: str
    subtask: int
    attempt: int
    extension: str

    @property
    def owner(self) -> str:
        return f"{self.job_id}-{file_safe(self.operator_id)}-"

    def in_progress(self, number: int) -> str:
        return f"{IN_PROGRESS}{self._stem}{number}.{self.extension}"

    def committed(self, number: int) -> str:
        return f"{COMMITTED}{self._stem}{number}.{self.extension}"

    @property
    def probe(self) -> str:
        return f"_probe-{self._stem}0"

    def next_number(self, existing: Iterable[str]) -> int:
        used = [-1]
        for name in existing:
            for prefix in (IN_PROGRESS, COMMITTED):
                match = self._numbers(name, prefix)
                if match is not None and match[:2] == (self.subtask, self.attempt):
                    used.append(match[2])
        return max(used) + 1

    def leftovers(self, existing: Iterable[str]) -> list[str]:
        """Names of files that earlier attempts of this job's operator began and never committed."""
        found = []
        for name in existing:
            numbers = self._numbers(name, IN_PROGRESS)
            if numbers is not None and numbers[1] < self.attempt:
                found.append(name)
        return found

    def is_pair(self, in_progress: str, committed: str) -> bool:
        """Whether these are the two names of one file that this operator wrote, in any job."""
        stem = in_progress.removeprefix(IN_PROGRESS)
        if stem == in_progress or committed != COMMITTED + stem:
            return False
        mine = rf".+-{re.escape(file_safe(self.operator_id))}-{_NUMBERS.pattern}"
        return re.fullmatch(mine, stem) is not None

    @property
    def _stem(self) -> str:
        return f"{self.owner}{self.subtask}-{self.attempt}-"

    def _numbers(self, name: str, prefix: str) -> tuple[int, int, int] | None:
        prefix += self.owner
        match = _NUMBERS.fullmatch(name, len(prefix)) if name.startswith(prefix) else None
        return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A pre-committed file; any subtask can commit it.

    If the sink's directory has changed since, only a sink with `trust_paths` commits it.
    """

    directory: str
    name: str
    final: str
    size: int


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and its encoder.

    Attributes:
        folder: Folder in which the file will be committed; empty for the directory itself.
        number: Number in the file's name.
    """

    folder: str
    encoder: FileEncoder
    output: CountingOutput
    number: int


class FileSinkWriter:
    """Writes the files of one subtask; a file that reaches the sink's `max_file_size` is ended early."""

    def __init__(self, sink: FileSink, names: PartNames, filesystem: Callable[[str], FileSystem]) -> None:
        self._sink = sink
        self._directory = sink.directory
        self._names = names
        self._folders = Folders(sink.partition_by)
        self._new_encoder = sink.form.encoders()
        self._filesystem_of = cache(filesystem)
        self._next_number = names.next_number(self._own_names(IN_PROGRESS) + self._own_names(COMMITTED))
        #: Open files by folder, the least recently written one first.
        self._open: dict[str, _OpenFile] = {}
        self._ended: list[PendingFile] = []

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        try:
            for folder, part in self._folders.split(batch):
                file = self._file_of(folder)
                file.encoder.write(part)
                if file.output.size >= self._sink.max_file_size:
                    self._end(file)
                elif len(self._open) > MOST_OPEN:
                    self._end(next(iter(self._open.values())))
        except OSError as error:
            raise self._unwritable(error) from error

    def prepare_commit(self) -> Sequence[PendingFile]:
        try:
            for file in list(self._open.values()):
                self._end(file)
        except OSError as error:
            raise self._unwritable(error) from error
        pending, self._ended = self._ended, []
        return pending

    def commit(self, committables: Sequence[PendingFile], permit: CommitPermit) -> None:
        self._check_paths(committables)
        for pending in committables:
            filesystem = self._filesystem_of(pending.directory)
            try:
                outcome = filesystem.publish(pending.directory, pending.name, pending.final)
            except OSError as error:
                msg = f"{pending.directory}/{pending.name} can't be renamed to {pending.final}: {error}"
                raise ConnectorError(msg) from error
            self._check_outcome(outcome, pending)

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Delete files that earlier attempts of this operator began and no checkpoint covers."""
        leftovers = self._names.leftovers(self._own_names(IN_PROGRESS))
        self._filesystem_of(self._directory).delete(self._directory, leftovers)

    def close(self) -> None:
        if isinstance(self._new_encoder, ClosesEncoders):
            self._new_encoder.close()
        while self._open:
            self._open.popitem()[1].output.output.discard()
        never_handed_out = [pending.name for pending in self._ended]
        self._ended = []
        self._filesystem_of(self._directory).delete(self._directory, never_handed_out)

    def _file_of(self, folder: str) -> _OpenFile:
        file = self._open.pop(folder, None)
        if file is not None:
            self._open[folder] = file
            return file
        file = self._open[folder] = _OpenFile(folder, self._new_encoder(), *self._created())
        file.encoder.begin(file.output, partial(self._next_file, file))
        return file

    def _created(self) -> tuple[CountingOutput, int]:
        number = self._next_number
        name = self._names.in_progress(number)
        output = CountingOutput(self._filesystem_of(self._directory).create(self._directory, name))
        self._next_number += 1
        return output, number

    def _next_file(self, file: _OpenFile) -> CountingOutput:
        self._finish(file)
        file.output, file.number = self._created()
        return file.output

    def _end(self, file: _OpenFile) -> None:
        file.encoder.end()
        self._finish(file)
        del self._open[file.folder]

    def _finish(self, file: _OpenFile) -> None:
        file.output.output.finish()
        name = self._names.committed(file.number)
        pending = PendingFile(
            self._directory,
            self._names.in_progress(file.number),
            f"{file.folder}/{name}" if file.folder else name,
            file.output.size,
        )
        self._ended.append(pending)

    def _check_paths(self, committables: Sequence[PendingFile]) -> None:
        for pending in committables if not self._sink.trust_paths else ():
            if not isinstance(pending, PendingFile):
                msg = f"the snapshot has {shown(pending)} instead of a file to commit"
                raise UntrustedPathError(msg)
            check_directory(pending.directory, self._directory)
            *folders, final = str(pending.final).split("/")
            for name in (pending.name, final, *folders):
                check_file_name(name)
            are_columns = all("=" in folder for folder in folders)
            if not are_columns or not self._names.is_pair(pending.name, final):
                msg = (
                    f"the snapshot renames {pending.name!r} to {pending.final!r} in {pending.directory}: "
                    "these are not names of this sink. Set trust_paths=True if you trust everyone who could "
                    "write the snapshot"
                )
                raise UntrustedPathError(msg)

    def _check_outcome(self, outcome: Publication, pending: PendingFile) -> None:
        final = f"{pending.directory}/{pending.final}"
        if outcome is Publication.OCCUPIED:
            msg = (
                f"{final} exists and is not {pending.name}, which must be committed under this "
                "name; nothing was overwritten. Two jobs use the same job id: move the older file away"
            )
            raise ConnectorError(msg)
        if outcome is Publication.MISSING and not self._sink.allow_missing:
            msg = (
                f"committed data is missing: neither {pending.name} nor {final} exists, but a completed "
                "checkpoint covers this file. If a consumer moved it away, set allow_missing=True; otherwise "
                "put it back, or restore an older checkpoint"
            )
            raise ConnectorError(msg)

    def _own_names(self, prefix: str) -> list[str]:
        return list(self._filesystem_of(self._directory).names(self._directory, prefix + self._names.owner))

    def _unwritable(self, error: OSError) -> ConnectorError:
        return ConnectorError(
            f"a file in {self._directory} can't be written: {error}. Check the free space and the permissions"
        )
