"""`DeclaredState`: the base of the states that a function's class declares, keyed or not.

Each class of states is two things. In the body of a function's class it is a *declaration*: name, types,
settings. In a running subtask the attribute of that name is a *view* of what the subtask holds. So one name
serves a type checker and the reader of the class. It serves the runtime, too, which lists the states of a
class without running it (`known_states.py`).

The view is put into the function object's own `__dict__`. A declaration has no `__set__`, so Python finds the
view there first: reading `self.count` costs an attribute and no call. An object that was never bound finds
the declaration, whose `__get__` says what is wrong.

**Declared types** (`DeclaredTypes`): what a state holds, and whether what was restored fits. A function may
say of what type the values of a state are. Then the state takes nothing else, and the name of the type is
part of every snapshot. A job whose function wants another type does not start from values that it could not
read. The values decide: a type that takes all saved values fits, whatever its name, a base class for example.
So values that were saved without a declaration are checked, too.

A declaration with `migrate` takes them over instead: values that are not of the type are converted once, when
the state is bound. What is converted counts as changed, so that the next checkpoint has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NoReturn, Self, get_origin, overload

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ConfigurationError, PenstockError, StateMismatchError, UserLocation
from penstock.runtime.names import normal_name, problem_with_name
from penstock.runtime.record.stable_names import OURS, name_in_data
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.user_location import function_location, user_location

#: What names of Penstock's own tables beside a function's states begin with.
RESERVED: Final = "penstock:"


class DeclaredState:
    """A name, and how saved values of another type are taken over.

    Attributes:
        name: The name under which it is saved; that of the class attribute by default.
        migrate: Makes a value of today's type of a saved one that is of another type; `None` refuses these.
        renamed_from: The name under which it was saved before; `None` for the same.
        where: The user's line that declared it.
    """

    __slots__ = ("migrate", "name", "renamed_from", "where")

    #: Name of this kind in snapshots and messages.
    kind: ClassVar[str]

    name: str

    def __init__(
        self, name: str | None, migrate: Callable[[Any], Any] | None, renamed_from: str | None
    ) -> None:
        self.where: UserLocation = user_location()
        self.migrate = migrate
        self.renamed_from: str | None = None
        self.name = "" if name is None else self._checked_name(name)
        if renamed_from is not None:
            self.renamed_from = self._checked_name(renamed_from)
        if migrate is not None and not callable(migrate):
            self.refuse(f"migrate is a function from an old value to a new one, not {migrate!r:.80}")

    def __set_name__(self, owner: type, attribute: str) -> None:
        if not self.name:
            self.name = self._checked_name(attribute)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Self: ...
    def __get__(self, instance: object | None, owner: type) -> Self:
        """The declaration itself, of the class."""
        if instance is None:
            return self
        raise self._unbound()

    @property
    def settings(self) -> Mapping[str, object]:
        """Properties beside the kind that two requests of one name must share: by name of the argument."""
        return {}

    @property
    def types(self) -> tuple[type, ...]:
        """The declared types: none, that of the values, or those of map keys and map values."""
        return ()

    @property
    def label(self) -> str:
        """The state's name in messages: `ValueState 'count' (job.py:12)`."""
        name = f" {self.name!r}" if self.name else ""
        return f"{type(self).__name__}{name} ({self.where})"

    def refuse(self, what: str) -> NoReturn:
        """Raise the `ConfigurationError` for an invalid declaration."""
        msg = f"{self.label}: {what}"
        raise ConfigurationError(msg)

    def _checked_name(self, name: object) -> str:
        problem = problem_with_name(name)
        if problem is not None:
            self.name = ""
            self.refuse(f"{problem} ({name!r:.80})")
        name = normal_name(str(name))
        if name.startswith(RESERVED):
            self.name = ""
            self.refuse(f"names that begin with {RESERVED!r} belong to tables of Penstock, such as timers")
        return name

    def _checked_type(self, of_type: Any) -> type | None:
        """The class behind a declared type: `list` for `list[int]`."""
        kind = get_origin(of_type) or of_type
        if kind is not None and not isinstance(kind, type):
            self.refuse(f"a type is a class such as int or list[int], not {of_type!r:.80}")
        if self.migrate is not None and kind is None:
            self.refuse("migrate=... needs the type of the values: those of another type are migrated")
        return kind

    def _unbound(self) -> PenstockError:
        return PenstockError(
            f"{self.label} is a declaration, which holds nothing. Declare it in the body of a class of "
            "functions (KeyedProcessFunction, Operator), and use it there, in process of a running job"
        )


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


