"""`FixedSchema`: the schema that all records of a sink have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.record.arrow_values import MisfitError, exact_batch, exact_column


@dataclass(frozen=True, slots=True)
class FixedSchema:
    """Converts rows and batches to one schema; only Python's floats may be rounded.

    `advice` is the last sentence of the error for a value that does not fit.
    """

    schema: pa.Schema
    advice: str

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        if set(batch.schema.names) != set(self.schema.names):
            raise BadRecordError(self._misfit(f"an Arrow batch has columns {batch.schema.names}"))
        try:
            return exact_batch(batch, self.schema)
        except (MisfitError, pa.ArrowException) as error:
            raise BadRecordError(self._misfit(f"an Arrow batch can't be cast: {error}")) from error

    def converted(self, rows: Sequence[Any]) -> pa.RecordBatch:
        refuse_odd_rows(rows)
        known = set(self.schema.names)
        if not known.issuperset(chain.from_iterable(rows)):
            row = next(row for row in rows if not known.issuperset(row))
            unknown = [name for name in row if name not in known]
            what = f"a row has unknown columns {unknown}; the row is {shown(row)}"
            raise BadRecordError(self._misfit(what))
        try:
            return self._columns_of(rows)
        except MisfitError as failure:
            for row in rows:
                try:
                    self._columns_of([row])
                except MisfitError as error:
                    what = f"{error}; one of the rows is {shown(row)}"
                    raise BadRecordError(self._misfit(what)) from error
            raise BadRecordError(self._misfit(str(failure))) from failure

    def _columns_of(self, rows: Sequence[Any]) -> pa.RecordBatch:
        columns = [
            exact_column([row.get(field.name) for row in rows], field.type, field.name, rounds=True)
            for field in self.schema
        ]
        for field, column in zip(self.schema, columns, strict=True):
            if not field.nullable and column.null_count:
                msg = f"column '{field.name}' is 'not null', but a row has no value"
                raise MisfitError(msg)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _misfit(self, what: str) -> str:
        schema = shown(str(self.schema))
        return f"{what}. Rows must fit the Parquet schema {schema} of this sink. {self.advice}"


def refuse_odd_rows(rows: Sequence[Any]) -> None:
    odd = next((row for row in rows if not isinstance(row, Mapping)), None)
    if odd is not None:
        msg = (
            f"a row of type {type(odd).__name__} can't be written as Parquet: rows are dicts from column "
            f"name to value; the row is {shown(odd)}. Map the rows before the sink"
        )
        raise BadRecordError(msg)
