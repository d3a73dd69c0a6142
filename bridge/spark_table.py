"""`SparkTable`: a folder of Parquet files that a job writes exactly once and Spark reads at any time.

A file gets its final name when the checkpoint that covers it is complete (see `FileSink`). Spark ignores all
other names, in batch and as a stream. Types are cast to those that Spark reads correctly. A record in the
folder names the job that owns the table. A second job is refused until the owner has ended.

The first writer that knows the table's columns records them, and all other writers use them. Such a record is
a serialized Arrow schema in `_penstock/schemas/<number>`, written by exactly one writer; the newest counts. A
new schema is recorded only in two cases:

- Another job finds the table empty: nothing is committed, and no file waits for its commit. So a job that
  died before its first commit does not fix the columns of later jobs.
- Spark's catalog has other columns than before (`SparkTable.of`), as after `ALTER TABLE`.

`SparkTable.of` accepts only tables of Spark's catalog that are plain Parquet files, without partitions or
buckets, in the session's own catalog.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import pyarrow as pa
import pyarrow.types as kinds

from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.registry import has_master
from penstock.bridge.arrow import ReadableBatches, arrow_schema_of, readable_schema, spark_schema_of
from penstock.bridge.needed_part import LENGTH_LIMIT
from penstock.runtime.config.checks import Location
from penstock.runtime.error_text import cause_text
from penstock.runtime.errors import (
    CodecError,
    ConfigurationError,
    ConnectorError,
    DeploymentError,
    JobTimeoutError,
    ObjectExistsError,
    PenstockError,
    SuppressRestartsError,
)
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.files.file_sink import FileSink
from penstock.runtime.io.connectors.files.file_sink_writer import IN_PROGRESS, FileSinkWriter, PendingFile
from penstock.runtime.io.connectors.filesystem import absolute
from penstock.runtime.io.connectors.local_files import OBJECT_STORE_SCHEMES, filesystem_for
from penstock.runtime.io.storage import ObjectStorage, open_location, open_storage
from penstock.runtime.names import NearestNames, checked_keywords
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.redaction import without_secrets
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.trust.data import read_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


#: Folder in the table for Penstock's private files. Spark ignores names that begin with `_`.
PRIVATE_FOLDER: Final = "_penstock"

_SCHEMAS: Final = "schemas/"

_JOB: Final = b"penstock.job"


class OtherColumnsError(BadRecordError, SuppressRestartsError): ...


class TableColumns:
    """The recorded columns of a table that a job owns, and decisions about new columns."""

    def __init__(self, path: str, job_id: str) -> None:
        #: Path of the table.
        self.path = path
        self._job = job_id
        self._storage = open_location(f"{path}/{PRIVATE_FOLDER}")  # the owner of the table has made it

    def decided(self) -> pa.Schema | None:
        """The table's columns; `None` while this job may still decide them."""
        return self._newest()[1]

    def decide(self, schema: pa.Schema) -> pa.Schema:
        """Return the decided columns; decide on the given columns if none were decided yet."""
        while True:
            number, found = self._newest()
            if found is not None:
                return found
            if self._is_written(number, schema):
                return schema

    def require(self, schema: pa.Schema) -> None:
        """Decide on these columns; raises `OtherColumnsError` if others are decided already."""
        found = self.decide(schema)
        differences = differences_of(found, schema)
        if differences:
            msg = (
                f"table {self.path} has other columns than the schema= of this sink: {differences}. Leave "
                "out schema=, give the table's own schema, or write to another path"
            )
            raise OtherColumnsError(msg)

    def replace(self, schema: pa.Schema) -> None:
        while True:
            names = self._storage.list(_SCHEMAS)
            if names and not differences_of(_read(self._storage, names[-1])[0], schema):
                return
            if self._is_written(len(names), schema):
                return

    def _newest(self) -> tuple[int, pa.Schema | None]:
        names = self._storage.list(_SCHEMAS)
        if not names:
            return 0, None
        schema, job = _read(self._storage, names[-1])
        return len(names), None if job != self._job and is_empty(self.path) else schema

    def _is_written(self, number: int, schema: pa.Schema) -> bool:
        """Record a schema; return false if another writer was faster."""
        data = schema.with_metadata({_JOB: self._job}).serialize().to_pybytes()
        try:
            self._storage.put(f"{_SCHEMAS}{number:08d}", data, create=True)
        except ObjectExistsError:
            return False
        return True


