"""`DeltaSink`: writes a Delta table, exactly once, with one commit for each checkpoint.

**Exactly once.** Each subtask stages its files before the barrier (`staging.py`). One committer names them in
the table's log when the checkpoint is complete (`committer.py`). The commit contains an *application
transaction*: a name and a version. Delta accepts a version of a name only once, even from two processes at a
time. So a repeated commit changes nothing.

**Lineage.** The name is that of the committer which has pre-committed the files: job, operator, attempt and a
random number. Versions count its checkpoints. A name for the whole job would lose data. After the restore of
an older savepoint, new checkpoints would have versions that are committed already. They would be taken for
repeated commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.delta.committer import DeltaCommitter, check_table
from penstock.runtime.io.connectors.delta.staging import DeltaWriter, staged_prefix
from penstock.runtime.io.connectors.delta.tables import check_installed, find_table
from penstock.runtime.io.connectors.delta.writable import check_partitioned, refused_properties
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.file_formats.parquet_encoder import is_codec
from penstock.runtime.io.connectors.filesystem import absolute
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.runtime.io.connectors.tables.keys import checked_columns, checked_key
from penstock.runtime.io.connectors.tables.types import table_schema
from penstock.runtime.io.connectors.tables.writer import check_compaction
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.redaction import without_secrets

SchemaMode: TypeAlias = Literal["fixed", "merge"]

_TARGET_FILE_SIZE: Final = 128 * 1024 * 1024


@without_secrets
@dataclass(frozen=True)
class DeltaSink(metaclass=NearestNames):
    """Writes records to a Delta table: dicts or Arrow batches.

    The table is created if it does not exist. Several jobs and other writers may append to one table.

    Attributes:
        path: The table's folder: an absolute local path that all nodes share, or an object store's URL.
        schema: Arrow schema of the records. By default that of the existing table, or else that of the first
            records. Types that Delta lacks become wider ones, such as `int16` for `uint8`.
        partition_by: Columns whose values divide the table into folders: text, integers, dates or booleans.
            An existing table must have the same ones.
        key: Columns whose values identify a row. With a key a record replaces the row with the same key, and
            is added if there is none. Without a key all records are added.
        change_kind: Column with the kind of each change, which is not written. `"insert"` and
            `"update_postimage"` replace or add the row of the key. `"delete"` and `"update_preimage"` delete
            it. Needs `key`.
        schema_mode: `"fixed"` refuses records with columns that the table lacks. `"merge"` adds these columns
            to the table. Records may lack columns that may be null.
        target_file_size: Bytes at which a file is ended before the checkpoint.
        compact_below: Bytes below which a file is small. Once `compact_at` small files were written, they are
            merged into files of `target_file_size`. `None` never compacts.
        compact_at: Number of small files that begins a compaction. With `key`, each commit counts as one.
        compression: Compression of the Parquet files.
        properties: Table properties of a new table, such as `{"delta.enableChangeDataFeed": "true"}`.
        storage_options: Settings of the object store.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or deltalake is not installed.
        BadRecordError: `schema` has a type that Delta lacks, or only partition columns.

    Example:
        >>> DeltaSink("/data/orders", partition_by=["day"]).schema_mode
        'fixed'
    """

    only_reads: ClassVar[bool] = True

    path: Location
    schema: pa.Schema | None = None
    _: KW_ONLY
    partition_by: Sequence[str] = ()
    key: Sequence[str] = ()
    change_kind: str | None = None
    schema_mode: SchemaMode = "fixed"
    target_file_size: int = _TARGET_FILE_SIZE
    compact_below: int | None = None
    compact_at: int = 32
    compression: str = "snappy"
    properties: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_installed()
        object.__setattr__(self, "path", absolute("path", self.path))
        checked_setting("schema_mode", self.schema_mode, get_args(SchemaMode))
        object.__setattr__(self, "partition_by", checked_columns("partition_by", self.partition_by))
        object.__setattr__(self, "key", checked_key(self.key, self.change_kind))
        if self.target_file_size < 1:
            msg = f"target_file_size={self.target_file_size} is not allowed: give at least 1"
            raise ConfigurationError(msg)
        check_compaction(self.compact_below, self.compact_at)
        if not is_codec(self.compression):
            msg = f"compression={self.compression!r} is not a codec of pyarrow, such as 'snappy' or 'zstd'"
            raise ConfigurationError(msg)
        refused = refused_properties(self.properties, merges=bool(self.key))
        if refused:
            msg = f"properties={dict(self.properties)} are not allowed: the table has {', '.join(refused)}"
            raise ConfigurationError(msg)
        if self.schema is not None:
            object.__setattr__(self, "schema", table_schema(self.schema))
            check_partitioned(str(self.path), self.schema, self.partition_by)

    @property
    def adds_columns(self) -> bool:
        """Whether records may bring new columns."""
        return self.schema_mode == "merge"

    def writer(self, context: SinkContext) -> DeltaWriter:
        """Make the writer of one subtask.

        Raises:
            ConnectorError: The table can't be read or written.
        """
        owner = staged_prefix(context.job_id, context.operator_id)
        prefix = f"{owner}{context.subtask}-{context.attempt}"
        return DeltaWriter(self, self._files(), prefix, context.clock)

    def committer(self, context: SinkContext) -> DeltaCommitter:
        """Make the committer, and the table if its columns are known.

        Raises:
            ConnectorError: The table can't be read, or it does not fit the sink.
        """
        return DeltaCommitter(self, self._files(), context)

    def prepare_destination(self, job_id: str) -> None:
        """Refuse a table that can't take the records, before any of them is read.

        Raises:
            ConnectorError: The place of the table can't be reached, or the table does not fit the sink.
        """
        table = find_table(str(self.path), self.storage_options)
        if table is not None:
            check_table(self, table, () if self.schema is None else [self.schema], self.key)

    def _files(self) -> Any:
        return filesystem_for(str(self.path), self.storage_options)
