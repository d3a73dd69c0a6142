"""`UserOperator`: runs a user-defined operator, and checks its inputs and outputs.

It passes calls on to the user's object, except those that only operators of Penstock receive, such as
`flush`, `tick` and `process_status`. It converts batches to the format that the operator declares. It checks
the operator's results. So an error names the user's line, and not the next operator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators import HasCoordinator
from penstock.runtime.operators.functions.co_process import broadcasting
from penstock.runtime.operators.functions.function_operator import (
    check_function,
    keyed_state_of,
    rows_of,
    selector_location,
)
from penstock.runtime.operators.functions.input_keys import InputKeys
from penstock.runtime.operators.functions.record_functions import arrow_parts
from penstock.runtime.operators.keyed_state_requests import StateSweep
from penstock.runtime.operators.operator import (
    BatchFormats,
    Operator,
    OperatorContext,
    Output,
    SavedList,
    Tagged,
    TwoInputOperator,
)
from penstock.runtime.operators.operator_state import RawState
from penstock.runtime.operators.user_code.failure import CurrentRecord, RecordCursor, short_repr
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.operators.user_code.result_collector import isolated, reading
from penstock.runtime.record.column_names import ColumnNames
from penstock.runtime.record.elements import Batch, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.state.key_groups import key_group_array, key_group_of
from penstock.runtime.state.stable_hash import types_of_keys
from penstock.runtime.state.state_table import NO_KEY
from penstock.runtime.user_location import function_location

#: Maximum number of keys that are remembered as checked.
_MOST_CHECKED: Final = 1 << 16


#: The key function of an input; `None` for an input without keys.
KeySelector: TypeAlias = Callable[[Any], Any] | None


class RowTime:
    """The event time of the current row of `by_key`; `None` outside of it, and without timestamps."""

    __slots__ = ("timestamp",)

    def __init__(self) -> None:
        self.timestamp: int | None = None


class UserOperator(Operator):
    """Runs a copy of a user's operator in one subtask; without a key selector the stream is not keyed."""

    batch_format: ClassVar[BatchFormats] = "both"

    _context: OperatorContext

    def __init__(self, operator: Operator, key_selector: KeySelector = None) -> None:
        # The copy keeps subtasks of a simulation from sharing the user's object, as pickling does in a job.
        self._user = copy.deepcopy(operator)
        self._select = key_selector
        self._look = None if key_selector is None else reading(key_selector)
        self._key_names: tuple[ColumnNames, ...] = (ColumnNames.of_key(key_selector),)
        self._input_index = 0
        self._cursor = RecordCursor()
        self._is_opened = False
        self._given: Batch | None = None
        self._checked: set[Any] = set()
        self._checked_types: set[type] = set()
        self._at = "process"
        self._sweep: StateSweep | None = None
        self._row_time = RowTime()
        self.keyed = key_selector is not None
        self.makes_watermarks = operator.makes_watermarks

    def open(self, context: OperatorContext) -> None:
        if self._select is not None:
            check_function("key_by", self._select)
            context = replace(context, keyed_rows=self._by_key)
        if context.is_restored:
            for names in self._key_names:
                names.only_warn()
        self._context, self._is_opened = context, True
        if context.keyed_state is not None:
            self._sweep = StateSweep(context.keyed_state, context.connector.clock)
            self._row_time = context.keyed_state.time.record = RowTime()
        context.requested.bind_declared(self._user, context.keyed_state)
        context.lists.bind_declared(self._user)
        self._call("open", context)

    def process(self, batch: Batch) -> Iterator[Output]:
        return self._process_with("process", batch)

    def _process_with(self, method: str, batch: Batch) -> Iterator[Output]:
        self._at = method
        for fitting in self._fitting(batch):
            self._given = fitting
            yield from self._checked_outputs(method, getattr(self._user, method), fitting)
            self._given = None

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        if self._context.keyed_state is not None:
            self._context.keyed_state.time.advance(watermark.timestamp)
        yield from self._checked_outputs("process_watermark", self._user.process_watermark, watermark)

    @property
    def flush_at(self) -> float | None:
        return None if self._sweep is None else self._sweep.due_at

    def flush(self) -> Iterator[Output]:
        if self._sweep is not None:
            self._sweep.run_if_due()
        return iter(())

    def end_of_data(self) -> Iterator[Output]:
        yield from self._checked_outputs("end_of_data", self._user.end_of_data)

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        name = "prepare_snapshot_pre_barrier"
        yield from self._checked_outputs(name, self._user.prepare_snapshot_pre_barrier)

    def handle_event(self, event: Any) -> None:
        self._at = "handle_event"
        given: Any = self._user.handle_event(event)  # type: ignore[func-returns-value]
        if given is not None:
            what = (
                "yields, so it never runs"
                if isinstance(given, Generator)
                else f"returned {short_repr(given)}"
            )
            msg = (
                f"handle_event {what}. It can't emit: keep the records, and emit them in process or "
                "prepare_snapshot_pre_barrier"
            )
            raise PenstockError(msg)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        self._at = "snapshot"
        given = self._user.snapshot(checkpoint_id) or {}
        if not isinstance(given, Mapping) or not all(isinstance(s, SavedList) for s in given.values()):
            msg = f"snapshot returned {short_repr(given)}; update the list states of the context instead"
            raise PenstockError(msg)
        return given

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        """The raw state that the user's operator returns; refuses key groups of another subtask."""
        self._at = "snapshot_raw"
        raw = self._user.snapshot_raw(checkpoint_id)
        if not isinstance(raw, RawState):
            msg = f"snapshot_raw returned {short_repr(raw)} of type {type(raw).__name__}; return a RawState"
            raise PenstockError(msg)
        pieces = [*raw.operator, *raw.keyed.values()]
        wrong = next((piece for piece in pieces if not isinstance(piece, bytes)), None)
        if wrong is not None:
            msg = f"raw state is bytes, not {short_repr(wrong)} of type {type(wrong).__name__}"
            raise PenstockError(msg)
        if raw.keyed:
            own = self._context.key_groups
            foreign = sorted(set(raw.keyed).difference(own))
            if foreign:
                msg = (
                    f"raw keyed state of key group {foreign[0]} belongs to another subtask; this one owns "
                    f"{own.start} to {own.stop - 1} (context.key_groups)"
                )
                raise PenstockError(msg)
        # Another thread writes the state, while the operator may change the object that it returned.
        given = RawState(tuple(raw.operator), dict(raw.keyed))
        return self._context.restored_raw.with_unread(given)

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._call("notify_checkpoint_complete", permit)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._call("notify_checkpoint_aborted", checkpoint_id)

    @property
    def doing(self) -> str:
        if self._at == "key_by" and self._select is not None:
            return selector_location(self._select)
        return f"operator {function_location(getattr(self._user, self._at))}"

    @property
    def current_record(self) -> CurrentRecord | None:
        return self._cursor.current

    def close(self) -> None:
        if self._is_opened:
            self._call("close")

    @property
    def has_coordinator(self) -> bool:
        return isinstance(self._user, HasCoordinator)

    def _fitting(self, batch: Batch) -> Iterable[Batch]:
        batch_format = self._user.batch_format
        if batch_format == "arrow":
            return arrow_parts(batch, wanted='batch_format = "arrow"', instead='batch_format = "rows"')
        return [rows_of(batch) if batch_format == "rows" else batch]

    def _checked_outputs(self, name: str, method: Callable[..., Any], *arguments: Any) -> Iterator[Output]:
        self._at = name
        for output in _iterable(name, method(*arguments)):
            if isinstance(output, Watermark) and self.makes_watermarks:
                yield output
                continue
            if not isinstance(output, Batch):
                raise PenstockError(_no_batch(name, output, makes_watermarks=self.makes_watermarks))
            if len(output):
                yield isolated(output) if self.isolates else output
                self._at = name  # the chain may have taken a snapshot in between

    def _call(self, name: str, *arguments: Any) -> None:
        self._at = name
        check_has_run(name, getattr(self._user, name)(*arguments))

    def _by_key(self, batch: Batch) -> Iterator[tuple[Any, Any]]:
        backend, select, at = keyed_state_of(self._context), self._look, self._at
        if select is None:
            msg = f"by_key in {at}: only methods that process a keyed input can call by_key"
            raise PenstockError(msg)
        given = rows_of(batch)
        rows, stamps = given.rows, given.timestamps or repeat(None)
        self._at = "key_by"
        self._key_names[self._input_index].check(rows)
        keys = [select(row) for row in self._cursor.over(rows)]
        self._check_keys(keys, rows, batch, at)
        self._at = at
        try:
            for key, stamp, row in zip(keys, stamps, self._cursor.over(rows), strict=False):
                backend.current_key, self._row_time.timestamp = key, stamp
                yield key, row
            self._cursor.done()
        finally:
            backend.current_key, self._row_time.timestamp = NO_KEY, None

    def _check_keys(self, keys: Sequence[Any], rows: Sequence[Any], batch: Batch, at: str) -> None:
        backend, checked = keyed_state_of(self._context), self._checked
        own = backend.key_groups
        try:
            kinds = types_of_keys(keys)
            is_known = kinds <= self._checked_types
            if is_known and checked.issuperset(keys):
                return
            new = [key for key in keys if key not in checked] if is_known else keys
            groups = key_group_array(new, backend.max_parallelism)
            all_right = bool(((groups >= own.first) & (groups <= own.last)).all())
        except TypeError:  # one of the values can't be a key
            all_right = False
        if all_right:
            if len(checked) + len(new) > _MOST_CHECKED:
                checked.clear()
            checked.update(new)
            self._checked_types |= kinds
            return
        for key, _ in zip(keys, self._cursor.over(rows), strict=True):
            if key_group_of(key, backend.max_parallelism) not in own:
                self._refuse_foreign(key, batch, at)

    def _refuse_foreign(self, key: Any, batch: Batch, at: str) -> NoReturn:
        msg = f"key {short_repr(key)} belongs to another subtask, which would not find this state: "
        if batch is self._given:
            msg += "the function of key_by must give a record the same key in every process"
        else:
            self._at = at
            msg += "give by_key the rows that process received"
        raise PenstockError(msg)


