"""What a user writes for `key_by(...).process(...)`, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.misspelt_names import unknown_attribute
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.operator_state import Counter, ValueStates
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_table import ValueState

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class RuntimeContext:
    """What a function may know and use while it runs; one object for the whole attempt.

    Args:
        context: Of the operator.
        backend: The operator's keyed state.

    Attributes:
        current_key: Key of the record that is being processed; there is none in `open` and `close`.
        timestamp: Event time of that record in microseconds; `None` when the stream has none.
    """

    # Plain slots, because functions read them for every record; an unset one ends up in __getattr__.
    __slots__ = ("_backend", "_connector", "_counters", "_states", "current_key", "timestamp")

    current_key: Any
    timestamp: int | None

    def __init__(self, context: OperatorContext, backend: HeapKeyedStateBackend) -> None:
        self._connector = context.connector
        self._backend = backend
        self._states = ValueStates()
        self._counters: dict[str, Counter] = {}
        self.timestamp = None

    if not TYPE_CHECKING:  # a type checker must go on refusing unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain a missing key or a misspelt name."""
            if name == "current_key":
                msg = "there is no current key here: a key belongs to a record, ask for it in process"
                raise PenstockError(msg)
            raise unknown_attribute(self, name)

    @property
    def operator_id(self) -> str:
        """The operator's id."""
        return self._connector.operator_id

    @property
    def subtask(self) -> int:
        """Index of this subtask, from 0."""
        return self._connector.subtask

    @property
    def parallelism(self) -> int:
        """Number of subtasks of this operator."""
        return self._connector.parallelism

    def value_state(self, name: str, default: Any = None, *, of_type: type | None = None) -> ValueState:
        """State with one value a key; asked for in `open` (once) or in `process` (each time the same object).

        What counts is what `update` was called with: a value that is changed in place and not updated is not
        part of the next checkpoint.

        Args:
            name: Unique in the operator; the value is found again under it.
            default: Value of a key that has none; can't be changed in place, because all keys share it.
            of_type: The type of the values, such as `int` or a class of yours. `update` takes nothing else,
                and a job whose restored values are of another type does not start. By default anything goes.

        Raises:
            ConfigurationError: The default is mutable, or default or type are not those given first.
            StateMismatchError: The job starts from a snapshot that holds values of another type.
        """
        return self._states.ask(self._backend, name, default, of_type)

    def counter(self, name: str) -> Counter:
        """A counter of this subtask, from 0 in each attempt."""
        return self._counters.setdefault(name, Counter())

    def counters(self) -> dict[str, int]:
        """What all counters stand at."""
        return {name: counter.value for name, counter in self._counters.items()}


class KeyedProcessFunction(ABC, Generic[K, T, R]):
    """A function with state for each key (Flink's `KeyedProcessFunction`).

    One object serves all keys of a subtask. Keys share the attributes of `self`, and a restart loses them.
    Put what belongs to a key into state.

    Example:
        >>> class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
        ...     def open(self, ctx):
        ...         self.seen = ctx.value_state("seen", default=0)
        ...
        ...     def process(self, value, ctx):
        ...         self.seen.update(self.seen.value() + 1)
        ...         yield ctx.current_key, self.seen.value()
    """

    def open(self, ctx: RuntimeContext) -> None:
        """Get ready; called once per attempt, before any record."""

    @abstractmethod
    def process(self, value: T, ctx: RuntimeContext) -> Iterable[R] | None:
        """Process one record.

        Returns:
            The records to emit: a list, a generator (write `yield`), or `None` for none.
        """

    def close(self) -> None:
        """Release what `open` took; called once, also after a failure."""
