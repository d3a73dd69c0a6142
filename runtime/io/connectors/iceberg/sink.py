"""`IcebergSink`: writes an Iceberg table, exactly once, with one snapshot for each checkpoint.

Each subtask stages its files before the barrier (`writer.py`). One committer adds them to a snapshot when
the checkpoint is complete (`committer.py`, which says why that is exactly once).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.files.file_sink_writer import file_safe
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient, checked_table
from penstock.runtime.io.connectors.iceberg.columns import PartitionColumn
from penstock.runtime.io.connectors.iceberg.committer import IcebergCommitter
from penstock.runtime.io.connectors.iceberg.history import MAIN
from penstock.runtime.io.connectors.iceberg.staged_rows import RowStagingWriter
from penstock.runtime.io.connectors.iceberg.writer import IcebergWriter, check_table
from penstock.runtime.io.connectors.tables.keys import checked_key
from penstock.runtime.io.connectors.tables.types import table_schema
from penstock.runtime.io.connectors.tables.writer import check_compaction
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds

if TYPE_CHECKING:
    from pyiceberg.table import DataScan

SchemaMode: TypeAlias = Literal["fixed", "merge"]


@without_secrets
@dataclass(frozen=True)
class IcebergSink(metaclass=NearestNames):
    """Writes records to an Iceberg table: dicts or Arrow batches.

    The table and its namespace are created if they don't exist. Several jobs and other writers may append to
    one table.

    Attributes:
        table: Namespace and name, such as `"shop.orders"`.
        schema: Arrow schema of a new table. By default that of the first records. Types that Iceberg lacks
            become wider ones, such as `int32` for `uint8`.
        catalog: Properties of the catalog, as in pyiceberg: for a SQL database `{"type": "sql", "uri": ...,
            "warehouse": ...}`. `"rest"` and `"glue"` are other types.
        catalog_name: Name of the catalog. SQL catalogs store it, so all programs must use the same name.
        partition_by: Partitions of a new table, in Spark's syntax: `"day"`, `"days(at)"`, `"bucket(16,
            id)"`, `"truncate(4, name)"`. An existing table keeps its own, which must be the same if this is
            given.
        key: Columns whose values identify a row. With a key a record replaces the row with the same key, and
            is added if there is none. Without a key all records are added.
        change_kind: Column with the kind of each change, which is not written. `"insert"` and
            `"update_postimage"` replace or add the row of the key. `"delete"` and `"update_preimage"` delete
            it. Needs `key`.
        schema_mode: `"fixed"` refuses records with columns that the table lacks. `"merge"` adds these columns
            to the table before the first file that has them is written.
        compact_below: Bytes below which a file is small. Once `compact_at` small files were written, they are
            joined. `None` never compacts.
        compact_at: Number of small files that begins a compaction.
        properties: Table properties of a new table, such as `{"write.parquet.compression-codec": "zstd"}`.
        branch: Branch of the table that is written. It begins with the snapshot of `main` if it does not
            exist.
        audit: Function that gets a scan of the branch after each commit. If it returns true, `main` becomes
            the snapshot of the branch. Without it the branch is published by hand.
        catalog_timeout: Maximum time of one call to the catalog.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or pyiceberg is not installed.

    Example:
        >>> IcebergSink("shop.orders", catalog={"type": "rest", "uri": "http://localhost:8181"}).branch
        'main'
    """

    only_reads: ClassVar[bool] = True

    table: str
    schema: pa.Schema | None = None
    _: KW_ONLY
    catalog: Mapping[str, str] = field(repr=False)
    catalog_name: str = "default"
    partition_by: Sequence[str] = ()
    key: Sequence[str] = ()
    change_kind: str | None = None
    schema_mode: SchemaMode = "fixed"
    compact_below: int | None = None
    compact_at: int = 32
    properties: Mapping[str, str] = field(default_factory=dict)
    branch: str = MAIN
    audit: Callable[[DataScan], bool] | None = None
    catalog_timeout: Duration = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "catalog_timeout", checked_table(self.table, self.catalog_timeout))
        checked_setting("schema_mode", self.schema_mode, get_args(SchemaMode))
        if isinstance(self.partition_by, str):
            msg = f"partition_by={self.partition_by!r} is not allowed: give a list of columns"
            raise ConfigurationError(msg)
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        for text in self.partition_by:
            PartitionColumn.of(text)
        object.__setattr__(self, "key", checked_key(self.key, self.change_kind))
        check_compaction(self.compact_below, self.compact_at)
        if self.audit is not None and self.branch == MAIN:
            msg = "audit needs a branch other than main: give branch=, such as 'audit'"
            raise ConfigurationError(msg)
        if self.schema is not None:
            object.__setattr__(self, "schema", table_schema(self.schema))

    @property
    def adds_columns(self) -> bool:
        """Whether records may bring new columns."""
        return self.schema_mode == "merge"

    def prepare_destination(self, job_id: str) -> None:
        """Refuse a table that can't take the records, before any of them is read.

        Raises:
            ConnectorError: The catalog can't be reached, or the table does not fit the sink.
        """
        with closing(self._client()) as client:
            table = client.find()
            if table is not None:
                check_table(self, table)

    def writer(self, context: SinkContext) -> IcebergWriter:
        """Make the writer of one subtask, and the table if its columns are known.

        Raises:
            ConnectorError: The catalog can't be reached, or the table does not fit the sink.
        """
        operator = file_safe(context.operator_id)
        prefix = f"part-{context.job_id}-{operator}-{context.subtask}-{context.attempt}"
        kind = RowStagingWriter if self.key else IcebergWriter
        return kind(self, self._client(), prefix)

    def committer(self, context: SinkContext) -> IcebergCommitter:
        """Make the committer."""
        return IcebergCommitter(self, self._client(), context)

    def _client(self) -> TableClient:
        return TableClient(self.table, self.catalog_name, self.catalog, as_seconds(self.catalog_timeout))
