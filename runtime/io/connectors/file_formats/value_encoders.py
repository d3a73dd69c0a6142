"""Writes the values of a format to files: as lines, with length prefixes, or in Avro container files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from penstock.runtime.io.connectors.arrow_batches import rows_of
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.file_formats.avro_files import blocks_of, header_of
from penstock.runtime.io.connectors.file_formats.csv_lines import CsvLines
from penstock.runtime.io.connectors.file_formats.encoders import CountingOutput, FileEncoder
from penstock.runtime.io.formats.avro import Avro, schema_text
from penstock.runtime.io.formats.format import Encoder, Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.io.formats.varints import varint
from penstock.runtime.record.elements import Batch

#: The arrangement of values in a file.
Framing: TypeAlias = Literal["lines", "length_delimited", "container"]


@dataclass(frozen=True, slots=True)
class ValueSinkFormat:
    """The format of files whose values a `Format` encodes."""

    format: Format
    framing: Framing
    extension: str

    @property
    def only_reads(self) -> bool:
        """Whether no user function sees the records."""
        is_ours = type(self.format).__module__.startswith("penstock.")
        return is_ours and getattr(self.format, "default", None) is None

    def encoders(self) -> Callable[[], FileEncoder]:
        """Return a factory of encoders, which share an encoder of the format."""
        return ValueEncoders(self.format, self.framing)


class ValueEncoders:
    """Creates the encoders of a writer's files; they share the format's encoder, which `close` closes."""

    def __init__(self, form: Format, framing: Framing) -> None:
        self._format = form
        self._kind = _ENCODERS[framing]
        self._encoder = form.encoder()

    def __call__(self) -> FileEncoder:
        return self._kind(self._format, self._encoder)

    def close(self) -> None:
        self._encoder.close()


class LinesEncoder:
    """Writes each value and a line end; `None` becomes JSON's null, and other formats refuse it."""

    def __init__(self, form: Format, encoder: Encoder) -> None:
        self._format = form
        self._encoder = encoder
        self._output: CountingOutput | None = None

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        self._output = output

    def write(self, batch: Batch) -> None:
        if self._output is None or not len(batch):
            return
        values = self._encoder.encode(batch)
        data = self._framed(values if None not in values else self._without_none(values, batch), batch)
        self._output.write(data)

    def end(self) -> None:
        self._output = None

    def _framed(self, values: Sequence[Any], batch: Batch) -> bytes:
        data = b"\n".join(values) + b"\n"
        # A line end in a CSV value is quoted, and the CSV reader accepts it.
        if (data.count(b"\n") > len(values) or b"\r\n" in data) and not isinstance(self._format, CsvLines):
            at = next(at for at, value in enumerate(values) if b"\n" in value or value.endswith(b"\r"))
            msg = (
                f"a record has a line end, so it can't be one line of a file: {shown(rows_of(batch)[at])}. "
                'Give FileSink.records framing="length_delimited", or remove the line end'
            )
            raise BadRecordError(msg)
        return data

    def _without_none(self, values: Sequence[bytes | None], batch: Batch) -> list[bytes]:
        if isinstance(self._format, Json):
            return [b"null" if value is None else value for value in values]
        msg = (
            f"a record is None, which a file of the format {type(self._format).__name__} can't hold. Filter "
            "such records out before the sink"
        )
        raise BadRecordError(msg)


class LengthsEncoder(LinesEncoder):
    """Writes each value after its length."""

    def _framed(self, values: Sequence[Any], batch: Batch) -> bytes:
        return b"".join([part for value in values for part in (varint(len(value)), value)])


class ContainerEncoder(LinesEncoder):
    """Writes a container file of Avro."""

    _marker = b""

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        super().begin(output, next_file)
        assert isinstance(self._format, Avro)
        assert self._format.schema is not None
        header, self._marker = header_of(schema_text(self._format.schema))
        output.write(header)

    def _framed(self, values: Sequence[Any], batch: Batch) -> bytes:
        return blocks_of(values, self._marker)


_ENCODERS: Final[dict[Framing, type[LinesEncoder]]] = {
    "lines": LinesEncoder,
    "length_delimited": LengthsEncoder,
    "container": ContainerEncoder,
}
