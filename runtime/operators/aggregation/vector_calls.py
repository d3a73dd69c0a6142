"""`VectorCalls`: calls the methods of a user's `VectorizedAggregate`, and checks what they are and leave.

What a class declares is checked when the graph is built: its columns, its state, the values of a new key.
What a method leaves is checked when it returns. So an array of another length or type than declared is an
error that names the method, before anything of it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.operators.aggregation.column_aggregate import State
from penstock.runtime.operators.aggregation.vectorized_aggregate import VectorizedAggregate
from penstock.runtime.state.columns.growing_column import Slots
from penstock.runtime.state.own_copy import own_batch
from penstock.runtime.user_location import function_location

#: Kinds of numpy types that state may have: truth values, whole numbers, floats.
_KINDS: Final = "biuf"


class VectorCalls:
    """Calls the methods of a user's function, and checks what they leave.

    Args:
        name: Of its result, for messages.

    Attributes:
        columns: The names of its columns.
        types: The Arrow types of its state, by name.
    """

    def __init__(self, name: str, function: VectorizedAggregate) -> None:
        self._name = name
        self._function = function
        self.columns = _columns_of(name, function)
        self._dtypes = _dtypes_of(name, function)
        self._initial = _initial_of(name, function, self._dtypes)
        self.types = {part: pa.from_numpy_dtype(dtype) for part, dtype in self._dtypes.items()}

    def __repr__(self) -> str:
        return repr(self._function)

    def fresh(self, count: int) -> dict[str, NDArray[Any]]:
        """The state of new keys."""
        return {part: np.full(count, value) for part, value in self._initial.items()}

    def of_slots(self, state: State, slots: Slots) -> dict[str, NDArray[Any]]:
        """The state of slots, which is that of a new key where there is none."""
        return {
            part: np.where(state[part].valid[slots], state[part].values[slots], value)
            for part, value in self._initial.items()
        }

    def store(self, state: State, slots: Slots, values: Mapping[str, NDArray[Any]]) -> None:
        """Store the state of slots, each of which occurs once."""
        for part, array in values.items():
            state[part].values[slots], state[part].valid[slots] = array, True

    def update(self, state: dict[str, NDArray[Any]], column: pa.Array, slots: Slots) -> None:
        """Take rows without nulls into the state."""
        columns = _arrays(self.columns, column)
        for array in columns.values():
            array.flags.writeable = False
        self._run(self._function.update, state, columns, slots)

    def merge(self, state: dict[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> None:
        """Merge states of the same keys."""
        self._run(self._function.merge, state, other)

    def result(self, state: State, slots: Slots) -> pa.Array:
        """What the function gives for slots."""
        found = self._called(self._function.result, self.of_slots(state, slots))
        is_array = isinstance(found, np.ndarray) and found.ndim == 1
        if not (is_array or isinstance(found, pa.Array)) or len(found) != len(slots):
            self._refuse(
                self._function.result, f"returned {_shape_of(found)}; it must be {len(slots)} values"
            )
        if isinstance(found, pa.Array):
            return own_batch(pa.record_batch({"found": found})).column(0)
        try:
            # Copied: the function may have kept the array, and change it.
            return pa.array(found.copy(), from_pandas=False)
        except (pa.ArrowException, TypeError) as error:
            self._refuse(self._function.result, f"returned values of no Arrow type: {error}")

    def _run(self, method: Callable[..., Any], state: dict[str, NDArray[Any]], *others: Any) -> None:
        """Call a method that changes state, and check the state that it leaves."""
        counts = {len(array) for array in state.values()}
        (count,) = counts
        self._called(method, state, *others)
        for part in state.keys() - self._dtypes.keys():
            self._refuse(method, f"put {part!r} into the state, which has {', '.join(map(repr, self.types))}")
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
            # With the user's frames, so that the operator's error has the line that failed.
            raise PenstockError(msg).with_traceback(error.__traceback__) from error

    def _refuse(self, method: Callable[..., Any], what: str) -> NoReturn:
        msg = f"{self._of(method)} {what}"
        raise PenstockError(msg)

    def _of(self, method: Callable[..., Any]) -> str:
        return f"{self._name}={self._function!r:.80}: {function_location(method)}"


def _columns_of(name: str, function: VectorizedAggregate) -> tuple[str, ...]:
    columns = function.columns
    if not isinstance(columns, tuple) or not all(isinstance(column, str) for column in columns):
        msg = f"{name} looks at {columns!r:.80}, which are no names of columns"
        raise ConfigurationError(msg)
    if len(set(columns)) < len(columns):
        msg = f"{name} looks at one column twice: {', '.join(map(repr, columns))}"
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
                f"{what} declares the state {part!r} as {given!r:.80}; give a name and a numpy type of truth "
                "values, whole numbers or floats of 32 or 64 bits"
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
        msg = f"{name}: {init} returned {given!r:.80}; it must name values of {', '.join(map(repr, dtypes))}"
        raise ConfigurationError(msg)
    values: dict[str, Any] = {}
    for part, dtype in dtypes.items():
        value = _of_type(given.get(part, 0), dtype)
        if value is None:
            msg = f"{name}: {init} gives {part!r} the value {given[part]!r:.80}, which is no single {dtype}"
            raise ConfigurationError(msg)
        values[part] = value
    return values


def _of_type(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number in a type; `None` if it does not fit."""
    if not isinstance(value, int | float | np.number | np.bool_):
        return None
    try:
        with np.errstate(all="ignore"):
            found: Any = np.asarray(value).astype(dtype)[()]
    except (OverflowError, TypeError, ValueError):
        return None
    return found if dtype.kind == "f" or found == value else None


def _arrays(columns: Sequence[str], column: pa.Array) -> dict[str, NDArray[Any]]:
    """Columns without nulls as arrays."""
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
    return f"{len(value)} values" if isinstance(value, pa.Array) else f"{value!r:.80}"
