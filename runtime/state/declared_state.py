"""Declared states: the base of all states that a function's class declares, and `OperatorListState`.

An attribute of a function's class is a *declaration*: name, types, settings. In a running subtask the
attribute of that name is a *view* of the subtask's entries. So type checkers and readers see one name. The
runtime lists the states of a class without running it (`known_states.py`).

The view is put into the function object's `__dict__`. A declaration has no `__set__`, so Python finds the
view first: reading `self.count` costs an attribute lookup and no call. On an object that was never bound,
Python finds the declaration, whose `__get__` raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NoReturn,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ConfigurationError, PenstockError, StateMismatchError, UserLocation
from penstock.runtime.names import NearestMembers, nearest_name, normal_name, problem_with_name
from penstock.runtime.record.stable_names import OURS, name_in_data
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.own_copy import own_copies, own_copy
from penstock.runtime.user_location import function_location, user_location

#: Prefix of the names of Penstock's own tables, which are stored with a function's states.
RESERVED: Final = "penstock:"


class DeclaredState:
    """The base of all declared states.

    Attributes:
        migrate: Converts a saved value of another type; `None` refuses such values.
        renamed_from: The name under which the state was saved before; `None` if it has not changed.
        where: The user's line that declares the state.
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
            self.refuse(f"migrate must be a function that converts an old value, not {migrate!r:.80}")

    def __set_name__(self, owner: type, attribute: str) -> None:
        if not self.name:
            self.name = self._checked_name(attribute)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Self: ...
    def __get__(self, instance: object | None, owner: type) -> Self:
        """Return the declaration for the class; raise for an instance."""
        if instance is None:
            return self
        raise self._unbound()

    @property
    def types(self) -> tuple[type, ...]:
        """No type, the type of the values, or the types of map keys and map values."""
        return ()

    @property
    def label(self) -> str:
        """Kind, name and line, as messages show them."""
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
        """Return the class of a declared type: `list` for `list[int]`."""
        kind = get_origin(of_type) or of_type
        if kind is not None and not isinstance(kind, type):
            self.refuse(f"a type is a class such as int or list[int], not {of_type!r:.80}")
        if self.migrate is not None and kind is None:
            self.refuse("migrate=... needs the type of the values, because it converts values of other types")
        return kind

    def _take_over(self, declaration: DeclaredState) -> None:
        """Become a view of the state that `declaration` declares: copy its settings."""
        for kind in type(self).__mro__:
            for name in vars(kind).get("__slots__", ()):
                if hasattr(declaration, name):
                    setattr(self, name, getattr(declaration, name))

    def _unbound(self) -> PenstockError:
        return PenstockError(
            f"{self.label} is a declaration and holds no values. Declare it in the body of a function's "
            "class (KeyedProcessFunction, Operator), and use it in methods of that class while a job runs"
        )


