"""Functions of a data stream and a broadcast stream, for `data.connect(rules.broadcast())`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.functions.process_function import (
    FunctionContext,
    RuntimeContext,
    TimerFunction,
    UserFunction,
)
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.state_table import NO_KEY

K = TypeVar("K")
T = TypeVar("T")
B = TypeVar("B")
R = TypeVar("R")
S = TypeVar("S", bound=KeyedState)


class BroadcastProcessFunction(UserFunction, ABC, Generic[T, B, R]):
    """A function of data without keys and a broadcast stream (Flink's `BroadcastProcessFunction`).

    Every subtask gets its part of the data, and all records of the broadcast stream, such as rules. It keeps
    the rules in a `BroadcastState`. The order between the streams is not defined.

    Example:
        >>> from penstock.connected import BroadcastState
        >>> from penstock.testing import OperatorHarness
        >>> class Named(BroadcastProcessFunction[int, tuple[int, str], str]):
        ...     names = BroadcastState(int, str)
        ...
        ...     def process_element(self, value, ctx):
        ...         yield self.names.get(value, "unknown")
        ...
        ...     def process_broadcast_element(self, value, ctx):
        ...         number, self.names[number] = value
        >>> def named(numbers, names):
        ...     return numbers.connect(names.broadcast()).process("named", Named())
        >>> with OperatorHarness.of(named) as harness:
        ...     before = harness.push([1])
        ...     changed = harness.push([(1, "one")], input_index=1)
        ...     before, harness.push([1])
        (['unknown'], ['one'])
    """

    def open(self, ctx: FunctionContext) -> None:
        """Prepare the function; called once per attempt, before any record."""

    @abstractmethod
    def process_element(self, value: T, ctx: FunctionContext) -> Iterable[R] | None:
        """Process one record of the data; return or yield the records to emit, or return `None`.

        Broadcast state is read-only here.
        """

    @abstractmethod
    def process_broadcast_element(self, value: B, ctx: FunctionContext) -> Iterable[R] | None:
        """Process one record of the broadcast stream, in every subtask.

        Return or yield records as in `process_element`. A record that every subtask emits appears several
        times in the output.
        """


class BroadcastContext(RuntimeContext):
    """Context of a keyed function for records of the broadcast stream, which have no key."""

    __slots__ = ()

    def apply_to_keyed_state(self, state: S, function: Callable[[Any, S], None]) -> None:
        """Call `function(key, state)` for each key of this subtask that has an entry in a keyed state.

        The function may read and change all keyed state of the key. It emits nothing; it can collect records
        for `process_broadcast_element` to emit. The order of the keys is not defined.

        Args:
            state: A keyed state of the function.
            function: Takes a key and the state; the key is the current key during the call.

        Raises:
            PenstockError: The caller is processing a record of the data, or a timer.
        """
        _, backend = self._requests
        assert backend is not None, "a function with this context has keyed state"
        if backend.current_key is not NO_KEY:
            msg = (
                "apply_to_keyed_state was called while a record or timer of one key was processed; call it "
                "in process_broadcast_element"
            )
            raise PenstockError(msg)
        try:
            for key in list(self.keys(state)):
                backend.current_key = self.current_key = key
                function(key, state)
        finally:
            if backend.current_key is not NO_KEY:
                backend.current_key = NO_KEY
                del self.current_key


class KeyedBroadcastProcessFunction(TimerFunction[R], ABC, Generic[K, T, B, R]):
    """A function of keyed data and a broadcast stream (Flink's `KeyedBroadcastProcessFunction`).

    It is like a `BroadcastProcessFunction`, but also has state and timers for each key of the data, as in a
    `KeyedProcessFunction`.

    Example:
        >>> from penstock import ValueState
        >>> from penstock.connected import BroadcastState
        >>> from penstock.testing import OperatorHarness
        >>> class Often(KeyedBroadcastProcessFunction[str, str, int, str]):
        ...     seen = ValueState(int, default=0)
        ...     limit = BroadcastState(str, int)
        ...
        ...     def process_element(self, value, ctx):
        ...         self.seen.update(self.seen.value() + 1)
        ...         if self.seen.value() > self.limit.get("most", 1):
        ...             yield value
        ...
        ...     def process_broadcast_element(self, value, ctx):
        ...         self.limit["most"] = value
        ...         ctx.apply_to_keyed_state(self.seen, lambda key, seen: seen.clear())
        >>> def often(words, limits):
        ...     return words.key_by(str).connect(limits.broadcast()).process("often", Often())
        >>> with OperatorHarness.of(often) as harness:
        ...     first = harness.push(["a", "b", "a"])
        ...     changed = harness.push([2], input_index=1)
        ...     first, harness.push(["a", "a", "a"])
        (['a'], ['a'])
    """

    @abstractmethod
    def process_element(self, value: T, ctx: RuntimeContext) -> Iterable[R] | None:
        """Process one record of the data; return or yield the records to emit, or return `None`.

        Broadcast state is read-only here and in `on_timer`.
        """

    @abstractmethod
    def process_broadcast_element(self, value: B, ctx: BroadcastContext) -> Iterable[R] | None:
        """Process one record of the broadcast stream, in every subtask; it has no key.

        `ctx.apply_to_keyed_state` gives access to keyed state. A record that every subtask emits appears
        several times in the output.
        """
