"""`ChangeBatch`: collects changes, and makes a batch of records of them.

Values come as strings. Those of one column are converted together, as `SqlSource` converts them. So rows are
collected by *shape*: a table with its columns, and the columns that the rows have. Records keep their order.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv as csv

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.sql.cdc.pgoutput import Relation, Value
from penstock.runtime.io.connectors.sql.postgres_types import QueryColumn, from_text
from penstock.runtime.io.formats.rows import rows_of_arrow
from penstock.runtime.operators.change_kinds import CHANGE_TYPE, ChangeKind
from penstock.runtime.record.elements import ArrowBatch, Batch, BatchFormat, RowBatch, one_batch

#: Fields of a record that are not columns of its table.
CdcField: TypeAlias = Literal["_table", "_commit_lsn", "_commit_timestamp"]

FIELDS: Final[Mapping[str, pa.DataType]] = {
    "_table": pa.string(),
    "_commit_lsn": pa.int64(),
    "_commit_timestamp": pa.timestamp("us", "UTC"),
}

_OPTIONS: Final = csv.WriteOptions(include_header=False, quoting_style="needed")
_NUMERIC: Final = 1700


@dataclass(slots=True)
class _Shape:
    """Rows that have the same columns."""

    relation: Relation
    present: tuple[bool, ...] | None
    rows: list[Sequence[Value]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class ChangeBatch:
    """Changes in their order.

    Args:
        metadata: Fields that are added to each record.
        base_types: The base types of domains, by their ids; it may grow.
    """

    def __init__(
        self, batch_format: BatchFormat, metadata: Sequence[str], base_types: Mapping[int, tuple[int, int]]
    ) -> None:
        self._is_arrow = batch_format == "arrow"
        self._metadata = tuple(metadata)
        self._base_types = base_types
        self._shapes: dict[tuple[int, tuple[bool, ...] | None], _Shape] = {}
        self._kinds: list[str] = []
        self._commits: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._kinds)

    def add(
        self,
        kind: ChangeKind,
        relation: Relation,
        values: Sequence[Value],
        commit: tuple[int, int],
        present: tuple[bool, ...] | None = None,
    ) -> None:
        """Add a row.

        Args:
            commit: LSN of the commit, and its time.
            present: For each column, whether the record has it; `None` if it has all.
        """
        shape = self._shapes.get((id(relation), present))
        if shape is None:
            shape = self._shapes[id(relation), present] = _Shape(relation, present)
        shape.rows.append(values)
        shape.places.append(len(self._kinds))
        self._kinds.append(kind)
        self._commits.append(commit)

    def fits(self, relation: Relation) -> bool:
        """Whether rows of a table may be in this batch: all rows of an Arrow batch have the same columns."""
        return not self._is_arrow or all(shape.relation is relation for shape in self._shapes.values())

    def take(self) -> Batch | None:
        """Make a batch of all rows, and begin anew; `None` without rows.

        Raises:
            ConnectorError: A value can't be read.
        """
        if not self._kinds:
            return None
        batch = self._columns() if self._is_arrow else self._rows()
        self._shapes, self._kinds, self._commits = {}, [], []
        return batch

    def _columns(self) -> Batch:
        (shape,) = self._shapes.values()
        table = self._converted(shape)
        for name, values in self._fields(shape.relation).items():
            kind = FIELDS.get(name, pa.string())
            table = table.append_column(name, pa.array(values, kind))
        return ArrowBatch(one_batch(table))

    def _rows(self) -> Batch:
        rows: list[Any] = [None] * len(self._kinds)
        for shape in self._shapes.values():
            for place, row in zip(
                shape.places, rows_of_arrow(one_batch(self._converted(shape))), strict=True
            ):
                rows[place] = row
                if "_table" in self._metadata:
                    row["_table"] = shape.relation.label
        for name, values in self._fields(None).items():
            for row, value in zip(rows, values, strict=True):
                row[name] = value
        return RowBatch(rows)

    def _fields(self, relation: Relation | None) -> dict[str, Sequence[Any]]:
        found: dict[str, Sequence[Any]] = {CHANGE_TYPE: self._kinds}
        for name in self._metadata:
            if name == "_commit_lsn":
                found[name] = [lsn for lsn, _ in self._commits]
            elif name == "_commit_timestamp":
                found[name] = [timestamp for _, timestamp in self._commits]
            elif relation is not None:
                found[name] = [relation.label] * len(self._kinds)
        return found

    def _converted(self, shape: _Shape) -> pa.Table:
        present = shape.present or (True,) * len(shape.relation.columns)
        columns = [
            column for column, is_there in zip(shape.relation.columns, present, strict=True) if is_there
        ]
        values = [
            value for value, is_there in zip(zip(*shape.rows, strict=True), present, strict=True) if is_there
        ]
        kinds = [self._query_column(*column) for column in columns]
        texts = pa.table(
            {kind[0]: pa.array(each, pa.string()) for kind, each in zip(kinds, values, strict=True)}
        )
        buffer = io.BytesIO()
        csv.write_csv(texts, buffer, _OPTIONS)
        try:
            return from_text(buffer.getvalue(), kinds)
        except pa.ArrowException as error:
            msg = (
                f"table {shape.relation.label} has a value that can't be read: {error}. Correct the row and "
                "start with a new slot, or leave the column out in the publication"
            )
            raise ConnectorError(msg) from None

    def _query_column(self, name: str, type_id: int, modifier: int) -> QueryColumn:
        type_id, modifier = self._base_types.get(type_id, (type_id, modifier))
        if type_id == _NUMERIC and modifier >= 4:
            return name, type_id, (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        return name, type_id, None, None
