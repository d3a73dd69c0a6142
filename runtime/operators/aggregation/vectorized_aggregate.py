"""`VectorizedAggregate`: an aggregate function that users write, over numpy arrays.

The user's code sees arrays only: the state of some keys, and the columns of some rows. For each row it is
told the place of its key in the arrays of state. It never sees the table of all keys. So a wrong shape or
type is found when a method returns, before anything of it is stored (`vector_calls`). `vector_adapters` makes
an aggregate function over columns of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from penstock.runtime.operators.aggregation.column_aggregate import ColumnAggregate

#: State of some keys by name; a method may change the arrays in place or put others there.
VectorState: TypeAlias = MutableMapping[str, NDArray[Any]]


class VectorizedAggregate(ABC):
    """Base of aggregate functions of your own, over numpy arrays.

    An object keeps nothing of its own beside what it was made with: several subtasks may share it. Rows in
    which one of the columns is null are left out, as nulls do not count in any aggregate function.

    With `merge` a sender can do a part of the work in front of the exchange. Without it all records travel.

    Args:
        *columns: Names of the columns that `update` is given; none to be given slots alone.

    Attributes:
        state: The columns of state by name, with their numpy types: truth values, whole numbers or floats.

    Example:
        >>> import numpy as np
        >>> from penstock.aggregates import VectorizedAggregate
        >>> from penstock.testing import OperatorHarness
        >>> class WeightedMean(VectorizedAggregate):
        ...     '''The mean of a column, weighted by another.'''
        ...
        ...     state = {"sum": "float64", "weight": "float64"}
        ...
        ...     def update(self, state, columns, slots):
        ...         value, weight = (columns[name] for name in self.columns)
        ...         np.add.at(state["sum"], slots, value * weight)
        ...         np.add.at(state["weight"], slots, weight)
        ...
        ...     def merge(self, state, other):
        ...         state["sum"] += other["sum"]
        ...         state["weight"] += other["weight"]
        ...
        ...     def result(self, state):
        ...         return state["sum"] / state["weight"]
        >>> def by_shop(sales):
        ...     mean = WeightedMean("price", "count")
        ...     return sales.key_by("shop").aggregate("mean-price", combine=False, price=mean)
        >>> with OperatorHarness.of(by_shop) as harness:
        ...     sales = [{"shop": "a", "price": 2.0, "count": 3}, {"shop": "a", "price": 6.0, "count": 1}]
        ...     harness.push(sales)
        [{'shop': 'a', 'price': 3.0}]
    """

    state: ClassVar[Mapping[str, DTypeLike]]
    columns: tuple[str, ...] = ()

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    def init(self) -> Mapping[str, Any]:
        """The state of a new key, one value a column; columns that are not named begin with 0."""
        return {}

    @abstractmethod
    def update(
        self, state: VectorState, columns: Mapping[str, NDArray[Any]], slots: NDArray[np.int64]
    ) -> None:
        """Take rows into the state.

        Args:
            state: An array for each column of state, with one value a key.
            columns: An array for each column, with one value a row, which must not be changed. Whole numbers
                are int64, floats are float64, times `datetime64` or `timedelta64`; everything else is Python
                objects.
            slots: Of each row the place of its key in the arrays of state. A key may have several rows, so
                use `np.add.at(array, slots, values)` or `np.bincount`, not `array[slots] += values`.
        """

    def merge(self, state: VectorState, other: Mapping[str, NDArray[Any]]) -> None:
        """Merge the state of later rows into that of earlier ones; optional.

        Args:
            state: One value a key.
            other: Of the same keys in the same order.
        """
        raise NotImplementedError

    @abstractmethod
    def result(self, state: Mapping[str, NDArray[Any]]) -> NDArray[Any] | pa.Array:
        """One value for each key, as a numpy array, or an Arrow array where some are null."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.columns))})"


#: What users give as functions of an aggregation.
AnyAggregate: TypeAlias = ColumnAggregate | VectorizedAggregate


def has_merge(function: VectorizedAggregate) -> bool:
    """Whether a user's function has a `merge`."""
    return type(function).merge is not VectorizedAggregate.merge
