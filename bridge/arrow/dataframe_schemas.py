"""The Arrow schema of a DataFrame, and the DataFrame schema of Arrow batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.bridge.arrow.arrow_types import UnsupportedTypeError, arrow_schema
from penstock.bridge.arrow.session_zone import session_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def arrow_schema_of(df: DataFrame) -> pa.Schema:
    """The Arrow schema in which the rows of a DataFrame are transferred.

    Raises:
        UnsupportedTypeError: A column can't be transferred.
    """
    return arrow_schema(_schema_of(df), session_zone(df.sparkSession))


def _schema_of(df: DataFrame) -> StructType:
    """The schema of a DataFrame; names the column where PySpark can't read its type."""
    from pyspark.errors import PySparkValueError
    from pyspark.sql.types import StructField

    try:
        return df.schema
    except PySparkValueError:
        for field in json.loads(df._jdf.schema().json())["fields"]:
            try:
                StructField.fromJson(field)
            except PySparkValueError as error:
                kind = field["type"] if isinstance(field["type"], str) else json.dumps(field["type"])
                msg = (
                    f"column {field['name']!r} has type {kind}, which PySpark can't read and Arrow has no "
                    "type for: convert it to days, to seconds or to text"
                )
                raise UnsupportedTypeError(msg) from error
        raise


def spark_schema_of(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow batches; timestamps without a zone stay without one."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    spark_schema = StructType()
    for field in schema:
        spark_schema.add(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable)
    return spark_schema
