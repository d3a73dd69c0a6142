"""Values that begin with the id of a registered schema: Confluent's wire format.

A value is the byte 0, the id of its schema as four bytes (big-endian), and the record. Values of one batch
may have several schemas. Each schema has its own decoder, and their results are put back in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.formats.format import Decoded, Decoder, Encoder
from penstock.runtime.io.formats.parts import nulls
from penstock.runtime.io.formats.registry import RegisteredSchema, RegistryClient, UnknownSchemaError
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch, take_rows

#: Bytes before the record.
HEADER_BYTES: Final = 5


def topic_subject(topic: str, *, is_key: bool = False) -> str:
    """The subject of a topic's keys or values.

    Example:
        >>> topic_subject("orders"), topic_subject("orders", is_key=True)
        ('orders-value', 'orders-key')
    """
    return f"{topic}-{'key' if is_key else 'value'}"


def checked_subject(subject: str | None, name: str) -> str:
    if subject is None:
        msg = f"{name} needs subject= to find its schema in the registry, such as subject='orders-value'"
        raise ConfigurationError(msg)
    return subject


class RegistryDecoder:
    """Decodes values by the schemas that they name.

    Args:
        of_schema: Creates the decoder of one schema; it gets the values without their headers.
        columns: The columns of all batches; `None` for rows.
    """

    def __init__(
        self,
        client: RegistryClient,
        of_schema: Callable[[RegisteredSchema], Decoder],
        columns: pa.Schema | None,
    ) -> None:
        self._client = client
        self._of_schema = of_schema
        self._columns = columns
        self._decoders: dict[bytes, Decoder] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        headers = [None if value is None else value[:HEADER_BYTES] for value in values]
        kinds = set(headers)
        if len(kinds) == 1:
            (only,) = kinds
            decoder = None if only is None else self._decoder(only)
            if not isinstance(decoder, str) and decoder is not None:
                return decoder.decode([value[HEADER_BYTES:] for value in values])  # type: ignore[index]
        places: dict[bytes | None, list[int]] = {}
        for index, header in enumerate(headers):
            places.setdefault(header, []).append(index)
        parts: list[tuple[list[int], Decoded]] = []
        bad: list[tuple[int, str]] = []
        for header, found in places.items():
            decoder = None if header is None else self._decoder(header)
            if decoder is None:
                parts.append((found, self._tombstones(len(found))))
            elif isinstance(decoder, str):
                bad += [(index, decoder) for index in found]
            else:
                part = decoder.decode([values[index][HEADER_BYTES:] for index in found])  # type: ignore[index]
                wrong = {at for at, _ in part.bad}
                bad += [(found[at], why) for at, why in part.bad]
                parts.append(([index for at, index in enumerate(found) if at not in wrong], part))
        bad.sort()
        return Decoded(self._merged(parts), bad)

    def close(self) -> None:
        for decoder in self._decoders.values():
            decoder.close()
        self._client.close()

    def _decoder(self, header: bytes) -> Decoder | str:
        known = self._decoders.get(header)
        if known is not None:
            return known
        if len(header) < HEADER_BYTES or header[0] != 0:
            return f"the value does not begin with the id of a schema, but with {header!r}"
        schema_id = int.from_bytes(header[1:], "big")
        try:
            schema = self._client.by_id(schema_id)
        except UnknownSchemaError as error:
            return f"the value names a schema that is not registered: {error}"
        try:
            decoder = self._of_schema(schema)
        except ConfigurationError as error:
            return f"the value has the schema {schema_id}, which can't be used: {error}"
        self._decoders[header] = decoder
        return decoder

    def _tombstones(self, count: int) -> Decoded:
        if self._columns is None:
            return Decoded(RowBatch([None] * count))
        return Decoded(ArrowBatch(nulls(self._columns, count)))

    def _merged(self, parts: Sequence[tuple[list[int], Decoded]]) -> Batch:
        places = [index for indices, _ in parts for index in indices]
        order = sorted(range(len(places)), key=places.__getitem__)
        if self._columns is None:
            rows = [row for _, part in parts for row in _rows(part)]
            return RowBatch([rows[at] for at in order])
        batches = [_columns(part) for _, part in parts]
        if not batches:
            return ArrowBatch(pa.RecordBatch.from_pylist([], self._columns))
        return ArrowBatch(take_rows(pa.concat_batches(batches), pa.array(order, pa.int64())))


def _rows(part: Decoded) -> Sequence[Any]:
    assert isinstance(part.batch, RowBatch)
    return part.batch.rows


def _columns(part: Decoded) -> pa.RecordBatch:
    assert isinstance(part.batch, ArrowBatch)
    return part.batch.batch


class RegistryEncoder:
    """Encodes records of one registered schema.

    Args:
        prefix: The bytes before each record.
    """

    def __init__(self, encoder: Encoder, prefix: bytes) -> None:
        self._encoder = encoder
        self._prefix = prefix

    def encode(self, batch: Batch) -> list[bytes | None]:
        prefix = self._prefix
        return [None if value is None else prefix + value for value in self._encoder.encode(batch)]

    def close(self) -> None:
        self._encoder.close()
