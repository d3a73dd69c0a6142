"""Columns of Iceberg tables in the types that Penstock writes, and partitions as Spark names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import ConfigurationError, ConnectorError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_PARTITION: Final = re.compile(
    r"(?:(?P<transform>\w+)\((?:(?P<width>[0-9]+), *)?(?P<of>[^()]+)\))|(?P<column>[^()]+)"
)
#: Iceberg's names of transforms by Spark's names.
_TRANSFORMS: Final[Mapping[str, str]] = {
    "years": "year",
    "months": "month",
    "days": "day",
    "hours": "hour",
    "bucket": "bucket",
    "truncate": "truncate",
}
_WITH_WIDTH: Final = frozenset({"bucket", "truncate"})


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column by which a table is partitioned.

    Attributes:
        source: Name of the column.
        transform: Iceberg's text of the transform, such as `bucket[16]`.
    """

    source: str
    transform: str = "identity"

    @classmethod
    def of(cls, text: str) -> PartitionColumn:
        """Parse a partition in the notation of Spark SQL.

        Raises:
            ConfigurationError: The text has another form.

        Example:
            >>> PartitionColumn.of("day").transform, PartitionColumn.of("bucket(16, id)")
            ('identity', PartitionColumn(source='id', transform='bucket[16]'))
        """
        found = _PARTITION.fullmatch(text)
        if found is not None and found["column"]:
            return cls(text)
        name = "" if found is None else str(found["transform"])
        if found is None or name not in _TRANSFORMS or (found["width"] is not None) != (name in _WITH_WIDTH):
            msg = (
                f"partition_by has {text!r}: give a column, such as 'day', or one of 'years(at)', "
                "'months(at)', 'days(at)', 'hours(at)', 'bucket(16, id)' and 'truncate(4, name)'"
            )
            raise ConfigurationError(msg)
        transform = _TRANSFORMS[name]
        return cls(found["of"], f"{transform}[{found['width']}]" if found["width"] else transform)


def partition_of(table: Table) -> list[PartitionColumn]:
    """The partition columns that new files of a table have."""
    schema = table.schema()
    return [
        PartitionColumn(schema.find_column_name(each.source_id) or "", str(each.transform))
        for each in table.spec().fields
    ]


def check_partition(identifier: str, table: Table, wanted: Sequence[PartitionColumn]) -> None:
    """Refuse a table whose partitions are not those of the sink.

    Raises:
        ConnectorError: The partitions differ.
    """
    found = partition_of(table)
    if wanted and found != list(wanted):
        columns = [f"{each.transform}({each.source})" for each in found]
        msg = (
            f"table {identifier} has the partitions {columns}, but partition_by differs: leave partition_by "
            "out for an existing table"
        )
        raise ConnectorError(msg)


def arrow_columns(schema: Schema, *, ids: bool = False) -> pa.Schema:
    """The columns of a table in Arrow's usual types.

    Args:
        ids: Whether fields have the ids by which readers find the columns of a file.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_usual(field) for field in schema_to_pyarrow(schema, include_field_ids=ids)])


def _usual(field: pa.Field) -> pa.Field:
    return field.with_type(_usual_type(field.type))


def _usual_type(kind: Any) -> pa.DataType:
    """A type without 64-bit offsets, which pyiceberg gives to all strings, bytes and lists."""
    if kinds.is_large_string(kind):
        return pa.string()
    if kinds.is_large_binary(kind):
        return pa.binary()
    if kinds.is_large_list(kind) or kinds.is_list(kind):
        return pa.list_(_usual(kind.value_field))
    if kinds.is_map(kind):
        return pa.map_(_usual(kind.key_field), _usual(kind.item_field))
    if kinds.is_struct(kind):
        return pa.struct([_usual(kind.field(index)) for index in range(kind.num_fields)])
    return kind
