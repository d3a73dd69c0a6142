"""The operators of connected streams: two functions, or an object with a method for each stream.

`CoFunctionOperator` runs two functions, with one operator for each. The other operators run an object, which
both inputs share. A chain processes one batch at a time. So these operators set the method and the key
selector of the batch's input before they process a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from penstock.runtime.operators.functions.broadcast_process_function import BroadcastContext
from penstock.runtime.operators.functions.function_operator import FunctionOperator, check_function
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.functions.process import KeyedProcessOperator, ProcessOperator
from penstock.runtime.operators.functions.process_function import TimerFunction
from penstock.runtime.operators.operator import OperatorContext, Output, TwoInputOperator
from penstock.runtime.operators.operator_state import ListStates
from penstock.runtime.operators.user_code.failure import CurrentRecord
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.result_collector import reading
from penstock.runtime.record.column_names import ColumnNames
from penstock.runtime.record.elements import Batch, RowBatch


class CoFunctionOperator(TwoInputOperator):
    """Runs one operator for each input, such as two `MapOperator`s; the two share nothing."""

    batch_format: ClassVar = "both"

    def __init__(self, first: FunctionOperator, second: FunctionOperator) -> None:
        self._both = first, second
        self._running = first

    def open(self, context: OperatorContext) -> None:
        for operator in self._both:
            self._running = operator
            operator.isolates = self.isolates
            operator.open(context)

    def process_element1(self, batch: Batch) -> Iterator[Output]:
        self._running = self._both[0]
        return self._running.process(batch)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        self._running = self._both[1]
        return self._running.process(batch)

    @property
    def only_reads(self) -> bool:
        return all(operator.only_reads for operator in self._both)

    @property
    def doing(self) -> str:
        return self._running.doing

    @property
    def current_record(self) -> CurrentRecord | None:
        return self._running.current_record


class CoProcessOperator(TwoInputOperator, ProcessOperator):
    methods = ("process_element1", "process_element2")

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        check_function(self.kind, self._method(1), takes_generators=True)

    def process_element1(self, batch: Batch) -> Iterator[Output]:
        self._function = self._method(0)
        yield from ProcessOperator.process(self, batch)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        self._function = self._method(1)
        yield from ProcessOperator.process(self, batch)

    def _method(self, input_index: int) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._user, self.methods[input_index])
        return method


class KeyedCoProcessOperator(TwoInputOperator, KeyedProcessOperator):
    """Runs a `KeyedCoProcessFunction`; state, timers and keys belong to both inputs."""

    methods = ("process_element1", "process_element2")

    def __init__(
        self,
        key_selectors: Sequence[Callable[[Any], Any]],
        function: TimerFunction[Any],
    ) -> None:
        super().__init__(key_selectors[0], function)
        self._selectors = tuple(key_selectors)
        self._key_names = tuple(map(ColumnNames.of_key, key_selectors))
        self._input_keys = InputKeys()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        check_function(self.kind, getattr(self._user, self.methods[1]), takes_generators=True)
        check_function("key_by", self._selectors[-1])

    def process_element1(self, batch: Batch) -> Iterator[Output]:
        return self._process_input(0, batch)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        return self._process_input(1, batch)

    @property
    def only_reads(self) -> bool:
        return super().only_reads and all(map(only_reads, self._selectors))

    def _process_input(self, input_index: int, batch: Batch) -> Iterator[Output]:
        self._input_index = input_index
        self._function = getattr(self._user, self.methods[input_index])
        self._select = select = self._selectors[input_index]
        self._selector = select if not self.isolates else reading(select)
        yield from KeyedProcessOperator.process(self, batch)

    def _keys_of(self, batch: RowBatch) -> list[Any]:
        keys = super()._keys_of(batch)
        self._selecting = True
        self._input_keys.check(self._input_index, keys)
        self._selecting = False
        return keys


class BroadcastProcessOperator(CoProcessOperator):
    """Runs a `BroadcastProcessFunction`; only batches of the second input can change its broadcast state."""

    methods = ("process_element", "process_broadcast_element")

    def open(self, context: OperatorContext) -> None:
        self._lists = context.lists
        super().open(context)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        yield from broadcasting(self._lists, super().process_element2(batch))


class KeyedBroadcastProcessOperator(KeyedCoProcessOperator):
    """Runs a `KeyedBroadcastProcessFunction`; records of its second input have no key."""

    methods = ("process_element", "process_broadcast_element")
    _context_type = BroadcastContext

    def open(self, context: OperatorContext) -> None:
        self._lists = context.lists
        super().open(context)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        self._input_index = 1
        self._function = self._user.process_broadcast_element
        yield from broadcasting(self._lists, KeyedProcessOperator.process(self, batch))

    def _results(self, batch: RowBatch) -> Iterator[Iterable[Any]]:
        if self._input_index == 1:
            return self._results_without_keys(batch, self._context)
        return super()._results(batch)


def broadcasting(lists: ListStates, outputs: Iterator[Output]) -> Iterator[Output]:
    """Allow changes of broadcast states while the outputs of a broadcast stream's batch are computed."""
    lists.let_broadcasts_change(allowed=True)
    yield from outputs
    lists.let_broadcasts_change(allowed=False)
