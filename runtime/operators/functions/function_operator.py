"""`FunctionOperator`: the base of operators that call one function of the user.

`KeyedFunctionOperator` adds a key selector and keyed state.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar, Final

from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.operators.functions.process_function import FunctionContext, NoSideOutputs
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, SavedList
from penstock.runtime.operators.timers import FunctionTimerService
from penstock.runtime.operators.user_code.failure import CurrentRecord, RecordCursor
from penstock.runtime.operators.user_code.function_class import FunctionClass, check_has_run
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.operators.user_code.result_collector import Emission, ResultCollector, reading
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.column_names import ColumnNames
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.record.row_columns import dicts_of_arrow
from penstock.runtime.state.column_log import ColumnLog
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.row_log import RowLog
from penstock.runtime.state.stable_hash import stable_hash, types_of_keys
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.user_location import function_location


class FunctionOperator(Operator):
    """Tracks the current record, and refuses functions whose results can't be valid.

    A subclass must not call the user's function through `map(function, rows)`. A `StopIteration` that the
    function raises would end `map` silently and lose the rest of the batch. A comprehension propagates it.
    """

    batch_format: ClassVar[BatchFormats] = "both"

    #: Name of the operator in messages.
    kind: ClassVar[str] = "user"

    #: Whether the function may be a generator function.
    takes_generators: bool = False

    def __init__(self, function: Callable[..., Any] | FunctionClass) -> None:
        self._class = function if isinstance(function, FunctionClass) else None
        self._made: Any = None  # the user's object whose methods `snapshot` and `close` are called
        self._running_method: str | None = None  # location of another method of the user while it runs
        self._function: Callable[..., Any] = _not_made if isinstance(function, FunctionClass) else function
        self._cursor = RecordCursor()
        self._emission = Emission.AT_ONCE

    def open(self, context: OperatorContext) -> None:
        if self._class is not None:
            self._running_method = f"constructor {self._class.where}"
            self._function = self._made = self._class.make()
            self._running_method = None
            context.lists.bind_declared(self._made)
        self._check_function()
        functions = () if self._class is None else (self._function,)  # an object, which may keep records
        self._emission = Emission.of((*self._functions, *functions), isolates=self.isolates)
        if hasattr(self._made, "open"):
            self._call_method(self._made, "open", self._context_of(context))

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        self._call_method(self._made, "snapshot", checkpoint_id)
        return {}

    def close(self) -> None:
        made, self._made = self._made, None
        self._call_method(made, "close")

    @property
    def doing(self) -> str:
        method = self._running_method  # read once: a watchdog calls this from another thread
        return f"{self.kind} {f'function {function_location(self._function)}' if method is None else method}"

    @property
    def current_record(self) -> CurrentRecord | None:
        return self._cursor.current

    @property
    def only_reads(self) -> bool:
        return self._class is None and all(map(only_reads, self._functions))

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function; an object that a subtask makes of a class is there after `open`."""
        return self._function

    @property
    def emission(self) -> Emission:
        """The moment at which records are copied; valid after `open`."""
        return self._emission

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return (self._function,)

    def _check_function(self) -> None:
        check_function(self.kind, self._function, takes_generators=self.takes_generators)

    def _context_of(self, context: OperatorContext) -> FunctionContext:
        """The context for the method `open` of the user's object."""
        timers = FunctionTimerService(context.connector.clock)
        return FunctionContext(context, timers, NoSideOutputs(self.kind))

    def _collector_of(self, context: OperatorContext) -> ResultCollector:
        return ResultCollector(context.connector.clock.monotonic, self._emission)

    def _call_method(self, owner: object, name: str, *arguments: object) -> None:
        method = getattr(owner, name, None)
        if callable(method):
            self._running_method = function_location(method)
            check_has_run(name, method(*arguments))
            self._running_method = None


def _not_made(*_: object) -> None:
    msg = "open() comes first"
    raise AssertionError(msg)


def check_function(kind: str, function: Callable[..., Any], *, takes_generators: bool = False) -> None:
    """Refuse a function whose result can't be valid for the operator; the error says what to do."""
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
    """Convert a batch to rows; an Arrow batch becomes one dict per row, and keeps its timestamps.

    Example:
        >>> import pyarrow as pa
        >>> rows_of(ArrowBatch(pa.record_batch({"n": [1, 2]}), pa.array([10, 20])))
        RowBatch(rows=[{'n': 1}, {'n': 2}], timestamps=[10, 20])
    """
    if not isinstance(batch, ArrowBatch):
        return batch
    stamps = batch.timestamps
    return RowBatch(dicts_of_arrow(batch.batch), None if stamps is None else stamps.to_pylist())


def filtered_rows(batch: RowBatch, chosen: Sequence[Any]) -> RowBatch:
    """The rows for which `chosen` has a true value, with their timestamps."""
    stamps = batch.timestamps
    return RowBatch(
        list(compress(batch.rows, chosen)), None if stamps is None else list(compress(stamps, chosen))
    )


#: Types whose values are all valid as keys, alone and in tuples.
_ALWAYS_VALID: Final = frozenset((int, str, bool, bytes, type(None), tuple))


