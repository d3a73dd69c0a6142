"""Lists the files of a source when a job starts without a snapshot, and reads them split by split.

**Folder columns**: `year=2020/country=DE/part-0.csv`, as Hive, Spark and Arrow write them. A folder
`name=value` is a column of all files below it. Name and value are URL-encoded, and
`__HIVE_DEFAULT_PARTITION__` is null. Types are decided once, when the job starts without a snapshot. Types
that the schema of a CSV source does not declare are inferred as for CSV columns (`csv_dialect.py`). So
`month=02` is text, and `year=2020` is a number. Each split contains its folder columns, so a restored job has
the same columns. A column in the file itself takes precedence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.arrow_batches import PathColumns
from penstock.runtime.io.connectors.errors import shown
from penstock.runtime.io.connectors.file_formats.csv_dialect import checked_column, inferred_type
from penstock.runtime.io.connectors.file_formats.csv_reader import CsvFormat
from penstock.runtime.io.connectors.file_formats.json_column_reader import ColumnarJsonFormat
from penstock.runtime.io.connectors.file_formats.lines import TextFormat
from penstock.runtime.io.connectors.file_formats.parquet_reader import ParquetFormat
from penstock.runtime.io.connectors.filesystem import FetchesFiles, FileInfo, FileSystem
from penstock.runtime.io.formats.plain import Raw, Text
from penstock.runtime.operators.lag import SourceLag, SplitLag
from penstock.runtime.operators.source import ConnectorContext, Polled, SplitProgress
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.trust.data import read_batch, write_batch
from penstock.runtime.trust.paths import is_glob, literal_folder


def list_files(
    patterns: Sequence[str],
    filesystem: Callable[[str], FileSystem],
    warn: Callable[[str], None] = lambda warning: None,
) -> list[FileInfo]:
    """List the files of all patterns, each file once, in the order of the patterns and then by path.

    Names that begin with `_` or `.` belong to hidden files, or to unfinished files of sinks. They are skipped
    unless the pattern names them, or its last part begins with one of these characters. Folders `_name=value`
    are always read.

    Raises:
        ConnectorError: A pattern matches no file, or the location can't be listed.
    """
    files: dict[str, FileInfo] = {}
    for pattern in patterns:
        try:
            found = filesystem(pattern).find(pattern)
        except OSError as error:
            msg = f"{pattern}: can't be listed: {error}. Check that every node can read it"
            raise ConnectorError(msg) from error
        unreadable = [info for info in found if info.unreadable]
        if unreadable:
            found = [info for info in found if not info.unreadable]
            count = "1 file is" if len(unreadable) == 1 else f"{len(unreadable)} files are"
            first = unreadable[0]
            warn(f"{pattern}: {count} left out; the first is {first.path!r}: {first.unreadable}")
        visible = [info for info in found if is_visible(info.path, pattern)]
        if not visible:
            raise ConnectorError(_nothing_found(pattern, hidden=len(found)))
        if len(visible) < len(found):
            warn(_left_out(pattern, [info.path for info in found if not is_visible(info.path, pattern)]))
        files.update((info.path, info) for info in visible)
    return list(files.values())


def is_visible(path: str, pattern: str) -> bool:
    if path == pattern:
        return True
    below = path[len(literal_folder(pattern)) :] if is_glob(pattern) else path[len(pattern.rstrip("/")) + 1 :]
    written_out = set(pattern.split("/"))
    parts = below.split("/")
    wants_hidden = pattern.rsplit("/", 1)[-1][:1] in ("_", ".")
    signs, seen = (".", parts[:-1]) if wants_hidden else ("_.", parts)
    # `_name=value/` is a column, as Spark writes it.
    columns = [part for part in parts[:-1] if "=" in part and part[0] == "_"]
    return not any(
        part[:1] in tuple(signs) and part not in written_out and part not in columns for part in seen
    )


def _left_out(pattern: str, hidden: list[str]) -> str:
    first = min(hidden)
    begin = first.rsplit("/", 1)[-1][:1]
    folder = literal_folder(pattern).rstrip("/") if is_glob(pattern) else pattern.rstrip("/")
    pick = f"{folder}/{begin if begin in ('_', '.') else '_'}*"
    files = "1 file was" if len(hidden) == 1 else f"{len(hidden)} files were"
    return (
        f"{pattern}: {files} left out, because names that begin with '_' or '.' are hidden; the first is "
        f"{first}. To read them, begin the last part of the pattern with that character, such as {pick!r}"
    )


def _nothing_found(pattern: str, *, hidden: int) -> str:
    if is_glob(pattern):
        folder = literal_folder(pattern).rstrip("/") or "/"
        missing = f"no file matches {pattern!r}; searched in {folder!r}"
    else:
        missing = f"no file is at {pattern!r}"
    left_out = f" (hidden files, whose names begin with '_' or '.': {hidden})" if hidden else ""
    return (
        f"{missing}{left_out}. Check the spelling, and that the folder is mounted at this path on every node "
        "of the cluster"
    )


#: Seconds between two measurements of the open split.
_MEASURE_EVERY: Final = 1.0

#: Maximum number of empty splits that one poll skips.
_EMPTY_SPLITS_PER_POLL: Final = 8


#: Maximum number of small files that are fetched together, and the maximum size of one in bytes.
_FILES_AT_ONCE: Final = 32
_SMALL_BYTES: Final = 256 * 1024


def _is_small(split: Any) -> bool:
    listed = split.split if isinstance(split, PartitionedSplit) else split
    return bool(getattr(listed, "size", _SMALL_BYTES) < _SMALL_BYTES)


class SplitReader(Protocol):
    def read(self, max_rows: int) -> Polled[Any]:
        """Return the next records; `finished` means that the split has ended and the poll has no record."""
        ...

    def position(self) -> Any: ...

    def close(self) -> None: ...


class FileFormat(Protocol):
    """Splits and reads files of one format; a frozen value that is pickled."""

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
        #: Number of splits whose files were fetched together, and that are not opened yet.
        self._to_open = 0
        self.split_progress = SplitProgress((), bool(splits))
        left = [split.bytes_left for split in splits]
        #: Bytes of the splits that wait, and of the open one; the latter is measured once a second.
        self._waiting_bytes = None if None in left else sum(left)
        self._current_lag: SplitLag | None = None
        self._measure_at = 0.0

    def poll(self, max_rows: int) -> Polled[Any]:
        for _ in range(_EMPTY_SPLITS_PER_POLL):
            if self._current is None:
                if not self._waiting:
                    return Polled(finished=True)
                split = self._waiting[0]
                filesystem = self._filesystem(split.path)
                if isinstance(filesystem, FetchesFiles):
                    self._fetch_small_files(filesystem)
                self._current = self._open(split, filesystem)
                self._waiting.popleft()
                self._opened += 1
                self._current_lag = SplitLag(split.path, bytes=split.bytes_left)
                if self._waiting_bytes is not None:
                    self._waiting_bytes -= split.bytes_left
                self.split_progress = SplitProgress((self._opened,), bool(self._waiting))
            polled = self._current.read(max_rows)
            if not polled.finished:
                self._measure()
                if polled.batch is not None:
                    return replace(polled, split=self._opened)
                return replace(polled, ready_at=self._clock.monotonic())
            self._current.close()
            self._current = self._current_lag = None
            self.split_progress = SplitProgress((), bool(self._waiting))
        return Polled(ready_at=self._clock.monotonic())

    def snapshot(self) -> Sequence[Any]:
        current = () if self._current is None else (self._current.position(),)
        return [*current, *self._waiting]

    def lag(self) -> SourceLag:
        """The number of splits that are left, and their bytes if the size of each is known."""
        current, waiting = self._current_lag, SourceLag(None, self._waiting_bytes, len(self._waiting))
        return waiting if current is None else waiting.plus(SourceLag.of([current]))

    def _fetch_small_files(self, filesystem: Any) -> None:
        """Fetch the next small files together, in about the time that one of them takes alone."""
        if self._to_open:
            self._to_open -= 1
            return
        small = list(takewhile(_is_small, islice(self._waiting, _FILES_AT_ONCE)))
        paths = [split.path for split in small if self._filesystem(split.path) is filesystem]
        if len(paths) > 1:
            filesystem.fetch(paths)
            self._to_open = len(small) - 1

    def _measure(self) -> None:
        """Measure the open split, at most once a second: for lines, `position` scans the current block."""
        now = self._clock.monotonic()
        if now >= self._measure_at and self._current is not None:
            self._measure_at = now + _MEASURE_EVERY
            split = self._current.position()
            self._current_lag = SplitLag(split.path, bytes=split.bytes_left)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


#: `"auto"` takes columns only from folders below the locations, and a warning in the job's report names them.
#: Records without fields get no columns then.
Partitioning: TypeAlias = Literal["auto", "hive"] | None

#: Name of the column that holds a record without fields when there are folder columns, as in Spark.
TEXT_COLUMN: Final = "value"

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class PartitionedSplit:
    """A split of a file, with its folder columns as an Arrow batch of one row."""

    split: Any
    columns: bytes

    @property
    def path(self) -> str:
        return str(self.split.path)

    @property
    def bytes_left(self) -> int | None:
        left: int | None = self.split.bytes_left
        return left


class Partitions:
    """The folder columns of a source's files; refuses a path that names a column twice."""

    def __init__(
        self,
        files: Sequence[FileInfo],
        locations: Sequence[str],
        partitioning: Partitioning,
        types: Mapping[str, Any],
        known: pa.Schema | None = None,
    ) -> None:
        bases = [""] if partitioning == "hive" else [base_of(location) for location in locations]
        found = {} if partitioning is None else {info.path: _columns_of(info.path, bases) for info in files}
        inferred = {} if known is None else dict(zip(known.names, known.types, strict=True))
        self.names = tuple(
            dict.fromkeys([*inferred, *(name for columns in found.values() for name in columns)])
        )
        texts = {name: [columns.get(name) for columns in found.values()] for name in self.names}
        values = [_typed(name, texts[name], types.get(name), inferred.get(name)) for name in self.names]
        table = pa.RecordBatch.from_arrays(values, names=list(self.names))
        self._rows = {path: table.slice(at, 1) for at, path in enumerate(found)} if self.names else {}
        self._found = found
        #: Columns whose types are decided now; a watched folder decides the type of a column of nulls later.
        self.schema = pa.schema(
            [field for field in table.schema if field.name in inferred or any(texts[field.name])]
        )

    @property
    def example(self) -> str:
        pairs = ((name, text) for columns in self._found.values() for name, text in columns.items())
        name, text = next(pairs)
        return f"{name}={_NULL if text is None else text}"

    def of(self, path: str) -> PathColumns:
        return PathColumns(self._rows[path])

    def with_columns(self, splits: Sequence[Any]) -> list[PartitionedSplit]:
        written: dict[str, bytes] = {}
        for split in splits:
            if split.path not in written:
                written[split.path] = write_batch(self._rows[split.path])
        return [PartitionedSplit(split, written[split.path]) for split in splits]


