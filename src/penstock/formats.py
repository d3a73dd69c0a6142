"""Formats of records: values as bytes, for connectors such as Kafka, HTTP and NATS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.file_formats.csv_lines import CsvLines as CsvLines
    from penstock.runtime.io.formats.avro import Avro as Avro
    from penstock.runtime.io.formats.format import Decoded as Decoded
    from penstock.runtime.io.formats.format import Decoder as Decoder
    from penstock.runtime.io.formats.format import Encoder as Encoder
    from penstock.runtime.io.formats.format import Format as Format
    from penstock.runtime.io.formats.format import HasSubject as HasSubject
    from penstock.runtime.io.formats.json_format import Json as Json
    from penstock.runtime.io.formats.json_schema import JsonSchema as JsonSchema
    from penstock.runtime.io.formats.plain import Raw as Raw
    from penstock.runtime.io.formats.plain import Text as Text
    from penstock.runtime.io.formats.protobuf import Protobuf as Protobuf
    from penstock.runtime.io.formats.registry import SchemaRegistry as SchemaRegistry
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
