"""Checks whether a table can take the files of a sink.

An append just adds the names of files to the log. The library then checks neither their columns nor the
constraints of the table. A commit that it refuses comes too late: its checkpoint is complete, and each
restart would repeat it. So these checks come before the checkpoint, and once more before the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CONSTRAINT: Final = "delta.constraints."
#: Keys in the metadata of a column that restrict its writers, with their names for users.
_COLUMN_RULES: Final[Mapping[str, str]] = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
}


def check_writable(path: str, table: DeltaTable, partition_by: Sequence[str], *, merges: bool) -> None:
    """Refuse a table that requires more of its writers than this sink supports.

    Raises:
        ConnectorError: It has other partition columns, constraints, or properties that exclude the sink.
    """
    metadata = table.metadata()
    found = list(metadata.partition_columns)
    if found != list(partition_by):
        msg = (
            f"table {path} has the partition columns {found}, but the sink has "
            f"partition_by={list(partition_by)}: give the sink the columns of the table"
        )
        raise ConnectorError(msg)
    rules = {_COLUMN_RULES[name] for name in _column_metadata(json.loads(table.schema().to_json()))}
    refused = [*refused_properties(metadata.configuration, merges=merges), *sorted(rules)]
    if refused:
        msg = f"table {path} has {', '.join(refused)}. Remove this from the table, or write to another table"
        raise ConnectorError(msg)


def refused_properties(properties: Mapping[str, str], *, merges: bool) -> list[str]:
    """Name, in words, the properties of a table that a sink can't respect.

    Example:
        >>> refused_properties({"delta.constraints.positive": "n > 0"}, merges=False)
        ["the constraint 'positive', which this sink does not check"]
    """
    found = [
        f"the constraint {name.removeprefix(_CONSTRAINT)!r}, which this sink does not check"
        for name in properties
        if name.startswith(_CONSTRAINT)
    ]
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        found.append("mapped columns, which this sink can't write")
    if properties.get("delta.enableRowTracking", "").lower() == "true":
        found.append("row tracking, which this sink can't write")
    if merges and properties.get("delta.appendOnly", "").lower() == "true":
        found.append("the property delta.appendOnly, but key= replaces rows")
    return found


def check_partitioned(path: str, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Refuse a schema that has only partition columns: its files could hold no rows.

    Raises:
        BadRecordError: All columns are partition columns.
    """
    if partition_by and set(schema.names) <= set(partition_by):
        msg = (
            f"table {path}: partition_by has all columns, {', '.join(schema.names)}, so its files would have "
            "none. Leave at least one column out of partition_by"
        )
        raise BadRecordError(msg)


def check_columns(path: str, table: pa.Schema, schema: pa.Schema, *, adds_columns: bool) -> None:
    """Refuse a schema of rows that does not fit the schema of their table.

    Raises:
        BadRecordError: A column has another type or is not in the table, or a NOT NULL column may be null.
    """
    merged_schema([table, schema], path)
    new = [name for name in schema.names if name not in table.names]
    if new and not adds_columns:
        msg = (
            f"table {path} lacks the columns {', '.join(new)} of schema= or of some records. Leave them out, "
            'or let the sink add columns with schema_mode="merge"'
        )
        raise BadRecordError(msg)
    for field in table:
        if not field.nullable and (field.name not in schema.names or schema.field(field.name).nullable):
            msg = (
                f"table {path}: column '{field.name}' is NOT NULL, but it may be null in schema= or in some "
                "records. Give the sink a schema= in which this column is not nullable"
            )
            raise BadRecordError(msg)


def merged_schema(schemas: Sequence[pa.Schema], path: str) -> pa.Schema:
    """Merge the columns of schemas, in order of appearance; refuses a column with two types."""
    fields: dict[str, pa.Field] = {}
    for field in (field for schema in schemas for field in schema):
        known = fields.setdefault(field.name.lower(), field)
        if known.name != field.name:
            msg = (
                f"table {path}: columns '{known.name}' and '{field.name}' differ only in upper and lower "
                "case, which Delta does not allow. Rename one of them before the sink"
            )
            raise BadRecordError(msg)
        if not known.type.equals(field.type):
            msg = (
                f"table {path}: column '{field.name}' is {known.type} in the table or in some records, and "
                f"{field.type} in others. Give the sink a schema=, or map the records before it"
            )
            raise BadRecordError(msg)
    return pa.schema(list(fields.values()))


def _column_metadata(part: Any) -> Iterator[str]:
    """The rules in the metadata of all columns of a schema, including nested ones."""
    if isinstance(part, list):
        for each in part:
            yield from _column_metadata(each)
    elif isinstance(part, dict):
        yield from (name for name in _COLUMN_RULES if name in part.get("metadata", {}))
        for each in part.values():
            yield from _column_metadata(each)
