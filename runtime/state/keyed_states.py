"""Keyed state as users declare and use it: values, lists, maps, reducing and aggregating state.

Each class is a declaration and a view (`declared_state.py`). A view shows the current key's state. The state
backend makes it as an instance of a subclass (`state_views.py`). Declarations with the same name share a
state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.state.declared_state import DeclaredState
from penstock.runtime.state.time_to_live import StateTtl, Ttl

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In")
Out = TypeVar("Out")
InContra = TypeVar("InContra", contravariant=True)
OutCo = TypeVar("OutCo", covariant=True)


class KeyedState(DeclaredState):
    """Common part of all kinds of keyed state.

    A method that needs the current key raises a `RuntimeError` while no record or timer is processed.
    """

    __slots__ = ("ttl",)

    #: Names of the arguments in `settings`.
    compared: ClassVar[tuple[str, ...]] = ("ttl",)

    #: Whether a key has several entries, each saved separately.
    nested: ClassVar[bool] = False

    def __init__(
        self,
        name: str | None,
        ttl: Ttl | None,
        migrate: Callable[[Any], Any] | None,
        renamed_from: str | None,
    ) -> None:
        super().__init__(name, migrate, renamed_from)
        self.ttl: StateTtl | None = None
        try:
            self.ttl = StateTtl.of(ttl)
        except ConfigurationError as error:
            self.refuse(str(error))

    @property
    def settings(self) -> Mapping[str, object]:
        """Arguments that must be equal in all uses of one state, by name."""
        return {name: getattr(self, name) for name in self.compared}

    def clear(self) -> None:
        """Delete the current key's state, if it has any."""
        raise self._unbound()


class _OfOneType(KeyedState):
    __slots__ = ("of_type",)
    compared: ClassVar[tuple[str, ...]] = ("of_type", "ttl")

    of_type: type | None

    @property
    def types(self) -> tuple[type, ...]:
        return () if self.of_type is None else (self.of_type,)


class ValueState(_OfOneType, Generic[T]):
    """One value per key (Flink's `ValueState`).

    `value` returns a copy of a mutable value: change the copy and call `update` with it.

    Args:
        of_type: The type of the values, such as `int` or your own class; `update` refuses other types. By
            default any type is accepted.
        default: The value of a key that has none. It can't be a list, dict, set or bytearray. Any other
            mutable default is copied for each key.
        name: Name, unique in the operator; the name of the class attribute by default.
        ttl: Lifetime of an entry after its last write: a `timedelta` or seconds. With a `StateTtl`,
            reads can extend it, too.
        migrate: Converts a saved value of another type to `of_type`. Without it such values are refused.
        renamed_from: The name under which the state was saved before.

    Raises:
        ConfigurationError: The default is a list, dict, set or bytearray, or an argument is invalid.

    Example:
        >>> from penstock import KeyedProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
        ...     seen = ValueState(int, default=0)
        ...
        ...     def process(self, value, ctx):
        ...         self.seen.update(self.seen.value() + 1)
        ...         yield value, self.seen.value()
        >>> with OperatorHarness.of(lambda words: words.key_by(str).process("count", Count())) as harness:
        ...     harness.push(["a", "b", "a"])
        [('a', 1), ('b', 1), ('a', 2)]
    """

    __slots__ = ("default",)
    kind: ClassVar[str] = "value"
    compared: ClassVar[tuple[str, ...]] = ("default", "of_type", "ttl")

    @overload
    def __init__(
        self: ValueState[T],
        of_type: type[T],
        *,
        default: T,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], T] | None = None,
        renamed_from: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[V | None],
        of_type: type[V],
        *,
        default: None = None,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], V] | None = None,
        renamed_from: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[Any],
        of_type: None = None,
        *,
        default: Any = None,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: None = None,
        renamed_from: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        of_type: Any = None,
        *,
        default: Any = None,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(name, ttl, migrate, renamed_from)
        self.of_type = self._checked_type(of_type)
        self.default = default
        if isinstance(default, list | dict | set | bytearray):
            self.refuse(
                f"a default of type {type(default).__name__} is not allowed, because `value` returns a copy "
                "and changes to it would be lost; leave it out and use `state.value() or ...`"
            )

    def value(self) -> T:
        """Return the current key's value, or the default."""
        raise self._unbound()

    def update(self, value: T) -> None:
        """Set the current key's value; raises `TypeError` for a value of another type."""
        raise self._unbound()


