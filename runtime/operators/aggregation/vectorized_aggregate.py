"""`VectorizedAggregate`: an aggregate function that users write, over numpy arrays.

The user's code sees arrays only: the state of some keys, and the columns of some rows. For each row it
receives the index of the row's key in the arrays of state. It never sees the table of all keys.

The declarations of a class are checked when the graph is built: its columns, its state, the values of a new
key. The arrays are checked when a method returns. So an array of the wrong length or type raises an error
that names the method, before any value is stored.

`adapted` turns a user's function into a `ColumnAggregate`. With `merge` it is a `PartialAggregate`: each
batch updates fresh state, which is merged into the state of the keys. Without `merge` it is a `RowAggregate`,
which updates the state of the keys directly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import DTypeLike, NDArray

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.operators.aggregation.column_aggregate import (
    Accumulators,
    ColumnAggregate,
    Grouping,
    Partial,
    PartialAggregate,
    RowAggregate,
)
from penstock.runtime.state.own_copy import own_batch
from penstock.runtime.state.typed_columns import Slots
from penstock.runtime.user_location import function_location

#: State of some keys, by name; a method may change the arrays in place or replace them.
VectorState: TypeAlias = MutableMapping[str, NDArray[Any]]


class VectorizedAggregate(ABC):
    """Base of users' own aggregate functions, over numpy arrays.

    An object must hold only its constructor arguments, because several subtasks may share it. Rows in which
    one of the columns is null are skipped, as nulls do not count in any aggregate function.

    With `merge` a sender can pre-aggregate before the exchange. Without it the sender sends all records.

    Args:
        *columns: Names of the columns that `update` receives; without names it receives none.

    Attributes:
        state: The columns of state by name, with their numpy types: booleans, integers or floats.

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
        """Return the state of a new key, one value per column; columns that are left out begin with 0."""
        return {}

    @abstractmethod
    def update(
        self, state: VectorState, columns: Mapping[str, NDArray[Any]], slots: NDArray[np.int64]
    ) -> None:
        """Update the state with rows.

        Args:
            state: An array for each column of state, with one value per key.
            columns: A read-only array for each column, with one value per row. Whole numbers are int64 or
                uint64, floats are float64, booleans are `bool`. Dates and timestamps are `datetime64`,
                durations `timedelta64`. All other values are Python objects.
            slots: Index of each row's key in the arrays of state. A key may have several rows, so
                use `np.add.at(array, slots, values)` or `np.bincount`, not `array[slots] += values`.
        """

    def merge(self, state: VectorState, other: Mapping[str, NDArray[Any]]) -> None:
        """Merge the state of later rows (`other`) into the state of earlier rows; optional.

        Args:
            state: An array for each column of state, with one value per key.
            other: The state of the later rows in the same form, with the same keys in the same order.
        """
        raise NotImplementedError

    @abstractmethod
    def result(self, state: Mapping[str, NDArray[Any]]) -> NDArray[Any] | pa.Array:
        """Return one value per key: a numpy array, or an Arrow array if some are null."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.columns))})"


#: A function that users may give to an aggregation.
AnyAggregate: TypeAlias = ColumnAggregate | VectorizedAggregate


#: Kinds of numpy types that state may have: booleans, whole numbers, floats.
_KINDS: Final = "biuf"


class _Vectors(ColumnAggregate):
    """Calls the methods of a user's function and checks their results; `name` is the result's name."""

    is_ordered = True

    def __init__(self, name: str, function: VectorizedAggregate) -> None:
        self._name = name
        self._function = function
        self._names = _columns_of(name, function)
        self._dtypes = _dtypes_of(name, function)
        self._initial = _initial_of(name, function, self._dtypes)
        self._types = {part: pa.from_numpy_dtype(dtype) for part, dtype in self._dtypes.items()}

    def __repr__(self) -> str:
        return repr(self._function)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._names

    def accumulator_types(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return self._types

    def _of_slots(self, accumulators: Accumulators, slots: Slots) -> dict[str, NDArray[Any]]:
        """Return the state of some slots; a slot without state gets the state of a new key."""
        return {
            part: np.where(accumulators[part].valid[slots], accumulators[part].values[slots], value)
            for part, value in self._initial.items()
        }

    def _store(self, accumulators: Accumulators, slots: Slots, values: Mapping[str, NDArray[Any]]) -> None:
        for part, array in values.items():
            accumulators[part].values[slots], accumulators[part].valid[slots] = array, True

    def _update(self, state: dict[str, NDArray[Any]], column: pa.Array, slots: Slots) -> None:
        columns = _arrays(self._names, column)
        for array in columns.values():
            array.flags.writeable = False
        self._run(self._function.update, state, columns, slots)

    def result(self, accumulators: Accumulators, slots: Slots) -> pa.Array:
        found = self._called(self._function.result, self._of_slots(accumulators, slots))
        is_array = isinstance(found, np.ndarray) and found.ndim == 1
        if not (is_array or isinstance(found, pa.Array)) or len(found) != len(slots):
            self._refuse(
                self._function.result, f"returned {_shape_of(found)}; its length must be {len(slots)}"
            )
        if isinstance(found, pa.Array):
            return own_batch(pa.record_batch({"found": found})).column(0)
        try:
            # Copied, because the function may have kept the array and may change it.
            return pa.array(found.copy(), from_pandas=False)
        except (pa.ArrowException, OverflowError, TypeError) as error:
            self._refuse(self._function.result, f"returned values that have no Arrow type: {error}")

    def _run(self, method: Callable[..., Any], state: dict[str, NDArray[Any]], *others: Any) -> None:
        (count,) = {len(array) for array in state.values()}
        self._called(method, state, *others)
        for part in state.keys() - self._dtypes.keys():
            self._refuse(
                method, f"put {part!r} into the state, which has {', '.join(map(repr, self._types))}"
            )
        for part, dtype in self._dtypes.items():
            array = state.get(part)
            if isinstance(array, np.ndarray) and array.shape == (count,) and array.dtype == dtype:
                continue
            must = f"it must be {dtype} of shape ({count},)"
            self._refuse(method, f"left the state {part!r} as {_shape_of(array)}; {must}")

    def _called(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except PenstockError:
            raise
        except Exception as error:
            msg = f"{self._of(method)} failed: {error_text(error)}"
            # The user's frames stay, so that the operator's error names the line that failed.
            raise PenstockError(msg).with_traceback(error.__traceback__) from error

    def _refuse(self, method: Callable[..., Any], what: str) -> NoReturn:
        msg = f"{self._of(method)} {what}"
        raise PenstockError(msg)

    def _of(self, method: Callable[..., Any]) -> str:
        return f"{self._name}={self._function!r:.80}: {function_location(method)}"


class CombiningVectors(_Vectors, PartialAggregate):
    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        return [Grouping(pa.array(np.arange(len(column))), "list")]

    def partial_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Partial:
        """Return fresh state of each key, updated with its rows; null if all rows of a key have a null."""
        (rows,) = results
        keys = np.empty(len(column), np.int64)
        counts = rows.value_lengths().to_numpy(zero_copy_only=False)
        keys[rows.flatten().to_numpy(zero_copy_only=False)] = np.repeat(np.arange(len(rows)), counts)
        column, keys = _without_nulls(self._names, column, keys)
        is_empty = np.ones(len(rows), np.bool_)
        is_empty[keys] = False
        state = {part: np.full(len(rows), value) for part, value in self._initial.items()}
        self._update(state, column, keys)
        return {part: pa.array(array, mask=is_empty, from_pandas=False) for part, array in state.items()}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        arrays = {part: accumulators[part].arrays_of(partial[part]) for part in self._types}
        valid = next(iter(arrays.values()))[1]
        had = next(iter(accumulators.values())).valid[slots]
        new, both = valid & ~had, valid & had
        self._store(accumulators, slots[new], {part: array[new] for part, (array, _) in arrays.items()})
        if both.any():
            merged = self._of_slots(accumulators, slots[both])
            more = {part: array[both] for part, (array, _) in arrays.items()}
            self._run(self._function.merge, merged, more)
            self._store(accumulators, slots[both], merged)


class RowVectors(_Vectors, RowAggregate):
    def add(self, accumulators: Accumulators, slots: Slots, column: pa.Array) -> None:
        column, slots = _without_nulls(self._names, column, slots)
        touched, keys = np.unique(slots, return_inverse=True)
        if not len(touched):
            return
        values = self._of_slots(accumulators, touched)
        self._update(values, column, keys.astype(np.int64, copy=False))
        self._store(accumulators, touched, values)


def adapted(name: str, function: VectorizedAggregate) -> ColumnAggregate:
    """Adapt a user's function to columns; raises `ConfigurationError` for invalid declarations."""
    has_merge = type(function).merge is not VectorizedAggregate.merge
    return CombiningVectors(name, function) if has_merge else RowVectors(name, function)


