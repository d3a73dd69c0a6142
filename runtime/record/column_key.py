"""`ColumnKey`: the key of a record, named by columns, for rows and for Arrow batches.

Equal keys must reach the same subtask, whether they come from a dict or from a column. So dicts and columns
share one canonical form of each value:

* NaN is one key. Python finds a NaN in a dict only when it is the same object. So all NaNs become one object
  (`NAN`), which has a stable hash of its own. A NaN that a key function returns is refused, because nothing
  replaces it with `NAN`.
* 0.0 and -0.0 are one key, which is 0.0.
* A time with a zone becomes UTC. In the hour that repeats when clocks go back, Python treats two different
  instants as equal.
* A pandas time in whole microseconds becomes Python's. A pandas time with nanoseconds can't be a key.
* Null and `None` are one key.
* Columns lose their encoding: dictionaries, run ends, views, units of time. Their values have the same hash
  as the Python values (`runtime/state/stable_hash_arrays.py`).

A NaN decoded from a snapshot is a new object. `one_nan` replaces it with `NAN`.

**The canonical form of columns.** Types that encode the same values in another way become the plain type:
dictionaries, run ends, views, large strings, extension types. Times become microseconds, as Python's are. NaN
becomes one bit pattern and -0.0 becomes 0.0. The results are booleans, numbers, text, bytes, decimals, dates,
times and durations. Nulls stay nulls.

Lists, maps and structs are refused: their Python values, lists and dicts, have no stable hash.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from types import NoneType
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import ConfigurationError, KeyTypeError, PenstockError
from penstock.runtime.names import nearest_name

#: Minimum bits of a decimal in canonical form; narrower decimals are widened.
_DECIMAL_BITS: Final = 128

_ADVICE: Final = "use a tuple of its parts with a key function, or make a column of plain values first"


def only_column(batch: pa.RecordBatch, name: str, purpose: str = "") -> pa.Array:
    """The column of this name.

    Raises:
        PenstockError: The batch has no such column, or several. The message names the column and the
            `purpose`.
    """
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        names = batch.schema.names
        what, hint = ("several columns", "") if places else ("no column", nearest_name(name, names))
        msg = f"a batch has {what} {name!r}{purpose}: it has {', '.join(map(repr, names))}{hint}"
        raise PenstockError(msg)
    return batch.column(places[0])


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        what = f"has {len(places)} columns {name!r}" if places else f"has no column {name!r}"
        names = batch.schema.names
        hint = "" if places else nearest_name(name, names)
        msg = f"key_by names the column {name!r}, but a batch {what}: it has {', '.join(names)}{hint}"
        raise KeyTypeError(msg)
    return batch.column(places[0])


def canonical_column(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """A column of keys in canonical form; the same object if it is canonical already."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    given = column.type
    column = _plain(column, name)
    kind = column.type
    if kinds.is_floating(kind):
        return _one_nan_one_zero(column)
    target = _one_width(kind)
    if target.equals(kind):
        return column
    try:
        return column.cast(target)
    except pa.ArrowInvalid as error:
        msg = (
            f"column {name!r} of type {given} can't be a key: {error}; times in keys must be "
            "whole microseconds, and the strings of a batch must be shorter than 2 GiB in all"
        )
        raise KeyTypeError(msg) from error


def _plain(column: pa.Array, name: str) -> pa.Array:
    given = column.type
    while (why := _why_no_key(column.type)) is None and (decode := _decoder(column.type)) is not None:
        column = decode(column)
    if why is not None:
        msg = f"column {name!r} of type {given} can't be a key: {why}"
        raise KeyTypeError(msg)
    return column


def _why_no_key(kind: pa.DataType) -> str | None:
    if isinstance(kind, pa.UuidType):
        return "cast it to text or to fixed_size_binary(16) first"
    if kinds.is_interval(kind):
        return "months and days have no fixed length; cast it to a duration or to text first"
    if kinds.is_nested(kind) and not kinds.is_run_end_encoded(kind):
        return f"it has no stable hash; {_ADVICE}"
    return None


def _decoder(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    if isinstance(kind, pa.Bool8Type):
        return lambda column: column.cast(pa.bool_())
    if isinstance(kind, pa.BaseExtensionType):
        return lambda column: column.storage
    if kinds.is_dictionary(kind):
        return lambda column: column.dictionary_decode()
    if kinds.is_run_end_encoded(kind):
        import pyarrow.compute as pc  # takes 50 ms to load, and most subtasks never need it

        return lambda column: pc.run_end_decode(column)
    if kinds.is_string_view(kind):
        return lambda column: column.cast(pa.string())
    if kinds.is_binary_view(kind):
        return lambda column: column.cast(pa.binary())
    return None


def _one_nan_one_zero(column: pa.Array) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False)  # a null becomes NaN
    is_nan, is_zero = values != values, values == 0
    if not is_nan.any() and not (is_zero & np.signbit(values)).any():
        return column
    values = values.copy()
    values[is_zero] = 0.0
    values[is_nan] = np.nan
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, column.type, mask=mask, from_pandas=False)


