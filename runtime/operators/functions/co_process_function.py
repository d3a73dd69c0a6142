"""Functions of two connected streams, for `a.connect(b).process(id, function)`, with keys or without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from penstock.runtime.operators.functions.process_function import (
    FunctionContext,
    RuntimeContext,
    TimerFunction,
    UserFunction,
)

K = TypeVar("K")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
R = TypeVar("R")


class CoProcessFunction(UserFunction, ABC, Generic[T1, T2, R]):
    """A function of two connected streams without keys (Flink's `CoProcessFunction`).

    The context has side outputs, metrics, and the watermark, which is the lower watermark of the two streams.
    Each subtask has one object, which gets the records of both streams. The order between the streams is not
    defined.

    Example:
        >>> from penstock.testing import OperatorHarness
        >>> class Tagged(CoProcessFunction[int, str, tuple[str, object]]):
        ...     def process_element1(self, value, ctx):
        ...         yield "number", value
        ...
        ...     def process_element2(self, value, ctx):
        ...         yield "text", value
        >>> with OperatorHarness.of(lambda a, b: a.connect(b).process("tagged", Tagged())) as harness:
        ...     harness.push([1]), harness.push(["x"], input_index=1)
        ([('number', 1)], [('text', 'x')])
    """

    def open(self, ctx: FunctionContext) -> None:
        """Prepare the function; called once per attempt, before any record."""

    @abstractmethod
    def process_element1(self, value: T1, ctx: FunctionContext) -> Iterable[R] | None:
        """Process one record of the first stream; return or yield the records to emit, or return `None`."""

    @abstractmethod
    def process_element2(self, value: T2, ctx: FunctionContext) -> Iterable[R] | None:
        """Process one record of the second stream; return or yield the records to emit, or return `None`."""


class KeyedCoProcessFunction(TimerFunction[R], ABC, Generic[K, T1, T2, R]):
    """A function of two streams with the same kind of key (Flink's `KeyedCoProcessFunction`).

    Records of both streams with the same key are processed in one subtask, and share the key's state and
    timers. States are declared as in a `KeyedProcessFunction`. The order between the streams is not defined.
    A record may come before or after its partner, so keep the first of the two in state.

    Example:
        >>> from penstock import ValueState
        >>> from penstock.testing import OperatorHarness
        >>> class Paid(KeyedCoProcessFunction[int, tuple[int, str], int, tuple[int, str]]):
        ...     order = ValueState(str)
        ...
        ...     def process_element1(self, value, ctx):
        ...         self.order.update(value[1])
        ...
        ...     def process_element2(self, value, ctx):
        ...         if self.order.value() is not None:
        ...             yield ctx.current_key, self.order.value()
        >>> def paid(orders, payments):
        ...     connected = orders.key_by(lambda order: order[0]).connect(payments.key_by(abs))
        ...     return connected.process("paid", Paid())
        >>> with OperatorHarness.of(paid) as harness:
        ...     harness.push([(1, "tea"), (2, "jam")]), harness.push([2, 3], input_index=1)
        ([], [(2, 'jam')])
    """

    @abstractmethod
    def process_element1(self, value: T1, ctx: RuntimeContext) -> Iterable[R] | None:
        """Process one record of the first stream; return or yield the records to emit, or return `None`."""

    @abstractmethod
    def process_element2(self, value: T2, ctx: RuntimeContext) -> Iterable[R] | None:
        """Process one record of the second stream; return or yield the records to emit, or return `None`."""