def open_split(form: FileFormat, split: Any, filesystem: FileSystem) -> SplitReader:
    if not isinstance(split, PartitionedSplit):
        return form.open(split, filesystem)
    columns = PathColumns(read_batch(split.columns))
    adapted = with_path_columns(form, columns)
    return PartitionedReader(adapted.open(split.split, filesystem), split, columns, form)


def has_plain_records(form: FileFormat) -> bool:
    """Whether records are strings or bytes, which have no fields."""
    return isinstance(form, TextFormat) or isinstance(getattr(form, "format", None), (Text, Raw))


def with_path_columns(form: FileFormat, columns: PathColumns) -> FileFormat:
    return replace(form, path_columns=columns) if isinstance(form, ParquetFormat | CsvFormat) else form


class PartitionedReader:
    """Adds folder columns to the rows of a reader; Parquet readers add them themselves."""

    def __init__(
        self, reader: SplitReader, split: PartitionedSplit, columns: PathColumns, form: FileFormat
    ) -> None:
        self._reader = reader
        self._split = split
        self._columns = columns
        self._form = form
        self._wanted = form.columns if isinstance(form, CsvFormat) and form.header else None

    def read(self, max_rows: int) -> Polled[Any]:
        polled = self._reader.read(max_rows)
        match polled.batch:
            case _ if isinstance(self._form, ParquetFormat):
                return polled
            case ArrowBatch(batch):
                if isinstance(self._form, ColumnarJsonFormat) and self._form.schema is not None:
                    batch = self._columns.filled_into(batch)
                return replace(polled, batch=ArrowBatch(self._columns.added_to(batch, self._wanted)))
            case RowBatch(rows):
                return replace(polled, batch=RowBatch(self._with_columns(rows)))
        return polled

    def position(self) -> PartitionedSplit:
        return replace(self._split, split=self._reader.position())

    def close(self) -> None:
        self._reader.close()

    def _with_columns(self, rows: Sequence[Any]) -> list[Any]:
        if has_plain_records(self._form):
            rows = [{TEXT_COLUMN: line} for line in rows]
        other = next((row for row in rows if type(row) is not dict), None)
        if other is not None:
            msg = (
                f"{self._split.path}: a record is {shown(other)}, which can't hold the columns "
                f"{self._columns.names} of its folders. Set partitioning=None"
            )
            raise ConnectorError(msg)
        return self._columns.added_to_rows(rows, self._wanted)