def type_names(types: Iterable[type]) -> str:
    """The names of a state's types: of its values, or of its map keys and map values.

    Example:
        >>> type_names([int]), type_names([str, float])
        ('int', 'str: float')
    """
    return ": ".join(map(type_name, types))


class DeclaredTypes:
    """The declared types of one operator in one subtask."""

    def __init__(self) -> None:
        self._saved: dict[str, str] = {}
        self._declared: dict[str, tuple[type, ...]] = {}

    def restore(self, handles: Iterable[KeyedStateHandle]) -> None:
        self._saved = {name: kind for handle in handles for name, kind in handle.types}

    def declare(
        self,
        table: StateTable,
        of_type: type,
        part_type: type | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        """Declare the type of the values of a table.

        Raises:
            ConfigurationError: The type differs from the first one declared.
            StateMismatchError: The table holds restored values of another type.
        """
        types = (of_type,) if part_type is None else (part_type, of_type)
        known = self._declared.setdefault(table.name, types)
        if known != types:
            msg = (
                f"state {table.name!r} is declared as {type_names(known)} and as {type_names(types)}: "
                "all functions of an operator that use a state declare the same type"
            )
            raise ConfigurationError(msg)
        saved = self._saved.get(table.name)
        if saved == type_names(types):
            return
        if part_type is not None:
            _check(table, _parts(table), part_type, saved, "map keys of type ")
        if migrate is not None:
            _migrate(table, of_type, migrate)
        else:
            _check(table, _values(table), of_type, saved, "")

    def rename(self, before: str, name: str) -> None:
        if before in self._saved:
            self._saved[name] = self._saved.pop(before)

    def names(self) -> tuple[tuple[str, str], ...]:
        """Content of a snapshot: each state with its type; what was not requested yet stays as it was."""
        declared = {name: type_names(types) for name, types in self._declared.items()}
        return tuple(sorted({**self._saved, **declared}.items()))


def _values(table: StateTable) -> Iterator[tuple[Any, Any]]:
    for key, held in table.entries.items():
        for value in held.values() if table.nested else (held,):
            yield key, value if table.lifetime is None else value[1]


def _parts(table: StateTable) -> Iterator[tuple[Any, Any]]:
    for key, held in table.entries.items():
        for part in held:
            yield key, part


def _check(
    table: StateTable, pairs: Iterator[tuple[Any, Any]], of_type: type, saved: str | None, what: str
) -> None:
    wrong: dict[type, Any] = {}
    for key, value in pairs:
        kind = type(value)
        if kind not in wrong and not issubclass(kind, of_type):
            wrong[kind] = key
    if not wrong:
        return
    declared = "" if saved is None else f" (declared as {saved} then)"
    advice = (
        "Declare the map keys that were saved, or give the new state another name"
        if what
        else "Give the declaration migrate=..., a function that converts a saved value, or give the new "
        "state another name"
    )
    msg = (
        f"state {table.name!r} is declared as {what}{type_name(of_type)}, but the snapshot that the job "
        f"starts from holds {' and '.join(sorted(map(type_name, wrong)))} in it{declared}, for example for "
        f"key {next(iter(wrong.values()))!r:.100}. {advice}; the old one then stays unused"
    )
    raise StateMismatchError(msg)


def _migrate(table: StateTable, of_type: type, migrate: Callable[[Any], Any]) -> None:
    def converted(key: Any, cell: Any) -> Any:
        if table.lifetime is None:
            return _migrated(table.name, key, cell, of_type, migrate)
        return cell[0], _migrated(table.name, key, cell[1], of_type, migrate)

    for key, held in table.entries.items():
        for part, cell in list(held.items()) if table.nested else [(None, held)]:
            new = converted(key, cell)
            if new is cell or (table.lifetime is not None and new[1] is cell[1]):
                continue
            if table.nested:
                held[part] = new
            else:
                table.entries[key] = new
            table.changed.add((key, part) if table.nested else key)


def _migrated(name: str, key: Any, value: Any, of_type: type, migrate: Callable[[Any], Any]) -> Any:
    if isinstance(value, of_type):
        return value
    where = function_location(migrate)
    try:
        new = migrate(value)
    except Exception as error:
        msg = (
            f"state {name!r}: migrate function {where} failed on {value!r:.100} of key {key!r:.100}: "
            f"{error_text(error)}"
        )
        raise StateMismatchError(msg) from error
    if not isinstance(new, of_type):
        msg = (
            f"state {name!r} is declared as {type_name(of_type)}, and migrate function {where} made "
            f"{new!r:.100} of {value!r:.100} of key {key!r:.100}"
        )
        raise StateMismatchError(msg)
    return new
