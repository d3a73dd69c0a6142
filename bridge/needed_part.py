"""`NeededPart`: the columns of a DataFrame that a job needs.

The graph knows them when it is built. They travel with the settings of the receive buffers to the rendezvous,
and from there to the program with the Spark session. So each job that reads a DataFrame gets its own part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.runtime.operators.needed_columns import columns_to_read
from penstock.runtime.operators.source import NeededColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class NeededPart:
    """A part of a DataFrame.

    Attributes:
        places: Positions of the needed columns, in the order of the DataFrame; `None` for all columns.

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
        >>> NeededPart.of(schema, NeededColumns(("b",))).places
        (1,)
    """

    places: tuple[int, ...] | None = None

    @classmethod
    def of(cls, schema: pa.Schema, needed: NeededColumns) -> NeededPart:
        """The part of a DataFrame with this schema."""
        names = columns_to_read(schema, None, needed)
        if names is None or len(names) == len(schema):
            return cls()
        return cls(tuple(schema.get_field_index(name) for name in names))

    def schema_in(self, whole: pa.Schema) -> pa.Schema:
        """The schema of the part; `whole` is that of the DataFrame."""
        return whole if self.places is None else pa.schema([whole.field(place) for place in self.places])

    def rows_of(self, df: DataFrame) -> DataFrame:
        """The needed columns, with names of their own.

        Spark finds columns by name: it can't find a dotted name, or tell names apart by case.
        """
        by_place = df.toDF(*(f"_{place}" for place in range(len(df.schema))))
        return by_place if self.places is None else by_place.select(*(f"_{place}" for place in self.places))

    def described(self, whole: pa.Schema) -> str:
        """Text for the name of the source; empty if everything is needed."""
        return "" if self.places is None else f"reads {len(self.places)} of {len(whole)} columns"
