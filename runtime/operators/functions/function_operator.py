"""`FunctionOperator`: what operators around one function of the user share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.functions.process_function import FunctionContext
from penstock.runtime.operators.functions.side_outputs import SideOutputs
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, SavedList
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.timers.timer_service import FunctionTimerService
from penstock.runtime.operators.user_code.emission import Emission
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.plain_methods import check_has_run
from penstock.runtime.operators.user_code.record_cursor import CurrentRecord, RecordCursor
from penstock.runtime.operators.user_code.result_collector import ResultCollector
from penstock.runtime.record.arrow_dicts import dicts_of_arrow
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.state.keyed_states import AggregatingState, ReducingState
from penstock.runtime.user_location import function_location


class FunctionOperator(Operator):
    """Counts records, knows which one is being processed, and refuses functions that can't work.

    A subclass must not drive the user's function with `map(function, rows)`. A `StopIteration` that escapes
    from the function would end it silently and lose the rest of the batch. Comprehensions pass it on.

    Args:
        function: The user's function, or the class of function objects.
    """

    takes: ClassVar[BatchFormats] = "both"

    #: How messages call the operator.
    kind: ClassVar[str] = "user"

    #: Whether the function may be a generator function.
    takes_generators: bool = False

    def __init__(self, function: Callable[..., Any] | FunctionClass) -> None:
        self._class = function if isinstance(function, FunctionClass) else None
        self._made: Any = None  # the object that was made of the class
        self._beside: str | None = None  # what runs of the class instead of the function
        self._function: Callable[..., Any] = _not_made if isinstance(function, FunctionClass) else function
        self._cursor = RecordCursor()
        self._emission = Emission.AT_ONCE
        self._records_in = 0
        self._records_out = 0

    def open(self, context: OperatorContext) -> None:
        """Make the function object of a class, and check the function.

        Raises:
            ConfigurationError: It can't be called, is a coroutine, or is a generator where a value is needed.
        """
        if self._class is not None:
            self._beside = f"constructor {self._class.where}"
            self._function = self._made = self._class.make()
            self._beside = None
            context.lists.bind_declared(self._made)
        check_function(self.kind, self._function, takes_generators=self.takes_generators)
        functions = () if self._class is None else (self._function,)  # an object, which may keep what it gets
        self._emission = Emission.of((*self._functions, *functions), isolates=self.isolates)
        if hasattr(self._made, "open"):
            timers, side = FunctionTimerService(context.connector.clock), SideOutputs(type(self._made))
            self._call_beside(self._made, "open", FunctionContext(context, timers, side))

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """Let the function object of a class bring its list states up to date."""
        self._call_beside(self._made, "snapshot", checkpoint_id)
        return {}

    def close(self) -> None:
        """Close the function object of a class."""
        made, self._made = self._made, None
        self._call_beside(made, "close")

    @property
    def doing(self) -> str:
        """The function with its line."""
        beside = self._beside  # read once: a watchdog asks beside the task
        return f"{self.kind} {f'function {function_location(self._function)}' if beside is None else beside}"

    @property
    def current_record(self) -> CurrentRecord | None:
        """The record that the function was called with last."""
        return self._cursor.current

    def statistics(self) -> OperatorStatistics:
        """Records taken and emitted."""
        return OperatorStatistics(self._records_in, self._records_out, extra=self._counters())

    @property
    def only_reads(self) -> bool:
        """Whether none of the user's functions can change or keep a record."""
        return self._class is None and all(map(only_reads, self._functions))

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        """The user's functions that see records."""
        return (self._function,)

    def _collector_of(self, context: OperatorContext) -> ResultCollector:
        """Makes batches of what functions return, copied where that is needed."""
        return ResultCollector(context.connector.clock.monotonic, self._emission)

    def _call_beside(self, owner: object, name: str, *arguments: object) -> None:
        """Call a method of the user's object that emits nothing, if it has such a method."""
        method = getattr(owner, name, None)
        if callable(method):
            self._beside = function_location(method)
            check_has_run(name, method(*arguments))
            self._beside = None

    def _counters(self) -> Mapping[str, int]:
        return {}


def functions_of(owner: object, base: type) -> Iterator[Callable[..., Any]]:
    """The functions of a user's object that run while there are records, and those of its states.

    Args:
        owner: An object of a subclass of `base`.
        base: Has the methods that do nothing until they are overridden.
    """
    kind = type(owner)
    for name in ("process", "on_timer", "snapshot"):
        if getattr(kind, name, None) is not getattr(base, name, None):
            yield getattr(owner, name)
    for state in {
        name: part for each in reversed(kind.__mro__) for name, part in vars(each).items()
    }.values():
        if isinstance(state, ReducingState):
            yield state.function
        elif isinstance(state, AggregatingState):
            function = state.function
            yield from (function.create_accumulator, function.add, function.get_result)


def _not_made(*_: object) -> None:
    """Stands for the function object of a class until the operator opens."""
    msg = "open() comes first"
    raise AssertionError(msg)


def check_function(kind: str, function: Callable[..., Any], *, takes_generators: bool = False) -> None:
    """Refuse a function whose result could never be what the operator needs.

    Args:
        kind: How messages call the operator.
        function: The user's function.
        takes_generators: Whether it may be a generator function.

    Raises:
        ConfigurationError: Says what is wrong with it and what to do.
    """
    if not callable(function):
        msg = f"{kind} needs a function, not {type(function).__name__}"
        raise ConfigurationError(msg)
    where = function_location(function)
    own = inspect.isroutine(function) or isinstance(function, functools.partial)
    function = function if own else inspect.getattr_static(type(function), "__call__")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        msg = f"{kind} calls {where}, which is declared `async def`: declare it `def`"
        raise ConfigurationError(msg)
    if inspect.isgeneratorfunction(function) and not takes_generators:
        msg = f"{kind} calls {where}, which yields: use flat_map, or return a value"
        raise ConfigurationError(msg)


def rows_of(batch: Batch) -> RowBatch:
    """A batch as rows; an Arrow batch becomes one dict a row, with the timestamps that it has.

    Example:
        >>> import pyarrow as pa
        >>> rows_of(ArrowBatch(pa.record_batch({"n": [1, 2]}), pa.array([10, 20])))
        RowBatch(rows=[{'n': 1}, {'n': 2}], timestamps=[10, 20])
    """
    if not isinstance(batch, ArrowBatch):
        return batch
    stamps = batch.timestamps
    return RowBatch(dicts_of_arrow(batch.batch), None if stamps is None else stamps.to_pylist())
