"""The columns of a table: the first writer that knows them records them, and all others keep to them.

They are kept as Arrow's bytes in `_penstock/schemas/<number>` of the table's folder, each written by exactly
one writer; the newest counts. A second one is written only

- when another job finds the table empty: nothing is committed, and no file waits for its commit. So a job
  that died before its first commit decides nothing for later jobs;
- when Spark's catalog has other columns than before (`SparkTable.of`), as after `ALTER TABLE`.

For `SparkTable.of` it finds a table in Spark's catalog. New files in the folder become rows of the table only
if the table consists of its files alone. So it must be Parquet, without partitions and buckets, in the
session's own catalog. Every other table is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa
import pyarrow.types as kinds

from penstock.bridge.arrow.spark_types import arrow_schema_of
from penstock.runtime.errors import ConfigurationError, ObjectExistsError, SuppressRestartsError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.files.file_sink_writer import IN_PROGRESS
from penstock.runtime.io.connectors.filesystems.local_files import OBJECT_STORE_SCHEMES, filesystem_for
from penstock.runtime.io.storage import ObjectStorage, open_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


#: Folder in the table for Penstock's private files. Spark ignores names that begin with `_`.
PRIVATE_FOLDER: Final = "_penstock"

_SCHEMAS: Final = "schemas/"

_JOB: Final = b"penstock.job"


class OtherColumnsError(BadRecordError, SuppressRestartsError): ...


class TableColumns:
    """The recorded columns of a table that a job owns, and decisions about new ones."""

    def __init__(self, path: str, job_id: str) -> None:
        #: Path of the table.
        self.path = path
        self._job = job_id
        self._storage = open_location(f"{path}/{PRIVATE_FOLDER}")  # the owner of the table has made it

    def decided(self) -> pa.Schema | None:
        """The table's columns; `None` while this job may still decide them."""
        return self._newest()[1]

    def decide(self, schema: pa.Schema) -> pa.Schema:
        """Return the decided columns; decides on the given ones if none are decided yet."""
        while True:
            number, found = self._newest()
            if found is not None:
                return found
            if self._is_written(number, schema):
                return schema

    def require(self, schema: pa.Schema) -> None:
        """Decide that the columns are these.

        Raises:
            OtherColumnsError: Other columns are decided already.
        """
        found = self.decide(schema)
        differences = differences_of(found, schema)
        if differences:
            msg = (
                f"table {self.path} has other columns than the schema= of this sink: {differences}. Leave "
                "schema= out, give the one that the table has, or write to another path"
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
    """The columns of a table whose folder exists, as its writers decided them; `None` if none has."""
    storage = open_location(path)
    names = storage.list(f"{PRIVATE_FOLDER}/{_SCHEMAS}")
    return _read(storage, names[-1])[0] if names else None


def is_empty(path: str) -> bool:
    """Whether a table has no file, neither committed nor waiting for its commit."""
    names = filesystem_for(path, {}).names(path, "")
    return all(not name.startswith(IN_PROGRESS) and name[:1] in "._" for name in names)


def differences_of(one: pa.Schema, other: pa.Schema) -> str:
    """Describe the differences for Spark; empty without any.

    Time zones, the order of columns and `not null` make no difference: files are read by names, as instants.

    Example:
        >>> differences_of(pa.schema({"a": pa.int64()}), pa.schema({"a": pa.string(), "b": pa.int8()}))
        "column 'a' is int64 there and string here, column 'b' is here only"
    """
    told = []
    for name in dict.fromkeys([*one.names, *other.names]):
        if name not in other.names or name not in one.names:
            told.append(f"column '{name}' is {'there' if name in one.names else 'here'} only")
            continue
        there, here = one.field(name).type, other.field(name).type
        if _for_spark(there) != _for_spark(here):
            told.append(f"column '{name}' is {there} there and {here} here")
    return ", ".join(told)


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
    schema = pa.ipc.read_schema(pa.py_buffer(storage.get(name)))
    return schema.remove_metadata(), schema.metadata[_JOB].decode()


_OWN_CATALOG: Final = "spark_catalog"

_VIEWS: Final = ("VIEW", "TEMPORARY")
#: Marks a string column as CHAR or VARCHAR; Spark checks lengths only when it writes.
_LENGTH_LIMIT: Final = "__CHAR_VARCHAR_TYPE_STRING"


def find_table(spark: SparkSession, name: str) -> tuple[str, pa.Schema]:
    """The path or URL of a table's folder, and its Arrow schema.

    Args:
        name: Name as in SQL: `totals`, `shop.totals`.

    Raises:
        ConfigurationError: The table does not exist, or files in its folder would not be its rows.
        UnsupportedTypeError: A column has a type that can't be transferred.
    """
    from pyspark.errors import AnalysisException

    try:
        df, found = spark.table(name), spark.catalog.getTable(name)
    except AnalysisException as error:
        told = " ".join(str(error).split())
        msg = (
            f"Spark finds no table {name!r}: make it, or give SparkTable the path of a folder. Spark says: "
            f"{told:.200}"
        )
        raise ConfigurationError(msg) from error
    if found.tableType in _VIEWS:
        _refuse(name, "it is a view, which has no files")
    if found.catalog != _OWN_CATALOG:
        _refuse(name, f"it is in catalog {found.catalog!r}, and only tables of {_OWN_CATALOG!r} are files")
    parts = [*(found.namespace or ()), found.name]
    path = _folder_of(name, _metadata(spark, ".".join(f"`{part.replace('`', '``')}`" for part in parts)))
    _check_columns(name, df.schema)
    return path, arrow_schema_of(df)


def _metadata(spark: SparkSession, quoted: str) -> Any:
    """The catalog's entry of a table; the public interface gives neither its format nor its location."""
    state = spark._jsparkSession.sessionState()
    return state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(quoted))


def _folder_of(name: str, table: Any) -> str:
    form = table.provider().get() if table.provider().isDefined() else "unknown"
    if form.lower() != "parquet":
        _refuse(name, f"its format is {form}, and Parquet is what a job writes")
    if not table.partitionColumnNames().isEmpty():
        _refuse(name, "it has partitions, and a job writes into one folder")
    if table.bucketSpec().isDefined():
        _refuse(name, "it has buckets, and a job's files belong to none")
    place = table.location()
    scheme = place.getScheme() or "file"
    if scheme == "file":
        return str(place.getPath())
    if scheme not in OBJECT_STORE_SCHEMES:
        _refuse(name, f"its files are at {scheme}://, where no job can write")
    return str(place.toString())


def _check_columns(name: str, schema: StructType) -> None:
    limited = [field.name for field in schema if _LENGTH_LIMIT in field.metadata]
    if limited:
        _refuse(name, f"columns {limited} are CHAR or VARCHAR, and a job checks no lengths; use STRING")


def _refuse(name: str, why: str) -> NoReturn:
    msg = f"SparkTable can't write the table {name!r}: {why}"
    raise ConfigurationError(msg)
