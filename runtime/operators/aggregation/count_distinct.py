"""`CountDistinct`: an exact number of different values, of which each is kept once a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.runtime.operators.aggregation.column_aggregate import RowAggregate, State, numbers
from penstock.runtime.record.key_columns import canonical_column
from penstock.runtime.state.columns.growing_column import Slots


@dataclass(frozen=True)
class CountDistinct(RowAggregate):
    """How many different values a column has, exactly. Its state holds each pair of key and value once.

    It does not combine in front of the exchange: all records travel.
    """

    column: str
    of_new_pairs = True

    def prepared(self, column: pa.Array) -> pa.Array:
        """Values that can be part of a key.

        Raises:
            KeyTypeError: They can't.
        """
        return canonical_column(column, self.column)

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The number; the pairs have a table of their own."""
        return {"count": pa.int64()}

    def add(self, state: State, slots: Slots, column: pa.Array) -> None:
        """Count new pairs."""
        count = state["count"]
        count.values[slots] = numbers(count, slots)
        count.valid[slots] = True
        np.add.at(count.values, slots, 1)

    def result(self, state: State, slots: Slots) -> pa.Array:
        """The number; 0 where nothing was counted."""
        return pa.array(numbers(state["count"], slots))
