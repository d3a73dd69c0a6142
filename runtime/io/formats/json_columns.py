"""Parses JSON objects to Arrow columns of a given schema.

`json_layout.py` parses many objects of one layout, in about two thirds of the time of Arrow's parser. Arrow's
parser reads all others.

Arrow parses many objects in one call, one after the other, and ignores the white space between them. So the
caller must know that an object ends where a value ends. Then an equal number of objects and values means one
object in each value. Arrow's parser rounds integers in columns of floats, ignores time zones in columns
without a zone, and does not check the digits of decimals. These are checked afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from penstock.runtime.io.formats.json_layout import parse_alike
from penstock.runtime.record.arrow_types import has_leaf

BLANK: Final = b" \t\r\n"
_LINE_END: Final = 10
#: Minimum number of objects that are parsed by their layout; for fewer, Arrow's parser is faster.
FEWEST: Final = 2_048
#: Objects that are parsed at a time. With more, positions and tokens would not fit the processor's cache.
_BLOCK: Final = 8_192
#: Maximum number of consecutive blocks that go to Arrow's parser after a block without a common layout.
_LONGEST_WAIT: Final = 64
#: A float represents every integer up to this one exactly.
_EXACT: Final = 1 << 53
#: A time zone after a time of day.
_ZONE_OF_TIME: Final = re.compile(r"[:T ]\d\d(\.\d+)?\s*(Z|[+-]\d\d(:?\d\d)?)$")
_ZONE: Final = re.compile(rb'[:T ]\d\d(?:\.\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)"')


class JsonColumns:
    """Parses objects to the columns of a schema.

    Args:
        unknown: The treatment of fields that the schema lacks.
        encoding: Encoding of the values.
    """

    def __init__(
        self, schema: pa.Schema, unknown: Literal["error", "ignore"] = "ignore", encoding: str = "utf-8"
    ) -> None:
        self.schema = schema
        self.empty: pa.RecordBatch = pa.RecordBatch.from_pylist([], schema)
        self._unknown = unknown
        self._encoding = encoding
        #: Whether objects may be parsed by their layout.
        self._reads_alike = unknown == "ignore" and encoding == "utf-8"
        #: Blocks that still go to Arrow's parser after a failure, and the number after the next failure.
        self._waits, self._next_wait = 0, 1

    def of_values(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """Parse values of one object each; return `None` if one of them is anything else."""
        if not values:
            return self.empty
        parts = []
        for start in range(0, len(values), _BLOCK):
            part = self._of_block(values[start : start + _BLOCK])
            if part is None:
                return None
            parts.append(part)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _of_block(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        if len(values) >= FEWEST and self._reads_alike:
            batch = self._of_alike(values)
            if batch is not None:
                return batch
        text = b"\n".join(values)
        breaks = len(values) - 1
        # numpy counts bytes four times as fast as `bytes.count`.
        line_ends = np.count_nonzero(np.frombuffer(text, np.uint8) == _LINE_END)
        if line_ends != breaks or text.count(b"}\n{") != breaks:
            # A value has a line end, or blanks around its object.
            values = [value.strip(BLANK) for value in values]
            if not all(value.startswith(b"{") and value.endswith(b"}") for value in values):
                return None
            text = b"\n".join(values)
        return self.parsed(text.strip(BLANK), len(values), lambda: values)

    def _of_alike(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._waits:
            self._waits -= 1
            return None
        batch = parse_alike(values, self.schema)
        if batch is None:
            self._waits, self._next_wait = self._next_wait, min(2 * self._next_wait, _LONGEST_WAIT)
        else:
            self._next_wait = 1
        return batch

    def parsed(
        self, text: bytes, objects: int, values: Callable[[], Iterable[bytes]]
    ) -> pa.RecordBatch | None:
        """Parse values; return `None` unless each is one object.

        No object may begin in one value and end in another; the caller must check that.

        Args:
            text: The values with line ends between them.
            objects: Number of values.
        """
        if not (text.startswith(b"{") and text.endswith(b"}")):
            return None
        try:
            if self._encoding != "utf-8":
                text = text.decode(self._encoding).encode("utf-8")
            elif not text.isascii():
                text.decode("utf-8")  # raises for a bad byte
            batch = parse_objects(text, self.schema, self._unknown)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        if batch.num_rows != objects or self._changes(batch, text, values):
            return None
        return batch

    def reason(self, value: bytes, what: str) -> tuple[str | bytes, str]:
        """Return a bad value as text if it is text, and the reason why it is bad.

        Args:
            what: Noun of the value in messages.
        """
        names = self.schema.names
        try:
            text = value.decode(self._encoding)
        except UnicodeDecodeError:
            return value, f"{what} is not text in the encoding that the source was given"
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            return text, f"{what} is not a JSON value: {error}"
        if not isinstance(parsed, dict):
            return text, f"{what} is a JSON value of type {type(parsed).__name__}, but columns need objects"
        unknown = [name for name in parsed if name not in names]
        if unknown and self._unknown == "error":
            return text, f"field {unknown[0]!r} is not one of the columns {names}: give a schema= that has it"
        for name in names:
            if name in parsed and not self._fits(name, parsed[name]):
                kind = self.schema.field(name).type
                return (
                    text,
                    f"field {name!r} does not fit its column of type {kind}: give a schema= that fits",
                )
        try:
            parse_objects(text.encode("utf-8", "surrogatepass"), self.schema, self._unknown)
        except pa.ArrowException as error:
            return text, f"{what} does not fit the columns {names}: {error}"
        return text, f"{what} does not fit the columns {names}"

    def _fits(self, name: str, value: Any) -> bool:
        if changed_field({name: value}, self.schema) is not None:
            return False
        try:
            parse_objects(json.dumps({name: value}).encode(), pa.schema([self.schema.field(name)]), "error")
        except pa.ArrowException:
            return False
        return True

    def _changes(self, batch: pa.RecordBatch, text: bytes, values: Callable[[], Iterable[bytes]]) -> bool:
        """Whether a float column has an integer beyond 2**53, or a time column drops a time zone."""
        wide = any(map(_has_wide_float, batch.columns))
        if not wide and not (has_leaf(pa.struct(list(self.schema)), _is_naive_time) and _ZONE.search(text)):
            return False
        return any(
            changed_field(json.loads(value.decode(self._encoding)), self.schema) is not None
            for value in values()
        )


def parse_objects(text: bytes, schema: pa.Schema | None, unknown: str = "error") -> pa.RecordBatch:
    import pyarrow.json as arrow_json  # late: sources of other formats don't need it

    options = None
    if schema is not None:
        options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown)
    # One block, so that no line is cut and the batch is whole.
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = arrow_json.read_json(pa.BufferReader(text), read, options).combine_chunks()
    (batch,) = table.to_batches()
    for column in batch.columns:
        if has_leaf(column.type, pa.types.is_decimal):
            # Arrow's parser adds zeros up to the scale without checking the precision.
            column.validate(full=True)
    return batch


def _has_wide_float(column: pa.Array) -> bool:
    """Whether a float column has a value of more than 53 bits, which may have been an integer."""
    import pyarrow.compute as pc  # late: sources of other formats don't need it

    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.greater_equal(pc.abs(column), float(_EXACT))).as_py())
    if pa.types.is_nested(column.type):
        parts = column.flatten() if pa.types.is_struct(column.type) else [column.flatten()]
        return any(map(_has_wide_float, parts))
    return False


def _is_naive_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def changed_field(value: dict[str, Any], schema: pa.Schema | pa.StructType) -> tuple[str, Any] | None:
    """Find an integer beyond 2**53 for floats, or a time that loses its zone; return field and value."""
    for field in schema:
        part = _changed_part(value.get(field.name), field.type)
        if part is not None:
            return field.name, part
    return None


def _changed_part(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dict) and pa.types.is_struct(kind):
        found = changed_field(value, kind)
        return None if found is None else found[1]
    if isinstance(value, list) and pa.types.is_list(kind):
        return next((n for item in value if (n := _changed_part(item, kind.value_type)) is not None), None)
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is None:
        return value if _ZONE_OF_TIME.search(value) else None
    return value if type(value) is int and abs(value) > _EXACT and pa.types.is_floating(kind) else None
