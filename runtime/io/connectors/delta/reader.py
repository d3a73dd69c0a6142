"""`DeltaReader`: reads the files of a version, and follows the log of a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import ConnectorError, LostInputError
from penstock.runtime.io.connectors.arrow_batches import arrow_rows, rows_of_arrow
from penstock.runtime.io.connectors.delta.log import (
    LoggedFile,
    check_readable,
    commit_path,
    newest_version,
    read_commit,
)
from penstock.runtime.io.connectors.delta.tables import arrow_schema_of, find_table
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.operators.change_kinds import CHANGE_TYPE
from penstock.runtime.operators.lag import SourceLag, SplitLag, VersionLag
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.time.durations import as_seconds
from penstock.runtime.trust.paths import check_declared

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from penstock.runtime.io.connectors.delta.source import DeltaSource

#: Number of rows that are decoded at a time.
_BATCH_ROWS: Final = 64 * 1024
#: Time between two looks for the newest version, while older ones are read.
_LOOK_SECONDS: Final = 5.0

COMMIT_VERSION: Final = "_commit_version"


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """Files of a version, or the log from a version on.

    Attributes:
        version: The version that is read.
        files: Files of this version that are not read to their end; `None` until the log names them.
        row: Rows of the first file that were read.
        until: Last version to read; `None` follows the log without an end.
        table: Id of the table at the version that was read last; `None` if it is not known yet.
    """

    version: int
    files: tuple[LoggedFile, ...] | None
    row: int = 0
    until: int | None = None
    table: str | None = None

    @property
    def rows_left(self) -> int | None:
        """Rows of the files; `None` if they are not known."""
        if self.files is None or (self.until is not None and self.version < self.until):
            return None
        rows = [file.rows for file in self.files]
        known = [count for count in rows if count is not None]
        return sum(known) - self.row if len(known) == len(rows) else None


class DeltaReader:
    """Reads the splits of one subtask in turn; the split that follows the log comes last."""

    def __init__(
        self, source: DeltaSource, system: FileSystem, context: ConnectorContext, splits: Sequence[DeltaSplit]
    ) -> None:
        self._source = source
        self._path = str(source.path)
        self._system = system
        self._clock = context.clock
        self._wait = as_seconds(source.watch) if source.watch is not None else 0.0
        ordered = sorted(splits, key=lambda split: split.until is None)
        self._waiting = deque(ordered)
        self._split: DeltaSplit | None = None
        self._schema: pa.Schema | None = None
        #: A version, its schema, and the id of its table if the log still has the version.
        self._opened: tuple[int, pa.Schema, str | None] | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._newest: int | None = None
        self._looks_at = 0.0
        self._committed_at: float | None = None
        self._lag = self._measured()

    def poll(self, max_rows: int) -> Polled[Any]:
        if self._split is None:
            if not self._waiting:
                return Polled(finished=True)
            self._begin(self._waiting.popleft())
        split = self._split
        assert split is not None, "it was begun"
        if split.files is None:
            return self._look(split)
        if not split.files:
            self._end_version(split)
            return Polled(ready_at=self._clock.monotonic())
        batch = self._next_batch(split)
        if batch is None:
            self._split = replace(split, files=split.files[1:], row=0)
            self._batches = None
            return Polled(ready_at=self._clock.monotonic())
        in_columns = self._source.batch_format == "arrow"
        count = min(batch.num_rows, arrow_rows(max_rows) if in_columns else max_rows)
        self._batch = batch.slice(count) if count < batch.num_rows else None
        self._split = replace(split, row=split.row + count)
        self._lag = self._measured()
        part = batch.slice(0, count)
        return Polled(ArrowBatch(part) if in_columns else RowBatch(rows_of_arrow(part)))

    def snapshot(self) -> Sequence[DeltaSplit]:
        return [*(() if self._split is None else (self._split,)), *self._waiting]

    def lag(self) -> SourceLag:
        """Rows left in the files of each split, and versions that follow in the log."""
        return self._lag

    def close(self) -> None:
        self._batches = self._batch = None

    def _begin(self, split: DeltaSplit) -> None:
        self._batches = self._batch = self._committed_at = None
        # The schema before a commit that is not read yet; the commit may change it.
        before = max(0, split.version - 1)
        version = before if split.files is None else split.version
        if self._opened is None or self._opened[0] != version:
            # Most splits are files of one version. Each look at the log may be a request to a store.
            table = self._table_at(version)
            number = str(table.metadata().id) if table.version() <= version else None
            self._opened = version, arrow_schema_of(table), number
        _, self._schema, found = self._opened
        if found is not None:
            self._check_same(split, found)
            split = replace(split, table=found)
        self._split = split

    def _look(self, split: DeltaSplit) -> Polled[Any]:
        """Look for the commit of the split's version."""
        commit = read_commit(self._system, self._path, split.version)
        if commit is None:
            self._check_not_removed(split)
            if self._newest is None or self._newest >= split.version:
                self._newest = split.version - 1
                self._lag = self._measured()
            return Polled(ready_at=self._clock.monotonic() + self._wait)
        if commit.schema is not None:
            self._schema = commit.schema
        if self._source.change_data_feed:
            files = commit.changed or (*commit.removed, *commit.added)
        elif not commit.removed:
            files = commit.added
        elif self._source.skip_change_commits:
            files = ()
        else:
            msg = (
                f"table {self._path}: version {split.version} removes rows, but this source reads only new "
                "ones. Set change_data_feed=True to read changes, or skip_change_commits=True"
            )
            raise ConnectorError(msg)
        self._split = replace(split, files=files, row=0, table=commit.table or split.table)
        self._committed_at = commit.committed_at
        self._look_for_newest(split.version)
        self._lag = self._measured()
        return Polled(ready_at=self._clock.monotonic())

    def _end_version(self, split: DeltaSplit) -> None:
        if split.version == split.until:
            self._split = None
        else:
            self._split = replace(split, version=split.version + 1, files=None, row=0)
        self._lag = self._measured()

    def _look_for_newest(self, version: int) -> None:
        now = self._clock.monotonic()
        if self._newest is None or self._newest < version or now >= self._looks_at:
            self._newest = newest_version(self._system, self._path, version)
            self._looks_at = now + _LOOK_SECONDS

    def _check_same(self, split: DeltaSplit, found: str) -> None:
        """Fail if the path has another table now: its versions don't follow those that were read."""
        if split.table not in (None, found):
            msg = (
                f"table {self._path} was created again: its id was {split.table}, and is now {found}. So "
                f"rows after version {split.version - 1} may be lost. Start again without the snapshot of "
                "the job"
            )
            raise LostInputError(msg)

    def _check_not_removed(self, split: DeltaSplit) -> None:
        """Fail if a later version exists: then the log will never have this version again."""
        version = split.version
        if self._system.size(commit_path(self._path, version + 1)) is None:
            table = find_table(self._path, self._source.storage_options)
            if table is not None and table.version() < version:
                self._check_same(split, str(table.metadata().id))
                return
            if self._system.size(commit_path(self._path, version)) is not None:
                return  # the version was committed meanwhile
        msg = (
            f"table {self._path}: version {version} is not in the log any more, so its rows are lost for "
            "this job. Start again without the snapshot, and let delta.logRetentionDuration exceed the "
            "longest downtime of the job"
        )
        raise LostInputError(msg)

    def _next_batch(self, split: DeltaSplit) -> pa.RecordBatch | None:
        if self._batch is not None:
            return self._batch
        assert split.files, "the split has a file"
        if self._batches is None:
            self._batches = self._read(split.files[0], split.row, split.version)
        return next(self._batches, None)

    def _read(self, file: LoggedFile, skipped: int, version: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq  # slow to load

        path = check_declared(f"{self._path}/{file.path}", [self._path])
        schema = self._wanted(file)
        try:
            handle = self._system.open_input(path)
            try:
                # Spark writes INT96, which Arrow reads as nanoseconds by default: they overflow in 2262.
                parquet = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
                names = [name for name in schema.names if name in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
                    left = batch.slice(skipped) if skipped < batch.num_rows else batch.slice(0, 0)
                    skipped -= batch.num_rows - left.num_rows
                    if left.num_rows:
                        yield self._filled(left, schema, file, version)
            finally:
                handle.close()
        except pa.ArrowException as error:
            msg = (
                f"table {self._path}: {file.path} of version {version} is damaged, or its values don't fit "
                f"the columns of the table: {error}. Repair the table, or leave columns out with columns="
            )
            raise ConnectorError(msg) from error
        except OSError as error:
            msg = (
                f"table {self._path}: {file.path} of version {version} can't be read: {error}. VACUUM "
                "removes files of older versions: let its retention time exceed the longest downtime of the "
                "job"
            )
            raise ConnectorError(msg) from error

    def _wanted(self, file: LoggedFile) -> pa.Schema:
        assert self._schema is not None, "the split was begun"
        columns = self._source.columns
        schema = self._schema
        if columns is not None:
            missing = [name for name in columns if name not in schema.names]
            if missing:
                msg = f"table {self._path} has no column {missing[0]!r}; it has {', '.join(schema.names)}"
                raise ConnectorError(msg)
            schema = pa.schema([schema.field(name) for name in columns])
        return schema.append(pa.field(CHANGE_TYPE, pa.string())) if file.change == "" else schema

    def _filled(
        self, batch: pa.RecordBatch, schema: pa.Schema, file: LoggedFile, version: int
    ) -> pa.RecordBatch:
        count = batch.num_rows
        columns = [self._column(batch, field, file.partition) for field in schema]
        made = pa.RecordBatch.from_arrays(columns, schema=schema)
        if not self._source.change_data_feed:
            return made
        if file.change:
            made = made.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(file.change), count))
        return made.append_column(COMMIT_VERSION, pa.repeat(pa.scalar(version, pa.int64()), count))

    def _column(
        self, batch: pa.RecordBatch, field: pa.Field, partition: Mapping[str, str | None]
    ) -> pa.Array:
        kind = field.type
        if field.name in partition:
            if kinds.is_binary(kind):
                msg = (
                    f"table {self._path}: partition column '{field.name}' has bytes, whose text in the log "
                    "is not the same for all writers. Leave the column out with columns="
                )
                raise ConnectorError(msg)
            text = partition[field.name] or None
            if text is not None and kinds.is_timestamp(kind) and kind.tz is not None and text[-1] != "Z":
                text += "Z"  # the log may leave out that it is in UTC
            return pa.repeat(pa.scalar(text, pa.string()).cast(kind), batch.num_rows)
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, kind)
        return batch.column(field.name).cast(kind)

    def _table_at(self, version: int) -> DeltaTable:
        options = self._source.storage_options
        try:
            table = find_table(self._path, options, version)
        except ConnectorError:
            table = None
        # The log may have forgotten a version whose files are still there.
        table = table or find_table(self._path, options)
        if table is None:
            msg = f"there is no Delta table at {self._path}: check the path"
            raise ConnectorError(msg)
        check_readable(self._path, table)
        return table

    def _measured(self) -> SourceLag:
        splits = [*(() if self._split is None else (self._split,)), *self._waiting]
        return SourceLag.of(
            [
                SplitLag(f"version {split.version}", records=split.rows_left)
                for split in splits
                if split.files or (split.files is None and split.until is not None)
            ],
            self._version(),
        )

    def _version(self) -> VersionLag | None:
        split = self._split
        if split is None:
            return None
        # The log is read up to the version before the one that is awaited.
        version = split.version - 1 if split.files is None else split.version
        newest = self._newest
        if version < 0:
            return None
        if newest is None:
            return VersionLag(str(version), committed_at=self._committed_at)
        return VersionLag(str(version), str(newest), newest - version, self._committed_at)
