"""One schema for all files of a source of Arrow batches: what differs is named before anything is read."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.runtime.io.connectors.errors import ConnectorError, shown

_SEPARATE: str = "or read these files by a source of their own and make them alike with map_batches"


def check_one_schema(schemas: Iterable[tuple[str, pa.Schema]]) -> None:
    """Refuse files whose columns differ from those of the first one in name, type or order.

    Args:
        schemas: Each file with its schema.

    Raises:
        ConnectorError: The message names the file, the column and both types.

    Example:
        >>> check_one_schema([("/a", pa.schema({"k": pa.int64()})), ("/b", pa.schema({"k": pa.int64()}))])
    """
    first: tuple[str, pa.Schema] | None = None
    for path, schema in schemas:
        if first is None:
            first = (path, schema)
        elif schema is not first[1] and not schema.equals(first[1]):
            raise ConnectorError(_difference(path, schema, *first))


def _difference(path: str, schema: pa.Schema, known: str, expected: pa.Schema) -> str:
    for name in expected.names:
        if name not in schema.names:
            return (
                f"{path}: there is no column {name!r}, which {known} has; the file has "
                f"{shown(schema.names)}. Give columns=[...] with those that all files have, {_SEPARATE}"
            )
        kind, wanted = schema.field(name).type, expected.field(name).type
        if kind != wanted:
            return (
                f"{path}: column {name!r} is of type {kind}, and of type {wanted} in {known}. Write the "
                f"files with one type, {_SEPARATE}"
            )
    more = [name for name in schema.names if name not in expected.names]
    if more:
        return (
            f"{path}: column {more[0]!r} of type {schema.field(more[0]).type} is not in {known}. Give "
            f"columns=[...] with those that all files have, {_SEPARATE}"
        )
    return (
        f"{path}: the columns are in the order {shown(schema.names)}, and in the order "
        f"{shown(expected.names)} in {known}. Give columns=[...] in the order that you want"
    )
