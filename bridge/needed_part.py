"""`NeededPart`: the columns and rows of a DataFrame that a job needs, and the steps that run in Spark.

The graph knows them when it is built. They travel with the settings of the receive buffers to the rendezvous,
and from there to the program with the Spark session. So each job that reads a DataFrame gets its own part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.bridge.spark_filter import Condition, conditions_of, spark_column
from penstock.runtime.operators.needed_columns import columns_to_read
from penstock.runtime.operators.source import NeededColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Key in the metadata of a column of type CHAR or VARCHAR, which Spark shows as STRING.
LENGTH_LIMIT: Final = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True, slots=True)
class NeededPart:
    """A part of a DataFrame.

    Attributes:
        places: Positions of the needed columns, in the order of the DataFrame; `None` for all columns.
        conditions: Conditions that all needed rows fulfil. The job's own filter still runs.
        filters_all: Whether the conditions are the whole filter of the job.
        steps: The steps of the job that run in Spark's Python workers, pickled in the program that builds the
            graph; empty for none. Only Spark's workers unpickle them.

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
        >>> NeededPart.of(schema, NeededColumns(("b",))).places
        (1,)
    """

    places: tuple[int, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    filters_all: bool = False
    steps: bytes = b""

    @classmethod
    def of(cls, schema: pa.Schema, needed: NeededColumns, padded: Collection[str] = ()) -> NeededPart:
        """The part of a DataFrame with this schema.

        Args:
            padded: Columns of type CHAR or VARCHAR, which Spark compares in another way.
        """
        conditions, are_all = conditions_of(needed.wanted, schema, padded)
        names = columns_to_read(schema, None, needed)
        if names is None or len(names) == len(schema):
            return cls(None, conditions, are_all)
        return cls(tuple(schema.get_field_index(name) for name in names), conditions, are_all)

    def schema_in(self, whole: pa.Schema) -> pa.Schema:
        """The schema of the part; `whole` is that of the DataFrame."""
        return whole if self.places is None else pa.schema([whole.field(place) for place in self.places])

    def rows_of(self, df: DataFrame) -> DataFrame:
        """The needed columns of the rows that may be needed; the columns are named after their positions.

        Spark finds columns by name: it can't find a dotted name, or tell apart names that differ in case.
        """
        by_place = df.toDF(*(f"_{place}" for place in range(len(df.schema))))
        rows = by_place
        for condition in self.conditions:
            rows = rows.filter(spark_column(condition, lambda place: by_place[f"_{place}"]))
        return rows if self.places is None else rows.select(*(f"_{place}" for place in self.places))

    def described(self, whole: pa.Schema) -> str:
        """Text for the name of the source; empty if everything is needed."""
        found = [] if self.places is None else [f"reads {len(self.places)} of {len(whole)} columns"]
        if self.conditions:
            found.append(f"{'filter' if self.filters_all else 'part of the filter'} in Spark")
        return ", ".join(found)


def padded_columns(df: DataFrame) -> frozenset[str]:
    """Columns of type CHAR or VARCHAR; Spark pads literals that are compared with them."""
    from pyspark.sql import types

    return frozenset(
        field.name
        for field in df.schema
        if LENGTH_LIMIT in field.metadata or isinstance(field.dataType, types.CharType | types.VarcharType)
    )
