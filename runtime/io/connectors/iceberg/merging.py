"""Merges rows into a table by key: copy-on-write, because the library writes no deletes.

The rows of a file that contains one of the keys are written again, without those that are replaced. So a
merge reads and writes the files that its keys are in, however few of their rows change. Files are skipped by
their partition, and by the bounds of their key columns. The keys of the other files are read first, and the
rest of a file only if it has one of the keys.

New rows of keys that a file has had are written with the rows of this file that stay. So files keep the
ranges of their keys, and later merges can skip them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.io.connectors.iceberg.scanning import batches_of
from penstock.runtime.io.connectors.iceberg.writer import IcebergWriter
from penstock.runtime.io.connectors.tables.keys import KeySet
from penstock.runtime.record.elements import ArrowBatch

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_BATCH_ROWS: Final = 64 * 1024
#: Number of values up to which a filter names each of them. Only such a filter can skip `bucket` partitions.
_MOST_NAMED: Final = 200


@dataclass(frozen=True, slots=True)
class Merge:
    """The changes of one merge.

    Attributes:
        replaced: Files of the table that are no part of it afterwards.
        where: A filter that all of these files pass.
        read: Number of files whose keys were read.
    """

    replaced: list[DataFile]
    where: BooleanExpression
    read: int


def merge(
    client: TableClient,
    table: Table,
    head: int | None,
    keys: KeySet,
    added: pa.Table,
    writer: IcebergWriter,
) -> Merge:
    """Write the files that replace those with one of the keys.

    Args:
        head: Snapshot into which the rows are merged.
        keys: Keys whose rows are replaced or deleted.
        added: Rows that are part of the table afterwards.
        writer: Writes the new files.
    """
    where = _filter(table, keys)
    found: list[FileScanTask] = []
    if head is not None:
        listed = client.call(
            "list the files with the keys",
            lambda: list(table.scan(where, snapshot_id=head).plan_files()),
        )
        bounds = _Bounds(table, keys)
        found = [task for task in listed if bounds.may_have(task.file)]
    replaced = []
    for task in found:
        hits = _hits(client, table, task, keys)
        if hits.num_rows:
            for batch in _kept(client, table, task, keys):
                client.call("write the rows that stay", lambda batch=batch: writer.write(ArrowBatch(batch)))  # type: ignore[misc]
            is_here = KeySet(hits, keys.key).contains(added)
            _write(client, added.filter(is_here), writer)
            client.call("end a merged file", writer.end_files)
            added = added.filter(pc.invert(is_here))
            replaced.append(task.file)
    _write(client, added, writer)
    return Merge(replaced, where, len(found))


def _write(client: TableClient, rows: pa.Table, writer: IcebergWriter) -> None:
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        client.call("write merged rows", lambda batch=batch: writer.write(ArrowBatch(batch)))  # type: ignore[misc]


def _hits(client: TableClient, table: Table, task: FileScanTask, keys: KeySet) -> pa.Table:
    """Read the keys of a file, and keep those that rows are merged for."""
    batches = batches_of(table.metadata, table.io, task, table.schema().select(*keys.key))
    parts = [keys.rows.slice(0, 0)]
    for batch in client.each("look for keys", batches):
        rows = pa.Table.from_batches([batch]).select(list(keys.key))
        parts.append(rows.filter(keys.contains(rows)))
    return pa.concat_tables(parts, promote_options="permissive")


def _kept(client: TableClient, table: Table, task: FileScanTask, keys: KeySet) -> Iterator[pa.RecordBatch]:
    """The rows of a file whose keys are not in `keys`."""
    batches = batches_of(table.metadata, table.io, task, table.schema())
    for batch in client.each("read the rows that stay", batches):
        rows = pa.Table.from_batches([batch])
        yield from rows.filter(pc.invert(keys.contains(rows))).to_batches()


def _filter(table: Table, keys: KeySet) -> BooleanExpression:
    """A filter that rows with one of the keys pass."""
    from pyiceberg.expressions import AlwaysTrue, And

    found: BooleanExpression = AlwaysTrue()
    for name in keys.key:
        column = keys.rows.column(name)
        if not _wraps_around(table, name, column):
            found = And(found, _filter_of(name, column))
    return found


def _wraps_around(table: Table, name: str, column: pa.ChunkedArray) -> bool:
    """Whether the partition of a key is below the smallest integer.

    Writers wrap it around, and so `truncate(10, id)` of the smallest integer is a large number. The filters
    of pyiceberg look for a smaller one.
    """
    from pyiceberg.transforms import TruncateTransform

    if not kinds.is_integer(column.type) or not len(column):
        return False
    number, least = table.schema().find_field(name).field_id, pc.min(column).as_py()
    bound = -(2 ** (column.type.bit_width - 1))
    return any(
        each.source_id == number
        and isinstance(each.transform, TruncateTransform)
        and least - least % each.transform.width < bound
        for spec in table.specs().values()
        for each in spec.fields
    )


def _filter_of(name: str, column: pa.ChunkedArray) -> BooleanExpression:
    from pyiceberg import expressions

    # The types of these pydantic models don't allow a name, but their constructors accept one.
    makes: Any = expressions
    kind = column.type
    if not _is_ordered(kind):
        return expressions.AlwaysTrue()
    values = pc.unique(column)
    if len(values) <= _MOST_NAMED:
        return cast("BooleanExpression", makes.In(name, [_literal(value) for value in values]))
    least = pc.min_max(values)
    return expressions.And(
        makes.GreaterThanOrEqual(name, _literal(least["min"])),
        makes.LessThanOrEqual(name, _literal(least["max"])),
    )


def _is_ordered(kind: Any) -> bool:
    """Whether keys of a type are compared with bounds."""
    return bool(
        kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_date(kind) or kinds.is_timestamp(kind)
    )


def _literal(value: pa.Scalar) -> Any:
    """A value as filters have it: days or microseconds since 1970, because Python's years end with 9999."""
    return _plain_type(value).as_py()


class _Bounds:
    """Looks for keys between the bounds of a file, which a filter does for few keys only."""

    def __init__(self, table: Table, keys: KeySet) -> None:
        self._columns: list[tuple[int, Any, list[Any]]] = []
        for name in keys.key:
            field = table.schema().find_field(name)
            values = _plain(keys.rows.column(name))
            if values is not None:
                self._columns.append((field.field_id, field.field_type, sorted(set(values))))

    def may_have(self, file: DataFile) -> bool:
        from pyiceberg.conversions import from_bytes

        for number, kind, values in self._columns:
            lower, upper = (file.lower_bounds or {}).get(number), (file.upper_bounds or {}).get(number)
            if lower is None or upper is None:
                continue
            place = bisect_left(values, from_bytes(kind, lower))
            if place == len(values) or values[place] > from_bytes(kind, upper):
                return False
        return True


def _plain(column: pa.ChunkedArray) -> list[Any] | None:
    """Values as bounds have them; `None` for types whose bounds are not compared."""
    if not _is_ordered(column.type):
        return None
    values: list[Any] = _plain_type(column).to_pylist()
    return values


def _plain_type(values: Any) -> Any:
    """A scalar or a column with numbers for dates and timestamps."""
    if kinds.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if kinds.is_timestamp(values.type) else values
