"""JSON values as records.

Rows without a schema may be any JSON value, and are equal to the rows that `FileSource.json` reads. Columns,
and rows with a schema, have the values that Arrow's parser returns, as in columns of files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from penstock.runtime.error_text import shown
from penstock.runtime.errors import BadRecordError, ConfigurationError
from penstock.runtime.io.formats.format import Decoded
from penstock.runtime.io.formats.json_columns import JsonColumns
from penstock.runtime.io.formats.json_learning import LearnedDecoder
from penstock.runtime.io.formats.json_rows import parse_one, parse_values
from penstock.runtime.io.formats.json_text import (
    ENCODE_ERRORS,
    are_plain,
    check_names,
    fast_encoder,
    value_encoder,
)
from penstock.runtime.io.formats.parts import decoded_columns, decoded_rows
from penstock.runtime.io.formats.rows import rows_of
from penstock.runtime.io.formats.settings import checked_batch_format, checked_schema
from penstock.runtime.record.elements import Batch, BatchFormat
from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow


@dataclass(frozen=True, slots=True)
class Json:
    """JSON: each value is one JSON value; with a schema, one object.

    Args:
        schema: The wanted fields and their types; other fields are ignored. Columns need a schema. With one,
            rows are dicts that have the same values as the columns. A field that an object lacks is null.
            With `"infer"` a source learns the schema when the job starts without a snapshot.
        default: Converts an object unknown to JSON into a JSON value when records are written. Without
            `default` a `datetime` becomes a string in ISO 8601. With a schema a decimal becomes text, too.
        sample: Number of values from which `"infer"` learns the schema. Sources of files ignore it, and use
            the first lines of some files.

    Raises:
        ConfigurationError: The schema has a name twice, or a setting has a value that is not allowed.

    Example:
        >>> found = Json().decoder("rows").decode([b'{"a": 1}', b"[2]", b"oops", None])
        >>> found.batch.rows, found.bad
        ([{'a': 1}, [2], None], [(2, 'the value is not JSON: Expecting value: line 1 column 1 (char 0)')])
    """

    schema: pa.Schema | Literal["infer"] | None = None
    default: Callable[[Any], Any] | None = None
    sample: int = 1_000

    def __post_init__(self) -> None:
        if self.sample < 1:
            msg = f"sample={self.sample} is not allowed: give a number of values, at least 1"
            raise ConfigurationError(msg)
        if isinstance(self.schema, str):
            if self.schema != "infer":
                msg = f"schema={self.schema!r} is not a setting: give 'infer' or a pa.schema"
                raise ConfigurationError(msg)
        elif self.schema is not None:
            object.__setattr__(self, "schema", checked_schema(self.schema))

    @property
    def learns(self) -> bool:
        """Whether a source learns the schema."""
        return isinstance(self.schema, str)

    def decoder(self, batch_format: BatchFormat) -> JsonRowDecoder | JsonColumnDecoder | LearnedDecoder:
        """Create a decoder whose batches are rows or Arrow columns."""
        batch_format = checked_batch_format(batch_format)
        if isinstance(self.schema, str):
            # A field that the sample lacks is a bad value: to ignore it would lose it silently.
            return LearnedDecoder(lambda schema: JsonColumnDecoder(schema, batch_format, "error"))
        if self.schema is not None:
            return JsonColumnDecoder(self.schema, batch_format)
        if batch_format == "arrow":
            msg = "Json needs schema= for Arrow batches: give a pa.schema with the wanted fields, or 'infer'"
            raise ConfigurationError(msg)
        return JsonRowDecoder()

    def encoder(self) -> JsonValueEncoder:
        """Create an encoder, which takes rows and Arrow columns."""
        return JsonValueEncoder(self.default or (_time_as_text if self.schema is None else _as_text))


class JsonRowDecoder:
    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return decoded_rows(values, parse_values, _why_no_json)

    def close(self) -> None:
        pass


def _why_no_json(value: bytes) -> str:
    try:
        parse_one(value.decode())
    except (ValueError, RecursionError) as error:
        return f"the value is not JSON: {error}"
    return "the value is not JSON"


class JsonColumnDecoder:
    """Decodes objects to the columns of a schema, or to rows with the values of these columns."""

    def __init__(
        self, schema: pa.Schema, batch_format: BatchFormat, unknown: Literal["error", "ignore"] = "ignore"
    ) -> None:
        self._columns = JsonColumns(schema, unknown)
        self._format = batch_format

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._format == "rows":
            return decoded_rows(values, self._rows, self._why)
        return decoded_columns(values, self._columns.schema, self._columns.of_values, self._why)

    def close(self) -> None:
        pass

    def _rows(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        batch = self._columns.of_values(values)
        try:
            return None if batch is None else dicts_of_arrow(batch)
        except NoPythonValueError:
            return None

    def _why(self, value: bytes) -> str:
        batch = self._columns.of_values([value])
        if batch is not None:
            try:
                dicts_of_arrow(batch)
            except NoPythonValueError as error:
                return str(error)
        return self._columns.reason(value, "the value")[1]


def _as_text(value: Any) -> str:
    """Convert a timestamp or a decimal to text that a column of its type can read."""
    return str(value) if isinstance(value, Decimal) else _time_as_text(value)


def _time_as_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    msg = f"an object of type {type(value).__name__} has no JSON form"
    raise TypeError(msg)


class JsonValueEncoder:
    def __init__(self, default: Callable[[Any], Any] | None) -> None:
        self._encode = value_encoder(default)

    def encode(self, batch: Batch) -> list[bytes | None]:
        rows = rows_of(batch)
        try:
            return self._encoded(rows)
        except ENCODE_ERRORS as error:
            raise self._blame(rows, error) from error

    def close(self) -> None:
        pass

    def _encoded(self, rows: Sequence[Any]) -> list[bytes | None]:
        fast = fast_encoder()
        if fast is not None and are_plain(rows):
            try:
                return list(map(fast, rows))
            except (ValueError, TypeError, OverflowError, RecursionError):
                pass  # Python's encoder decides: the fast one refuses integers of more than 64 bits
        check_names(rows)
        encode, join = self._encode, "".join
        return [None if row is None else join(encode(row, 0)).encode() for row in rows]

    def _blame(self, rows: Sequence[Any], failure: Exception) -> BadRecordError:
        for row in rows:
            try:
                self._encoded([row])
            except ENCODE_ERRORS as error:
                return BadRecordError(
                    f"a record of type {type(row).__name__} can't be written as JSON: {error}; the record is "
                    f"{shown(row)}. Map it to dicts, lists, strings, finite numbers, booleans, datetimes and "
                    "None, or give default="
                )
        return BadRecordError(f"a batch can't be written as JSON: {failure}")
