"""`IcebergReader`: reads the files of a snapshot, and follows the snapshots of a branch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.runtime.errors import ConnectorError, LostInputError
from penstock.runtime.io.connectors.arrow_batches import arrow_rows, rows_of_arrow
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.io.connectors.iceberg.history import (
    ancestors,
    head_of,
    sequence_of,
    totals_before,
    totals_of,
)
from penstock.runtime.io.connectors.iceberg.scanning import batches_of
from penstock.runtime.operators.lag import SourceLag, SplitLag, VersionLag
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.time.durations import as_seconds

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

    from penstock.runtime.io.connectors.iceberg.source import IcebergSource


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of a snapshot.

    Attributes:
        path: Location of the file.
        rows: Number of rows of the file, including deleted rows, which are not read.
        format: Format of the file; `None` if rows of it are deleted. Its reader then lists the files of the
            snapshot again, to find the deletes.
        spec: Id of its partition spec.
        partition: Values of its partition fields.
    """

    path: str
    rows: int
    format: str | None = None
    spec: int = 0
    partition: tuple[Any, ...] = ()

    @classmethod
    def of(cls, task: FileScanTask) -> PlannedFile:
        file = task.file
        if task.delete_files:
            return cls(file.file_path, file.record_count)
        partition = tuple(file.partition[place] for place in range(len(file.partition)))
        return cls(file.file_path, file.record_count, file.file_format.value, file.spec_id, partition)

    def as_task(self) -> FileScanTask:
        """Describe a file without deletes for the library."""
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.table import FileScanTask
        from pyiceberg.typedef import Record

        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat(self.format),
            partition=Record(*self.partition),
            record_count=self.rows,
        )
        file.spec_id = self.spec
        return FileScanTask(file)


@dataclass(frozen=True, slots=True)
class IcebergSplit:
    """Files of a snapshot, or the snapshots of a branch.

    Attributes:
        snapshot: The snapshot that is read, or was read last; `None` before the first one.
        table: Id of the table.
        sequence: Sequence number of the snapshot.
        totals: Rows, data files and bytes of the table at the snapshot, for a split that follows a branch.
        files: Files of this snapshot that are not read to their end.
        row: Number of rows of the first file that were read.
        until: Last snapshot to read, if the split follows a branch; `None` follows it without an end.
        follows: Whether the split continues with the next snapshot of the branch. It then reads only the
            files that a snapshot adds.
    """

    snapshot: int | None
    files: tuple[PlannedFile, ...]
    table: str
    sequence: int = 0
    row: int = 0
    until: int | None = None
    follows: bool = False
    totals: tuple[int, ...] = ()

    @property
    def rows_left(self) -> int | None:
        """Unread rows of the files; `None` while snapshots are left to read whose rows are not known."""
        if self.until is not None and self.snapshot != self.until:
            return None
        return max(0, sum(file.rows for file in self.files) - self.row)