def _columns_of(name: str, function: VectorizedAggregate) -> tuple[str, ...]:
    columns = function.columns
    if not isinstance(columns, tuple) or not all(isinstance(column, str) for column in columns):
        msg = f"{name} reads {columns!r:.80}: give the names of its columns as a tuple of strings"
        raise ConfigurationError(msg)
    if len(set(columns)) < len(columns):
        msg = f"{name} names one column twice: {', '.join(map(repr, columns))}"
        raise ConfigurationError(msg)
    return columns


def _dtypes_of(name: str, function: VectorizedAggregate) -> dict[str, np.dtype[Any]]:
    what = f"{name}={function!r:.80}"
    declared = getattr(function, "state", None)
    if not isinstance(declared, Mapping) or not declared:
        own = type(function).__name__
        msg = f'{what} declares no state: give {own} a class attribute such as state = {{"sum": "float64"}}'
        raise ConfigurationError(msg)
    dtypes: dict[str, np.dtype[Any]] = {}
    for part, given in declared.items():
        dtype = _dtype_of(given)
        if not isinstance(part, str) or dtype.kind not in _KINDS or dtype.itemsize > 8 or dtype == np.float16:
            msg = (
                f"{what} declares the state {part!r} as {given!r:.80}; give a name and a numpy type of "
                "booleans, whole numbers, or floats of 32 or 64 bits"
            )
            raise ConfigurationError(msg)
        dtypes[part] = dtype
    return dtypes