class ListState(_OfOneType, Generic[T]):
    """A list of elements per key (Flink's `ListState`).

    Each element is saved separately: a checkpoint after `add` writes the new element, not the whole list.

    Args:
        of_type: The type of the elements; any type by default. For the other arguments see `ValueState`.

    Example:
        >>> from penstock import KeyedProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Pairs(KeyedProcessFunction[int, int, list[int]]):
        ...     waiting = ListState(int)
        ...
        ...     def process(self, value, ctx):
        ...         self.waiting.add(value)
        ...         if len(self.waiting) == 2:
        ...             yield self.waiting.get()
        ...             self.waiting.clear()
        >>> def pairs(numbers):
        ...     return numbers.key_by(lambda n: n % 2).process("pairs", Pairs())
        >>> with OperatorHarness.of(pairs) as harness:
        ...     harness.push([1, 2, 3, 4, 5])
        [[1, 3], [2, 4]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "list"
    nested: ClassVar[bool] = True

    def __init__(
        self,
        of_type: type[T] | None = None,
        *,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], T] | None = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(name, ttl, migrate, renamed_from)
        self.of_type = self._checked_type(of_type)

    def get(self) -> list[T]:
        """Return a copy of the current key's list; empty if there is none."""
        raise self._unbound()

    def add(self, value: T) -> None:
        """Append an element; raises `TypeError` for an element of another type."""
        raise self._unbound()

    def extend(self, values: Iterable[T]) -> None:
        """Append elements."""
        for value in values:
            self.add(value)

    def update(self, values: Iterable[T]) -> None:
        """Replace the list; raises `TypeError` for an element of another type, and then changes nothing."""
        raise self._unbound()

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        raise self._unbound()


class MapState(KeyedState, MutableMapping[K, V]):
    """A map per key (Flink's `MapState`): a mutable mapping without order.

    Each entry is saved separately, so a map may be large. Reading returns a copy of a mutable value: change
    the copy and put it back.

    Args:
        key_type: The type of the map's keys; by default any type that can be a key of a stream.
        value_type: The type of the map's values; any type by default.
        migrate: Converts a saved value of another type to `value_type`. For the other arguments see
            `ValueState`.

    Example:
        >>> from penstock import KeyedProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Visits(KeyedProcessFunction[str, tuple[str, str], tuple[str, dict[str, int]]]):
        ...     pages = MapState(str, int)
        ...
        ...     def process(self, value, ctx):
        ...         user, page = value
        ...         self.pages[page] = self.pages.get(page, 0) + 1
        ...         yield user, dict(self.pages)
        >>> def visits(clicks):
        ...     return clicks.key_by(lambda click: click[0]).process("visits", Visits())
        >>> with OperatorHarness.of(visits) as harness:
        ...     harness.push([("ann", "/"), ("bob", "/"), ("ann", "/cart"), ("ann", "/")])[-1]
        ('ann', {'/': 2, '/cart': 1})
    """

    __slots__ = ("key_type", "value_type")
    kind: ClassVar[str] = "map"
    compared: ClassVar[tuple[str, ...]] = ("key_type", "value_type", "ttl")
    nested: ClassVar[bool] = True

    def __init__(
        self,
        key_type: type[K] | None = None,
        value_type: type[V] | None = None,
        *,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], V] | None = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(name, ttl, migrate, renamed_from)
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
        """Set the value of a map key; the same as `state[key] = value`."""
        self[key] = value

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

    __hash__ = KeyedState.__hash__

    def __repr__(self) -> str:
        return f"<MapState {self.name!r}>"