def columns_of(path: str) -> pa.Schema | None:
    """The columns of an existing table; `None` until a writer has decided them."""
    storage = open_location(path)
    names = storage.list(f"{PRIVATE_FOLDER}/{_SCHEMAS}")
    return _read(storage, names[-1])[0] if names else None


def is_empty(path: str) -> bool:
    """Whether a table has no file, neither committed nor waiting for its commit."""
    names = filesystem_for(path, {}).names(path, "")
    return all(not name.startswith(IN_PROGRESS) and name[:1] in "._" for name in names)


def differences_of(one: pa.Schema, other: pa.Schema) -> str:
    """Describe the differences that Spark would notice; empty without any.

    Time zones, the order of columns and `not null` don't count: columns match by name, times as instants.

    Example:
        >>> differences_of(pa.schema({"a": pa.int64()}), pa.schema({"a": pa.string(), "b": pa.int8()}))
        "column 'a' is int64 there and string here, column 'b' is here only"
    """
    found = []
    for name in dict.fromkeys([*one.names, *other.names]):
        if name not in other.names or name not in one.names:
            found.append(f"column '{name}' is {'there' if name in one.names else 'here'} only")
            continue
        there, here = one.field(name).type, other.field(name).type
        if _for_spark(there) != _for_spark(here):
            found.append(f"column '{name}' is {there} there and {here} here")
    return ", ".join(found)


def _for_spark(kind: pa.DataType) -> pa.DataType:
    """The type without the attributes that Spark ignores."""
    if kinds.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if kinds.is_list(kind):
        return pa.list_(_for_spark(kind.value_type))
    if kinds.is_map(kind):
        return pa.map_(_for_spark(kind.key_type), _for_spark(kind.item_type))
    if kinds.is_struct(kind):
        return pa.struct([(field.name, _for_spark(field.type)) for field in kind])
    return kind


def _read(storage: ObjectStorage, name: str) -> tuple[pa.Schema, str]:
    try:
        # The folder is the user's output, where others may also write.
        schema = read_schema(storage.get(name))
        return schema.remove_metadata(), (schema.metadata or {})[_JOB].decode()
    except (CodecError, KeyError, UnicodeDecodeError) as error:
        msg = (
            f"{storage.url}/{name} is not a valid record of a table's columns: "
            f"{cause_text(error)}. Restore the file, or write to another path"
        )
        raise ConnectorError(msg) from error


_OWN_CATALOG: Final = "spark_catalog"

_VIEWS: Final = ("VIEW", "TEMPORARY")


def find_table(spark: SparkSession, name: str) -> tuple[str, pa.Schema]:
    """The path or URL of a table's folder, and its Arrow schema; raises as `SparkTable.of` does."""
    from pyspark.errors import AnalysisException

    try:
        df, found = spark.table(name), spark.catalog.getTable(name)
    except AnalysisException as error:
        cause = " ".join(str(error).split())
        msg = (
            f"Spark finds no table {name!r}: make it, or give SparkTable the path of a folder. Spark says: "
            f"{cause:.200}"
        )
        raise ConfigurationError(msg) from error
    if found.tableType in _VIEWS:
        _refuse(name, "it is a view, which has no files")
    if found.catalog != _OWN_CATALOG:
        _refuse(name, f"it is in catalog {found.catalog!r}; a job writes only tables of {_OWN_CATALOG!r}")
    parts = [*(found.namespace or ()), found.name]
    path = _folder_of(name, _metadata(spark, ".".join(f"`{part.replace('`', '``')}`" for part in parts)))
    _check_columns(name, df.schema)
    return path, arrow_schema_of(df)


def _metadata(spark: SparkSession, quoted: str) -> Any:
    """The catalog's entry of a table; PySpark's public interface shows neither format nor location."""
    state = spark._jsparkSession.sessionState()
    return state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(quoted))


def _folder_of(name: str, table: Any) -> str:
    form = table.provider().get() if table.provider().isDefined() else "unknown"
    if form.lower() != "parquet":
        _refuse(name, f"its format is {form}, but a job writes only Parquet")
    if not table.partitionColumnNames().isEmpty():
        _refuse(name, "it has partitions, but a job writes into one folder")
    if table.bucketSpec().isDefined():
        _refuse(name, "it has buckets, but a job writes files without buckets")
    place = table.location()
    scheme = place.getScheme() or "file"
    if scheme == "file":
        return str(place.getPath())
    if scheme not in OBJECT_STORE_SCHEMES:
        _refuse(name, f"its files are at {scheme}://, where no job can write")
    return str(place.toString())


