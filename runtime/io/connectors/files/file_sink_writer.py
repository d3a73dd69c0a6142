"""The writer of one subtask of a `FileSink`: open file, ended files, commit, abort, leftovers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.runtime.io.connectors.declared_paths import (
    UntrustedPathError,
    check_directory,
    check_file_name,
)
from penstock.runtime.io.connectors.errors import ConnectorError, shown
from penstock.runtime.io.connectors.files.part_names import COMMITTED, IN_PROGRESS, PartNames
from penstock.runtime.io.connectors.filesystems.filesystem import FileSystem, OutputFile, Publication
from penstock.runtime.io.connectors.formats.encoder import CountingOutput, Encoder
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A pre-committed file: what a commit needs, also in another subtask or with another directory set.

    Attributes:
        directory: Where it is.
        name: Its name until it is committed.
        final: Its name from then on.
        size: Its bytes.
    """

    directory: str
    name: str
    final: str
    size: int


class FileSinkWriter:
    """Writes the files of one subtask.

    Args:
        directory: Absolute path or URL.
        encoder: The file format.
        filesystem: Which file system serves a directory.
        max_file_size: Bytes at which a file is ended early.
        allow_missing: A file that is gone at commit counts as committed.
        trust_paths: Commit and delete also files of other directories, and under names of any shape.
    """

    def __init__(
        self,
        directory: str,
        names: PartNames,
        encoder: Encoder,
        filesystem: Callable[[str], FileSystem],
        *,
        max_file_size: int,
        allow_missing: bool,
        trust_paths: bool = False,
    ) -> None:
        self._directory = directory
        self._names = names
        self._encoder = encoder
        self._filesystem_of = filesystem
        self._systems = {directory: filesystem(directory)}
        self._max_file_size = max_file_size
        self._allow_missing = allow_missing
        self._trusts_paths = trust_paths
        self._next_number = names.next_number(self._own_names(IN_PROGRESS) + self._own_names(COMMITTED))
        self._output: OutputFile | None = None
        self._counting: CountingOutput | None = None
        self._ended: list[PendingFile] = []

    def write(self, batch: Batch) -> None:
        """Add records to the open file; one that has become large is ended.

        Raises:
            BadRecordError: A record can't be written in the sink's format.
            ConnectorError: The directory can't be written.
        """
        if not len(batch):
            return
        try:
            if self._counting is None:
                self._encoder.begin(self._begin(), self._next_file)
            self._encoder.write(batch)
            if self._counting is not None and self._counting.size >= self._max_file_size:
                self._end()
        except OSError as error:
            raise self._unwritable(error) from error

    def prepare_commit(self) -> Sequence[PendingFile]:
        """End the open file and make it durable.

        Raises:
            ConnectorError: The file can't be written.
        """
        try:
            self._end()
        except OSError as error:
            raise self._unwritable(error) from error
        pending, self._ended = self._ended, []
        return pending

    def commit(self, committables: Sequence[PendingFile], permit: CommitPermit) -> None:
        """Give pre-committed files their final names.

        Raises:
            ConnectorError: A file is nowhere, or its final name is taken by another file.
            UntrustedPathError: A snapshot names a file that this sink can't have written.
        """
        self._check(committables)
        for pending in committables:
            try:
                outcome = self._system(pending.directory).publish(
                    pending.directory, pending.name, pending.final
                )
            except OSError as error:
                msg = f"{pending.directory}/{pending.name} can't be renamed to {pending.final}: {error}"
                raise ConnectorError(msg) from error
            self._judge(outcome, pending)

    def abort(self, committables: Sequence[PendingFile]) -> None:
        """Delete pre-committed files that no checkpoint covers.

        Raises:
            UntrustedPathError: A snapshot names a file that this sink can't have written.
        """
        self._check(committables)
        for pending in committables:
            self._system(pending.directory).delete(pending.directory, [pending.name])

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Delete what earlier attempts of this job's operator began and no checkpoint covers."""
        leftovers = self._names.leftovers(self._own_names(IN_PROGRESS))
        self._systems[self._directory].delete(self._directory, leftovers)

    def close(self) -> None:
        """Remove what was not pre-committed; pre-committed files stay for the restored job."""
        if self._output is not None:
            output, self._output, self._counting = self._output, None, None
            output.discard()
        never_handed_out = [pending.name for pending in self._ended]
        self._ended = []
        self._systems[self._directory].delete(self._directory, never_handed_out)

    def _begin(self) -> CountingOutput:
        name = self._names.in_progress(self._next_number)
        self._output = self._systems[self._directory].create(self._directory, name)
        self._counting = CountingOutput(self._output)
        return self._counting

    def _next_file(self) -> CountingOutput:
        self._finish()
        return self._begin()

    def _end(self) -> None:
        if self._output is not None:
            self._encoder.end()
            self._finish()

    def _finish(self) -> None:
        assert self._output is not None, "a file is open"
        assert self._counting is not None, "a file is open"
        self._output.finish()
        number = self._next_number
        pending = PendingFile(
            self._directory,
            self._names.in_progress(number),
            self._names.committed(number),
            self._counting.size,
        )
        self._ended.append(pending)
        self._output = self._counting = None
        self._next_number += 1

    def _check(self, committables: Sequence[PendingFile]) -> None:
        """Nothing is touched before all were looked at."""
        for pending in committables if not self._trusts_paths else ():
            if not isinstance(pending, PendingFile):
                msg = f"the snapshot has {shown(pending)} where the files to commit are named"
                raise UntrustedPathError(msg)
            check_directory(pending.directory, self._directory)
            for name in (pending.name, pending.final):
                check_file_name(name)
            if not self._names.is_pair(pending.name, pending.final):
                msg = (
                    f"the snapshot renames {pending.name!r} to {pending.final!r} in {pending.directory}: "
                    "these are no names of this sink. Say trust_paths=True if you trust whoever could write "
                    "the snapshot"
                )
                raise UntrustedPathError(msg)

    def _judge(self, outcome: Publication, pending: PendingFile) -> None:
        final = f"{pending.directory}/{pending.final}"
        if outcome is Publication.OCCUPIED:
            msg = (
                f"{final} exists and is not {pending.name}, which is to be committed under this "
                "name; nothing was overwritten. Two jobs use one job id: move the older file away"
            )
            raise ConnectorError(msg)
        if outcome is Publication.MISSING and not self._allow_missing:
            msg = (
                f"committed data is missing: neither {pending.name} nor {final} is there, though a completed "
                "checkpoint covers this file. If a consumer moved it away, say allow_missing=True; otherwise "
                "bring it back, or restore an older checkpoint"
            )
            raise ConnectorError(msg)

    def _own_names(self, word: str) -> list[str]:
        return list(self._systems[self._directory].names(self._directory, word + self._names.owner))

    def _system(self, directory: str) -> FileSystem:
        if directory not in self._systems:
            self._systems[directory] = self._filesystem_of(directory)
        return self._systems[directory]

    def _unwritable(self, error: OSError) -> ConnectorError:
        return ConnectorError(
            f"a file in {self._directory} can't be written: {error}. Look for a full disk or lost rights"
        )
