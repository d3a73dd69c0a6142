"""JSON values that are validated against a JSON Schema.

jsonschema-rs validates the values after they are parsed. With a registry each value begins with the
id of its schema. The reader validates values against its own schema if it has one, otherwise against that
registered schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.runtime.error_text import shown
from penstock.runtime.errors import BadRecordError, ConfigurationError
from penstock.runtime.io.formats.format import Decoded, Decoder, Encoder
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.io.formats.json_schema_columns import columns_of
from penstock.runtime.io.formats.registered import (
    RegistryDecoder,
    RegistryEncoder,
    checked_subject,
    topic_subject,
)
from penstock.runtime.io.formats.registry import RegisteredSchema, SchemaRegistry
from penstock.runtime.io.formats.rows import rows_of
from penstock.runtime.io.formats.settings import checked_batch_format, checked_schema, imported
from penstock.runtime.record.elements import ArrowBatch, Batch, BatchFormat, RowBatch


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that must be valid against a JSON Schema.

    Args:
        schema: The JSON Schema, as text or parsed; without it each value is validated against the schema
            whose id it begins with.
        columns: Names and types of the columns, as the schema of `Json`; rows then have these types. By
            default rows are any JSON, and columns have the properties of the schema.
        registry: A schema registry. Each value then begins with the id of its schema (Confluent's format).
        subject: The subject in the registry. If it is omitted, a connector with a single topic, such as
            `orders`, calls `for_topic`, which sets `orders-value` or `orders-key`.
        register: Whether to register the schema when it is not in the registry.

    Raises:
        ConfigurationError: The schema is invalid, or missing without a registry, or a library is missing.

    Example:
        >>> positive = JsonSchema({"type": "integer", "minimum": 1})
        >>> positive.decoder("rows").decode([b"5", b"-5"])
        Decoded(batch=RowBatch(rows=[5], timestamps=None), bad=[(1, '-5 is less than the minimum of 1')])
    """

    schema: str | Mapping[str, Any] | None = None
    columns: pa.Schema | None = None
    registry: SchemaRegistry | None = None
    subject: str | None = None
    register: bool = False

    def __post_init__(self) -> None:
        if self.schema is None and self.registry is None:
            msg = "JsonSchema needs schema=, or registry= with the schemas of the values"
            raise ConfigurationError(msg)
        if self.schema is not None:
            _validator(self.schema)
        if self.columns is not None:
            object.__setattr__(self, "columns", checked_schema(self.columns))

    def for_topic(self, topic: str, *, is_key: bool = False) -> JsonSchema:
        """The format for a topic: without a subject of its own it gets the topic's."""
        return replace(self, subject=self.subject or topic_subject(topic, is_key=is_key))

    def decoder(self, batch_format: BatchFormat) -> Decoder:
        """Create a decoder whose batches are rows or Arrow columns."""
        batch_format = checked_batch_format(batch_format)
        columns = self._columns() if batch_format == "arrow" else self.columns
        inner = Json(columns).decoder(batch_format)
        if self.registry is None:
            return ValidatingDecoder(_validator(self.schema), inner)

        def of_schema(found: RegisteredSchema) -> Decoder:
            text = found.text_as("JSON")
            validator = _validator(text, found.parts) if self.schema is None else _validator(self.schema)
            return ValidatingDecoder(validator, inner)

        return RegistryDecoder(
            self.registry.client(), of_schema, columns if batch_format == "arrow" else None
        )

    def _columns(self) -> pa.Schema:
        """The columns of all batches; without `columns` and `schema`, of the subject's newest schema."""
        if self.columns is not None:
            return self.columns
        if self.schema is not None:
            return checked_schema(columns_of(self.schema))
        assert self.registry is not None, "without a schema there is a registry"
        client = self.registry.client()
        try:
            newest = client.latest(checked_subject(self.subject, "JsonSchema"))
        finally:
            client.close()
        return checked_schema(columns_of(newest.text_as("JSON"), newest.parts))

    def encoder(self) -> Encoder:
        """Create an encoder; with a registry it looks up the id of the schema."""
        if self.registry is None:
            return ValidatingEncoder(_validator(self.schema))
        subject = checked_subject(self.subject, "JsonSchema")
        client = self.registry.client()
        try:
            if self.schema is None:
                found = client.latest(subject)
            else:
                text = self.schema if isinstance(self.schema, str) else json.dumps(self.schema)
                found = client.id_of(subject, "JSON", text, register=self.register)
        finally:
            client.close()
        validator = _validator(found.text_as("JSON"), found.parts)
        return RegistryEncoder(ValidatingEncoder(validator), found.prefix)


