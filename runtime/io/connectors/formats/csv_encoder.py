"""Writes CSV: rows that are dicts or tuples, with a header in every file when the columns have names."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from penstock.runtime.io.connectors.arrow_rows import rows_of
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.formats.encoder import CountingOutput
from penstock.runtime.record.elements import Batch


@dataclass(frozen=True, slots=True)
class CsvSinkFormat:
    """How CSV is written.

    Attributes:
        columns: Names of the columns in their order; `None` takes the keys of the first row.
        header: Begin each file with the names.
        delimiter: One character.
    """

    columns: tuple[str, ...] | None = None
    header: bool = True
    delimiter: str = ","

    @property
    def extension(self) -> str:
        """Of its files."""
        return "csv"

    def encoder(self) -> CsvEncoder:
        """Make the encoder of one writer."""
        return CsvEncoder(self)


class CsvEncoder:
    """Encodes rows, a batch at a time; `None` becomes an empty field, other values their `str`.

    Args:
        form: How to write.
    """

    def __init__(self, form: CsvSinkFormat) -> None:
        self._form = form
        self._columns = form.columns
        self._width = None if form.columns is None else len(form.columns)
        self._output: CountingOutput | None = None
        self._header_due = False

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        """Begin a file."""
        self._output = output
        self._header_due = self._form.header

    def write(self, batch: Batch) -> None:
        """Write a line for each row.

        Raises:
            BadRecordError: A row does not fit the columns, or can't be written.
        """
        rows = rows_of(batch)
        if self._output is None or not rows:
            return
        self._learn_columns(rows[0])
        try:
            values = list(self._values(rows))
            text = self._written(values, csv.QUOTE_MINIMAL)
            if "\r" in text:
                # Python's writer leaves a carriage return bare, and no reader takes it for text.
                text = self._written(values, csv.QUOTE_ALL)
            data = text.encode("utf-8")
        except (csv.Error, UnicodeEncodeError) as error:
            raise self._blame(rows, error) from error
        self._header_due = False
        self._output.write(data)

    def end(self) -> None:
        """Nothing is left."""
        self._output = None

    def _blame(self, rows: Sequence[Any], failure: Exception) -> BadRecordError:
        """The error of the first row that can't be written."""
        for row in rows:
            try:
                self._written([self._fields(row)], csv.QUOTE_ALL).encode("utf-8")
            except (csv.Error, UnicodeEncodeError) as error:
                return BadRecordError(f"a row can't be written as CSV: {error}; the row is {shown(row)}")
        return BadRecordError(f"the header can't be written as CSV: {failure}")

    def _written(self, values: Sequence[Sequence[Any]], quoting: Literal[0, 1]) -> str:
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self._form.delimiter, lineterminator="\n", quoting=quoting)
        if self._header_due and self._columns is not None:
            writer.writerow(self._columns)
        writer.writerows(values)
        return text.getvalue()

    def _learn_columns(self, row: Any) -> None:
        if self._width is None and isinstance(row, Mapping):
            self._columns = tuple(row)
        if self._width is None and isinstance(row, (Mapping, tuple, list)):
            self._width = len(row)

    def _values(self, rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """The fields of each row, in the order of the columns."""
        kinds = set(map(type, rows))
        if set(map(len, rows)) == {self._width} if kinds <= {dict, tuple, list} else False:
            if kinds == {dict} and self._columns:
                fields = itemgetter(*self._columns)
                try:
                    return list(zip(map(fields, rows))) if self._width == 1 else list(map(fields, rows))
                except KeyError:
                    # Some row has other keys; the loop below says which.
                    pass
            elif dict not in kinds:
                return rows
        return [self._fields(row) for row in rows]

    def _fields(self, row: Any) -> Sequence[Any]:
        if isinstance(row, Mapping) and self._columns is not None:
            if row.keys() == set(self._columns):
                return [row[name] for name in self._columns]
            missing = [name for name in self._columns if name not in row]
            unknown = [name for name in row if name not in self._columns]
            problem = f"misses {missing} and has {unknown} too much"
        elif isinstance(row, (tuple, list)):
            if len(row) == self._width:
                return row
            problem = f"has {len(row)} fields"
        else:
            problem = f"is a {type(row).__name__}; CSV takes dicts, tuples and lists"
        wanted = self._columns if self._columns is not None else f"{self._width} fields"
        msg = (
            f"a row does not fit CSV columns {wanted}: it {problem}; the row is {shown(row)}. Map the rows "
            "before the sink, or give FileSink.csv the columns="
        )
        raise BadRecordError(msg)
