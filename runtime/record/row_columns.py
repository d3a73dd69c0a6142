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
from datetime import datetime
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.record.exact_values import ARROW_ERRORS, MisfitError, exact_column
from penstock.runtime.record.value_types import PLAIN, NoColumnTypeError, refuse, type_of_value, zone_name

_INT64: Final = pa.int64()
_INT64_RANGE: Final = (-(1 << 63), (1 << 63) - 1)
#: Digits that stand for decimals of one scale.
_DIGITS: Final = 38
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


def row_column(values: Sequence[Any], *, merged: bool) -> RowColumn:
    """The column of values that may be nested, where each has the type that it has alone (`own_type`).

    Args:
        merged: Whether values whose types go together without loss (`common_type`) share one. Otherwise nulls
            are apart too, and each type is that of its values alone.

    Raises:
        NoColumnTypeError: A value has no type; the error has the row's number as `place`.
    """
    digits = None if merged else _DIGITS
    types = set(map(type, values)) - {NoneType}
    if len(types) == 1 and types <= {list, dict, datetime}:
        kind = _type_of_all(values, digits=digits, apart=not merged)
        if kind is not None:
            return RowColumn(values, [kind], None)
    column = RowColumn.of(values, partial(own_type, digits=digits), nulls_apart=not merged)
    return _merged(column) if merged and column.codes is not None else column


def own_type(value: Any, *, digits: int | None = None) -> pa.DataType:
    """The type of a value alone, with lists of whole numbers beside floats, and of dicts that lack fields.

    Args:
        value: A leaf, a list, a tuple, an array or a dict.
        digits: Precision of decimals; by default as many digits as the value needs.

    Raises:
        NoColumnTypeError: No type carries the value; says why.

    Example:
        >>> own_type([{"x": 1}, {"x": 2.5, "y": None}])
        ListType(list<item: struct<x: double, y: null>>)
    """
    if isinstance(value, dict):
        if not all(type(name) is str for name in value):
            refuse(value, "its names are no texts")
        return pa.struct([(name, own_type(part, digits=digits)) for name, part in value.items()])
    if isinstance(value, list | tuple):
        found = _type_of_all(value, digits=digits, numbers=True)
        if found is None:
            refuse(value, "its elements have types that do not go together")
        return pa.list_(found)
    try:
        return type_of_value(value, digits=digits)
    except NoColumnTypeError as error:
        if type(value).__module__ in ("builtins", "datetime", "decimal"):
            raise
        try:
            return exact_column([value], None, "value").type
        except MisfitError:
            raise error from None


def _type_of_all(
    values: Sequence[Any], *, digits: int | None, numbers: bool = False, apart: bool = False
) -> pa.DataType | None:
    """The type of all values; `None` if they have none in common, or if one may not fit it.

    Args:
        numbers: Whole numbers and floats go together.
        apart: Only values that have exactly this type alone.
    """
    types = set(map(type, values))
    has_null = NoneType in types
    types.discard(NoneType)
    if not types:
        return _NULL
    if has_null and apart:
        return None
    present = [value for value in values if value is not None] if has_null else values
    if types == {dict}:
        return _struct_of_all(present, digits=digits, numbers=numbers, apart=apart)
    if types == {list}:
        if apart and not all(present):
            return None if any(present) else pa.list_(_NULL)
        kind = _type_of_all(list(chain.from_iterable(present)), digits=digits, numbers=numbers, apart=apart)
        return None if kind is None else pa.list_(kind)
    if types == {datetime} and len(zones := {value.tzinfo for value in present}) == 1:
        return pa.timestamp("us", zone_name(zones.pop(), present[0]))
    if types == {int} and _INT64_RANGE[0] <= min(present) and max(present) <= _INT64_RANGE[1]:
        return _INT64
    if len(types) == 1 and (plain := PLAIN.get(next(iter(types)))) is not None:
        return plain
    found: pa.DataType | None = _NULL
    for value in present:
        kind = own_type(value, digits=digits)
        if apart and found not in (_NULL, kind):
            return None
        found = common_type(found, kind, numbers=numbers)
        if found is None:
            return None
    return found


def _struct_of_all(
    values: Sequence[dict[Any, Any]], *, digits: int | None, numbers: bool, apart: bool
) -> pa.DataType | None:
    names = dict.fromkeys(chain.from_iterable(values))
    if not all(type(name) is str for name in names):
        return None
    if apart and len(set(map(tuple, values))) > 1:
        return None
    fields = []
    for name in names:
        parts = [value.get(name) for value in values]
        kind = _type_of_all(parts, digits=digits, numbers=numbers, apart=apart)
        if kind is None:
            return None
        fields.append((name, kind))
    return pa.struct(fields)


def common_type(one: pa.DataType, other: pa.DataType, *, numbers: bool = False) -> pa.DataType | None:
    """The type that holds values of both unchanged; `None` if there is none.

    A null goes with everything. A dict may lack fields. Decimals get the digits that both need.

    Args:
        numbers: Whole numbers and floats go together, as a value's own elements do.

    Example:
        >>> common_type(pa.list_(pa.null()), pa.list_(pa.int64()))
        ListType(list<item: int64>)
        >>> common_type(pa.int64(), pa.float64()) is None
        True
    """
    if one.equals(other) or kinds.is_null(other):
        return one
    if kinds.is_null(one):
        return other
    if kinds.is_decimal128(one) and kinds.is_decimal128(other):
        scale = max(one.scale, other.scale)
        digits = scale + max(one.precision - one.scale, other.precision - other.scale)
        return pa.decimal128(digits, scale) if digits <= _DIGITS else None
    if kinds.is_list(one) and kinds.is_list(other):
        kind = common_type(one.value_type, other.value_type, numbers=numbers)
        return None if kind is None else pa.list_(kind)
    if kinds.is_struct(one) and kinds.is_struct(other):
        fields = common_fields(list(one), list(other), numbers=numbers)
        return None if fields is None else pa.struct(fields)
    if numbers and {one, other} == {_INT64, pa.float64()}:
        return pa.float64()
    return None


def common_fields(
    one: Sequence[pa.Field], other: Sequence[pa.Field], *, numbers: bool = False
) -> list[pa.Field] | None:
    """The fields of both, in the order of the first; `None` if a field's types do not go together.

    A field that only one of them has may be null.
    """
    more = {field.name: field for field in other}
    fields = []
    for field in one:
        beside = more.pop(field.name, None)
        if beside is None:
            fields.append(field.with_nullable(True))
            continue
        kind = common_type(field.type, beside.type, numbers=numbers)
        if kind is None:
            return None
        fields.append(field.with_type(kind).with_nullable(field.nullable or beside.nullable))
    return fields + [field.with_nullable(True) for field in more.values()]


def _merged(column: RowColumn) -> RowColumn:
    """The column with types that go together made one."""
    found: list[pa.DataType] = []
    code_of = []
    for kind in column.kinds:
        for code, known in enumerate(found):
            if (common := common_type(known, kind)) is not None:
                found[code] = common
                code_of.append(code)
                break
        else:
            code_of.append(len(found))
            found.append(kind)
    codes = None if len(found) == 1 else np.array(code_of, np.int64)[column.codes]
    return RowColumn(column.values, found, codes)


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
