"""Writes records as Avro.

fastavro accepts 1.5 and `True` as integers. So records are written as columns of exact types with pyruhvro,
or are validated first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from penstock.runtime.error_text import shown
from penstock.runtime.errors import BadRecordError
from penstock.runtime.io.formats.avro_schema import fast_schema
from penstock.runtime.io.formats.rows import records_of
from penstock.runtime.io.formats.settings import imported
from penstock.runtime.record.arrow_values import MisfitError, exact_batch, exact_column
from penstock.runtime.record.elements import ArrowBatch, Batch


class AvroEncoder:
    """Encodes records with a schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._fastavro = imported("fastavro", "Avro", "avro")
        self._names = [field["name"] for field in schema["fields"]]
        fast = fast_schema(schema)
        self._columns: pa.Schema | None = None
        if fast is not None and fast.is_flat and not _has_enum(schema):
            self._text = fast.text
            self._serialize = imported("pyruhvro", "Avro", "avro").serialize_record_batch
            self._columns = pa.schema(
                [
                    field.with_nullable(isinstance(described["type"], list))
                    for field, described in zip(fast.columns, schema["fields"], strict=True)
                ]
            )

    def encode(self, batch: Batch) -> list[bytes | None]:
        if isinstance(batch, ArrowBatch):
            found = self._of_columns(batch.batch)
            if found is not None:
                return found
        rows = records_of(batch)
        found = self._of_rows(rows)
        return [self._encoded(row) for row in rows] if found is None else found

    def close(self) -> None:
        pass

    def _of_rows(self, rows: Sequence[Any]) -> list[bytes | None] | None:
        """Encode dicts with all fields as columns of exact types; `None` if that can't be done."""
        if (
            self._columns is None
            or set(map(type, rows)) != {dict}
            or set(map(len, rows)) != {len(self._names)}
        ):
            return None
        try:
            columns = [
                exact_column([row[field.name] for row in rows], field.type, field.name)
                for field in self._columns
            ]
        except (KeyError, MisfitError):
            return None
        return self._of_columns(pa.RecordBatch.from_arrays(columns, names=self._names))

    def _of_columns(self, batch: pa.RecordBatch) -> list[bytes | None] | None:
        if self._columns is None or set(batch.schema.names) != set(self._names) or not batch.num_rows:
            return None
        try:
            exact = exact_batch(batch, self._columns)
        except MisfitError:
            return None
        naive = [
            column.cast(pa.timestamp(column.type.unit)) if pa.types.is_timestamp(column.type) else column
            for column in exact.columns
        ]
        plain = pa.RecordBatch.from_arrays(naive, names=self._names)
        return [value for part in self._serialize(plain, self._text, 1) for value in part.to_pylist()]

    def _encoded(self, row: Any) -> bytes | None:
        if row is None:
            return None
        output = BytesIO()
        try:
            self._fastavro.validation.validate(row, self._schema, strict=False)
            self._fastavro.schemaless_writer(output, self._schema, row, strict_allow_default=True)
        except Exception as error:  # users' values may raise anything
            msg = (
                f"a record can't be written as Avro: {type(error).__name__}: {shown(str(error))}; the record "
                f"is {shown(row)}. Map the records to dicts that fit the schema {self._schema['name']!r}"
            )
            raise BadRecordError(msg) from error
        return output.getvalue()


def _has_enum(schema: Mapping[str, Any]) -> bool:
    """Whether a field of a flat schema is an enum, whose symbols pyruhvro does not check."""
    kinds = [
        part
        for field in schema["fields"]
        for part in (field["type"] if isinstance(field["type"], list) else [field["type"]])
    ]
    return any(isinstance(kind, dict) and kind["type"] == "enum" for kind in kinds)
