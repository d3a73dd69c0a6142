"""Chooses how files hold the values of a format: the framing, and the reader for it.

Some readers of files are faster than the format's decoder. Blocks of JSON lines are parsed to columns, and a
block of text is decoded at once. The CSV reader also accepts line ends in quotes. Apart from that, the
readers return the same records as the format.
"""

from __future__ import annotations

from typing import Any, Final, cast

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import OnError, checked_setting
from penstock.runtime.io.connectors.file_formats.avro_files import AvroFiles
from penstock.runtime.io.connectors.file_formats.csv_lines import CsvLines
from penstock.runtime.io.connectors.file_formats.csv_reader import CsvFormat
from penstock.runtime.io.connectors.file_formats.delimited_values import DelimitedValues
from penstock.runtime.io.connectors.file_formats.json_column_reader import ColumnarJsonFormat
from penstock.runtime.io.connectors.file_formats.line_blocks import BLOCK_BYTES
from penstock.runtime.io.connectors.file_formats.lines import TextFormat, checked_encoding
from penstock.runtime.io.connectors.file_formats.value_encoders import Framing, ValueSinkFormat
from penstock.runtime.io.connectors.file_formats.value_lines import JsonLines, ValueLines
from penstock.runtime.io.formats.avro import Avro
from penstock.runtime.io.formats.avro_schema import columns_of, parsed_schema
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.io.formats.json_schema import JsonSchema
from penstock.runtime.io.formats.plain import Raw, Text
from penstock.runtime.io.formats.protobuf import Protobuf
from penstock.runtime.record.elements import BatchFormat

_FRAMINGS: Final = ("lines", "length_delimited", "container")
#: Bytes of a block of lines that becomes an Arrow batch.
_ARROW_BLOCK_BYTES: Final = 4 * 1024 * 1024


def checked_format(value: Any) -> Format:
    if isinstance(value, Format) and not isinstance(value, type):
        return value
    hint = f": call it, {value.__name__}()" if isinstance(value, type) else ", such as Json() or Avro(schema)"
    msg = f"format={value!r} is not a format of penstock.formats{hint}"
    raise ConfigurationError(msg)


def framing_of(form: Format, framing: Framing | None) -> Framing:
    """The framing of a format's values in files.

    Raises:
        ConfigurationError: The format has no files with this framing.
    """
    # The bytes of such values may include line ends.
    is_binary = isinstance(form, (Avro, Protobuf)) or getattr(form, "registry", None) is not None
    has_container = isinstance(form, Avro) and form.registry is None
    if framing is None:
        if has_container:
            return "container"
        return "length_delimited" if is_binary or isinstance(form, Raw) else "lines"
    checked_setting("framing", framing, _FRAMINGS)
    if framing == "lines" and is_binary:
        msg = f"framing='lines' does not fit {type(form).__name__}, whose values may have line ends"
        raise ConfigurationError(msg)
    if framing == "container" and not has_container:
        msg = "framing='container' is for Avro without a registry: its values have one schema, and no ids"
        raise ConfigurationError(msg)
    return framing


def file_format(
    form: Format, framing: Framing | None, batch_format: BatchFormat, split_size: int, on_error: OnError
) -> Any:
    """The file format that reads the values of a format."""
    framing = framing_of(form, framing)
    if isinstance(form, Json) and form.learns and (framing != "lines" or batch_format == "rows"):
        msg = "Json('infer') reads files of lines with batch_format='arrow' only: give Json a schema="
        raise ConfigurationError(msg)
    if framing == "container":
        avro = cast(Avro, form)
        if batch_format == "arrow" and avro.read_schema is not None:
            columns_of(parsed_schema(avro.read_schema))  # raises for a schema without columns
        return AvroFiles(avro, batch_format, split_size, on_error)
    if isinstance(form, (Protobuf, JsonSchema)) and form.registry is None:
        form.decoder(batch_format).close()  # refuses settings before the job starts
    if framing == "length_delimited":
        if isinstance(form, Json):
            form.decoder(batch_format).close()
        return DelimitedValues(form, batch_format, on_error)
    return _lines_of(form, batch_format, split_size, on_error)


def _lines_of(form: Format, batch_format: BatchFormat, split_size: int, on_error: OnError) -> Any:
    match form:
        case Json() if batch_format == "arrow":
            return ColumnarJsonFormat("utf-8", split_size, on_error, None if form.learns else form.schema)
        case Json():
            return JsonLines("utf-8", split_size, on_error, format=form)
        case CsvLines():
            types = {} if form.schema is None else {field.name: field.type for field in form.schema}
            columns = tuple(form.columns or ())
            in_columns = batch_format == "arrow" or bool(types)
            return CsvFormat(form.dialect(), False, columns, types, on_error, in_columns, False, batch_format)
        case Text() if batch_format == "rows":
            lines_in, stored_as = checked_encoding(form.encoding)
            return TextFormat(lines_in, split_size, on_error, stored_as=stored_as)
        case Text():
            if checked_encoding(form.encoding)[1] is not None:
                advice = f"use FileSource.text(..., encoding={form.encoding!r}), which reads rows"
                msg = f"Text({form.encoding!r}) can't be read as Arrow batches of lines: {advice}"
                raise ConfigurationError(msg)
    block_bytes = _ARROW_BLOCK_BYTES if batch_format == "arrow" else BLOCK_BYTES
    return ValueLines("utf-8", split_size, on_error, block_bytes, format=form, batch_format=batch_format)


def sink_format(form: Format, framing: Framing | None, extension: str | None) -> ValueSinkFormat:
    """The file format that writes the values of a format.

    Raises:
        ConfigurationError: The framing does not fit the format, or the extension is not allowed.
    """
    framing = framing_of(form, framing)
    if extension is not None and not (extension.isascii() and extension.replace(".", "").isalnum()):
        msg = f"extension={extension!r} is not allowed: give letters and digits, such as 'jsonl'"
        raise ConfigurationError(msg)
    if framing == "lines" and isinstance(form, Text) and checked_encoding(form.encoding)[1] is not None:
        msg = f"Text({form.encoding!r}) can't be written as lines: give framing='length_delimited', or UTF-8"
        raise ConfigurationError(msg)
    if framing == "container" and cast(Avro, form).schema is None:
        msg = "Avro needs schema= for FileSink.records: each file begins with it"
        raise ConfigurationError(msg)
    return ValueSinkFormat(form, framing, extension or _extension(form, framing))


def _extension(form: Format, framing: Framing) -> str:
    if framing == "container":
        return "avro"
    if framing == "length_delimited":
        return "bin"
    if isinstance(form, (Json, JsonSchema)):
        return "jsonl"
    return "csv" if isinstance(form, CsvLines) else "txt"
