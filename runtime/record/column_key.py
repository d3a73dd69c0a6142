"""`ColumnKey`: the key of a record, named by columns, for rows and for Arrow batches.

The same key must meet in one subtask whether it came in a dict or in a column. So both forms have one
canonical form of a value:

* NaN is one key. Python finds a NaN in a dict only when it is the same object. So all of them become one
  object (`NAN`), which has a stable hash of its own. A NaN that a key function returns is refused, because
  nothing makes it that object.
* 0.0 and -0.0 are one key, which reads 0.0.
* A time with a zone reads in UTC. Python takes two times for one in an hour that clocks show twice.
* A time of pandas that has whole microseconds reads as Python's. One with nanoseconds can't be a key.
* Null and `None` are one key.
* Columns lose what only their encoding has: dictionaries, run ends, views, units of time. What is left has a
  hash that is equal to the one of the Python value (`runtime/state/stable_hash_arrays.py`).

A key decoded from a snapshot is a new object. `one_nan` makes the one NaN of it again.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from types import NoneType
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.record.key_columns import canonical_column, column_of

#: The NaN that is a key.
NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """What `key_by("k")` and `key_by(["a", "b"])` go by: a value, or a tuple of values, by name.

    It is a function from a record, which is a dict, to its key. A list of one name is that name.

    Args:
        names: The columns, in the order of the key's parts.

    Raises:
        ConfigurationError: There is no name, one is no text, or one is there twice.

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
            what = f"{wrong[0]!r:.80} is no name" if wrong else f"{twice[0]!r} twice" if twice else "no name"
            msg = f'a key is named by columns, key_by("k") or key_by(["a", "b"]), and here is {what}'
            raise ConfigurationError(msg)

    @property
    def is_single(self) -> bool:
        """Whether the key is a value, and no tuple."""
        return len(self.names) == 1

    @property
    def __name__(self) -> str:
        """How graphs and messages call it."""
        return f"column{'' if self.is_single else 's'} {', '.join(map(repr, self.names))}"

    def __call__(self, row: Any) -> Any:
        """The key of a record; a name that it does not have is `None`.

        Raises:
            PenstockError: The record is no dict.
        """
        try:
            get = row.get
        except AttributeError:
            raise self._no_dict(row) from None
        names = self.names
        if len(names) == 1:
            value = get(names[0])
            return value if type(value) in _ONE_FORM else _canonical(value)
        return tuple([value if type(value) in _ONE_FORM else _canonical(value) for value in map(get, names)])

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a batch in canonical form, in the order of `names`.

        Raises:
            KeyTypeError: A column is not there, there is more than one of its name, or its type has no stable
                hash; names column and type.
        """
        return [canonical_column(column_of(batch, name), name) for name in self.names]

    def _no_dict(self, row: Any) -> PenstockError:
        what = f"{reprlib.repr(row)} of type {type(row).__name__}"
        return PenstockError(
            f"key_by names the {self.__name__}, so it needs records that are dicts or Arrow batches, and got "
            f"{what}; give key_by a function, or put a map before it"
        )


def one_nan(keys: list[Any]) -> list[Any]:
    """Keys that were decoded, with `NAN` in the place of every NaN, also in tuples; the list may be the same.

    Example:
        >>> keys = one_nan([1.5, float("nan"), ("a", float("nan"))])
        >>> keys[1] is NAN, keys[2][1] is NAN
        (True, True)
    """
    kinds = set(map(type, keys))
    if tuple in kinds and _has_nan(chain.from_iterable(key for key in keys if type(key) is tuple)):
        keys = [tuple(map(_with_nan, key)) if type(key) is tuple else key for key in keys]
    return list(map(_with_nan, keys)) if float in kinds and _has_nan(keys) else keys


def _has_nan(values: Iterable[Any]) -> bool:
    return any(type(value) is float and value != value for value in values)


def _with_nan(value: Any) -> Any:
    return NAN if type(value) is float and value != value else value


#: Types whose equal values read alike.
_ONE_FORM: Final = frozenset([str, int, bool, bytes, NoneType, date, UUID])


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        if value != value:
            return NAN
        return value if value else 0.0
    if isinstance(value, datetime):
        # Those of pandas know nanoseconds.
        if type(value) is not datetime and not getattr(value, "nanosecond", 1):
            value = value.to_pydatetime()  # type: ignore[attr-defined]
        if value.tzinfo is None or type(value) is not datetime:
            return value
        try:
            return value.astimezone(UTC)
        except OverflowError:  # at the ends of Python's calendar, where no clocks are set back
            return value
    if isinstance(value, timedelta) and type(value) is not timedelta and not getattr(value, "nanoseconds", 1):
        return value.to_pytimedelta()  # type: ignore[attr-defined]
    return value


def as_column_key(key: Any) -> ColumnKey | None:
    """A `ColumnKey` of what a user gave to `key_by`; `None` where that is no name and no list of names.

    Raises:
        ConfigurationError: It is a list or tuple of something else.

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
