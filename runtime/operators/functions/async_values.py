"""Values of asynchronous calls: makes the argument of a try, checks the results, and makes the output."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.functions.async_queue import AwaitedRecord
from penstock.runtime.operators.operator import Output
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.elements import ArrowBatch, RowBatch, one_batch
from penstock.runtime.state.own_copy import own_batch, own_copies, own_copy


def argument_of(entries: Sequence[AwaitedRecord], *, as_list: bool) -> Any:
    """Return the argument of a try: an Arrow batch, or copies of rows, which a coroutine may change."""
    first = entries[0].value
    if isinstance(first, ArrowBatch):
        return first.batch
    rows = own_copies([entry.rows[0] for entry in entries])
    return rows if as_list else rows[0]


def results_of(answered: Any, entries: Sequence[AwaitedRecord], *, as_list: bool) -> list[Any]:
    """Return one result for each entry, copied while the coroutine can't change them."""
    refuse_awaitable(answered)
    if isinstance(entries[0].value, ArrowBatch):
        if isinstance(answered, pa.Table):
            answered = one_batch(answered)
        if not isinstance(answered, pa.RecordBatch):
            msg = (
                f"it returned {short_repr(answered)} of type {type(answered).__name__}; give a pa.RecordBatch"
            )
            raise PenstockError(msg)
        return [own_batch(answered)]
    if not as_list:
        return [own_copy(answered)]
    if not isinstance(answered, list) or len(answered) != len(entries):
        what = f"a list of length {len(answered)}" if isinstance(answered, list) else short_repr(answered)
        msg = (
            f"it returned {what} for a batch of length {len(entries)}; give a list with one result for each "
            "record"
        )
        raise PenstockError(msg)
    return own_copies(answered)


def refuse_awaitable(answered: Any) -> None:
    if inspect.isawaitable(answered):
        if inspect.iscoroutine(answered):
            answered.close()  # Python would warn that it never ran
        msg = f"it returned a {type(answered).__name__}: await it, as in `return await ...`"
        raise PenstockError(msg)


def outputs_of(entries: Sequence[AwaitedRecord]) -> Iterator[Output]:
    """Yield the results of successive records, all with timestamps or all without."""
    rows: list[Any] = []
    stamps: list[int] = []
    for entry in entries:
        if isinstance(entry.value, ArrowBatch):
            yield _columns(entry.result, entry.value)
        else:
            rows.append(entry.result)
            stamps.extend(entry.value.timestamps or ())
    if rows:
        yield RowBatch(rows, stamps or None)


def _columns(result: pa.RecordBatch, given: ArrowBatch) -> ArrowBatch:
    """The result of a batch; it keeps the timestamps if it is as long as its input."""
    return ArrowBatch(result, given.timestamps if result.num_rows == len(given) else None)
