"""Decodes the values of a batch together, finds the bad ones, and puts tombstones back into their places.

The fast parsers fail a whole batch for one bad value. Such a batch is halved until each bad value is alone.
A batch with few bad values costs little more than one without: a parser stops at the first bad value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from penstock.runtime.io.formats.format import Decoded
from penstock.runtime.record.elements import ArrowBatch, RowBatch, take_rows

_T = TypeVar("_T")

_Decode = Callable[[Sequence[bytes]], _T | None]
_Why = Callable[[bytes], str]


class _Parts(NamedTuple):
    """Decoded parts of a batch, in order, and the bad values with their indices."""

    good: list[Any]
    bad: list[tuple[int, str]]


def decoded_rows(values: Sequence[bytes | None], decode: _Decode[Sequence[Any]], why: _Why) -> Decoded:
    """Decode values to rows.

    Args:
        decode: Decodes some values to as many rows; returns `None` if one of them is bad.
        why: Describes a bad value.
    """
    present = _present(values)
    good, bad = _in_parts(present, decode, why)
    rows: Sequence[Any] = good[0] if len(good) == 1 else [row for part in good for row in part]
    if len(present) == len(values):
        return Decoded(RowBatch(rows), bad)
    places = [index for index, value in enumerate(values) if value is not None]
    found = [(places[index], reason) for index, reason in bad]
    left, wrong = iter(rows), {index for index, _ in found}
    merged = [
        None if value is None else next(left) for index, value in enumerate(values) if index not in wrong
    ]
    return Decoded(RowBatch(merged), found)


def decoded_columns(
    values: Sequence[bytes | None], schema: pa.Schema, decode: _Decode[pa.RecordBatch], why: _Why
) -> Decoded:
    """Decode values to columns of a schema; arguments as in `decoded_rows`."""
    present = _present(values)
    good, bad = _in_parts(present, decode, why)
    batch = good[0] if len(good) == 1 else _joined(good, schema)
    if len(present) == len(values):
        return Decoded(ArrowBatch(batch), bad)
    places = [index for index, value in enumerate(values) if value is not None]
    found = [(places[index], reason) for index, reason in bad]
    wrong = {index for index, _ in found}
    taken: list[int | None] = []
    row = 0
    for index, value in enumerate(values):
        if value is None:
            taken.append(None)
        elif index not in wrong:
            taken.append(row)
            row += 1
    if not row:
        return Decoded(ArrowBatch(nulls(schema, len(taken))), found)
    return Decoded(ArrowBatch(take_rows(batch, pa.array(taken, pa.int64()))), found)


def _present(values: Sequence[bytes | None]) -> Sequence[bytes]:
    if None not in values:
        return values  # type: ignore[return-value]
    return [value for value in values if value is not None]


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return rows of nulls."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_pylist([], schema)
    return pa.concat_batches(batches)


def _in_parts(values: Sequence[bytes], decode: _Decode[Any], why: _Why) -> _Parts:
    parts = _Parts([], [])
    pending = [(0, len(values))] if values else []
    while pending:
        first, last = pending.pop()
        found = decode(values if last - first == len(values) else values[first:last])
        if found is not None:
            parts.good.append(found)
        elif last - first == 1:
            parts.bad.append((first, why(values[first])))
        else:
            middle = (first + last) // 2
            pending += [(middle, last), (first, middle)]
    return parts
