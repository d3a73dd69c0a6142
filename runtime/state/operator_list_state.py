"""`OperatorListState`: a list that belongs to a subtask and not to a key (Flink's list state of operators).

A rescale gives every subtask another part of the keys, and keyed state follows them. A list has no keys to
follow, so its declaration has a *mode* that assigns its values to the new subtasks. See `key_groups.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, get_args, overload

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import StateMismatchError
from penstock.runtime.names import NearestMembers, nearest_name
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.declared_state import DeclaredState, type_name
from penstock.runtime.state.own_copy import own_copies, own_copy
from penstock.runtime.user_location import function_location

#: Redistribution of the values of a list state when a job starts from a snapshot.
ListStateMode: TypeAlias = Literal["split_distribute", "union", "broadcast"]

#: Names of the lists of Penstock's own operators; users' lists can't have them.
TAKEN: Final = ("committables", "splits", "watermark")

T = TypeVar("T")
V = TypeVar("V")


class OperatorListState(DeclaredState, NearestMembers, Generic[T]):
    """A list of values that an operator keeps in one subtask (Flink's `ListState` of operator state).

    Every checkpoint holds the values that the list has when its barrier passes. Each value is encoded by
    itself, because another subtask may get it after a rescale.

    Args:
        of_type: The type of the values; `add` and `update` refuse other types. Any type by default.
        mode: Redistribution of the values by a restore. `"split_distribute"` gives each value to one subtask.
            `"union"` gives all values of all subtasks to each. `"broadcast"` gives each a copy of one
            subtask's list.
        name: Unique in the operator; the name of the class attribute by default.
        migrate: Converts a saved value of another type to `of_type`. Without it the job does not start.
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

    __slots__ = ("mode", "of_type")
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
        super().__init__(name, migrate, renamed_from)
        self.of_type = self._checked_type(of_type)
        known = get_args(ListStateMode)
        if mode not in known:
            hint = nearest_name(str(mode), known)
            self.refuse(f"mode is one of {', '.join(map(repr, known))}, not {mode!r}{hint}")
        self.mode = RedistributionMode(mode)

    @property
    def settings(self) -> Mapping[str, object]:
        return {"mode": self.mode, "of_type": self.of_type}

    @property
    def types(self) -> tuple[type, ...]:
        return () if self.of_type is None else (self.of_type,)

    def get(self) -> list[T]:
        """A copy of the list."""
        raise self._unbound()

    def add(self, value: T) -> None:
        """Append a value.

        Raises:
            TypeError: The value is not of the declared type.
        """
        raise self._unbound()

    def update(self, values: Iterable[T]) -> None:
        """Replace all values.

        Raises:
            TypeError: A value is not of the declared type.
        """
        raise self._unbound()

    def clear(self) -> None:
        """Remove all values."""
        raise self._unbound()

    def __len__(self) -> int:
        raise self._unbound()

    def __iter__(self) -> Iterator[T]:
        raise self._unbound()

    def __bool__(self) -> bool:
        """Whether the list has values; a declaration is always true."""
        return True

    def _checked_name(self, name: object) -> str:
        text = super()._checked_name(name)
        if text in TAKEN:
            self.name = ""
            self.refuse(f"the name {text!r} belongs to a list of Penstock's own operators: choose another")
        return text


class HeldListState(OperatorListState[Any]):
    """The values of an `OperatorListState` in a running subtask."""

    __slots__ = ("_type", "_values")

    def __init__(self, declaration: OperatorListState[Any], restored: Sequence[Any]) -> None:
        self.name, self.where = declaration.name, declaration.where
        self.migrate, self.renamed_from = declaration.migrate, declaration.renamed_from
        self.mode, self.of_type = declaration.mode, declaration.of_type
        self._type: type = declaration.of_type or object
        self._values = _taken_over(declaration, restored)

    def get(self) -> list[Any]:
        return own_copies(self._values)

    def add(self, value: Any) -> None:
        if not isinstance(value, self._type):
            self._refuse_value(value)
        self._values.append(own_copy(value))

    def update(self, values: Iterable[Any]) -> None:
        new = list(values)
        for value in new:
            if not isinstance(value, self._type):
                self._refuse_value(value)
        self._values = own_copies(new)

    def clear(self) -> None:
        self._values = []

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __bool__(self) -> bool:
        return bool(self._values)

    def _refuse_value(self, value: object) -> None:
        msg = f"state {self.name!r} is declared as {type_name(self._type)} and can't hold {value!r:.200}"
        raise TypeError(msg)


def _taken_over(declaration: OperatorListState[Any], restored: Sequence[Any]) -> list[Any]:
    kind, migrate = declaration.of_type, declaration.migrate
    if kind is None:
        return list(restored)
    if migrate is not None:
        return [value if isinstance(value, kind) else _migrated(declaration, value) for value in restored]
    wrong = [value for value in restored if not isinstance(value, kind)]
    if wrong:
        types = " and ".join(sorted({type_name(type(value)) for value in wrong}))
        msg = (
            f"state {declaration.name!r} is declared as {type_name(kind)}, but the snapshot that the job "
            f"starts from holds {types} in it, for example {wrong[0]!r:.100}. Give the declaration "
            "migrate=..., a function that converts a saved value, or give the new state another name; the "
            "old one then stays unused"
        )
        raise StateMismatchError(msg)
    return list(restored)


def _migrated(declaration: OperatorListState[Any], value: Any) -> Any:
    kind, migrate = declaration.of_type, declaration.migrate
    assert kind is not None, "only typed states are migrated"
    assert migrate is not None, "only states with migrate are migrated"
    where = f"state {declaration.name!r}: migrate function {function_location(migrate)}"
    try:
        new = migrate(value)
    except Exception as error:
        msg = f"{where} failed on {value!r:.100}: {error_text(error)}"
        raise StateMismatchError(msg) from error
    if not isinstance(new, kind):
        msg = f"{where} made {new!r:.100} of {value!r:.100}, which is no {type_name(kind)}"
        raise StateMismatchError(msg)
    return new