def base_of(location: str) -> str:
    return literal_folder(location) if is_glob(location) else f"{location.rstrip('/')}/"


def _columns_of(path: str, bases: Sequence[str]) -> dict[str, str | None]:
    """Return the name and text of each folder column of a path, below the shortest base that contains it."""
    base = min((base for base in bases if path.startswith(base)), key=len, default=path)
    found: dict[str, str | None] = {}
    for folder in path[len(base) :].split("/")[:-1]:
        name, sign, text = folder.partition("=")
        if not (sign and name):
            continue
        try:
            name, value = unquote(name, errors="strict"), unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            msg = (
                f"{path}: the folder {folder!r} is not UTF-8 after URL decoding. Rename it, or set "
                "partitioning=None"
            )
            raise ConnectorError(msg) from error
        if name in found:
            msg = (
                f"{path}: two folders name the column {name!r}. Rename one of them, or set partitioning=None"
            )
            raise ConnectorError(msg)
        found[name] = None if text == _NULL else value
    return found


def _typed(
    name: str, texts: Sequence[str | None], kind: Any, inferred: pa.DataType | None = None
) -> pa.Array:
    """Convert the values of folders to the declared type, else to the inferred type; infer it if needed."""
    present = [text for text in texts if text is not None]
    values = pa.array(texts, pa.string())
    try:
        if kind is None:
            kind = inferred_type(present) if inferred is None else inferred
            return values if kind == pa.string() else checked_column(values.fill_null(""), kind)
        if isinstance(kind, pa.DataType):
            return values.cast(kind)
        return pa.array([None if text is None else kind(text) for text in texts])
    except (pa.ArrowException, ValueError, TypeError) as error:
        msg = f"folders of column {name!r} can't be read as {kind}: {error}. The first is {name}={present[0]}"
        raise ConnectorError(msg) from error