class TwoInputUserOperator(TwoInputOperator, UserOperator):
    """Runs a copy of a user's operator with two inputs; `by_key` uses the current input's keys."""

    def __init__(
        self, operator: TwoInputOperator, first: KeySelector = None, second: KeySelector = None
    ) -> None:
        super().__init__(operator, first)
        self._selectors = first, second
        self._key_names = ColumnNames.of_key(first), ColumnNames.of_key(second)
        self._input_keys = InputKeys()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if self._selectors[1] is not None:
            check_function("key_by", self._selectors[1])

    def process_element1(self, batch: Batch) -> Iterator[Output]:
        return self._process_input(0, batch)

    def process_element2(self, batch: Batch) -> Iterator[Output]:
        return self._process_input(1, batch)

    def _process_input(self, input_index: int, batch: Batch) -> Iterator[Output]:
        self._input_index = input_index
        self._select = select = self._selectors[input_index]
        self._look = None if select is None else reading(select)
        outputs = self._process_with(f"process_element{input_index + 1}", batch)
        yield from broadcasting(self._context.lists, outputs) if input_index else outputs
        self._select = self._look = None

    def _check_keys(self, keys: Sequence[Any], rows: Sequence[Any], batch: Batch, at: str) -> None:
        super()._check_keys(keys, rows, batch, at)
        self._input_keys.check(self._input_index, keys)


def _iterable(name: str, result: Any) -> Iterable[Any]:
    if result is None:
        return ()
    if isinstance(result, Batch) or not hasattr(result, "__iter__"):
        msg = f"{name} returned {short_repr(result)} of type {type(result).__name__}; yield batches instead"
        raise PenstockError(msg)
    outputs: Iterable[Any] = result
    return outputs


def _no_batch(name: str, output: Any, *, makes_watermarks: bool) -> str:
    if isinstance(output, Watermark):
        return f"{name} yielded a Watermark, but its class does not set makes_watermarks = True"
    also = " or Watermark" if makes_watermarks else ""
    what = f"{short_repr(output)} of type {type(output).__name__}"
    hint = "" if isinstance(output, Tagged) else "; for records, yield RowBatch([record, ...])"
    return f"{name} yielded {what}, which is not a batch: yield RowBatch or ArrowBatch{also}{hint}"
