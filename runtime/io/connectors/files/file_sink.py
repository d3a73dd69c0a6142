"""`FileSink`: writes files that appear only when a completed checkpoint covers them.

Rows go to a file whose name begins with `_`; folder readers skip such names (Spark, Hive, `FileSource`).
A checkpoint ends the file and makes it durable; after it completes, the file gets its final name. A crash in
between is safe: the checkpoint names the file, so a restored job repeats the rename. Files that no checkpoint
names are deleted later. Files are never overwritten. Flink's `FileSink` and
Hadoop's output committers work in the same way.

A job that starts without a snapshot refuses a directory with committed files of another job. With
`if_exists` it adds to them, or replaces them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from penstock.runtime.config.checks import Location, location
from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import OutputExistsError, checked_setting
from penstock.runtime.io.connectors.file_formats.encoders import CsvSinkFormat, SinkFormat
from penstock.runtime.io.connectors.file_formats.parquet_encoder import ParquetSinkFormat, is_codec
from penstock.runtime.io.connectors.file_formats.value_encoders import Framing
from penstock.runtime.io.connectors.file_formats.value_files import checked_format, sink_format
from penstock.runtime.io.connectors.files.file_sink_writer import (
    IN_PROGRESS,
    FileSinkWriter,
    PartNames,
    PendingFile,
    committing_job,
)
from penstock.runtime.io.connectors.filesystem import FileSystem, absolute
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.names import NearestNames, checked_keywords
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.redaction import without_secrets

DEFAULT_MAX_FILE_SIZE: Final = 256 * 1024 * 1024

#: Maximum bytes of one copy request in object stores.
_LARGEST_COPY: Final = 5 * 1024**3

#: Maximum number of names that are searched for committed files of other jobs.
_MOST_LISTED: Final = 10_000

IfExists: TypeAlias = Literal["error", "append", "replace"]

#: Larger than any attempt number.
_BEHIND_ALL_ATTEMPTS: Final = 1 << 62


@without_secrets
@dataclass(frozen=True)
class FileSink(metaclass=NearestNames):
    """A transactional sink of files; made by `json`, `csv`, `parquet` or `records`.

    The directory is a local path, a `file://` URL or an object-store URL (`s3://bucket/folder`). A local
    directory must be shared by all nodes. Each checkpoint ends the open files of every subtask.

    Attributes:
        directory: Absolute path or URL.
        max_file_size: Size in bytes at which a file is ended before the checkpoint.
        allow_missing: Whether the file of a commit that is repeated after a recovery may be missing. True
            assumes that a consumer moved the committed file away. False raises an error.
        storage_options: Settings of the object store, under obstore's names.
        filesystem: A custom file system, used instead of the one that a URL names.
        trust_paths: Whether a snapshot may name files to commit outside of `directory`, for example after
            `directory` was changed.
        partition_by: Columns whose values name folders, such as `day=2024-05-01/`, in which the files are
            committed. The files lack these columns; `FileSource` reads them from the folders. Values are
            text, integers, dates, booleans or null.
        if_exists: Behaviour of a job that starts without a snapshot, if the directory has committed files of
            another job. `"error"` fails the job before it writes. `"append"` adds files to them.
            `"replace"` deletes them before the job first runs. Then the other job must neither run nor be
            restored: its repeated commits would fail, or add files.
    """

    _renamed = MappingProxyType({"json_lines": "json", "jsonl": "json", "text": "records(directory, Text())"})

    directory: str
    form: SinkFormat
    max_file_size: int = DEFAULT_MAX_FILE_SIZE
    allow_missing: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    filesystem: FileSystem | None = None
    trust_paths: bool = False
    partition_by: Sequence[str] = ()
    if_exists: IfExists = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", absolute("directory", self.directory))
        checked_setting("if_exists", self.if_exists, get_args(IfExists))
        by = self.partition_by
        is_one = isinstance(by, str)
        if is_one or not all(isinstance(n, str) and n for n in by) or len(set(by)) < len(by):
            msg = f"partition_by={by!r} is not allowed: give a list of distinct column names"
            raise ConfigurationError(msg)
        if hidden := [name for name in by if name.startswith(".")]:
            msg = (
                f"partition_by has {hidden[0]!r}: readers skip folders whose names begin with a dot; rename "
                "the column"
            )
            raise ConfigurationError(msg)
        object.__setattr__(self, "partition_by", tuple(by))
        if self.max_file_size < 1 or ("://" in self.directory and self.max_file_size >= _LARGEST_COPY):
            msg = (
                f"max_file_size={self.max_file_size} is not allowed: give at least 1 byte and, in an object "
                "store, less than 5 GiB"
            )
            raise ConfigurationError(msg)

    @property
    def only_reads(self) -> bool:
        """Whether no user function sees the records; a format may call one."""
        return getattr(self.form, "only_reads", True)

    @staticmethod
    @checked_keywords
    def json(
        directory: Location,
        *,
        default: Callable[[Any], Any] | None = None,
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        partition_by: Sequence[str] = (),
        if_exists: IfExists = "error",
    ) -> FileSink:
        """JSON lines: each record is a line, in files ending in `.jsonl`.

        Args:
            directory: Folder of the files, a path or URL. `FileSink` describes this and other arguments.
            default: Function that converts an object unknown to JSON into a JSON value, for example `str`.

        Raises:
            ConfigurationError: A setting has an invalid value.

        Example:
            >>> FileSink.json("/data/out").directory
            '/data/out'
        """
        return FileSink(
            location("directory", directory),
            sink_format(Json(default=default), "lines", None),
            max_file_size,
            allow_missing,
            dict(storage_options or {}),
            filesystem,
            trust_paths,
            partition_by,
            if_exists,
        )

    @staticmethod
    @checked_keywords
    def csv(
        directory: Location,
        *,
        columns: Sequence[str] | None = None,
        header: bool = True,
        delimiter: str = ",",
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        partition_by: Sequence[str] = (),
        if_exists: IfExists = "error",
    ) -> FileSink:
        """CSV: each record is a dict, a tuple or a list; `None` is an empty field.

        Args:
            directory: Folder of the files, a path or URL. `FileSink` describes this and other arguments.
            columns: Names of the columns, in order; by default the keys of each subtask's first dict.
            header: Begin each file with the column names, if there are any.
            delimiter: The field separator, one character.

        Raises:
            ConfigurationError: A setting has an invalid value.
        """
        if len(delimiter) != 1 or delimiter in '\r\n"':
            msg = f"delimiter={delimiter!r} is not allowed: give one character, not a quote or a line end"
            raise ConfigurationError(msg)
        if isinstance(columns, str) or (columns is not None and len(set(columns)) < len(columns)):
            msg = f"columns={columns!r} is not allowed: give a list of different names"
            raise ConfigurationError(msg)
        return FileSink(
            location("directory", directory),
            CsvSinkFormat(None if columns is None else tuple(columns), header, delimiter),
            max_file_size,
            allow_missing,
            dict(storage_options or {}),
            filesystem,
            trust_paths,
            partition_by,
            if_exists,
        )

    @staticmethod
    @checked_keywords
    def parquet(
        directory: Location,
        schema: pa.Schema | None = None,
        *,
        compression: str = "snappy",
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        partition_by: Sequence[str] = (),
        if_exists: IfExists = "error",
    ) -> FileSink:
        """Parquet: records are dicts, or Arrow batches.

        Args:
            directory: Folder of the files, a path or URL. `FileSink` describes this and other arguments.
            schema: The schema of all files. Without it each value keeps its own type, and rows of
                incompatible types go to different files. Columns that a row lacks are null.
            compression: Compression codec, by pyarrow's name.

        Raises:
            ConfigurationError: A setting has an invalid value.
        """
        if not is_codec(compression):
            msg = f"compression={compression!r} is not a codec of pyarrow, such as 'snappy' or 'zstd'"
            raise ConfigurationError(msg)
        return FileSink(
            location("directory", directory),
            ParquetSinkFormat(schema, compression),
            max_file_size,
            allow_missing,
            dict(storage_options or {}),
            filesystem,
            trust_paths,
            partition_by,
            if_exists,
        )

    @staticmethod
    @checked_keywords
    def records(
        directory: Location,
        format: Format,
        *,
        framing: Framing | None = None,
        extension: str | None = None,
        max_file_size: int = DEFAULT_MAX_FILE_SIZE,
        allow_missing: bool = False,
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        partition_by: Sequence[str] = (),
        if_exists: IfExists = "error",
    ) -> FileSink:
        """Each record is a value of a format; `FileSource.records` reads the files.

        Args:
            directory: Folder of the files, a path or URL. `FileSink` describes this and other arguments.
            format: Encodes the records, such as `Avro(schema)` or `Protobuf(Order)`.
            framing: The arrangement of the values in a file, as for `FileSource.records`.
            extension: Extension of the files; by default that of the format and framing.

        Raises:
            ConfigurationError: A setting has an invalid value, or the framing does not fit the format.

        Example:
            >>> from penstock.formats import Text
            >>> FileSink.records("/data/out", Text()).form.extension
            'txt'
        """
        return FileSink(
            location("directory", directory),
            sink_format(checked_format(format), framing, extension),
            max_file_size,
            allow_missing,
            dict(storage_options or {}),
            filesystem,
            trust_paths,
            partition_by,
            if_exists,
        )

    def writer(self, context: ConnectorContext) -> FileSinkWriter:
        """Make the writer of one subtask, and the directory if it is missing.

        Raises:
            ConnectorError: The directory can't be made or written.
        """
        names = PartNames(
            context.job_id, context.operator_id, context.subtask, context.attempt, self.form.extension
        )
        try:
            self._file_system_of(self.directory).make_directory(self.directory, names.probe)
        except OSError as error:
            msg = (
                f"operator '{context.operator_id}': directory {self.directory} can't be written: {error}. "
                "Create it, or allow the user of the Ray workers to create files in it, on every node"
            )
            raise ConnectorError(msg) from error
        return FileSinkWriter(self, names, self._file_system_of)

    def prepare_destination(self, job_id: str) -> None:
        """Refuse a directory that has committed files of another job, or delete them, as `if_exists` says.

        `"error"` looks at the names of up to 10,000 files and folders, and `"replace"` at all.

        Raises:
            OutputExistsError: Another job has committed files there.
            ConnectorError: The directory can't be listed, or a file can't be deleted.
        """
        if self.if_exists == "append":
            return
        replaces, files = self.if_exists == "replace", self._file_system_of(self.directory)
        try:
            found = files.partition_files(self.directory, sys.maxsize if replaces else _MOST_LISTED)
            owners = {path: committing_job(path.rpartition("/")[2]) for path in found}
            others = {path: owner for path, owner in owners.items() if owner not in (None, job_id)}
            if replaces:
                files.delete(self.directory, list(others))
                return
        except OSError as error:
            what = "listed, or its files can't be deleted" if replaces else "listed"
            msg = f"directory {self.directory} can't be {what}: {error}. Check the path and its permissions"
            raise ConnectorError(msg) from error
        for path, owner in others.items():
            msg = (
                f"{self.directory} has output of another job: job {owner} has committed {path}. Choose "
                "another directory, or delete that output. To continue the other job, start from its "
                'snapshot with restore_from=. To add to its output, set if_exists="append"; to delete it, '
                'if_exists="replace"'
            )
            raise OutputExistsError(msg)

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[PendingFile]) -> None:
        """Delete the files of an ended job that are not committed and not covered."""
        names = PartNames(job_id, operator_id, 0, _BEHIND_ALL_ATTEMPTS, self.form.extension)
        system = self._file_system_of(self.directory)
        kept = {pending.name for pending in covered}
        begun = names.leftovers(system.names(self.directory, IN_PROGRESS + names.owner))
        system.delete(self.directory, [name for name in begun if name not in kept])

    def _file_system_of(self, directory: str) -> FileSystem:
        return self.filesystem or filesystem_for(directory, self.storage_options)
