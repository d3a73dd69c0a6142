"""`own_copy`: copies of values that a user's function might change later.

A record must stay as it was emitted, and a state as it was written. So a value that leaves a user's function
is copied there, unless it is immutable. A copy has the types that the value would have after passing a
channel, and shares nothing mutable with the value. A list that is in two places becomes two lists, as in a
channel.

Objects of plain classes are copied attribute by attribute, without a call of `__init__`. Classes that define
how they are copied (`__deepcopy__`, `__reduce_ex__`, most builtin bases) are left to `copy.deepcopy`. Every
record pays for the checks for an atom, a tuple of atoms and a flat dict. So these come first, and the types
of all parts are compared in C.
"""

from __future__ import annotations

import copy
import gc
import sysconfig
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import chain, islice
from sys import getrefcount
from types import NoneType
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import PenstockError
from penstock.runtime.record.record_classes import RecordShape, shape_of
from penstock.runtime.trust.data import write_batch

#: Values of exactly these types can't change, and have no parts.
LEAVES: Final = frozenset(
    {NoneType, bool, int, float, complex, Decimal, str, bytes, date, timedelta, timezone, UUID}
)
#: Types whose values can't change and have no parts that can.
_ATOMS: Final = LEAVES | {datetime, time, range, type(...), type(NotImplemented)}

_are_atoms: Final = _ATOMS.issuperset

_is_tracked: Final = gc.is_tracked
#: Raises a `TypeError` for values that have no hash.
_have_hashes: Final = frozenset[Any]().isdisjoint

_Copier: TypeAlias = Callable[[Any], Any]

#: Methods by which a class defines how it is copied or deleted.
_OWN_COPY_HOOKS: Final = ("__deepcopy__", "__setstate__", "__getnewargs_ex__", "__del__")

_COPY_HOOKS: Final = (
    *_OWN_COPY_HOOKS,
    "__copy__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
    "__getnewargs__",
)

_HEAP_TYPE: Final = 1 << 9
#: Builtins whose values can't change, each with a function that reads the value of a subclass's instance.
#: The function calls no methods of the subclass. Attributes of such instances may change.
_FIXED_BASES: Final[dict[Any, _Copier]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    tuple: tuple.__iter__,
    frozenset: frozenset.__iter__,
}


def own_copy(value: Any) -> Any:
    """Return the value itself if it can't change, else a copy that shares no mutable part with it.

    Raises:
        PenstockError: The value is mutable and can't be copied.

    Example:
        >>> items = ["tea"]
        >>> kept = own_copy({"id": 1, "items": items})
        >>> items.append("jam")
        >>> kept
        {'id': 1, 'items': ['tea']}
        >>> pair = ("ann", 3)
        >>> own_copy(pair) is pair
        True
    """
    kind = type(value)
    if kind is dict:
        # The cycle collector does not track a dict whose keys and values can't refer to anything. Of the
        # values in such a dict, only arrays and bytearrays can change; they have no hash.
        if not _is_tracked(value):
            try:
                _have_hashes(value.values())
            except TypeError:
                return _copied(value)
            return {**value}
    elif kind is tuple:
        if len(value) == 2:
            first, second = value
            if type(first) in _ATOMS and type(second) in _ATOMS:
                return value
        elif _are_atoms(map(type, value)):
            return value
    elif kind in _ATOMS:
        return value
    try:
        return _copied(value)
    except RecursionError:
        return _deep(value)  # the value contains itself, or is very deep: `deepcopy` has a memo


def own_copies(values: Sequence[Any]) -> list[Any]:
    """Return the values in a new list, with copies of those that can change."""
    kinds = set(map(type, values))
    if (
        kinds == {dict}
        and not any(map(_is_tracked, values))
        and _are_atoms(map(type, chain.from_iterable(map(dict.values, values))))
    ):
        return list(map(dict.copy, values))
    kinds -= _ATOMS
    if not kinds or (kinds == {tuple} and _are_atoms(map(type, chain.from_iterable(_tuples_of(values))))):
        return list(values)
    return list(map(own_copy, values))


def draw_copies(values: Iterator[Any], most: int) -> list[Any]:
    """The next values of an iterator, at most `most`, each copied before the next one is drawn.

    The loop runs for every record that a user's function yields, so it inlines checks of `own_copy`.
    A flat dict without another reference is not copied.

    Example:
        >>> def grown():
        ...     row = {"n": 1}
        ...     yield row
        ...     row["n"] = 2
        ...     yield row
        >>> draw_copies(grown(), 5)
        [{'n': 1}, {'n': 2}]
    """
    drawn: list[Any] = []
    append, alone, atoms = drawn.append, _ALONE, _ATOMS
    is_tracked, have_hashes = _is_tracked, _have_hashes
    for value in islice(values, most):
        kind = type(value)
        if kind is dict and not is_tracked(value):
            try:
                have_hashes(value.values())
            except TypeError:
                append(_copied(value))
            else:
                append(value if getrefcount(value) <= alone else {**value})
        elif kind is tuple and len(value) == 2:
            first, second = value
            append(value if type(first) in atoms and type(second) in atoms else own_copy(value))
        elif kind in atoms:
            append(value)
        else:
            append(own_copy(value))
    return drawn


def _references_of_one() -> int:
    """Return `getrefcount` of a value that only a loop like the one in `draw_copies` refers to."""
    for value in islice((dict(n=1) for _ in range(1)), 1):  # noqa: C408
        return getrefcount(value)
    return 0


#: Reference counts are not exact without a global lock, so then every dict is copied.
_ALONE: Final = 0 if sysconfig.get_config_var("Py_GIL_DISABLED") else _references_of_one()


