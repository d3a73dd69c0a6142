"""Separates the kind of each change from the rows that are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.operators.change_kinds import DELETES
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

#: Column of staged rows: whether the row of the key is deleted.
DELETED: Final = "__penstock_deleted"


def without_change_kind(batch: Batch, column: str, path: str) -> tuple[Batch, pa.Array]:
    """The records without their kinds, and whether each of them is a deletion.

    Raises:
        BadRecordError: A record has no kind, or one that is not known.
    """
    if isinstance(batch, ArrowBatch):
        columns = batch.batch
        if column not in columns.schema.names:
            _refuse(path, column, None)
        kinds = columns.column(column).to_pylist()
        return ArrowBatch(columns.drop_columns([column])), _deletes(kinds, column, path)
    rows: Any = batch.rows
    kinds = [row.get(column) if isinstance(row, dict) else None for row in rows]
    deletes = _deletes(kinds, column, path)
    return RowBatch([{name: row[name] for name in row if name != column} for row in rows]), deletes


def _deletes(kinds: Sequence[Any], column: str, path: str) -> pa.Array:
    for kind in set(kinds) - DELETES.keys():
        _refuse(path, column, kind)
    return pa.array([DELETES[kind] for kind in kinds], pa.bool_())


def _refuse(path: str, column: str, kind: object) -> None:
    known = ", ".join(map(repr, DELETES))
    found = "a record has none" if kind is None else f"a record has {kind!r:.80}"
    what = f"the column {column!r} (change_kind=) holds the kind of each change, but {found}"
    msg = f"table {path}: {what}: use one of {known}"
    raise BadRecordError(msg)