def type_name(of: type) -> str:
    """Return the name of a type in snapshots and messages.

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
    return ": ".join(map(type_name, types))


def migrated(name: str, value: Any, of_type: type, migrate: Callable[[Any], Any], *key: Any) -> Any:
    """Convert a saved value that is not of the declared type; messages name the key."""
    if isinstance(value, of_type):
        return value
    where = f" of key {key[0]!r:.100}" if key else ""
    try:
        new = migrate(value)
    except Exception as error:
        msg = (
            f"state {name!r}: migrate function {function_location(migrate)} failed on {value!r:.100}{where}: "
            f"{error_text(error)}"
        )
        raise StateMismatchError(msg) from error
    if not isinstance(new, of_type):
        msg = (
            f"state {name!r} is declared as {type_name(of_type)}, but migrate function "
            f"{function_location(migrate)} returned {new!r:.100} for {value!r:.100}{where}"
        )
        raise StateMismatchError(msg)
    return new


#: Advice for saved values of another type.
MIGRATE: Final = (
    "Give the declaration migrate=..., a function that converts a saved value, or give the new state "
    "another name"
)


def other_type(
    name: str, declared: str, saved: Iterable[type], example: str, advice: str
) -> StateMismatchError:
    holds = " and ".join(sorted(set(map(type_name, saved))))
    return StateMismatchError(
        f"state {name!r} is declared as {declared}, but holds {holds} in the snapshot that the job starts "
        f"from{example}. {advice}; the old state then stays unused"
    )


#: Redistribution of the values of a list state when a job starts from a snapshot.
ListStateMode: TypeAlias = Literal["split_distribute", "union", "broadcast"]

#: Names of lists that Penstock stores in addition to users' lists; users' lists can't use these names.
TAKEN: Final = ("committables", "splits", "watermark")

T = TypeVar("T")
V = TypeVar("V")


class DeclaredOperatorState(DeclaredState):
    """The base of declared states that belong to no key: each subtask saves the values of a list.

    Attributes:
        mode: Redistribution of the values when a job starts from a snapshot.
    """

    __slots__ = ("mode",)

    def __init__(
        self,
        name: str | None,
        migrate: Callable[[Any], Any] | None,
        renamed_from: str | None,
        mode: RedistributionMode,
    ) -> None:
        super().__init__(name, migrate, renamed_from)
        self.mode = mode

    def view(self, restored: Sequence[Any]) -> DeclaredOperatorState:
        """Return a view of the restored values of a subtask."""
        raise NotImplementedError

    def saved_values(self) -> Sequence[Any]:
        """Return the values of a view for a snapshot."""
        raise self._unbound()

    def _checked_name(self, name: object) -> str:
        text = super()._checked_name(name)
        if text in TAKEN:
            self.name = ""
            self.refuse(f"the name {text!r} belongs to a list of Penstock's own operators: choose another")
        return text


class OperatorListState(DeclaredOperatorState, NearestMembers, Generic[T]):
    """A list of values that an operator keeps in one subtask (Flink's `ListState` of operator state).

    Every checkpoint holds the values that the list has when its barrier passes. Each value is encoded
    separately, because another subtask may get it after a rescale.

    Args:
        of_type: The type of the values; `add` and `update` refuse other types. Any type by default.
        mode: Redistribution of the values at a restore. `"split_distribute"` gives each value to one subtask.
            `"union"` gives each subtask all values of all subtasks. `"broadcast"` gives each subtask a copy
            of one subtask's list.
        name: Name, unique in the operator; the name of the class attribute by default.
        migrate: Converts a saved value of another type to `of_type`. Without it such values are refused.
        renamed_from: The name under which the list was saved before.

    Raises:
        ConfigurationError: The mode is unknown, or an argument is invalid.

    Example:
        >>> from penstock import ProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Pairs(ProcessFunction[str, tuple[str, str]]):
        ...     waiting = OperatorListState(str)
        ...
        ...     def process(self, value, ctx):
        ...         self.waiting.add(value)
        ...         if len(self.waiting) == 2:
        ...             yield tuple(self.waiting.get())
        ...             self.waiting.clear()
        >>> def pairs(words):
        ...     return words.process("pairs", Pairs())
        >>> with OperatorHarness.of(pairs) as harness:
        ...     harness.push(["a", "b", "c"])
        ...     snapshot = harness.snapshot()
        [('a', 'b')]
        >>> with OperatorHarness.of(pairs, restored=[snapshot]) as harness:
        ...     harness.push(["d"])
        [('c', 'd')]
    """

    __slots__ = ("of_type",)
    kind: ClassVar[str] = "operator_list"

    @overload
    def __init__(
        self: OperatorListState[V],
        of_type: type[V],
        *,
        mode: ListStateMode = "split_distribute",
        name: str | None = None,
        migrate: Callable[[Any], V] | None = None,
        renamed_from: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: OperatorListState[Any],
        of_type: None = None,
        *,
        mode: ListStateMode = "split_distribute",
        name: str | None = None,
        migrate: None = None,
        renamed_from: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        of_type: Any = None,
        *,
        mode: ListStateMode = "split_distribute",
        name: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
        renamed_from: str | None = None,
    ) -> None:
        known = get_args(ListStateMode)
        is_known = mode in known
        kind = RedistributionMode(mode) if is_known else RedistributionMode.SPLIT_DISTRIBUTE
        super().__init__(name, migrate, renamed_from, kind)
        self.of_type = self._checked_type(of_type)
        if not is_known:
            hint = nearest_name(str(mode), known)
            self.refuse(f"mode is one of {', '.join(map(repr, known))}, not {mode!r}{hint}")

    @property
    def types(self) -> tuple[type, ...]:
        return () if self.of_type is None else (self.of_type,)

    def view(self, restored: Sequence[Any]) -> OperatorListState[T]:
        return OperatorListView(self, restored)

    def get(self) -> list[T]:
        """Return a copy of the list."""
        raise self._unbound()

    def add(self, value: T) -> None:
        """Append a value; raises `TypeError` for a value of another type."""
        raise self._unbound()

    def update(self, values: Iterable[T]) -> None:
        """Replace all values; raises `TypeError` for a value of another type."""
        raise self._unbound()

    def clear(self) -> None:
        """Remove all values."""
        raise self._unbound()

    def __len__(self) -> int:
        raise self._unbound()

    def __iter__(self) -> Iterator[T]:
        raise self._unbound()

    def __bool__(self) -> bool:
        """Return whether the list has values; a declaration is always true."""
        return True


class OperatorListView(OperatorListState[Any]):
    """The values of an `OperatorListState` in a running subtask."""

    __slots__ = ("_type", "_values")

    def __init__(self, declaration: OperatorListState[Any], restored: Sequence[Any]) -> None:
        self._take_over(declaration)
        self._type: type = declaration.of_type or object
        self._values = list(restored)
        if self.migrate is not None:
            self._values = [migrated(self.name, value, self._type, self.migrate) for value in restored]
        elif wrong := [value for value in restored if not isinstance(value, self._type)]:
            example = f", for example {wrong[0]!r:.100}"
            raise other_type(self.name, type_name(self._type), map(type, wrong), example, MIGRATE)

    def saved_values(self) -> list[Any]:
        return self.get()

    def get(self) -> list[Any]:
        return own_copies(self._values)

    def add(self, value: Any) -> None:
        self._check(value)
        self._values.append(own_copy(value))

    def update(self, values: Iterable[Any]) -> None:
        new = list(values)
        for value in new:
            self._check(value)
        self._values = own_copies(new)

    def clear(self) -> None:
        self._values = []

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __bool__(self) -> bool:
        return bool(self._values)

    def _check(self, value: object) -> None:
        if not isinstance(value, self._type):
            msg = f"state {self.name!r} is declared as {type_name(self._type)} and can't hold {value!r:.200}"
            raise TypeError(msg)