class ReducingState(_OfOneType, Generic[T]):
    """One value per key, which a function combines with each added value (Flink's `ReducingState`).

    Args:
        function: Returns the new value from the value so far and the added value. The first added value is
            stored unchanged.
        of_type: The type of the values; any type by default. For the other arguments see `ValueState`.

    Example:
        >>> from penstock import KeyedProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Highest(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
        ...     highest = ReducingState(max, int)
        ...
        ...     def process(self, value, ctx):
        ...         self.highest.add(value[1])
        ...         yield value[0], self.highest.get()
        >>> def highest(bids):
        ...     return bids.key_by(lambda bid: bid[0]).process("highest", Highest())
        >>> with OperatorHarness.of(highest) as harness:
        ...     harness.push([("a", 3), ("a", 1), ("b", 2)])
        [('a', 3), ('a', 3), ('b', 2)]
    """

    __slots__ = ("function",)
    kind: ClassVar[str] = "reducing"

    def __init__(
        self,
        function: Callable[[T, T], T],
        of_type: type[T] | None = None,
        *,
        name: str | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], T] | None = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(name, ttl, migrate, renamed_from)
        self.of_type = self._checked_type(of_type)
        self.function = function
        if not callable(function):
            self.refuse(f"give it a function of two values, not {function!r:.80}")

    def get(self) -> T | None:
        """Return the current key's value; `None` when nothing was added."""
        raise self._unbound()

    def add(self, value: T) -> None:
        """Combine the current key's value with another value.

        Raises:
            TypeError: The value, or the function's result, is not of the declared type.
        """
        raise self._unbound()


class FoldsValues(Protocol[InContra, OutCo]):
    """Methods of an `AggregateFunction` that an `AggregatingState` needs."""

    def create_accumulator(self) -> Any: ...
    def add(self, value: InContra, accumulator: Any) -> Any: ...
    def get_result(self, accumulator: Any) -> OutCo: ...


class AggregatingState(KeyedState, Generic[In, Out]):
    """An accumulator per key, into which an `AggregateFunction` folds values (Flink's `AggregatingState`).

    Args:
        function: The aggregate function; it must be stateless, because one object serves all keys. It must
            not keep an accumulator either: checkpoints encode accumulators in another thread. For the other
            arguments see `ValueState`.

    Example:
        >>> from penstock import AggregateFunction, KeyedProcessFunction
        >>> from penstock.testing import OperatorHarness
        >>> class Mean(AggregateFunction[float, tuple[float, int], float]):
        ...     def create_accumulator(self):
        ...         return 0.0, 0
        ...
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        >>> class Means(KeyedProcessFunction[str, tuple[str, float], tuple[str, float]]):
        ...     mean = AggregatingState(Mean())
        ...
        ...     def process(self, value, ctx):
        ...         self.mean.add(value[1])
        ...         yield value[0], self.mean.get()
        >>> def means(readings):
        ...     return readings.key_by(lambda reading: reading[0]).process("means", Means())
        >>> with OperatorHarness.of(means) as harness:
        ...     harness.push([("a", 1.0), ("a", 2.0)])
        [('a', 1.0), ('a', 1.5)]
    """

    __slots__ = ("function",)
    kind: ClassVar[str] = "aggregating"

    def __init__(
        self,
        function: FoldsValues[In, Out],
        *,
        name: str | None = None,
        ttl: Ttl | None = None,
        renamed_from: str | None = None,
    ) -> None:
        super().__init__(name, ttl, None, renamed_from)
        self.function = function
        needed = ("create_accumulator", "add", "get_result")
        if isinstance(function, type) or not all(
            callable(getattr(function, method, None)) for method in needed
        ):
            self.refuse(f"give it an instance of an AggregateFunction class, not {function!r:.80}")

    def get(self) -> Out | None:
        """Return the result of the added values; `None` when nothing was added."""
        raise self._unbound()

    def add(self, value: In) -> None:
        """Fold a value into the current key's accumulator."""
        raise self._unbound()