class IcebergReader:
    """Reads the splits of one subtask in turn; the split that follows a branch comes last."""

    def __init__(
        self,
        source: IcebergSource,
        client: TableClient,
        context: ConnectorContext,
        splits: Sequence[IcebergSplit],
    ) -> None:
        self._source = source
        self._client = client
        self._clock = context.clock
        self._wait = as_seconds(source.watch) if source.watch is not None else 0.0
        self._waiting = deque(sorted(splits, key=lambda split: split.follows))
        self._split: IcebergSplit | None = None
        self._table: Table | None = None
        #: A snapshot, whether only files that it added are listed, and PyIceberg's tasks by path of the file.
        self._tasks: tuple[tuple[int, bool], dict[str, FileScanTask]] | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._version: VersionLag | None = None
        self._lag = self._measured()

    def poll(self, max_rows: int) -> Polled[Any]:
        if self._split is None:
            if not self._waiting:
                return Polled(finished=True)
            self._split = self._waiting.popleft()
        split = self._split
        if not split.files:
            return self._next_snapshot(split)
        batch = self._batch if self._batch is not None else self._next_batch(split)
        if batch is None:
            self._continue(replace(split, files=split.files[1:], row=0))
            self._batches = None
            return Polled(ready_at=self._clock.monotonic())
        in_columns = self._source.batch_format == "arrow"
        count = min(batch.num_rows, arrow_rows(max_rows) if in_columns else max_rows)
        self._batch = batch.slice(count) if count < batch.num_rows else None
        self._continue(replace(split, row=split.row + count))
        part = batch.slice(0, count)
        return Polled(ArrowBatch(part) if in_columns else RowBatch(rows_of_arrow(part)))

    def snapshot(self) -> Sequence[IcebergSplit]:
        return [*(() if self._split is None else (self._split,)), *self._waiting]

    def lag(self) -> SourceLag:
        """Return the unread rows of the listed files; later snapshots count when they are listed."""
        return self._lag

    def close(self) -> None:
        self._batches = self._batch = None
        self._client.close()

    def _continue(self, split: IcebergSplit | None) -> None:
        self._split = split
        self._lag = self._measured()

    def _next_snapshot(self, split: IcebergSplit) -> Polled[Any]:
        if not split.follows or (split.snapshot is not None and split.snapshot == split.until):
            self._continue(None)
            return Polled(ready_at=self._clock.monotonic())
        self._table = table = self._load(split)
        following, behind = self._after(table, split)
        if following is None:
            self._version = self._version_of(table, split.snapshot, 0)
            self._continue(split)
            if self._source.watch is None:
                self._continue(None)
                return Polled(ready_at=self._clock.monotonic())
            return Polled(ready_at=self._clock.monotonic() + self._wait)
        files: tuple[PlannedFile, ...] = ()
        if self._has_input(following):
            files = self._client.call(
                "list new files", lambda: tuple(planned(table, following.snapshot_id, only_added=True))
            )
        self._version = self._version_of(table, following.snapshot_id, behind)
        number, totals = sequence_of(following), totals_of(following)
        self._continue(
            replace(
                split,
                snapshot=following.snapshot_id,
                sequence=number,
                totals=totals,
                files=files,
                row=0,
            )
        )
        return Polled(ready_at=self._clock.monotonic())

    def _load(self, split: IcebergSplit) -> Table:
        table = self._client.load()
        found = str(table.metadata.table_uuid)
        if found != split.table:
            msg = (
                f"table {self._source.table} was created again: its id was {split.table}, and is now {found}."
                " So rows may be lost for this job. Start again without the snapshot of the job"
            )
            raise LostInputError(msg)
        return table

    def _after(self, table: Table, split: IcebergSplit) -> tuple[Snapshot | None, int]:
        """Return the branch's next snapshot after the split's snapshot, and the number of later ones."""
        last = split.snapshot
        chain: list[Snapshot] = []
        for snapshot in ancestors(table, head_of(table, self._source.branch)):
            if snapshot.snapshot_id == last:
                return (chain[-1], len(chain) - 1) if chain else (None, 0)
            chain.append(snapshot)
        if not chain and last is None:
            return None, 0
        if chain and self._is_next(chain[-1], split):
            return chain[-1], len(chain) - 1
        msg = (
            f"table {self._source.table}: snapshots of the branch {self._source.branch!r} after {last} are "
            "missing, so rows are lost for this job. They have expired, or the branch was rolled back. Start "
            "again without the snapshot of the job, and let expire_snapshots keep snapshots for longer than "
            "its downtime"
        )
        raise LostInputError(msg)

    def _version_of(self, table: Table, number: int | None, behind: int) -> VersionLag | None:
        head = head_of(table, self._source.branch)
        if number is None or head is None:
            return None
        found = table.snapshot_by_id(number)
        at = None if found is None else found.timestamp_ms / 1_000
        return VersionLag(str(number), str(head), behind, at)

    def _is_next(self, oldest: Snapshot, split: IcebergSplit) -> bool:
        """Whether the table's oldest snapshot directly follows the split's snapshot, which has expired.

        The library removes the id of an expired parent. The number alone does not tell a successor from the
        first snapshot after a rollback; the totals of the table do.
        """
        if split.snapshot is not None and oldest.parent_snapshot_id is not None:
            return oldest.parent_snapshot_id == split.snapshot
        number = sequence_of(oldest)
        if not number:
            return split.snapshot is None
        before = totals_before(oldest)
        return number == split.sequence + 1 and not (split.totals and before and split.totals != before)

    def _has_input(self, snapshot: Snapshot) -> bool:
        operation = "append" if snapshot.summary is None else snapshot.summary.operation.value
        if operation in ("overwrite", "delete") and not self._source.skip_change_commits:
            msg = (
                f"table {self._source.table}: snapshot {snapshot.snapshot_id} removes rows ({operation}), "
                "but this source reads only new ones. Set skip_change_commits=True to leave such snapshots "
                "out"
            )
            raise ConnectorError(msg)
        return operation == "append"

    def _next_batch(self, split: IcebergSplit) -> pa.RecordBatch | None:
        if self._batches is None:
            self._batches = self._read(split)
        return next(self._batches, None)

    def _read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        table = self._table_with(split)
        task = self._task(table, split)
        wanted = self._wanted(table, split)
        skipped = split.row
        try:
            for batch in batches_of(table.metadata, table.io, task, wanted):
                left = batch.slice(skipped) if skipped < batch.num_rows else batch.slice(0, 0)
                skipped -= batch.num_rows - left.num_rows
                if left.num_rows:
                    yield left
        except (OSError, pa.ArrowException, ValueError) as error:
            msg = (
                f"table {self._source.table}: {task.file.file_path} of snapshot {split.snapshot} can't be "
                f"read: {error}. expire_snapshots removes files of older snapshots: let it keep them for "
                "longer than the downtime of the job"
            )
            raise ConnectorError(msg) from error

    def _table_with(self, split: IcebergSplit) -> Table:
        """Return table metadata that still contains the split's snapshot."""
        assert split.snapshot is not None, "a file belongs to a snapshot"
        if self._table is None or self._table.snapshot_by_id(split.snapshot) is None:
            self._table = self._load(split)
        if self._table.snapshot_by_id(split.snapshot) is None:
            msg = (
                f"table {self._source.table}: snapshot {split.snapshot} expired before all of it was "
                "read. Start again without the snapshot of the job, and let expire_snapshots keep snapshots "
                "for longer"
            )
            raise LostInputError(msg)
        return self._table

    def _task(self, table: Table, split: IcebergSplit) -> FileScanTask:
        assert split.snapshot is not None, "a file belongs to a snapshot"
        if split.files[0].format is not None:
            return split.files[0].as_task()
        snapshot, only_added = split.snapshot, split.follows
        if self._tasks is None or self._tasks[0] != (snapshot, only_added):
            found = self._client.call(
                "list the files",
                lambda: {
                    task.file.file_path: task for task in _tasks(table, snapshot, only_added=only_added)
                },
            )
            self._tasks = (snapshot, only_added), found
        path = split.files[0].path
        task = self._tasks[1].get(path)
        if task is None:
            msg = f"table {self._source.table}: snapshot {split.snapshot} has no file {path!r}"
            raise ConnectorError(msg)
        return task

    def _wanted(self, table: Table, split: IcebergSplit) -> Schema:
        """The columns that the table had at the split's snapshot."""
        snapshot = table.snapshot_by_id(split.snapshot) if split.snapshot is not None else None
        number = None if snapshot is None else snapshot.schema_id
        schema = table.schema() if number is None else table.schemas().get(number, table.schema())
        columns = self._source.columns
        if columns is None:
            return schema
        missing = [name for name in columns if name not in schema.column_names]
        if missing:
            names = ", ".join(schema.column_names)
            msg = f"table {self._source.table} has no column {missing[0]!r}; it has {names}"
            raise ConnectorError(msg)
        return schema.select(*columns)

    def _measured(self) -> SourceLag:
        splits = [*(() if self._split is None else (self._split,)), *self._waiting]
        return SourceLag.of(
            [
                SplitLag(f"snapshot {split.snapshot}", records=split.rows_left)
                for split in splits
                if split.files or split.rows_left is None
            ],
            self._version,
        )


def planned(table: Table, snapshot: int, *, only_added: bool = False) -> Iterator[PlannedFile]:
    """The files of a snapshot in the order of their paths, or those that it adds."""
    tasks = _tasks(table, snapshot, only_added=only_added)
    for task in sorted(tasks, key=lambda task: task.file.file_path):
        yield PlannedFile.of(task)


def _tasks(table: Table, snapshot: int, *, only_added: bool) -> list[FileScanTask]:
    if not only_added:
        return list(table.scan(snapshot_id=snapshot).plan_files())
    found = table.snapshot_by_id(snapshot)
    assert found is not None, "the table has the snapshot"
    before = found.parent_snapshot_id
    scan = table.incremental_append_scan(from_snapshot_id_exclusive=before, to_snapshot_id_inclusive=snapshot)
    return list(scan.plan_files())