class KeyedFunctionOperator(FunctionOperator):
    """Selects the keys of a whole batch first; an error of the key selector names the selector.

    A sender with a single receiver does not check all keys. So a subclass checks each new key with
    `_check_key`. If a batch has keys of a new type, all its keys are checked here. Otherwise a subclass would
    miss a key that equals a known key of another type (`1` and `1.0`).
    """

    keyed = True

    def __init__(self, key_selector: Callable[[Any], Any], function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._select_keys(key_selector)

    def _select_keys(self, key_selector: Callable[[Any], Any]) -> None:
        self._select = key_selector
        self._selecting = False
        self._checked_types: set[type] = set()
        self._selector = key_selector
        #: The columns of the key, for each input.
        self._key_names: tuple[ColumnNames, ...] = (ColumnNames.of_key(key_selector),)
        self._input_index = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        check_function("key_by", self._select)
        self._selector = self._select if not self.isolates else reading(self._select)
        if context.is_restored:
            for names in self._key_names:
                names.only_warn()

    @property
    def doing(self) -> str:
        return selector_location(self._select) if self._selecting else super().doing

    @property
    def only_reads(self) -> bool:
        return super().only_reads and only_reads(self._select)

    def _keys_of(self, batch: RowBatch) -> list[Any]:
        select = self._selector
        self._selecting = True
        self._key_names[self._input_index].check(batch.rows)
        keys = select.of_rows(batch.rows) if type(select) is ColumnKey else None
        if keys is None:
            keys = [select(row) for row in self._cursor.over(batch.rows)]
        self._check_types(keys, batch.rows)
        self._selecting = False
        return keys

    def _check_types(self, keys: Sequence[Any], rows: Sequence[Any]) -> None:
        """Refuse invalid keys of a batch if it has keys of a new type."""
        kinds = types_of_keys(keys)
        if not kinds <= self._checked_types:
            self._selecting = True
            for key, _ in zip(keys, self._cursor.over(rows), strict=True):
                stable_hash(key)
            self._selecting = False
            self._checked_types |= kinds

    def _check_keys(self, keys: Sequence[Any], rows: Sequence[Any]) -> None:
        """Refuse invalid keys of a batch, each with its row; keys of `_ALWAYS_VALID` types need no check."""
        if not types_of_keys(keys) <= _ALWAYS_VALID:
            for key, _ in zip(keys, self._cursor.over(rows), strict=True):
                self._check_key(key)

    def _own_values(self, table: StateTable, keys: Sequence[Any], batch: RowBatch) -> Collection[Any]:
        """Let the accumulators of these keys be changed in place; see `DirtyEntries.own`."""
        try:
            return table.changed.own(keys)
        except TypeError:
            self._check_keys(keys, batch.rows)
            raise

    @property
    def _may_be_invalid(self) -> bool:
        """Whether a new key needs `_check_key`; `_keys_of` must have returned its batch."""
        return not self._checked_types <= _ALWAYS_VALID

    def _check_key(self, key: Any) -> None:
        """Refuse an invalid key; the error names the key selector."""
        self._selecting = True
        stable_hash(key)
        self._selecting = False

    def _after_type_error(self, keys: Sequence[Any]) -> None:
        """Raise a clearer error if a `TypeError` came from the lookup of an unhashable key."""
        if not self._selecting:
            self._check_key(keys[self._cursor.index])


def selector_location(select: Callable[[Any], Any]) -> str:
    """The key selector in messages: `key_by function len`, or `key_by column 'k'`."""
    if isinstance(select, ColumnKey):
        return f"key_by {select.__name__}"
    return f"key_by function {function_location(select)}"


def keyed_state_of(context: OperatorContext) -> KeyedStateBackend:
    assert context.keyed_state is not None, "a keyed operator is given keyed state"
    return context.keyed_state


def only_table(context: OperatorContext, name: str, owner: str, *, nested: bool = False) -> StateTable:
    """The table of an operator that has no other keyed state; refuses the state of another operator."""
    return own_state(context, (name,), owner).table(name, nested=nested)


def only_tables(
    context: OperatorContext, names: Sequence[str], owner: str, *, nested: bool = False
) -> list[StateTable]:
    state = own_state(context, names, owner)
    return [state.table(name, nested=nested) for name in names]


def only_column_tables(
    context: OperatorContext, names: Sequence[str], owner: str
) -> Mapping[str, ColumnTable]:
    state = own_state(context, names, owner)
    return {name: state.column_table(name) for name in names}


def only_row_logs(context: OperatorContext, names: Sequence[str], owner: str) -> list[RowLog]:
    state = own_state(context, names, owner)
    return [state.row_log(name) for name in names]


def only_column_logs(context: OperatorContext, names: Sequence[str], owner: str) -> list[ColumnLog]:
    state = own_state(context, names, owner)
    return [state.column_log(name) for name in names]


def own_state(context: OperatorContext, names: Sequence[str], owner: str) -> KeyedStateBackend:
    state = keyed_state_of(context)
    foreign = [other for other in state.table_names if other not in names]
    if foreign:
        msg = (
            f"the restored state holds {', '.join(map(repr, foreign))}: it belonged to another kind of "
            f"operator with this id, not to {owner}. Give the operator a new id"
        )
        raise StateMismatchError(msg)
    return state