def _validator(schema: Any, parts: Sequence[tuple[str, str]] = ()) -> Any:
    """The validator of a schema; `parts` are the names and texts of the schemas that it refers to."""
    library = imported("jsonschema_rs", "JsonSchema", "formats")
    try:
        return library.validator_for(
            schema if isinstance(schema, str) else dict(schema), retriever=partial(_referred, dict(parts))
        )
    except (ValueError, TypeError) as error:
        msg = f"schema= is not a JSON Schema: {error}"
        raise ConfigurationError(msg) from error


def _referred(parts: Mapping[str, str], uri: str) -> Any:
    """Return the schema that a URI names; the library resolves names against the schema's own URI.

    Other references are refused: the library would read them from files or fetch them from hosts.
    """
    name = uri if uri in parts else max((n for n in parts if uri.endswith(f"/{n}")), key=len, default=None)
    if name is None:
        msg = f"it refers to {uri}, which is not among its references in the registry: {list(parts)}"
        raise ValueError(msg)
    return json.loads(parts[name])


class ValidatingDecoder:
    """Decodes JSON with another decoder, and reports values that are not valid as bad ones."""

    def __init__(self, validator: Any, decoder: Decoder) -> None:
        self._validator = validator
        self._decoder = decoder
        self._rows = Json().decoder("rows")

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        parsed = self._rows.decode(values)
        assert isinstance(parsed.batch, RowBatch)
        known = dict(parsed.bad)
        rows = iter(parsed.batch.rows)
        kept: list[bytes | None] = []
        places: list[int] = []
        bad: list[tuple[int, str]] = list(parsed.bad)
        for index, value in enumerate(values):
            if index in known:
                continue
            row = next(rows)
            why = None if value is None else self._why(row)
            if why is None:
                kept.append(value)
                places.append(index)
            else:
                bad.append((index, why))
        found = self._decoder.decode(kept)
        bad += [(places[at], why) for at, why in found.bad]
        return Decoded(found.batch, sorted(bad))

    def close(self) -> None:
        self._decoder.close()

    def _why(self, row: Any) -> str | None:
        try:
            if self._validator.is_valid(row):
                return None
            error = next(self._validator.iter_errors(row))
        except (ValueError, OverflowError) as failure:  # such as a lone surrogate
            return f"the value can't be validated: {failure}"
        path = "/".join(map(str, error.instance_path))
        return f"{error.message} (at {path})" if path else str(error.message)


class ValidatingEncoder:
    """Encodes records, and refuses those that are not valid."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self._encoder = Json().encoder()

    def encode(self, batch: Batch) -> list[bytes | None]:
        rows = rows_of(batch) if isinstance(batch, ArrowBatch) else batch.rows
        values = self._encoder.encode(RowBatch(rows))
        for row, value in zip(rows, values, strict=True):
            if value is None:
                continue
            # As a reader parses it: a tuple is an array there.
            parsed = json.loads(value)
            if not self._validator.is_valid(parsed):
                error = next(self._validator.iter_errors(parsed))
                msg = (
                    f"a record is not valid against the JSON Schema: {shown(error.message)}; the record is "
                    f"{shown(row)}"
                )
                raise BadRecordError(msg)
        return values

    def close(self) -> None:
        self._encoder.close()
