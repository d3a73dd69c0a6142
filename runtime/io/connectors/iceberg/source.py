"""`IcebergSource`: reads a snapshot of an Iceberg table, and with `watch` each later snapshot.

The snapshot is chosen once, when a job starts without a checkpoint or savepoint. The snapshot's files are
splits, which all subtasks read. With `watch`, one more split follows the branch: one subtask reads the files
that later snapshots add, in their order.

Snapshots that only rewrite rows (`replace`), such as compactions, are no input. A snapshot that removes rows
(`overwrite`, `delete`) fails the job unless the source skips such snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient, checked_table
from penstock.runtime.io.connectors.iceberg.history import MAIN, ancestors, head_of, sequence_of, totals_of
from penstock.runtime.io.connectors.iceberg.reader import IcebergReader, IcebergSplit, PlannedFile, planned
from penstock.runtime.io.connectors.tables.reading import check_reading
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds

if TYPE_CHECKING:
    from pyiceberg.table import Table

T = TypeVar("T")


@without_secrets
@dataclass(frozen=True)
class IcebergSource(metaclass=NearestNames):
    """Reads an Iceberg table: dicts, or Arrow batches.

    Attributes:
        table: Namespace and name, such as `"shop.orders"`.
        catalog: Properties of the catalog, as pyiceberg takes them.
        catalog_name: Name of the catalog, which SQL catalogs store.
        snapshot_id: Snapshot of the table; by default the newest when the job starts without a checkpoint or
            savepoint.
        timestamp: Instead of `snapshot_id`: the newest snapshot of `main` at this time.
        starting_snapshot_id: Instead of `snapshot_id`: reads only what this snapshot and later ones add.
        branch: Branch or tag that is read.
        watch: Time between two checks for new snapshots. By default the source ends after the chosen
            snapshot, or with `starting_snapshot_id` after the newest one at the start of the job.
        skip_change_commits: Whether snapshots that remove rows are skipped, with the rows that they add.
        columns: Columns to read; by default all.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.
        catalog_timeout: Maximum time of one call to the catalog.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or pyiceberg is not installed.

    Example:
        >>> IcebergSource("shop.orders", catalog={"type": "rest", "uri": "http://catalog"}).branch
        'main'
    """

    only_reads: ClassVar[bool] = True
    makes_new_records: ClassVar[bool] = True

    table: str
    _: KW_ONLY
    catalog: Mapping[str, str] = field(repr=False)
    catalog_name: str = "default"
    snapshot_id: int | None = None
    timestamp: datetime | None = None
    starting_snapshot_id: int | None = None
    branch: str = MAIN
    watch: Duration | None = None
    skip_change_commits: bool = False
    columns: Sequence[str] | None = None
    batch_format: BatchFormat = "rows"
    catalog_timeout: Duration = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "catalog_timeout", checked_table(self.table, self.catalog_timeout))
        check_reading(self, ("snapshot_id", "timestamp", "starting_snapshot_id"))

    def splits(self, parallelism: int) -> Sequence[IcebergSplit]:
        """List the files of the snapshot; with `watch`, also one split that follows the branch."""
        with closing(self._client()) as client:
            return self._splits(client, client.load())

    def reader(self, context: ConnectorContext, splits: Sequence[IcebergSplit]) -> IcebergReader:
        """Make the reader of one subtask."""
        return IcebergReader(self, self._client(), context, splits)

    def _client(self) -> TableClient:
        return TableClient(self.table, self.catalog_name, self.catalog, as_seconds(self.catalog_timeout))

    def _splits(self, client: TableClient, table: Table) -> Sequence[IcebergSplit]:
        head, table_id = head_of(table, self.branch), str(table.metadata.table_uuid)
        number = self.starting_snapshot_id
        if number is not None:
            on_branch = {snapshot.snapshot_id: snapshot for snapshot in ancestors(table, head)}
            first = self._known(on_branch.get(number), f"snapshot {number} on the branch {self.branch!r}")
            until = None if self.watch is not None else head
            before = first.parent_snapshot_id
            return [IcebergSplit(before, (), table_id, sequence_of(first) - 1, until=until, follows=True)]
        chosen = self._chosen(table, head)
        files: list[PlannedFile] = []
        if chosen is not None:
            files = client.call("list the files", lambda: list(planned(table, chosen)))
        splits = [IcebergSplit(chosen, (file,), table_id) for file in files]
        if self.watch is not None:
            last = None if chosen is None else table.snapshot_by_id(chosen)
            follower = IcebergSplit(
                chosen, (), table_id, sequence_of(last), follows=True, totals=totals_of(last)
            )
            splits.insert(0, follower)
        return splits

    def _chosen(self, table: Table, head: int | None) -> int | None:
        number = self.snapshot_id
        if number is not None:
            return self._known(table.snapshot_by_id(number), f"snapshot {number}").snapshot_id
        if self.timestamp is not None:
            found = table.snapshot_as_of_timestamp(int(self.timestamp.timestamp() * 1_000))
            return self._known(found, f"snapshot at {self.timestamp}").snapshot_id
        return head if self.branch == MAIN else self._known(head, f"branch or tag {self.branch!r}")

    def _known(self, found: T | None, what: str) -> T:
        if found is None:
            msg = (
                f"table {self.table} has no {what}: it never existed, or it has expired. Choose one of "
                "table.history()"
            )
            raise ConnectorError(msg)
        return found
