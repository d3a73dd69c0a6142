"""`InputKeys`: refuses the keys of two inputs that can never be equal.

If one input is keyed by numbers and the other by text, no keys of the two are equal. The job would run, and
emit nothing. So an operator with two keyed inputs compares the *kinds* of their keys. Values of different
kinds are never equal; numbers of all types are one kind, because `1 == 1.0 == Decimal(1)`. A tuple's kind
consists of the kinds of its parts. `None` says nothing about the other keys, so it fits every kind.

Kinds are compared only when an input has a key of a new type.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from itertools import product
from numbers import Number
from types import NoneType
from typing import Any, Final, TypeAlias

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.state.stable_hash import types_of_keys

#: The name of a kind, or the kinds of a tuple's parts.
Kind: TypeAlias = "str | tuple[Kind, ...]"

_ANY: Final = "None"

#: Classes whose values equal only values of the same class; `datetime` comes before its base, `date`.
_CLASSES: Final = (str, bytes, datetime, date, time)

#: Maximum number of kinds that are kept for an input; once it is reached, keys are no longer compared.
_MOST_KINDS: Final = 32


def kind_of(key: Any) -> Kind:
    """The kind of a key.

    Example:
        >>> kind_of(1), kind_of(2.5), kind_of(("a", None))
        ('number', 'number', ('str', 'None'))
    """
    if isinstance(key, tuple):
        return tuple(map(kind_of, key))
    if isinstance(key, NoneType):
        return _ANY
    if isinstance(key, Number):
        return "number"
    if isinstance(key, datetime | time):
        return f"{type(key).__name__} {'without' if key.tzinfo is None else 'with'} time zone"
    named = next((kind for kind in _CLASSES if isinstance(key, kind)), type(key))
    return named.__name__


def can_be_equal(left: Kind, right: Kind) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(can_be_equal, left, right))
    return left == right or _ANY in (left, right)


class InputKeys:
    """The kinds of the keys of two inputs.

    Example:
        >>> keys = InputKeys()
        >>> keys.check(0, [1, 2])
        >>> try:
        ...     keys.check(1, ["1"])
        ... except KeyTypeError as error:
        ...     print(str(error).partition(": ")[0])
        the keys of the inputs can never be equal
    """

    def __init__(self) -> None:
        self._types: tuple[set[type], set[type]] = set(), set()
        #: Kinds of each input, each with an example.
        self._kinds: tuple[dict[Kind, Any], dict[Kind, Any]] = {}, {}

    def check(self, input_index: int, keys: Sequence[Any]) -> None:
        """Note the kinds of keys; raises `KeyTypeError` if no keys of the two inputs can be equal."""
        types = types_of_keys(keys)
        if types <= self._types[input_index]:
            return
        self._types[input_index].update(types)
        kinds = self._kinds[input_index]
        for key in keys:
            if len(kinds) < _MOST_KINDS:
                kinds.setdefault(kind_of(key), key)
        first, second = self._kinds
        knows_all = max(len(first), len(second)) < _MOST_KINDS
        if knows_all and first and second and not any(can_be_equal(*pair) for pair in product(first, second)):
            (kind, key), (other, found) = next(iter(first.items())), next(iter(second.items()))
            msg = (
                f"the keys of the inputs can never be equal: the first has {_shown(kind)} keys such as "
                f"{short_repr(key)}, the second has {_shown(other)} keys such as {short_repr(found)}. Give "
                "both streams key_by functions that return the same type"
            )
            raise KeyTypeError(msg)


def _shown(kind: Kind) -> str:
    return kind if isinstance(kind, str) else f"({', '.join(map(_shown, kind))})"
