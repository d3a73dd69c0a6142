"""Rows as columns and columns as rows.

**Rows as columns.** A batch of rows becomes batches in which each column has one type. The type of a value
never depends on its neighbours (`arrow_types.py`); only a null may take the type of a neighbour. So the
result of a row depends on this row alone, regardless of batch boundaries, parallelism and restarts. Rows of
the same types stay together, and their types are checked once. Nearly all rows of a stream have the same
types.

**Columns as rows**: one dict per row. A literal `{'k': a, 'v': b}` in a list comprehension builds each dict
with one instruction, and is compiled once for each list of names. `dict(zip(names, values))` makes an
iterator and a growing dict for each row, which is faster only with many columns.

Numpy converts times without a zone, and times in zones of a fixed offset. Arrow would convert them one by
one, and take microseconds for each time in a zone.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from types import NoneType
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.arrow_types import PLAIN, NoColumnTypeError, type_of_value, with_leaves
from penstock.runtime.record.arrow_values import ARROW_ERRORS

_INT64: Final = pa.int64()

_NULL: Final = pa.null()

#: Row numbers in a batch.
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowColumn:
    """The values of one name in the rows of a batch.

    Attributes:
        codes: Position of each row's type in `kinds`; `None` for a single type.
        array: An array of all values, if one was made; they have one type besides null.
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
            convert: Converts values that may have no Arrow type; may be skipped if all are of plain types.
            nulls_apart: Whether nulls have a type of their own. Otherwise a null has the type of the value
                before it, or of the first value.
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
                    pass  # a value does not fit its type; `_one_by_one` or `array_of` names it
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
                    msg = f"{reprlib.repr(value)} can't be stored exactly in a column of type {kind}: {error}"
                    raise _at(NoColumnTypeError(msg), place) from error
            raise


def uniform_rows(
    columns: Mapping[str, RowColumn], rows: int, *, in_order: bool = False
) -> Iterator[tuple[Places | None, dict[str, pa.Array]]]:
    """Group rows whose values have one type in each column.

    Yields the numbers of the rows in their batch, `None` for all of them, and their columns.

    Args:
        in_order: Whether all rows keep their order, and not only rows of equal types.

    Example:
        >>> columns = {"v": RowColumn.of([1, 2.5, 2])}
        >>> for places, arrays in uniform_rows(columns, 3):
        ...     print(places.tolist(), arrays["v"].to_pylist())
        [0, 2] [1, 2]
        [1] [2.5]
    """
    mixed = [column.codes for column in columns.values() if column.codes is not None]
    for places in _groups(mixed, in_order=in_order) if mixed and rows else [None]:
        yield places, {name: column.array_of(places) for name, column in columns.items()}


def _groups(mixed: Sequence[NDArray[np.int64]], *, in_order: bool) -> list[Places]:
    codes = mixed[0]
    for more in mixed[1:]:
        # Renumbered each time, so that the product stays small.
        codes = np.unique(codes * (int(more.max()) + 1) + more, return_inverse=True)[1]
    if in_order:
        return np.split(np.arange(len(codes)), np.flatnonzero(codes[1:] != codes[:-1]) + 1)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return [np.flatnonzero(codes == code) for code in np.argsort(first)]


