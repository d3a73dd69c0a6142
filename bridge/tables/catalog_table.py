"""Finds the folder and the columns of a table in Spark's catalog, for `SparkTable.of`.

New files in the folder become rows of the table only if the table consists of its files alone. So it must be
Parquet, without partitions and buckets, in the session's own catalog. Every other table is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from penstock.bridge.arrow.dataframe_schemas import arrow_schema_of
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.filesystems.filesystem_of_url import OBJECT_STORE_SCHEMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_OWN_CATALOG: Final = "spark_catalog"
_VIEWS: Final = ("VIEW", "TEMPORARY")
#: Marks a string column as CHAR or VARCHAR; Spark checks lengths only when it writes.
_LENGTH_LIMIT: Final = "__CHAR_VARCHAR_TYPE_STRING"


def find_table(spark: SparkSession, name: str) -> tuple[str, pa.Schema]:
    """The path or URL of a table's folder, and its Arrow schema.

    Args:
        spark: The session whose catalog is asked.
        name: As in SQL: `totals`, `shop.totals`.

    Raises:
        ConfigurationError: There is no such table, or files in its folder would not be its rows.
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
