"""`FileSource`: reads files of text, JSON lines, CSV, Parquet and other formats.

The files are on local disks or in object stores. They are listed once, when the job starts without a
snapshot; the source ends after reading them. With `watch` it lists them again and again
(`watching_enumerator.py`). Every position is exact, so a restored job continues with the very next record.
Several subtasks share the files and the ranges of large files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, cast

import pyarrow as pa

from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import OnError, checked_setting
from penstock.runtime.io.connectors.file_formats.csv_dialect import (
    CsvDialect,
    declared_types,
    has_arrow_types,
)
from penstock.runtime.io.connectors.file_formats.csv_reader import CsvFormat
from penstock.runtime.io.connectors.file_formats.json_column_reader import ColumnarJsonFormat
from penstock.runtime.io.connectors.file_formats.lines import TextFormat, checked_encoding
from penstock.runtime.io.connectors.file_formats.parquet_reader import ParquetFormat
from penstock.runtime.io.connectors.file_formats.value_encoders import Framing
from penstock.runtime.io.connectors.file_formats.value_files import checked_format, file_format
from penstock.runtime.io.connectors.file_formats.value_lines import JsonLines
from penstock.runtime.io.connectors.files.file_cleaner import FileCleaner
from penstock.runtime.io.connectors.files.file_reader import (
    FileFormat,
    FileReader,
    Partitioning,
    Partitions,
    has_plain_records,
    list_files,
    open_split,
    with_path_columns,
)
from penstock.runtime.io.connectors.files.folder_lister import FolderLister
from penstock.runtime.io.connectors.files.folder_watch import FolderWatch, checked_watch
from penstock.runtime.io.connectors.files.learned_columns import Learned
from penstock.runtime.io.connectors.files.watching_enumerator import WatchingEnumerator, WatchState
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, absolute
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.settings import check_field_names
from penstock.runtime.names import NearestNames, checked_keywords
from penstock.runtime.operators.source import (
    ConnectorContext,
    NeededColumns,
    SplitEnumeratorContext,
    SplitsWithWarnings,
)
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration
from penstock.runtime.trust.paths import check_declared

T_co = TypeVar("T_co", covariant=True)

Locations: TypeAlias = Location | Iterable[Location]

#: CSV column types: an Arrow type or a function of the text for some columns, or `"infer"` for all columns.
CsvSchema: TypeAlias = Mapping[str, Callable[[str], Any] | pa.DataType] | pa.Schema | Literal["infer"]

DEFAULT_SPLIT_SIZE: Final = 32 * 1024 * 1024


@without_secrets
@dataclass(frozen=True)
class FileSource(Generic[T_co], metaclass=NearestNames):
    """A source of files; made by `text`, `json`, `csv`, `parquet` or `records`.

    Locations are paths, folders (all files below) and globs: `*`, `?`, `[...]`, and `**` for any folders.
    URLs (`file://`, `s3://`, `gs://`, `az://`) may also name files, folders and globs; a list may mix all
    kinds. Relative paths become absolute in the program that builds the graph. Folders and globs skip files
    and folders whose names begin with `_` or `.`, except folders `_name=value`. A glob whose last part begins
    with such a character does not skip these files. Files that end in `.gz`, `.bz2` or `.xz` are
    decompressed, except Parquet and Avro container files.

    Attributes:
        locations: Absolute paths and URLs.
        storage_options: Settings of the object store, under obstore's names (`region`, `endpoint`, ...).
        filesystem: A custom file system, used instead of the one that a URL names.
        trust_paths: Whether a snapshot may name files outside of `locations`, as after a move.
        partitioning: `"hive"` turns folders `name=value` into columns; `None` ignores them. By default
            such folders below the locations become columns; with records of text or bytes they are ignored.
            The default leaves a warning about such folders in the job's report.

    With `watch` the source also reads files that come later. `watch` is the time between two listings, or a
    `FolderWatch`. Inferred columns and the types of folder columns are then those of the first files.
    """

    only_reads: ClassVar[bool] = True

    _renamed = MappingProxyType({"json_lines": "json", "jsonl": "json"})

    locations: tuple[str, ...]
    form: FileFormat
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    filesystem: FileSystem | None = None
    trust_paths: bool = False
    partitioning: Partitioning = "auto"

    @staticmethod
    @checked_keywords
    def text(
        locations: Locations,
        *,
        encoding: str = "utf-8",
        split_size: int = DEFAULT_SPLIT_SIZE,
        on_error: OnError = "fail",
        partitioning: Partitioning = "auto",
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        watch: FolderWatch | Duration | None = None,
    ) -> FileSource[str]:
        """Each line is a record, a `str` without its line end; `partitioning="hive"` makes dicts.

        Args:
            locations: Paths, folders, globs or URLs. `FileSource` describes them, and the other arguments.
            encoding: Encoding of all files; a file in UTF-16 or UTF-32 is one split.
            split_size: Maximum bytes of a file that one subtask reads at a time.
            on_error: Handling of lines that can't be decoded: `"fail"`, `"skip"`, `"dead_letter"`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.

        Example:
            >>> FileSource.text("/data/**/*.log").locations
            ('/data/**/*.log',)
        """
        lines_in, stored_as = checked_encoding(encoding)
        form = TextFormat(
            lines_in,
            _checked_split_size(split_size),
            _checked_on_error(on_error),
            stored_as=stored_as,
        )
        return _file_source(locations, form, partitioning, storage_options, filesystem, trust_paths, watch)

    @staticmethod
    @checked_keywords
    def json(
        locations: Locations,
        *,
        encoding: str = "utf-8",
        split_size: int = DEFAULT_SPLIT_SIZE,
        on_error: OnError = "fail",
        batch_format: BatchFormat = "rows",
        schema: pa.Schema | None = None,
        partitioning: Partitioning = "auto",
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        watch: FolderWatch | Duration | None = None,
    ) -> FileSource[Any]:
        """JSON lines: each line is a JSON value; blank lines are skipped.

        When the job starts without a snapshot, up to four files are sampled. A file that is one JSON array
        over several lines is then refused.

        Args:
            locations: Paths, folders, globs or URLs. `FileSource` describes them, and the other arguments.
            encoding: Encoding of all files; a file in UTF-16 or UTF-32 is one split.
            split_size: Maximum bytes of a file that one subtask reads at a time.
            on_error: Handling of lines that are not JSON or don't fit the columns: `"fail"`, `"skip"`,
                `"dead_letter"`.
            batch_format: `"rows"`, or `"arrow"` for Arrow batches of objects.
            schema: With `"arrow"` the wanted fields and their types; other fields are ignored. By default
                all columns are inferred from a sample when the job starts without a snapshot.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.
        """
        lines_in, stored_as = checked_encoding(encoding)
        settings = (
            lines_in,
            _checked_split_size(split_size),
            _checked_on_error(on_error),
        )
        if _checked_format(batch_format) == "rows" and schema is not None:
            msg = 'schema= needs batch_format="arrow": a row has the fields of its line'
            raise ConfigurationError(msg)
        check_field_names(schema or ())
        form = (
            JsonLines(*settings, stored_as=stored_as)
            if batch_format == "rows"
            else ColumnarJsonFormat(*settings, schema, stored_as)
        )
        return _file_source(locations, form, partitioning, storage_options, filesystem, trust_paths, watch)

    @staticmethod
    @checked_keywords
    def csv(
        locations: Locations,
        *,
        header: bool = True,
        delimiter: str = ",",
        columns: Sequence[str] | None = None,
        schema: CsvSchema | None = None,
        null_values: Sequence[str] = (),
        quotechar: str | None = '"',
        escapechar: str | None = None,
        skip_rows: int = 0,
        encoding: str = "utf-8",
        max_field_size: int = 1024 * 1024,
        on_error: OnError = "fail",
        batch_format: BatchFormat = "rows",
        partitioning: Partitioning = "auto",
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        watch: FolderWatch | Duration | None = None,
    ) -> FileSource[Any]:
        """Each row is a dict from column name to text; quoted fields may hold newlines.

        With Arrow types (`pa.int64()`, `pa.date32()`) or `schema="infer"`, rows and Arrow batches have the
        same values. Types are inferred from a sample when the job starts without a snapshot, and then fixed.

        Args:
            locations: Paths, folders, globs or URLs; each file is read by a single subtask. `FileSource`
                describes them, and the other arguments.
            header: Whether the first row of each file names its columns.
            delimiter: The field separator, one character.
            columns: The wanted columns if there is a header; otherwise the names of all columns.
            schema: A dict from some columns to types, or a `pa.schema`. A type is an Arrow type, `int`,
                `float`, `bool`, or (for rows) any function of a `str`. An empty field of such a column is
                `None`, unless its type is text or bytes. `"infer"` infers all columns.
            null_values: Strings that are read as `None` in every column, such as `"NA"`. `""` makes empty
                fields of text `None`, too.
            quotechar: The character around quoted fields; `None` reads quotes as text.
            escapechar: The character that escapes the next one, such as a backslash.
            skip_rows: Number of rows to skip at the beginning of each file, before the header.
            encoding: Encoding of all files; a file in UTF-16 or UTF-32 is one split.
            max_field_size: Maximum length of a field in characters, unless Arrow parses it. The largest such
                setting applies to the whole process.
            on_error: Handling of rows that are not CSV, have the wrong number of fields or can't be
                converted: `"fail"`, `"skip"`, `"dead_letter"`.
            batch_format: `"rows"` or `"arrow"`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.
        """
        declared = _declared(schema)
        _check_csv(header, columns, declared, null_values)
        infer = isinstance(schema, str)
        in_columns = _checked_format(batch_format) == "arrow" or infer or has_arrow_types(declared)
        lines_in, stored_as = checked_encoding(encoding)
        dialect = CsvDialect(
            delimiter,
            quotechar,
            escapechar,
            tuple(null_values),
            skip_rows,
            lines_in,
            stored_as,
            max_field_size,
        )
        form = CsvFormat(
            dialect,
            header,
            None if columns is None else tuple(columns),
            declared_types(declared) if in_columns else declared,
            _checked_on_error(on_error),
            in_columns,
            infer,
            batch_format,
        )
        return _file_source(locations, form, partitioning, storage_options, filesystem, trust_paths, watch)

    @staticmethod
    @checked_keywords
    def parquet(
        locations: Locations,
        columns: Sequence[str] | None = None,
        batch_format: BatchFormat = "rows",
        *,
        partitioning: Partitioning = "auto",
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        watch: FolderWatch | Duration | None = None,
    ) -> FileSource[Any]:
        """Each record is a dict; with `batch_format="arrow"` records are emitted as Arrow batches.

        Args:
            locations: Paths, folders, globs or URLs; each row group is read by a single subtask.
                `FileSource` describes them, and the other arguments.
            columns: The wanted columns, `None` for all.
            batch_format: `"rows"` or `"arrow"`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed.
        """
        form = ParquetFormat(None if columns is None else tuple(columns), _checked_format(batch_format))
        return _file_source(locations, form, partitioning, storage_options, filesystem, trust_paths, watch)

    @staticmethod
    @checked_keywords
    def records(
        locations: Locations,
        format: Format,
        *,
        framing: Framing | None = None,
        split_size: int = DEFAULT_SPLIT_SIZE,
        on_error: OnError = "fail",
        batch_format: BatchFormat = "rows",
        partitioning: Partitioning = "auto",
        storage_options: Mapping[str, str] | None = None,
        filesystem: FileSystem | None = None,
        trust_paths: bool = False,
        watch: FolderWatch | Duration | None = None,
    ) -> FileSource[Any]:
        """Each record is a value of a format, as in Kafka; `FileSink.records` writes such files.

        Args:
            locations: Paths, folders, globs or URLs. `FileSource` describes them, and the other arguments.
            format: Decodes the values, such as `Avro()` or `Protobuf(Order)`. Each Avro container file has
                its own schema.
            framing: The arrangement of the values in a file. `"lines"`: each line is a value.
                `"length_delimited"`: each value follows its length, a varint, as Protobuf's
                `writeDelimitedTo` writes it. `"container"`: Avro's object container files. By default
                `"container"` for Avro, `"length_delimited"` for Protobuf, bytes and values with a schema
                registry, and `"lines"` for other formats.
            split_size: Maximum bytes of a file that one subtask reads at a time; a file of
                `"length_delimited"` is one split.
            on_error: Handling of values that can't be decoded: `"fail"`, `"skip"`, `"dead_letter"`.
            batch_format: `"rows"` or `"arrow"`.

        Raises:
            ConfigurationError: A setting has a value that is not allowed, or the framing does not fit the
                format.

        Example:
            >>> from penstock.formats import Json
            >>> FileSource.records("/data/*.jsonl", Json()) == FileSource.json("/data/*.jsonl")
            True
        """
        form = file_format(
            checked_format(format),
            framing,
            _checked_format(batch_format),
            _checked_split_size(split_size),
            _checked_on_error(on_error),
        )
        return _file_source(locations, form, partitioning, storage_options, filesystem, trust_paths, watch)

    def with_projection(self, columns: Sequence[str]) -> FileSource[T_co]:
        """Return a copy of this Parquet source that reads only these columns, in this order.

        Raises:
            ConfigurationError: The source reads no Parquet files, or doesn't read some of these columns.

        Example:
            >>> FileSource.parquet("/data").with_projection(["k", "v"]).form.columns
            ('k', 'v')
        """
        form = self._parquet("with_projection")
        unknown = [name for name in columns if form.columns is not None and name not in form.columns]
        if unknown or isinstance(columns, str):
            msg = f"columns={columns!r} is not a list of columns that this source reads: {form.columns}"
            raise ConfigurationError(msg)
        return replace(self, form=replace(form, columns=tuple(columns)))

    def with_filter(self, wanted: Any) -> FileSource[T_co]:
        """Return a copy of this Parquet source without rows for which an expression is false or null.

        Row groups whose statistics exclude the expression are not read. A second filter narrows the first.

        Args:
            wanted: A `pyarrow.compute` expression of columns that the source reads.

        Raises:
            ConfigurationError: The source reads no Parquet files, or `wanted` is not an expression.

        Example:
            >>> import pyarrow.compute as pc
            >>> FileSource.parquet("/data").with_filter(pc.field("v") > 3).form.wanted
            <pyarrow.compute.Expression (v > 3)>
        """
        import pyarrow.compute as arrow_compute

        form = self._parquet("with_filter")
        if not isinstance(wanted, arrow_compute.Expression):
            msg = f"{wanted!r} is not an expression of pyarrow.compute, such as pc.field('v') > 3"
            raise ConfigurationError(msg)
        both = wanted if form.wanted is None else form.wanted & wanted
        return replace(self, form=replace(form, wanted=both))

    def reading(self, needed: NeededColumns) -> FileSource[T_co]:
        """Return a source without the columns and row groups of Parquet files that no step needs."""
        if not isinstance(self.form, ParquetFormat):
            return self
        return replace(self, form=replace(self.form, needed=needed))

    def _parquet(self, method: str) -> ParquetFormat:
        if not isinstance(self.form, ParquetFormat):
            msg = f"FileSource.{method} is for Parquet files: choose columns and filter after this source"
            raise ConfigurationError(msg)
        return self.form

    def splits(self, parallelism: int) -> Sequence[Any]:
        """List the files and split them.

        Raises:
            ConnectorError: No file matches, or the location can't be listed.
        """
        warnings: list[str] = []
        infos = list_files(self.locations, self._file_systems(), warnings.append)
        splits, _ = self._divide(infos, self.form, parallelism, warnings, None)
        return SplitsWithWarnings(splits, warnings)

    def _divide(
        self,
        infos: Sequence[FileInfo],
        form: FileFormat,
        parallelism: int,
        warnings: list[str],
        folders: pa.Schema | None,
    ) -> tuple[list[Any], pa.Schema]:
        """Divide files into splits; also return their folder columns.

        Args:
            folders: Folder columns of files that were divided before; these keep their types.
        """
        filesystem_of = self._file_systems()
        by_system: dict[int, tuple[FileSystem, list[FileInfo]]] = {}
        for info in infos:
            system = filesystem_of(info.path)
            by_system.setdefault(id(system), (system, []))[1].append(info)
        partitions = self._partitions(infos, warnings, folders)
        listed: list[Any] = []
        for system, files in by_system.values():
            adapted = form if partitions is None else with_path_columns(form, partitions.of(files[0].path))
            found = adapted.splits(files, system, parallelism)
            listed.extend(found if partitions is None else partitions.with_columns(found))
            warnings.extend(found.warnings if isinstance(found, SplitsWithWarnings) else ())
        return listed, pa.schema([]) if partitions is None else partitions.schema

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> FileReader:
        """Make the reader of one subtask.

        Raises:
            UntrustedPathError: A split of the snapshot names a file that is not in `locations`.
        """
        if not self.trust_paths:
            self._check(splits)
        return FileReader(context, splits, partial(open_split, self.form), self._file_systems())

    def _partitions(
        self, files: Sequence[FileInfo], warnings: list[str], known: pa.Schema | None
    ) -> Partitions | None:
        types: Mapping[str, Any] = {}
        if isinstance(self.form, CsvFormat):
            in_file = () if self.form.header else self.form.columns or ()
            types = {name: kind for name, kind in self.form.types.items() if name not in in_file}
        partitions = Partitions(files, self.locations, self.partitioning, types, known)
        if not partitions.names:
            return None
        if self.partitioning == "auto":
            where = f"{', '.join(self.locations)}: folders such as {partitions.example!r}"
            names = ", ".join(map(repr, partitions.names))
            if has_plain_records(self.form):
                warnings.append(
                    f"{where} are ignored, because records have no fields. partitioning='hive' makes dicts "
                    f"of 'value', the record, and {names}; partitioning=None ignores them without this notice"
                )
                return None
            warnings.append(
                f"{where} are read as columns: {names}. partitioning='hive' does so without this notice, and "
                "partitioning=None leaves them out"
            )
        return partitions

    def _check(self, splits: Sequence[Any]) -> None:
        if self.filesystem is not None:
            # A custom file system's paths may match no location, so all files that it finds count as
            # declared.
            found = {info.path for info in list_files(self.locations, self._file_systems())} if splits else ()
            unknown = [split for split in splits if split.path not in found]
        for split in splits if self.filesystem is None else unknown:
            check_declared(split.path, self.locations)

    def _file_systems(self) -> Callable[[str], FileSystem]:
        """Return a function from path to file system; each file system is opened once."""
        opened: dict[str, FileSystem] = {}

        def filesystem_of(location: str) -> FileSystem:
            if self.filesystem is not None:
                return self.filesystem
            root = "/".join(location.split("/", 3)[:3]) if "://" in location else ""
            if root not in opened:
                opened[root] = filesystem_for(location, self.storage_options)
            return opened[root]

        return filesystem_of


@without_secrets
@dataclass(frozen=True)
class WatchedFileSource(FileSource[T_co]):
    """Reads the files of the locations, and then new ones as they come."""

    watch: FolderWatch = field(kw_only=True)

    def __post_init__(self) -> None:
        self.watch.check_archive(self.locations)

    def enumerator(self, context: SplitEnumeratorContext, state: WatchState | None) -> WatchingEnumerator:
        """Make the enumerator, which lists the files again and again."""
        filesystem = self._file_systems()
        lister = FolderLister(self.locations, self.watch, filesystem)
        cleaner = None
        if self.watch.clean_source != "off":
            cleaner = FileCleaner(self.locations, self.watch, filesystem, trusts_paths=self.trust_paths)
        return WatchingEnumerator(self.watch, lister, self, cleaner, context, state)

    def divide(
        self, files: Sequence[FileInfo], parallelism: int, learned: Learned
    ) -> tuple[Sequence[Any], Learned, Sequence[str]]:
        """Divide new files into splits, with the columns that were learned from the first files."""
        warnings: list[str] = []
        form, folders = learned.applied_to(self.form), learned.folder_columns
        splits, found = self._divide(files, form, parallelism, warnings, folders)
        now = learned.extended(splits, found)
        return now.given_to(splits), now, warnings if folders is None else ()


def _file_source(
    locations: Locations,
    form: FileFormat,
    partitioning: Partitioning,
    storage_options: Mapping[str, str] | None,
    filesystem: FileSystem | None,
    trust_paths: bool,
    watch: FolderWatch | Duration | None,
) -> FileSource[Any]:
    checked = checked_setting("partitioning", partitioning, ("auto", "hive", None))
    options = dict(storage_options or {})
    settings: Any = (_absolute(locations), form, options, filesystem, trust_paths, checked)
    checked_settings = checked_watch(watch)
    if checked_settings is None:
        return FileSource(*settings)
    return WatchedFileSource(*settings, watch=checked_settings)


def _absolute(locations: Locations) -> tuple[str, ...]:
    given: Any = locations
    is_single = isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable)
    several = [given] if is_single else list(given)
    if not several:
        msg = "no location is given: name a path, a folder, a glob pattern or a URL"
        raise ConfigurationError(msg)
    return tuple(absolute("locations", location) for location in several)


def _checked_split_size(split_size: int) -> int:
    if split_size < 1:
        msg = f"split_size={split_size} is not allowed: give a number of bytes, at least 1"
        raise ConfigurationError(msg)
    return split_size


def _checked_on_error(on_error: str) -> OnError:
    return cast(OnError, checked_setting("on_error", on_error, ("fail", "skip", "dead_letter")))


def _checked_format(batch_format: str) -> BatchFormat:
    return cast(BatchFormat, checked_setting("batch_format", batch_format, ("rows", "arrow")))


def _declared(schema: Any) -> dict[str, Any]:
    if isinstance(schema, str) and schema != "infer":
        msg = f"schema={schema!r} is not a setting: give 'infer', a dict from column to type, or a pa.schema"
        raise ConfigurationError(msg)
    if isinstance(schema, pa.Schema):
        check_field_names(schema)
        return {field.name: field.type for field in schema}
    return {} if isinstance(schema, str) else dict(schema or {})


def _check_csv(
    header: bool, columns: Sequence[str] | None, types: Mapping[str, Any], null_values: Sequence[str]
) -> None:
    if isinstance(columns, str):
        msg = f"columns={columns!r} is a single string: give a list of names, [{columns!r}]"
        raise ConfigurationError(msg)
    if not header and not columns:
        msg = "header=False needs columns=[...], the names of all columns in their order"
        raise ConfigurationError(msg)
    unknown = [] if columns is None else [name for name in types if name not in columns]
    if unknown:
        msg = f"schema has {unknown}, which columns={list(columns or ())} lacks"
        raise ConfigurationError(msg)
    if columns is not None and len(set(columns)) < len(columns):
        msg = f"columns={list(columns)} names a column twice"
        raise ConfigurationError(msg)
    if isinstance(null_values, str) or not all(isinstance(text, str) for text in null_values):
        msg = f"null_values={null_values!r} is not allowed: give a list of strings, such as ['NA', '-']"
        raise ConfigurationError(msg)
