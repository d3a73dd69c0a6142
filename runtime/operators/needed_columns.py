"""Chooses the columns that a source reads from its file or table: those that later steps need."""

from __future__ import annotations

import pyarrow as pa

from penstock.runtime.operators.expressions import columns_of_expression
from penstock.runtime.operators.source import NeededColumns


def columns_to_read(
    schema: pa.Schema, columns: tuple[str, ...] | None, needed: NeededColumns
) -> tuple[str, ...] | None:
    """Return the columns to read, `None` for all; `columns` are the user's choice.

    Example:
        >>> import pyarrow.compute as pc
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
        >>> columns_to_read(schema, None, NeededColumns(("c",), (pc.field("a") > 1,)))
        ('a', 'c')
    """
    if needed.names is None:
        return columns
    there = schema.names if columns is None else list(columns)
    used = set(needed.names)
    for expression in needed.expressions:
        looked_at = columns_of_expression(expression, schema)
        if looked_at is None:
            return columns
        used.update(looked_at)
    # Keep all: a step that reads a missing or duplicate column raises an error that names the existing ones.
    if not used or any(there.count(name) != 1 or schema.names.count(name) != 1 for name in used):
        return columns
    return tuple(name for name in there if name in used)