def _one_width(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_time(kind):
        return pa.time64("us")
    if kinds.is_large_string(kind):
        return pa.string()
    if kinds.is_large_binary(kind):
        return pa.binary()
    if kinds.is_decimal(kind) and kind.bit_width < _DECIMAL_BITS:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.date32() if kinds.is_date64(kind) else kind


#: The only NaN object that is used as a key.
NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """Key of `key_by("k")` and `key_by(["a", "b"])`: a value, or a tuple of values, by name.

    Maps a record, which is a dict, to its key. A list of one name is the same as that name.

    Example:
        >>> ColumnKey(("k",))({"k": 1, "v": 2}), ColumnKey(("k", "v"))({"k": 1})
        (1, (1, None))
        >>> ColumnKey(("k",)).columns(pa.record_batch({"k": [0.0, -0.0]}))[0].to_pylist()
        [0.0, 0.0]
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        wrong = [name for name in self.names if not isinstance(name, str)]
        twice = [name for at, name in enumerate(self.names) if name in self.names[:at]]
        if wrong or twice or not self.names:
            what = (
                f"{wrong[0]!r:.80} is not a name"
                if wrong
                else f"it has {twice[0]!r} twice"
                if twice
                else "it has no name"
            )
            msg = f'a key needs names of columns, as in key_by("k") or key_by(["a", "b"]): {what}'
            raise ConfigurationError(msg)

    @property
    def is_single(self) -> bool:
        return len(self.names) == 1

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.names

    @property
    def __name__(self) -> str:
        return f"column{'' if self.is_single else 's'} {', '.join(map(repr, self.names))}"

    def __call__(self, row: Any) -> Any:
        """The key of a record; a missing name is `None`."""
        try:
            get = row.get
        except AttributeError:
            raise self._no_dict(row) from None
        names = self.names
        if len(names) == 1:
            value = get(names[0])
            return value if type(value) in _ONE_FORM else _canonical(value)
        return tuple([value if type(value) in _ONE_FORM else _canonical(value) for value in map(get, names)])

    def of_rows(self, rows: Sequence[Any]) -> list[Any] | None:
        """The keys of dicts if the key is a single column of plain values; `None` in all other cases.

        The result equals that of one call per record, at a fifth of the cost.
        """
        if not self.is_single or set(map(type, rows)) != {dict}:
            return None
        (name,) = self.names
        values = [row.get(name) for row in rows]
        return values if _ONE_FORM.issuperset(map(type, values)) else None

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a batch in canonical form, in the order of `names`."""
        return [canonical_column(column_of(batch, name), name) for name in self.names]

    def _no_dict(self, row: Any) -> PenstockError:
        what = f"{reprlib.repr(row)} of type {type(row).__name__}"
        return PenstockError(
            f"key_by names the {self.__name__}, so it needs records that are dicts or Arrow batches, not "
            f"{what}; give key_by a function, or convert the records with map before it"
        )


#: Name of `NoKey`'s column in state.
ALL_RECORDS: Final = ":all"


class NoKey(ColumnKey):
    """The key of windows over all records of a stream: always `None`."""

    __slots__ = ()

    def __init__(self) -> None:
        object.__setattr__(self, "names", ())

    @property
    def state_names(self) -> tuple[str, ...]:
        return (ALL_RECORDS,)

    @property
    def __name__(self) -> str:
        return "no key"

    def __call__(self, row: Any) -> None:
        return None

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [pa.nulls(batch.num_rows)]


def one_nan(keys: list[Any]) -> list[Any]:
    """Decoded keys with `NAN` for every NaN, including in tuples; may return the same list."""
    kinds = set(map(type, keys))
    if tuple in kinds and _has_nan(chain.from_iterable(key for key in keys if type(key) is tuple)):
        keys = [tuple(map(_with_nan, key)) if type(key) is tuple else key for key in keys]
    return list(map(_with_nan, keys)) if float in kinds and _has_nan(keys) else keys


def _has_nan(values: Iterable[Any]) -> bool:
    return any(type(value) is float and value != value for value in values)


def _with_nan(value: Any) -> Any:
    return NAN if type(value) is float and value != value else value


#: Types whose equal values have one form.
_ONE_FORM: Final = frozenset([str, int, bool, bytes, NoneType, date, UUID])


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        if value != value:
            return NAN
        return value if value else 0.0
    if isinstance(value, datetime):
        # Times of pandas have nanoseconds.
        if type(value) is not datetime and not getattr(value, "nanosecond", 1):
            value = value.to_pydatetime()  # type: ignore[attr-defined]
        if value.tzinfo is None or type(value) is not datetime:
            return value
        try:
            return value.astimezone(UTC)
        except OverflowError:  # at the ends of Python's calendar
            return value
    if isinstance(value, timedelta) and type(value) is not timedelta and not getattr(value, "nanoseconds", 1):
        return value.to_pytimedelta()  # type: ignore[attr-defined]
    return value


def as_column_key(key: Any) -> ColumnKey | None:
    """A `ColumnKey` for the argument of `key_by`; `None` if it is neither a name nor a list of names.

    Example:
        >>> as_column_key("k"), as_column_key(["a", "b"]).names, as_column_key(len)
        (ColumnKey(names=('k',)), ('a', 'b'), None)
    """
    if isinstance(key, str):
        return ColumnKey((key,))
    if isinstance(key, ColumnKey):
        return key
    if isinstance(key, Mapping) or not isinstance(key, list | tuple):
        return None
    return ColumnKey(tuple(key))