def _dtype_of(given: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(given).newbyteorder("=")
    except TypeError:
        return np.dtype(object)
    return dtype


def _initial_of(
    name: str, function: VectorizedAggregate, dtypes: Mapping[str, np.dtype[Any]]
) -> dict[str, Any]:
    init = function_location(function.init)
    given = function.init()
    if not isinstance(given, Mapping) or given.keys() - dtypes.keys():
        msg = f"{name}: {init} returned {given!r:.80}; it must have values for {', '.join(map(repr, dtypes))}"
        raise ConfigurationError(msg)
    values: dict[str, Any] = {}
    for part, dtype in dtypes.items():
        value = _of_type(given.get(part, 0), dtype)
        if value is None:
            msg = f"{name}: {init} gives {part!r} the value {given[part]!r:.80}; it must be one {dtype} value"
            raise ConfigurationError(msg)
        values[part] = value
    return values


def _of_type(value: Any, dtype: np.dtype[Any]) -> Any:
    if not isinstance(value, int | float | np.number | np.bool_):
        return None
    try:
        with np.errstate(all="ignore"):
            found: Any = np.asarray(value).astype(dtype)[()]
    except (OverflowError, TypeError, ValueError):
        return None
    return found if dtype.kind == "f" or found == value else None


def _arrays(columns: Sequence[str], column: pa.Array) -> dict[str, NDArray[Any]]:
    if len(columns) == 1:
        return {columns[0]: _array(column)}
    return dict(zip(columns, map(_array, column.flatten()), strict=True)) if columns else {}


def _array(column: pa.Array) -> NDArray[Any]:
    kind = column.type
    if kinds.is_integer(kind) and not kinds.is_uint64(kind):
        column = column.cast(pa.int64())
    elif kinds.is_floating(kind):
        column = column.cast(pa.float64())
    elif not (
        kinds.is_uint64(kind)
        or kinds.is_boolean(kind)
        or kinds.is_timestamp(kind)
        or kinds.is_duration(kind)
        or kinds.is_date(kind)
    ):
        values = np.empty(len(column), np.object_)
        values[:] = column.to_pylist()
        return values
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def _shape_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"an Arrow array of length {len(value)}" if isinstance(value, pa.Array) else f"{value!r:.80}"


def _without_nulls(columns: Sequence[str], column: pa.Array, keys: Slots) -> tuple[pa.Array, Slots]:
    """The rows in which no column is null; all rows if the function reads no column."""
    valid: pa.Array | None = None
    if len(columns) == 1:
        valid = column.is_valid()
    elif columns:
        for one in column.flatten():
            valid = one.is_valid() if valid is None else pc.and_(valid, one.is_valid())
    if valid is None or not len(valid) or pc.all(valid).as_py():
        return column, keys
    return column.filter(valid), keys[valid.to_numpy(zero_copy_only=False)]
