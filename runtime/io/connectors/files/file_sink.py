"""`FileSink`: writes files that appear when, and only when, a checkpoint covers them.

Rows go to a file whose name begins with `_`, which readers of folders leave out (Spark, Hive and `FileSource`
do). At a checkpoint the file is ended and made durable; when the checkpoint is complete it is renamed to its
final name. A crash in between is safe either way. The checkpoint names the file, so a restored job renames it
again. Files that no checkpoint names are deleted later. Nothing is ever overwritten, and files of other jobs
are never touched. (The idea is that of Flink's `FileSink` and Hadoop's output committers.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.files.file_sink_writer import (
    IN_PROGRESS,
    FileSinkWriter,
    PartNames,
    PendingFile,
)
from penstock.runtime.io.connectors.filesystems.filesystem import FileSystem, absolute
from penstock.runtime.io.connectors.filesystems.local_files import filesystem_for
from penstock.runtime.io.connectors.formats.encoders import CsvSinkFormat, JsonSinkFormat, SinkFormat
from penstock.runtime.io.connectors.formats.parquet_encoder import ParquetSinkFormat
from penstock.runtime.names import NearestNames, checked_keywords
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.redaction import without_secrets

DEFAULT_MAX_FILE_SIZE: Final = 256 * 1024 * 1024

#: Object stores copy no more than this in one request.
_LARGEST_COPY: Final = 5 * 1024**3

#: No job gets so far.
_BEHIND_ALL_ATTEMPTS: Final = 1 << 62


@without_secrets
@dataclass(frozen=True)
class FileSink(metaclass=NearestNames):
    """A transactional sink of files; made by `json`, `csv` or `parquet`.

    The directory is a local path, a `file://` URL or an object-store URL (`s3://bucket/folder`). A local
    directory must be the same place on every node. Each checkpoint ends a file in every subtask.

    Attributes:
        directory: Absolute path or URL.
        max_file_size: A file that has grown to this many bytes is ended before the checkpoint.
        allow_missing: A commit that is repeated after a recovery may find a file nowhere. True takes it as
            committed and then moved away by a consumer of the directory. Otherwise it is an error.
        storage_options: Settings of the object store as obstore names them.
        filesystem: A file system of the user's own, used instead of the one that a URL names.
        trust_paths: Whether a snapshot may name files to commit that are not in `directory`, as when the job
            had another one before.
    """

    _renamed = MappingProxyType({"json_lines": "json", "jsonl": "json"})

    directory: str
    form: SinkFormat
    max_file_size: int = DEFAULT_MAX_FILE_SIZE
    allow_missing: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    filesystem: FileSystem | None = None
    trust_paths: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", absolute(self.directory))
        if self.max_file_size < 1 or ("://" in self.directory and self.max_file_size >= _LARGEST_COPY):
            msg = f"max_file_size={self.max_file_size} is not allowed: from 1 byte to below 5 GiB"
            raise ConfigurationError(msg)

    @property
    def only_reads(self) -> bool:
        """Whether no function of the user's sees the records: JSON may be given one."""
        return getattr(self.form, "default", None) is None

    @staticmethod
    @checked_keywords
    def json(
        directory: str | os.PathLike[str],
        *,
        default: Callable[[Any], Any] | None = None,
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
    ) -> FileSink:
        """JSON lines: each record is a line, in files ending in `.jsonl`.

        Args:
            directory: Where to.
            default: What makes a JSON value of an object that JSON does not know, for example `str`.
            max_file_size: Bytes at which a file is ended early.
            allow_missing: Consumers may move committed files away while the job runs.
            storage_options: Settings of the object store.
            filesystem: A file system of your own.
            trust_paths: Commit files that a snapshot names also when they are not in `directory`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.

        Example:
            >>> FileSink.json("/data/out").directory
            '/data/out'
        """
        options = dict(storage_options or {})
        form = JsonSinkFormat(default)
        return FileSink(
            os.fspath(directory), form, max_file_size, allow_missing, options, filesystem, trust_paths
        )

    @staticmethod
    @checked_keywords
    def csv(
        directory: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        header: bool = True,
        delimiter: str = ",",
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
    ) -> FileSink:
        """CSV: each record is a dict, a tuple or a list; `None` is an empty field.

        Args:
            directory: Where to.
            columns: Names of the columns in their order; without them the first dict of each subtask decides.
            header: Begin each file with the names, if there are any.
            delimiter: What separates fields, one character.
            max_file_size: Bytes at which a file is ended early.
            allow_missing: Consumers may move committed files away while the job runs.
            storage_options: Settings of the object store.
            filesystem: A file system of your own.
            trust_paths: Commit files that a snapshot names also when they are not in `directory`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.
        """
        if len(delimiter) != 1 or delimiter in '\r\n"':
            msg = f"delimiter={delimiter!r} is not allowed: it is one character, and no quote or line end"
            raise ConfigurationError(msg)
        if isinstance(columns, str) or (columns is not None and len(set(columns)) < len(columns)):
            msg = f"columns={columns!r} is not allowed: give a list of different names"
            raise ConfigurationError(msg)
        form = CsvSinkFormat(None if columns is None else tuple(columns), header, delimiter)
        options = dict(storage_options or {})
        return FileSink(
            os.fspath(directory), form, max_file_size, allow_missing, options, filesystem, trust_paths
        )

    @staticmethod
    @checked_keywords
    def parquet(
        directory: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        compression: str = "snappy",
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
    ) -> FileSink:
        """Parquet: records are dicts, or Arrow batches.

        Args:
            directory: Where to.
            schema: The schema of all files. Without it each value keeps its own type, and rows whose types do
                not go together stand in different files. Columns that a row lacks are null.
            compression: Codec as pyarrow names it.
            max_file_size: Bytes at which a file is ended early.
            allow_missing: Consumers may move committed files away while the job runs.
            storage_options: Settings of the object store.
            filesystem: A file system of your own.
            trust_paths: Commit files that a snapshot names also when they are not in `directory`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.
        """
        if not _is_codec(compression):
            msg = f"compression={compression!r} is not a codec that pyarrow has, such as 'snappy' or 'zstd'"
            raise ConfigurationError(msg)
        form = ParquetSinkFormat(schema, compression)
        options = dict(storage_options or {})
        return FileSink(
            os.fspath(directory), form, max_file_size, allow_missing, options, filesystem, trust_paths
        )

    def writer(self, context: ConnectorContext) -> FileSinkWriter:
        """Make the writer of one subtask; makes the directory if it is missing.

        Raises:
            ConnectorError: The directory can't be made or written.
        """
        names = PartNames(
            context.job_id, context.operator_id, context.subtask, context.attempt, self.form.extension
        )
        serving = self._file_system_of
        filesystem = serving(self.directory)
        try:
            filesystem.make_directory(self.directory, names.probe)
        except OSError as error:
            msg = (
                f"operator '{context.operator_id}': directory {self.directory} can't be written: {error}. "
                "Make it, or give the user of the Ray workers the right to make files in it, on every node"
            )
            raise ConnectorError(msg) from error
        return FileSinkWriter(
            self.directory,
            names,
            self.form.encoder(),
            serving,
            max_file_size=self.max_file_size,
            allow_missing=self.allow_missing,
            trust_paths=self.trust_paths,
        )

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[PendingFile]) -> None:
        """Delete the files of an ended job that are not committed and not covered.

        Raises:
            OSError: A file can't be deleted.
        """
        names = PartNames(job_id, operator_id, 0, _BEHIND_ALL_ATTEMPTS, self.form.extension)
        system = self._file_system_of(self.directory)
        kept = {pending.name for pending in covered}
        begun = names.leftovers(system.names(self.directory, IN_PROGRESS + names.owner))
        system.delete(self.directory, [name for name in begun if name not in kept])

    def _file_system_of(self, directory: str) -> FileSystem:
        return self.filesystem or filesystem_for(directory, self.storage_options)


def _is_codec(compression: str) -> bool:
    try:
        return compression == "none" or bool(pa.Codec.is_available(compression))
    except ValueError:
        return False