def _filled(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replace each -1 by the code before it, or by the first code."""
    present = np.flatnonzero(codes >= 0)
    if not len(present):
        return codes
    last = np.where(codes >= 0, np.arange(len(codes)), present[0])
    filled: NDArray[np.int64] = codes[np.maximum.accumulate(last)]
    return filled


def _at(error: NoColumnTypeError, place: int) -> NoColumnTypeError:
    error.place = place
    return error


_Literal: TypeAlias = Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]]

#: Before version 26, Arrow creates a scalar object for every value, and numpy is several times as fast.
_LISTS_ARE_FAST: Final = int(pa.__version__.partition(".")[0]) >= 26
#: Maximum number of columns for which a compiled literal saves time, as measured.
_MOST_COMPILED: Final = 32

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}

_FIRST_SECOND: Final = -62_135_596_800

_END_OF_SECONDS: Final = 253_402_300_800

_NOT_A_TIME: Final = -(1 << 63)


class NoPythonValueError(PenstockError):
    """Python has no object for a value, or two columns have the same name; the message names the column."""


def dicts_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row, from column name to value.

    Raises:
        NoPythonValueError: Python has no object for a value, or two columns have the same name.
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)]
    names = batch.schema.names
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        msg = f"two columns have the name {twice!r}, but a row can hold only one: rename or drop the other"
        raise NoPythonValueError(msg)
    columns = [values_of_column(name, column) for name, column in zip(names, batch.columns, strict=True)]
    return dicts_of_rows(names, zip(*columns, strict=True))


def dicts_of_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """One dict per row; each row has a value for each name, and there is at least one name."""
    if len(names) > _MOST_COMPILED:
        return [dict(zip(names, row, strict=False)) for row in rows]
    return _literal(tuple(names))(rows)


@lru_cache(maxsize=512)
def _literal(names: tuple[str, ...]) -> _Literal:
    variables = [f"v{index}" for index in range(len(names))]
    pairs = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    # Column names are written as string literals, so that nothing in them is executed.
    code = f"lambda rows: [{{{pairs}}} for [{', '.join(variables)}] in rows]"
    return eval(code, {})  # type: ignore[no-any-return]


def merging(
    left: Sequence[str], right: Sequence[tuple[str, str]]
) -> Callable[[Iterable[tuple[Any, Any]]], list[Any]] | None:
    """Compile a function that merges pairs of dicts.

    Returns `None` if the function would save no time, or if a name is not a string. The function raises
    `KeyError` if a name is missing.

    Args:
        left: Names that are taken from the left dict.
        right: Names that are taken from the right dict, each with its name in the merged dict.

    Example:
        >>> merging(["k"], [("v", "v_right")])([({"k": 1, "v": 2}, {"k": 1, "v": 3})])
        [{'k': 1, 'v_right': 3}]
    """
    names = {*left, *(name for pair in right for name in pair)}
    if set(map(type, names)) != {str} or len(names) > _MOST_COMPILED:
        return None
    parts = [f"{name!r}: left[{name!r}]" for name in left]
    parts += [f"{output!r}: right[{name!r}]" for name, output in right]
    # Names are written as string literals, so that nothing in them is executed.
    return eval(f"lambda pairs: [{{{', '.join(parts)}}} for left, right in pairs]", {})  # type: ignore[no-any-return]


def values_of_column(name: str, column: pa.Array) -> list[Any]:
    try:
        return _values(column)
    except (OverflowError, ValueError) as error:
        msg = (
            f"column '{name}' of type {column.type} holds a value that Python can't represent ({error}): "
            "Python's dates and times are in the years 1 to 9999 of the column's zone, in whole "
            "microseconds. Use Arrow batches instead of rows, or cast the column first"
        )
        raise NoPythonValueError(msg) from error


def _values(column: pa.Array) -> list[Any]:
    # Arrow truncates values that Python's times and dates can't hold; a cast refuses them.
    kind = _in_python(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if kinds.is_timestamp(kind) and kind.unit in _UNITS and (times := _times(column)) is not None:
        return times
    if _LISTS_ARE_FAST:
        # `to_numpy` would import pandas where that is installed: half a second in every process.
        return column.to_pylist()  # type: ignore[no-any-return]
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if text or (number and not column.null_count):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


@lru_cache(maxsize=512)
def _in_python(kind: pa.DataType) -> pa.DataType:
    return with_leaves(kind, _leaf_in_python)


def _leaf_in_python(kind: pa.DataType) -> pa.DataType:
    if kinds.is_date64(kind):
        return pa.date32()
    if kinds.is_time64(kind):
        return pa.time64("us")
    if kinds.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _in_python(kind.value_type), kind.ordered)
    return kind


def _times(column: pa.Array) -> list[Any] | None:
    """The times of a column; `None` if its zone has no fixed offset, or Python has no such time."""
    kind = column.type
    epoch = None if kind.tz is None else _epoch_in(kind.tz)
    if not len(column) or (kind.tz is not None and epoch is None):
        return None
    numbers = column.view(pa.int64())
    present = numbers.drop_null()
    if len(present):
        values = _raw(present)
        if values.min() < _FIRST_SECOND * _UNITS[kind.unit] or (
            values.max() >= _END_OF_SECONDS * _UNITS[kind.unit]
        ):
            return None
    raw = _raw(numbers.fill_null(_NOT_A_TIME) if column.null_count else numbers)
    if epoch is None:
        return raw.view(f"M8[{kind.unit}]").tolist()  # type: ignore[no-any-return]
    spans: list[timedelta | None] = raw.view(f"m8[{kind.unit}]").tolist()
    if column.null_count:
        return [None if span is None else epoch + span for span in spans]
    return [epoch + span for span in spans]  # type: ignore[operator]


def _raw(numbers: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(numbers.buffers()[1], np.int64, len(numbers), numbers.offset * 8)


@lru_cache(maxsize=64)
def _epoch_in(zone: str) -> datetime | None:
    """The epoch in a zone of a fixed offset, where adding to wall time is exact; `None` for other zones."""
    found: tzinfo | None = pa.scalar(0, pa.timestamp("us", zone)).as_py().tzinfo
    fixed = isinstance(found, timezone) or (isinstance(found, ZoneInfo) and found.key in {"UTC", "Etc/UTC"})
    return _EPOCH.astimezone(found) if fixed else None