def can_change(values: Sequence[Any]) -> bool:
    return any(own_copy(value) is not value for value in values)


def own_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch to memory of its own: `pa.array` of a numpy array shares that array's memory."""
    return pa.ipc.open_stream(write_batch(batch)).read_next_batch()


def _tuples_of(values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return (value for value in values if type(value) is tuple)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    try:
        copier = _COPIERS[kind]
    except KeyError:
        copier = _COPIERS[kind] = _copier_of(kind)
    return copier(value)


def _itself(value: Any) -> Any:
    return value


def _tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = tuple(map(_copied, value))
    return value if _are_same(parts, value) else parts


def _frozenset(value: frozenset[Any]) -> frozenset[Any]:
    parts = list(map(_copied, value))
    return value if _are_same(parts, value) else frozenset(parts)


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if _are_atoms(map(type, value.values())) and _are_atoms(map(type, value)):
        return value.copy()
    return {_copied(key): _copied(part) for key, part in value.items()}


def _list(value: list[Any]) -> list[Any]:
    return list(value) if _are_atoms(map(type, value)) else list(map(_copied, value))


def _set(value: set[Any]) -> set[Any]:
    return set(map(_copied, value))


def _deque(value: deque[Any]) -> deque[Any]:
    return deque(map(_copied, value), value.maxlen)


def _array(value: Any) -> Any:
    return _deep(value) if value.dtype.hasobject else value.copy(order="K")


def _named_tuple(kind: type, value: Any) -> Any:
    parts = tuple(map(_copied, value))
    return value if _are_same(parts, value) else tuple.__new__(kind, parts)


def _from_base(base: Any, kind: type, value: Any) -> Any:
    """Copy a value of a subclass of a builtin without calling the subclass's own `__new__`."""
    content = _FIXED_BASES[base](value)
    made = base.__new__(kind, map(_copied, content) if isinstance(content, Iterator) else content)
    if kind.__dictoffset__:
        vars(made).update({name: _copied(part) for name, part in vars(value).items()})
    return made


def _object(kind: type, value: Any) -> Any:
    made: Any = object.__new__(kind)
    vars(made).update({name: _copied(part) for name, part in vars(value).items()})
    return made


def _frozen(shape: RecordShape, copier: _Copier, value: Any) -> Any:
    """Copy a frozen dataclass, unless none of its values needs a copy."""
    state = shape.state_of(value)
    if state is None:
        return copier(value)
    parts = state.values() if isinstance(state, dict) else state
    return value if _are_same(map(_copied, parts), parts) else copier(value)


def _are_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _deep(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:  # any error of the value's own methods
        msg = (
            f"a value of type {type(value).__module__}.{type(value).__qualname__} can't be copied "
            f"({error_text(error, 200)}), so later changes of the value would also change records or state; "
            "emit and keep only values that can be copied, and make all other objects in `open`"
        )
        raise PenstockError(msg) from error


def _copier_of(kind: type) -> _Copier:
    if issubclass(kind, Enum | type | weakref.ref):
        return _itself
    if issubclass(kind, np.generic) and not issubclass(kind, np.void | np.object_):
        return _itself
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__:
        return _deep if _has_own_copy_hooks(kind) else partial(_named_tuple, kind)
    for base in _FIXED_BASES:
        if issubclass(kind, base):
            return partial(_from_base, base, kind) if _is_made_of(base, kind) else _deep
    copier = partial(_object, kind) if _is_plain_object(kind) and not _has_own_copy_hooks(kind) else _deep
    params, shape = vars(kind).get("__dataclass_params__"), shape_of(kind)
    if params is not None and params.frozen and shape is not None:
        return partial(_frozen, shape, copier)
    return copier


def copies_parts(kind: type) -> bool:
    """Return whether `own_copy` copies values of a class part by part, without a method of the class."""
    copier = _copier_of(kind)
    if isinstance(copier, partial) and copier.func is _frozen:
        copier = copier.args[1]
    return isinstance(copier, partial) and copier.func in (_object, _named_tuple)


def _has_own_copy_hooks(kind: Any) -> bool:
    return any(hasattr(kind, name) for name in _OWN_COPY_HOOKS) or any(
        getattr(kind, name, None) is not getattr(object, name, None)
        for name in ("__reduce_ex__", "__reduce__", "__getstate__")
    )


def _is_made_of(base: type, kind: type) -> bool:
    """Whether an instance of a subclass of a builtin has only the builtin's value and attributes."""
    own = kind.__mro__[: kind.__mro__.index(base)]
    if any(not cls.__flags__ & _HEAP_TYPE or _slots_of(cls) for cls in own):
        return False
    return not any(
        name in vars(cls) and not (name == "__getnewargs__" and "_fields" in vars(cls))  # a named tuple's
        for cls in own
        for name in _COPY_HOOKS
    )


def _is_plain_object(kind: type) -> bool:
    bases = kind.__mro__[:-1]
    return kind.__dictoffset__ != 0 and all(
        base.__flags__ & _HEAP_TYPE and not _slots_of(base) for base in bases
    )


def _slots_of(base: type) -> bool:
    return bool(set(vars(base).get("__slots__", ())) - {"__dict__", "__weakref__"})


_COPIERS: Final[dict[type, _Copier]] = {
    tuple: _tuple,
    frozenset: _frozenset,
    dict: _dict,
    list: _list,
    set: _set,
    deque: _deque,
    bytearray: bytearray,
    array: copy.copy,
    np.ndarray: _array,
}
