"""`BroadcastState`: a map that every subtask of an operator has, built from a broadcast stream.

All subtasks get the same records of the broadcast stream. If only these records change the map, all maps are
the same. So the map may change only while a record of the broadcast stream is processed. A change on the data
side would be in one subtask, and a restore at another parallelism would lose it or spread it.

A snapshot has the map of each subtask as a list of pairs with the mode `broadcast`. So a new subtask starts
with an old subtask's copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, TypeVar

from penstock.runtime.errors import PenstockError, StateMismatchError
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.declared_state import (
    MIGRATE,
    DeclaredOperatorState,
    migrated,
    other_type,
    type_name,
    type_names,
)
from penstock.runtime.state.own_copy import own_copy

K = TypeVar("K")
V = TypeVar("V")


class BroadcastState(DeclaredOperatorState, MutableMapping[K, V]):
    """A map that is the same in every subtask (Flink's `BroadcastState`); a mutable mapping without order.

    A function of `data.connect(rules.broadcast())` declares it. It can be changed only while a record of the
    broadcast stream is processed; elsewhere it is read-only. Reading returns a copy of a mutable value, so
    immutable values such as tuples are faster. The records of several senders may arrive in a different order
    in each subtask: then the map must not depend on their order.

    Args:
        key_type: The type of the map's keys; any type by default.
        value_type: The type of the map's values; any type by default.
        name: Name, unique in the operator; the name of the class attribute by default.
        migrate: Converts a saved value of another type to `value_type`. Without it such values are refused.
        renamed_from: The name under which the state was saved before.

    Raises:
        ConfigurationError: An argument is invalid.

    Example:
        >>> from penstock.connected import BroadcastProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Above(BroadcastProcessFunction[tuple[str, int], tuple[str, int], str]):
        ...     limits = BroadcastState(str, int)
        ...
        ...     def process_element(self, value, ctx):
        ...         name, number = value
        ...         if number > self.limits.get(name, 0):
        ...             yield f"{name}: {number}"
        ...
        ...     def process_broadcast_element(self, value, ctx):
        ...         name, limit = value
        ...         self.limits[name] = limit
        >>> def above(data, limits):
        ...     return data.connect(limits.broadcast()).process("above", Above())
        >>> with OperatorHarness.of(above) as harness:
        ...     changed = harness.push([("a", 5)], input_index=1)
        ...     harness.push([("a", 4), ("a", 6)])
        ['a: 6']
    """

    __slots__ = ("key_type", "value_type")
    kind: ClassVar[str] = "broadcast"

    def __init__(
        self,
        key_type: type[K] | None = None,
        value_type: type[V] | None = None,
        *,
        name: str | None = None,
        migrate: Callable[[Any], V] | None = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(name, migrate, renamed_from, RedistributionMode.BROADCAST)
        self.value_type = self._checked_type(value_type)
        self.migrate = None
        self.key_type = self._checked_type(key_type)
        self.migrate = migrate

    @property
    def types(self) -> tuple[type, ...]:
        """Types of the keys and of the values; `object` for an omitted type, empty if both are omitted."""
        if self.key_type is None and self.value_type is None:
            return ()
        return self.key_type or object, self.value_type or object

    def put(self, key: K, value: V) -> None:
        """Set the value of a key; the same as `state[key] = value`."""
        self[key] = value

    def view(self, restored: Sequence[Any]) -> BroadcastState[K, V]:
        return BroadcastStateView(self, restored)

    def __getitem__(self, key: K) -> V:
        raise self._unbound()

    def __setitem__(self, key: K, value: V) -> None:
        raise self._unbound()

    def __delitem__(self, key: K) -> None:
        raise self._unbound()

    def __iter__(self) -> Iterator[K]:
        raise self._unbound()

    def __len__(self) -> int:
        raise self._unbound()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Mapping) and dict(self.items()) == dict(other.items()))

    __hash__ = DeclaredOperatorState.__hash__

    def __repr__(self) -> str:
        return f"<BroadcastState {self.name!r}>"


class BroadcastStateView(BroadcastState[Any, Any]):
    """The entries of a `BroadcastState` in a running subtask.

    Attributes:
        can_change: Whether a record of the broadcast stream is being processed.
    """

    __slots__ = ("_entries", "_key_type", "_value_type", "can_change")

    def __init__(self, declaration: BroadcastState[Any, Any], restored: Sequence[Any]) -> None:
        self._take_over(declaration)
        self._key_type: type = declaration.key_type or object
        self._value_type: type = declaration.value_type or object
        self.can_change = False
        if wrong := [pair for pair in restored if not (isinstance(pair, tuple) and len(pair) == 2)]:
            msg = (
                f"state {self.name!r} is a BroadcastState, but the snapshot that the job starts from holds a "
                f"list of this name, with {wrong[0]!r:.100}. Give the new state another name"
            )
            raise StateMismatchError(msg)
        self._entries: dict[Any, Any] = dict(restored)
        self._check_restored()

    def saved_values(self) -> Sequence[Any]:
        return list(self._entries.items())

    def get(self, key: Any, default: Any = None) -> Any:
        return own_copy(self._entries.get(key, default))

    def clear(self) -> None:
        self._begin_change()
        self._entries.clear()

    def __getitem__(self, key: Any) -> Any:
        return own_copy(self._entries[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._begin_change()
        if not (isinstance(key, self._key_type) and isinstance(value, self._value_type)):
            declared, entry = type_names(self.types), f"{key!r:.100}: {value!r:.100}"
            msg = f"state {self.name!r} is declared as {declared} and can't hold {entry}"
            raise TypeError(msg)
        self._entries[own_copy(key)] = own_copy(value)

    def __delitem__(self, key: Any) -> None:
        self._begin_change()
        del self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _begin_change(self) -> None:
        if not self.can_change:
            msg = (
                f"broadcast state {self.name!r} ({self.where}) was changed outside the processing of a "
                "record of its stream. Only this subtask would have the change: make it in "
                "process_broadcast_element; elsewhere the state is read-only"
            )
            raise PenstockError(msg)

    def _check_restored(self) -> None:
        if wrong := [key for key in self._entries if not isinstance(key, self._key_type)]:
            advice = "Declare the type of the saved keys, or give the new state another name"
            declared = f"keys of type {type_name(self._key_type)}"
            raise other_type(
                self.name, declared, map(type, wrong), f", for example {wrong[0]!r:.100}", advice
            )
        if self.migrate is not None:
            for key, value in self._entries.items():
                self._entries[key] = migrated(self.name, value, self._value_type, self.migrate, key)
        elif wrong := [value for value in self._entries.values() if not isinstance(value, self._value_type)]:
            example = f", for example {wrong[0]!r:.100}"
            raise other_type(self.name, type_name(self._value_type), map(type, wrong), example, MIGRATE)
