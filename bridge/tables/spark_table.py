"""`SparkTable`: a folder of Parquet files that a job writes exactly once and Spark reads at any time.

A file gets its final name when the checkpoint that covers it is complete (see `FileSink`). Spark ignores all
other names, in batch and as a stream. Types are cast to those that Spark reads correctly. The table knows its
owner: a second job is refused while the first one lives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.registry import has_master
from penstock.bridge.arrow.readable_batches import ReadableBatches, readable_schema
from penstock.bridge.arrow.spark_types import spark_schema_of
from penstock.bridge.tables.table_columns import PRIVATE_FOLDER, TableColumns, columns_of
from penstock.runtime.errors import (
    DeploymentError,
    JobTimeoutError,
    ObjectExistsError,
    PenstockError,
    SuppressRestartsError,
)
from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.files.file_sink import FileSink
from penstock.runtime.io.connectors.files.file_sink_writer import FileSinkWriter, PendingFile
from penstock.runtime.io.connectors.filesystems.filesystem import absolute
from penstock.runtime.io.storage import open_storage
from penstock.runtime.names import NearestNames, checked_keywords
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.redaction import without_secrets
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Tells Spark that old times are in today's calendar; it refuses old times of unknown writers.
_CALENDAR: Final = {"org.apache.spark.version": "3.5.0"}
#: Advice for rows that do not fit a table.
_ADVICE: Final = "map the rows before, or write a new table with the schema= that all rows have"
#: Spark's errors for a folder without files, and for no folder (object stores have none without files).
_NOTHING_COMMITTED: Final = ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")


class OwnedTableError(ConnectorError, SuppressRestartsError): ...


@without_secrets
@dataclass(frozen=True)
class SparkTable(metaclass=NearestNames):
    """An exactly-once table; a sink. `SparkTable.of` finds one by its name in Spark's catalog.

    Attributes:
        path: A folder: a local path that is the same place on every node, or a URL of an object store.
        schema: The rows' Arrow schema. By default that of the existing table, or of the first rows. Needed
            for dicts whose first batch may not show all types, and to read a table before any row.
        compression: Compression of the Parquet files.
        trust_paths: Whether a snapshot may name files to commit in another folder, as after a move.

    Raises:
        BadRecordError: The schema has a type that Spark does not read.

    Example:
        >>> SparkTable("/data/out").path
        '/data/out'
    """

    only_reads: ClassVar[bool] = True

    path: str | os.PathLike[str]
    schema: pa.Schema | None = None
    compression: str = "snappy"
    trust_paths: bool = False
    #: The table comes from the catalog, which decides its columns.
    _is_named: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", absolute(self.path))
        if self.schema is not None:
            object.__setattr__(self, "schema", readable_schema(self.schema))

    @classmethod
    @checked_keywords
    def of(cls, spark: SparkSession, name: str, *, compression: str = "snappy") -> SparkTable:
        """The table of this name in Spark's catalog: the folder of its files, with its columns.

        The table must exist and consist of Parquet files only: no view, no partitions, no buckets. Batch
        queries by the name see new files after `REFRESH TABLE`; `read` and streams see them anyway.

        Args:
            spark: The session whose catalog is read once, in this call.
            name: Name as in SQL: `totals`, `shop.totals`.
            compression: Compression of the Parquet files.

        Raises:
            ConfigurationError: The table does not exist, or a job can't write it.
            UnsupportedTypeError: A column has a type that can't be transferred.
        """
        from penstock.bridge.tables.table_columns import find_table  # subtasks do not need it

        path, schema = find_table(spark, name)
        table = cls(path, schema, compression)
        object.__setattr__(table, "_is_named", True)
        table._make_folder(spark)  # streams by the name need it, too
        return table

    def writer(self, context: ConnectorContext) -> TableWriter:
        """Make the writer of one subtask.

        Raises:
            OwnedTableError: Another job writes this table.
            BadRecordError: The table has other columns than `schema`.
        """
        claim_table(str(self.path), context)
        columns = TableColumns(str(self.path), context.job_id)
        if self.schema is not None:
            (columns.replace if self._is_named else columns.require)(self.schema)
        return TableWriter(self._files().writer(context), columns, self.schema)

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[PendingFile]) -> None:
        """Delete the files of an ended job that are neither committed nor covered."""
        self._files().remove_uncovered(job_id, operator_id, covered)

    def read(self, spark: SparkSession) -> DataFrame:
        """The committed rows as a DataFrame.

        Raises:
            PenstockError: The table has no committed rows and no given schema.
        """
        self._make_folder(spark)
        return spark.read.schema(self._schema_for(spark)).parquet(str(self.path))

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """The committed rows, and those to come, as a streaming DataFrame.

        Raises:
            PenstockError: The table has no committed rows and no given schema.
        """
        self._make_folder(spark)
        return spark.readStream.schema(self._schema_for(spark)).parquet(str(self.path))

    def _files(self) -> FileSink:
        schema = None if self.schema is None else self.schema.with_metadata(_CALENDAR)
        return FileSink.parquet(
            str(self.path), schema, compression=self.compression, trust_paths=self.trust_paths
        )

    def _make_folder(self, spark: SparkSession) -> None:
        """Make the folder: Spark needs it, also for a table without rows."""
        context: Any = spark.sparkContext
        folder = context._jvm.org.apache.hadoop.fs.Path(str(self.path))
        folder.getFileSystem(context._jsc.hadoopConfiguration()).mkdirs(folder)

    def _schema_for(self, spark: SparkSession) -> Any:
        if self.schema is not None:
            return spark_schema_of(self.schema)
        decided = columns_of(str(self.path))
        if decided is not None:
            return spark_schema_of(decided)
        from pyspark.errors import AnalysisException

        try:
            return spark.read.parquet(str(self.path)).schema
        except AnalysisException as error:
            if error.getErrorClass() not in _NOTHING_COMMITTED:
                raise
            msg = (
                f"nothing is committed in {self.path}, so its columns are not known: wait for the first "
                "checkpoint, or give SparkTable a schema="
            )
            raise PenstockError(msg) from error


class TableWriter:
    """Writes the files of one subtask, with types that Spark reads correctly.

    Args:
        schema: The columns that the user has given; without it the table's columns or the first rows decide.
    """

    def __init__(self, files: FileSinkWriter, columns: TableColumns, schema: pa.Schema | None) -> None:
        self._files = files
        self._columns = columns
        self._rounds = schema is not None
        known = columns.decided() if schema is None else schema
        #: `None` until the columns are known.
        self._batches = None if known is None else self._to(known)

    def write(self, batch: Batch) -> None:
        if len(batch):
            readable = self._converted(batch)
            self._files.write(ArrowBatch(readable.replace_schema_metadata(_CALENDAR)))

    def _converted(self, batch: Batch) -> pa.RecordBatch:
        if self._batches is None:
            known = self._columns.decided()  # another subtask may have done it
            self._batches = self._to(known or self._columns.decide(ReadableBatches().convert(batch).schema))
        return self._batches.convert(batch)

    def _to(self, schema: pa.Schema) -> ReadableBatches:
        of = f"the schema{{known}} of table {self._columns.path}: {_ADVICE}"
        return ReadableBatches(schema, of, rounds=self._rounds)

    def prepare_commit(self) -> Sequence[PendingFile]:
        return self._files.prepare_commit()

    def commit(self, committables: Sequence[PendingFile], permit: CommitPermit) -> None:
        self._files.commit(committables, permit)

    def remove_leftovers(self, permit: CommitPermit) -> None:
        self._files.remove_leftovers(permit)

    def close(self) -> None:
        self._files.close()


def claim_table(path: str, context: ConnectorContext) -> None:
    """Record this job as the owner of a table, unless another live job owns it.

    Owners are numbered; the newest counts, and exactly one job gets a number.

    Raises:
        OwnedTableError: Another live job writes the table.
        StorageError: The record can't be written.
    """
    storage = open_storage(f"{path}/{PRIVATE_FOLDER}")
    mine = {"job": context.job_id, "operator": context.operator_id}
    while True:
        owners = storage.list("owners/")
        if owners:
            owner = json.loads(storage.get(owners[-1]))
            if owner == mine:
                return
            if owner["job"] == context.job_id or job_lives(owner["job"]):
                msg = (
                    f"table {path} is written by operator '{owner['operator']}' of job {owner['job']}, which "
                    "lives; end that job first, or write to another path"
                )
                raise OwnedTableError(msg)
        try:
            storage.put(f"owners/{len(owners):08d}", json.dumps(mine).encode(), create=True)
        except ObjectExistsError:
            continue  # another subtask or job was faster: check again
        return


def job_lives(job_id: str) -> bool:
    """Whether a job of this cluster has not ended; asks its JobMaster."""
    if not has_master(job_id):
        return False
    try:
        return not RayJobHandle(job_id, job_id).status().is_terminal
    except JobTimeoutError:
        return True  # alive, and too busy to answer
    except DeploymentError:
        return False  # ended for good