def _check_columns(name: str, schema: StructType) -> None:
    limited = [field.name for field in schema if LENGTH_LIMIT in field.metadata]
    if limited:
        _refuse(name, f"it has CHAR or VARCHAR in {limited}, but a job checks no lengths; use STRING")


def _refuse(name: str, why: str) -> NoReturn:
    msg = f"SparkTable can't write the table {name!r}: {why}"
    raise ConfigurationError(msg)


#: Declares old timestamps as proleptic Gregorian; Spark refuses them from unknown writers.
_CALENDAR: Final = {"org.apache.spark.version": "3.5.0"}
#: Advice for rows that don't fit a table.
_ADVICE: Final = "map the rows before the sink, or write a new table with the schema= that all rows have"
#: Spark's errors for a folder without files, and for a missing folder, as in an empty object store.
_NOTHING_COMMITTED: Final = ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")


class OwnedTableError(ConnectorError, SuppressRestartsError): ...


@without_secrets
@dataclass(frozen=True)
class SparkTable(metaclass=NearestNames):
    """A sink that writes a table exactly once. `SparkTable.of` finds a table of Spark's catalog by name.

    Attributes:
        path: Folder of the table: a local path that is the same place on all nodes, or an object store's URL.
        schema: The rows' Arrow schema; by default the schema of the existing table, or of the first rows.
            Needed for dicts whose first batch may lack some types, and to read a table without any rows.
        compression: Compression of the Parquet files.
        trust_paths: Whether a snapshot may name files to commit in another folder, as after a move.

    Raises:
        BadRecordError: The schema has a type that Spark can't read.

    Example:
        >>> SparkTable("/data/out").path
        '/data/out'
    """

    only_reads: ClassVar[bool] = True

    path: Location
    schema: pa.Schema | None = None
    compression: str = "snappy"
    trust_paths: bool = False
    #: Whether the table comes from the catalog, which decides its columns.
    _is_named: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", absolute("path", self.path))
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
        path, schema = find_table(spark, name)
        table = cls(path, schema, compression)
        object.__setattr__(table, "_is_named", True)
        table._make_folder(spark)  # streams that read by name need it, too
        return table

    def writer(self, context: ConnectorContext) -> TableWriter:
        """Make the writer of one subtask.

        Raises:
            OwnedTableError: Another job, or another operator of this job, writes this table.
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
            PenstockError: Nothing is committed, and the table's columns are not known yet.
        """
        self._make_folder(spark)
        return spark.read.schema(self._schema_for(spark)).parquet(str(self.path))

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """The committed rows and all later rows, as a streaming DataFrame.

        Raises:
            PenstockError: Nothing is committed, and the table's columns are not known yet.
        """
        self._make_folder(spark)
        return spark.readStream.schema(self._schema_for(spark)).parquet(str(self.path))

    def _files(self) -> FileSink:
        schema = None if self.schema is None else self.schema.with_metadata(_CALENDAR)
        return FileSink.parquet(
            str(self.path), schema, compression=self.compression, trust_paths=self.trust_paths
        )

    def _make_folder(self, spark: SparkSession) -> None:
        """Make the folder, which Spark needs even for a table without rows."""
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

    Without the user's schema, the table's columns or the first rows decide the types.
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
            known = self._columns.decided()  # another subtask may have decided
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
    """Record this operator of this job as the owner of a table.

    Raises `OwnedTableError` if another operator of this job, or a job that has not ended, owns the table.
    Owners are numbered, and each number is given to one writer only. The newest owner counts.
    """
    storage = open_storage(f"{path}/{PRIVATE_FOLDER}")
    mine = {"job": context.job_id, "operator": context.operator_id}
    while True:
        owners = storage.list("owners/")
        if owners:
            owner = json.loads(storage.get(owners[-1]))
            if owner == mine:
                return
            if owner["job"] == context.job_id:
                msg = (
                    f"table {path} is written by operator '{owner['operator']}' of this job; give operator "
                    f"'{context.operator_id}' another path, or the id of that operator if it was renamed"
                )
                raise OwnedTableError(msg)
            if job_lives(owner["job"]):
                msg = (
                    f"table {path} is written by operator '{owner['operator']}' of job {owner['job']}, which "
                    "has not ended; end that job first, or write to another path"
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
