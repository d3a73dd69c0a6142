"""Declared types of keyed state: what a state holds, and whether what was restored fits.

A function may say of what type the values of a state are. Then the state takes nothing else, and the name of
the type is part of every snapshot. A job whose function wants another type does not start from values that it
could not read. The values decide: a type that takes all saved values fits, whatever its name, a base class
for example. So values that were saved without a declaration are checked, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.record.stable_names import OURS, name_in_data, without_former_module
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state.state_table import HasCurrentKey, StateTable, ValueState


def type_name(of: type) -> str:
    """The name of a type in snapshots and messages.

    Example:
        >>> from decimal import Decimal
        >>> from penstock.runtime.time.windows import TimeWindow
        >>> type_name(int), type_name(Decimal), type_name(TimeWindow)
        ('int', 'decimal.Decimal', 'penstock:TimeWindow')
    """
    ours = name_in_data(of)
    if ours is not None:
        return f"{OURS}:{ours}"
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"


class DeclaredTypes:
    """The declared types of one operator in one subtask.

    Example:
        >>> types, table = DeclaredTypes(), StateTable("seen")
        >>> table.entries["word"] = "three"
        >>> types.declare(table, int)
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.StateMismatchError: state 'seen' is declared as int, but the snapshot that \
the job starts from holds str in it, for example for key 'word'. Declare the type that was saved and convert \
the values as they are used, or give the new state another name; the old one then stays unused
    """

    def __init__(self) -> None:
        self._saved: dict[str, str] = {}
        self._declared: dict[str, type] = {}

    def restore(self, handles: Iterable[KeyedStateHandle]) -> None:
        """Take over what was declared when these were saved."""
        self._saved = {name: without_former_module(kind) for handle in handles for name, kind in handle.types}

    def declare(self, table: StateTable, of_type: type) -> None:
        """A function says of what type the values of a table are.

        Raises:
            ConfigurationError: It has said something else before.
            StateMismatchError: The table holds restored values of another type.
        """
        known = self._declared.setdefault(table.name, of_type)
        if known is not of_type:
            msg = (
                f"state {table.name!r} is declared as {type_name(known)} and as {type_name(of_type)}: "
                "all functions of an operator that use a state declare the same type"
            )
            raise ConfigurationError(msg)
        if self._saved.get(table.name) != type_name(of_type):
            _check(table, of_type, self._saved.get(table.name))

    def names(self) -> tuple[tuple[str, str], ...]:
        """What a snapshot keeps: each state with its type; what nobody has asked for yet stays as it was."""
        declared = {name: type_name(of_type) for name, of_type in self._declared.items()}
        return tuple(sorted({**self._saved, **declared}.items()))


class TypedValueState(ValueState):
    """A `ValueState` that takes values of one type only.

    Args:
        table: Where the values are.
        owner: Knows the current key.
        default: What `value` gives for a key that has none.
    """

    __slots__ = ("_type",)

    def __init__(self, table: StateTable, owner: HasCurrentKey, default: Any, of_type: type) -> None:
        super().__init__(table, owner, default)
        self._type = of_type

    def update(self, value: Any) -> None:
        """Set the current key's value.

        Raises:
            TypeError: It is of another type.
            RuntimeError: There is no current key.
        """
        if not isinstance(value, self._type):
            msg = f"state {self._name!r} is declared as {type_name(self._type)} and can't hold {value!r:.200}"
            raise TypeError(msg)
        super().update(value)


def _check(table: StateTable, of_type: type, saved: str | None) -> None:
    wrong = {held for held in set(map(type, table.entries.values())) if not issubclass(held, of_type)}
    if not wrong:
        return
    key = next(key for key, value in table.entries.items() if type(value) in wrong)
    declared = "" if saved is None else f" (declared as {saved} then)"
    msg = (
        f"state {table.name!r} is declared as {type_name(of_type)}, but the snapshot that the job starts "
        f"from holds {' and '.join(sorted(map(type_name, wrong)))} in it{declared}, for example for key "
        f"{key!r:.100}. Declare the type that was saved and convert the values as they are used, or give the "
        "new state another name; the old one then stays unused"
    )
    raise StateMismatchError(msg)
