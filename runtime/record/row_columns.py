"""Columns of rows: a batch of rows becomes batches in which each column has one type.

The type of a value is its own, never that of its neighbours (`value_types.py`). So rows are dealt out by the
types of their values, and what is computed for a row depends on this row alone. Any cut of a stream into
batches, any parallelism and any restart gives the same. Rows of one type, which are nearly all that there
are, stay together and cost one look at the types.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.record.exact_values import ARROW_ERRORS
from penstock.runtime.record.value_types import PLAIN, NoColumnTypeError, type_of_value

_INT64: Final = pa.int64()
_NULL: Final = pa.null()

#: Numbers of rows of a batch.
Places = NDArray[np.int64]


class UniformRows(NamedTuple):
    """Rows whose values have one type in each column.

    Attributes:
        places: Numbers of the rows in their batch; `None` for all of them.
        columns: By name.
    """

    places: Places | None
    columns: dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class RowColumn:
    """The values of one name in the rows of a batch.

    Attributes:
        kinds: The types of the values.
        codes: Of each row the position of its type; `None` where there is one type.
        array: All values, where they have one type beside null and are already an array.
    """

    values: Sequence[Any]
    kinds: Sequence[pa.DataType]
    codes: NDArray[np.int64] | None
    array: pa.Array | None = None

    @classmethod
    def of(
        cls,
        values: Sequence[Any],
        find: Callable[[Any], pa.DataType] = type_of_value,
        *,
        convert: Callable[[Any], Any] | None = None,
        nulls_apart: bool = False,
    ) -> RowColumn:
        """The column of some values.

        Args:
            values: One a row.
            find: Gives the type of a value.
            convert: Makes another value of one that is of no plain type.
            nulls_apart: Whether nulls are of a type of their own beside values. Otherwise a null has the
                type of the value before it.

        Raises:
            NoColumnTypeError: A value has no type; the error has the row's number as `place`.

        Example:
            >>> column = RowColumn.of([1, None, "a"])
            >>> list(map(str, column.kinds)), column.codes.tolist()
            (['int64', 'string'], [0, 0, 1])
        """
        types = set(map(type, values))
        has_null = NoneType in types
        types.discard(NoneType)
        if not types:
            return cls(values, [_NULL], None, pa.nulls(len(values)))
        if len(types) == 1:
            (only,) = types
            kind = _INT64 if only is int else PLAIN.get(only)
            if kind is not None:
                try:
                    array = pa.array(values, kind)
                except ARROW_ERRORS:
                    pass  # a value that its type does not hold; `_one_by_one` and `array_of` say which
                else:
                    if not (has_null and nulls_apart):
                        return cls(values, [kind], None, array)
                    is_null = array.is_null().to_numpy(zero_copy_only=False)
                    return cls(values, [kind, _NULL], is_null.astype(np.int64), array)
        elif not nulls_apart and types <= PLAIN.keys():
            return cls._plain(values)
        if convert is not None:
            values = list(map(convert, values))
        return cls._one_by_one(values, find, nulls_apart=nulls_apart)

    @classmethod
    def _plain(cls, values: Sequence[Any]) -> RowColumn:
        """The column of values of several plain types; a null has the type of the value before it."""
        types = list(map(type, values))
        found = {kind: code for code, kind in enumerate(k for k in dict.fromkeys(types) if k is not NoneType)}
        kinds_of = [PLAIN[kind] for kind in found]
        codes = np.fromiter(map({**found, NoneType: -1}.__getitem__, types), np.int64, len(types))
        return cls(values, kinds_of, _filled(codes))

    @classmethod
    def _one_by_one(
        cls, values: Sequence[Any], find: Callable[[Any], pa.DataType], *, nulls_apart: bool
    ) -> RowColumn:
        found: dict[pa.DataType, int] = {}
        codes = np.empty(len(values), np.int64)
        for place, value in enumerate(values):
            if value is None and not nulls_apart:
                codes[place] = -1
                continue
            try:
                kind = find(value)
            except NoColumnTypeError as error:
                raise _at(error, place) from error
            is_null = kinds.is_null(kind) and not nulls_apart
            codes[place] = -1 if is_null else found.setdefault(kind, len(found))
        if not nulls_apart:
            codes = _filled(codes)
        if len(found) <= 1:
            return cls(values, list(found) or [_NULL], None)
        return cls(values, list(found), codes)

    def array_of(self, places: Places | None) -> pa.Array:
        """The values of some rows, which have one type.

        Raises:
            NoColumnTypeError: The type does not hold a value, such as a text with half a surrogate pair.
        """
        code = 0 if self.codes is None or places is None else int(self.codes[places[0]])
        kind = self.kinds[code]
        if self.array is not None and not kinds.is_null(kind):
            return self.array if places is None else self.array.take(pa.array(places))
        values = self.values if places is None else [self.values[place] for place in places.tolist()]
        if kinds.is_null(kind):
            return pa.nulls(len(values))
        try:
            return pa.array(values, kind)
        except ARROW_ERRORS:
            for index, value in enumerate(values):
                try:
                    pa.array([value], kind)
                except ARROW_ERRORS as error:
                    place = index if places is None else int(places[index])
                    msg = f"{reprlib.repr(value)} has no exact form in a column of type {kind}: {error}"
                    raise _at(NoColumnTypeError(msg), place) from error
            raise


def uniform_rows(
    columns: Mapping[str, RowColumn], rows: int, *, in_order: bool = False
) -> Iterator[UniformRows]:
    """Rows dealt out by the types of their values.

    Args:
        columns: By name.
        rows: How many rows there are.
        in_order: Whether all rows keep their order, and not only those of equal types.

    Example:
        >>> columns = {"v": RowColumn.of([1, 2.5, 2])}
        >>> for places, arrays in uniform_rows(columns, 3):
        ...     print(places.tolist(), arrays["v"].to_pylist())
        [0, 2] [1, 2]
        [1] [2.5]
    """
    mixed = [column.codes for column in columns.values() if column.codes is not None]
    for places in _groups(mixed, in_order=in_order) if mixed and rows else [None]:
        yield UniformRows(places, {name: column.array_of(places) for name, column in columns.items()})


def _groups(mixed: Sequence[NDArray[np.int64]], *, in_order: bool) -> list[Places]:
    codes = mixed[0]
    for more in mixed[1:]:
        # Numbered anew each time, so that the product stays small.
        codes = np.unique(codes * (int(more.max()) + 1) + more, return_inverse=True)[1]
    if in_order:
        return np.split(np.arange(len(codes)), np.flatnonzero(codes[1:] != codes[:-1]) + 1)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return [np.flatnonzero(codes == code) for code in np.argsort(first)]


def _filled(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Codes where -1 takes the code in front of it, or the first code that there is."""
    present = np.flatnonzero(codes >= 0)
    if not len(present):
        return codes
    last = np.where(codes >= 0, np.arange(len(codes)), present[0])
    filled: NDArray[np.int64] = codes[np.maximum.accumulate(last)]
    return filled


def _at(error: NoColumnTypeError, place: int) -> NoColumnTypeError:
    error.place = place
    return error
