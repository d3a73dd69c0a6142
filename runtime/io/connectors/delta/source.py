"""`DeltaSource`: reads a version of a Delta table, and then each commit as it comes.

The version is chosen once, when a job starts without a snapshot. Its files are splits, which all subtasks
read. With `watch`, one more split follows the log: one subtask reads the commits after that version in their
order. With `change_data_feed` one subtask reads everything, because the order of changes matters.

Commits that only rewrite rows, such as compactions, are no input. A commit that removes rows fails the job
unless the source reads changes or skips such commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.delta.log import check_readable, files_of
from penstock.runtime.io.connectors.delta.reader import DeltaReader, DeltaSplit
from penstock.runtime.io.connectors.delta.tables import StorageOptions, calls_to, check_installed, find_table
from penstock.runtime.io.connectors.filesystem import absolute
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.runtime.io.connectors.tables.reading import check_reading
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.change_kinds import CHANGE_TYPE
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration

if TYPE_CHECKING:
    from deltalake import DeltaTable


@without_secrets
@dataclass(frozen=True)
class DeltaSource(metaclass=NearestNames):
    """Reads a Delta table as dicts or Arrow batches.

    Attributes:
        path: The table's folder: an absolute local path that all nodes share, or an object store's URL.
        version: Version of the table; by default the newest when the job starts without a snapshot.
        timestamp: Instead of `version`: the newest version at this time.
        starting_version: Instead of `version`: reads only the commits from this version on.
        watch: Time between two checks for new commits. By default the source ends with the version, or with
            the newest commit at the start of the job.
        change_data_feed: Whether records have the columns `_change_type` and `_commit_version`. A change is
            an `insert`, `update_preimage`, `update_postimage` or `delete`. Updates need a table with
            `delta.enableChangeDataFeed`; otherwise they are a `delete` and an `insert` of all rows of the
            rewritten files. The rows of the first version are inserts.
        skip_change_commits: Whether commits that remove rows are left out, with the rows that they add.
        columns: Columns to read; by default all.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.
        storage_options: Settings of the object store.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or deltalake is not installed.

    Example:
        >>> DeltaSource("/data/orders", version=7).watch is None
        True
    """

    only_reads: ClassVar[bool] = True
    makes_new_records: ClassVar[bool] = True

    path: Location
    _: KW_ONLY
    version: int | None = None
    timestamp: datetime | None = None
    starting_version: int | None = None
    watch: Duration | None = None
    change_data_feed: bool = False
    skip_change_commits: bool = False
    columns: Sequence[str] | None = None
    batch_format: BatchFormat = "rows"
    storage_options: StorageOptions = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_installed()
        object.__setattr__(self, "path", absolute("path", self.path))
        check_reading(self, ("version", "timestamp", "starting_version"))

    @property
    def change_kind(self) -> str | None:
        """Column with the kind of each change; `None` if all records are rows."""
        return CHANGE_TYPE if self.change_data_feed else None

    def splits(self, parallelism: int) -> Sequence[DeltaSplit]:
        """List the files of the version, and the log after it."""
        table = self._table()
        check_readable(str(self.path), table)
        last = None if self.watch is not None else table.version()
        if self.starting_version is not None:
            is_behind = last is not None and self.starting_version > last
            return [] if is_behind else [DeltaSplit(self.starting_version, None, 0, last)]
        files = files_of(table)
        version, number = table.version(), str(table.metadata().id)
        if self.change_data_feed:
            return [DeltaSplit(version, tuple(files), 0, last, number)]
        splits = [DeltaSplit(version, (file,), 0, version, number) for file in files]
        if self.watch is not None:
            splits.insert(0, DeltaSplit(version + 1, None, 0, None, number))
        return splits

    def reader(self, context: ConnectorContext, splits: Sequence[DeltaSplit]) -> DeltaReader:
        """Make the reader of one subtask."""
        return DeltaReader(self, filesystem_for(str(self.path), self.storage_options), context, splits)

    def _table(self) -> DeltaTable:
        path = str(self.path)
        table = find_table(path, self.storage_options, self.version)
        if table is None:
            wanted = "" if self.version is None else f" with version {self.version}"
            msg = f"there is no Delta table{wanted} at {path}: check the path, or create the table first"
            raise ConnectorError(msg)
        if self.timestamp is not None:
            with calls_to(path):
                table.load_as_version(self.timestamp)
        return table
