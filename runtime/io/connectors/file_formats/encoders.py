"""Formats of sinks: the protocols `SinkFormat` and `FileEncoder`, and the format CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

from penstock.runtime.io.connectors.arrow_batches import rows_of
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.filesystem import OutputFile
from penstock.runtime.record.elements import Batch


class CountingOutput:
    """An output file that counts the bytes written; the sink closes it."""

    closed = False

    def __init__(self, output: OutputFile) -> None:
        self.output = output
        self.size = 0

    def write(self, data: Any, /) -> int:
        self.output.write(data)
        length = len(data)
        self.size += length
        return length

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing: `OutputFile.finish` makes the file durable."""

    def close(self) -> None:
        """Do nothing: the sink finishes or discards the file."""


class FileEncoder(Protocol):
    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        """Begin a file; `next_file` finishes it and begins another, for records that need separate files."""
        ...

    def write(self, batch: Batch) -> None:
        """Add a batch to the file, or raise `BadRecordError`."""
        ...

    def end(self) -> None: ...


@runtime_checkable
class ClosesEncoders(Protocol):
    """Optional for the factory that `SinkFormat.encoders` returns: releases what its encoders share."""

    def close(self) -> None: ...


class SinkFormat(Protocol):
    """A file format; a frozen value that is pickled."""

    @property
    def extension(self) -> str:
        """The extension of the format's files, without a dot."""
        ...

    def encoders(self) -> Callable[[], FileEncoder]:
        """Return a factory of encoders; they share what the first records determine, such as the columns."""
        ...


@dataclass(frozen=True, slots=True)
class CsvSinkFormat:
    """The CSV format of a sink; `columns` defaults to the keys of the first row."""

    columns: tuple[str, ...] | None = None
    header: bool = True
    delimiter: str = ","

    extension: ClassVar[str] = "csv"

    def encoders(self) -> Callable[[], CsvEncoder]:
        width = None if self.columns is None else len(self.columns)
        return partial(CsvEncoder, self, _CsvColumns(self.columns, width))


@dataclass(slots=True)
class _CsvColumns:
    """The names and the number of the columns; `None` until the first row determines them."""

    names: tuple[str, ...] | None
    width: int | None


#: Errors of rows that can't be written.
_FAILURES: Final = (csv.Error, UnicodeEncodeError)


class CsvEncoder:
    """`None` becomes an empty field, other values their `str`."""

    def __init__(self, form: CsvSinkFormat, columns: _CsvColumns) -> None:
        self._output: CountingOutput | None = None
        self._form = form
        self._columns = columns
        self._header_due = False

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        self._output = output
        self._header_due = self._form.header

    def write(self, batch: Batch) -> None:
        rows = rows_of(batch)
        if self._output is None or not rows:
            return
        try:
            data = self._encoded(rows)
        except _FAILURES as error:
            raise self._blame(rows, error) from error
        self._output.write(data)

    def end(self) -> None:
        self._output = None

    def _encoded(self, rows: Sequence[Any]) -> bytes:
        self._learn_columns(rows[0])
        values = list(self._values(rows))
        text = self._written(values, csv.QUOTE_MINIMAL)
        if "\r" in text:
            # Python's writer leaves a carriage return unquoted, and readers treat it as the end of a line.
            text = self._written(values, csv.QUOTE_ALL)
        data = text.encode("utf-8")
        self._header_due = False
        return data

    def _blame(self, rows: Sequence[Any], failure: Exception) -> BadRecordError:
        for row in rows:
            try:
                self._written([self._fields(row)], csv.QUOTE_ALL).encode("utf-8")
            except _FAILURES as error:
                return BadRecordError(f"a row can't be written as CSV: {error}; the row is {shown(row)}")
        return BadRecordError(f"the header can't be written as CSV: {failure}")

    def _written(self, values: Sequence[Sequence[Any]], quoting: Literal[0, 1]) -> str:
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self._form.delimiter, lineterminator="\n", quoting=quoting)
        if self._header_due and self._columns.names is not None:
            writer.writerow(self._columns.names)
        writer.writerows(values)
        return text.getvalue()

    def _learn_columns(self, row: Any) -> None:
        columns = self._columns
        if columns.width is None and isinstance(row, Mapping):
            columns.names = tuple(row)
        if columns.width is None and isinstance(row, (Mapping, tuple, list)):
            columns.width = len(row)

    def _values(self, rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
        kinds, columns = set(map(type, rows)), self._columns
        if kinds <= {dict, tuple, list} and set(map(len, rows)) == {columns.width}:
            if kinds == {dict} and columns.names:
                fields = itemgetter(*columns.names)
                try:
                    return list(zip(map(fields, rows))) if columns.width == 1 else list(map(fields, rows))
                except KeyError:
                    # A row has different keys; the loop below finds it.
                    pass
            elif dict not in kinds:
                return rows
        return [self._fields(row) for row in rows]

    def _fields(self, row: Any) -> Sequence[Any]:
        names, width = self._columns.names, self._columns.width
        if isinstance(row, Mapping) and names is not None:
            if row.keys() == set(names):
                return [row[name] for name in names]
            missing = [name for name in names if name not in row]
            unknown = [name for name in row if name not in names]
            problem = f"lacks the keys {missing} and has the extra keys {unknown}"
        elif isinstance(row, (tuple, list)):
            if len(row) == width:
                return row
            problem = f"has a different number of fields, {len(row)}"
        else:
            problem = f"is a {type(row).__name__}; CSV takes dicts, tuples and lists"
        wanted = names if names is not None else f"of the first row ({width})"
        msg = (
            f"a row does not fit the CSV columns {wanted}: it {problem}; the row is {shown(row)}. Map the "
            "rows before the sink, or give FileSink.csv the argument columns="
        )
        raise BadRecordError(msg)
