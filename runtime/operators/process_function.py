"""What a user writes for `key_by(...).process(...)`, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.misspelt_names import unknown_attribute
from penstock.runtime.operators.keyed_state_requests import AsksForKeyedState, RequestedStates
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.operator_state import Counter
from penstock.runtime.state.keyed_states import ListState
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.time_to_live import Ttl

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class RuntimeContext(AsksForKeyedState):
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

    def __init__(self, context: OperatorContext, backend: KeyedStateBackend) -> None:
        self._connector = context.connector
        self._backend = backend
        self._states = context.requested
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

    def list_state(
        self,
        name: str,
        *,
        of_type: type | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> ListState[Any]:
        """State with a list a key; see `ListState`.

        Args:
            of_type: The type of the elements; by default anything goes.
            ttl: How long an element lives after it was added: a `timedelta`, seconds, or a `StateTtl`.
            migrate: Makes an element of `of_type` of a restored one that is none.

        Raises:
            ConfigurationError: The type is not that given first.
            StateMismatchError: The job starts from a snapshot that holds something else under this name.
        """
        return self._keyed_list(name, of_type, ttl, migrate)

    def counter(self, name: str) -> Counter:
        """A counter of this subtask, from 0 in each attempt."""
        return self._counters.setdefault(name, Counter())

    def counters(self) -> dict[str, int]:
        """What all counters stand at."""
        return {name: counter.value for name, counter in self._counters.items()}

    @property
    def _requests(self) -> tuple[RequestedStates, KeyedStateBackend | None]:
        return self._states, self._backend


class KeyedProcessFunction(ABC, Generic[K, T, R]):
    """A function with state for each key (Flink's `KeyedProcessFunction`).

    Its class declares its states: `ValueState`, `ListState`, `MapState`, `ReducingState`, `AggregatingState`.
    The runtime binds them to the current key before `open`. One object serves all keys of a subtask. Keys
    share the other attributes of `self`, and a restart loses them. Put what belongs to a key into state.

    Example:
        >>> from penstock.runtime import ValueState
        >>> from penstock.runtime.testing import OperatorHarness
        >>> class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
        ...     seen = ValueState(int, default=0)
        ...
        ...     def process(self, value, ctx):
        ...         self.seen.update(self.seen.value() + 1)
        ...         yield ctx.current_key, self.seen.value()
        >>> with OperatorHarness.of(lambda words: words.key_by(str).process("count", Count())) as harness:
        ...     harness.push(["a", "b", "a"])
        [('a', 1), ('b', 1), ('a', 2)]
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
