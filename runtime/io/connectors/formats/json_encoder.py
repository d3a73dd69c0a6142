"""Writes JSON lines: one JSON value per line, UTF-8.

Python's C encoder is made once and called per row; `json.dumps` would make a new one for every row, which
halves the speed. NaN and infinities are refused, because they are no JSON and most readers stumble over them.
"""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.io.connectors.arrow_rows import rows_of
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.formats.encoder import CountingOutput
from penstock.runtime.record.elements import Batch

_FAILURES = (TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class JsonSinkFormat:
    """How JSON lines are written.

    Attributes:
        default: What makes a JSON value of an object that JSON does not know.
    """

    default: Callable[[Any], Any] | None = None

    @property
    def extension(self) -> str:
        """Of its files."""
        return "jsonl"

    def encoder(self) -> JsonEncoder:
        """Make the encoder of one writer."""
        return JsonEncoder(self.default)


class JsonEncoder:
    """Encodes rows, a batch at a time.

    Args:
        default: As in `JsonSinkFormat`.
    """

    def __init__(self, default: Callable[[Any], Any] | None) -> None:
        self._encode = _row_encoder(default)
        self._output: CountingOutput | None = None

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        """Begin a file."""
        self._output = output

    def write(self, batch: Batch) -> None:
        """Write a line for each row.

        Raises:
            BadRecordError: A row can't be written as JSON; it is shown.
        """
        rows = rows_of(batch)
        if self._output is None or not rows:
            return
        try:
            encode, join = self._encode, "".join
            data = ("\n".join([join(encode(row, 0)) for row in rows]) + "\n").encode("utf-8")
        except _FAILURES as error:
            raise self._blame(rows) from error
        self._output.write(data)

    def end(self) -> None:
        """Nothing is left."""
        self._output = None

    def _blame(self, rows: Sequence[Any]) -> BadRecordError:
        for row in rows:
            try:
                "".join(self._encode(row, 0)).encode("utf-8")
            except _FAILURES as error:
                return BadRecordError(
                    f"a row of type {type(row).__name__} can't be written as JSON: {error}; the row is "
                    f"{shown(row)}. Map it to dicts, lists, strings, finite numbers, booleans and None "
                    "before the sink, or give FileSink.json a default="
                )
        return BadRecordError("a batch can't be written as JSON, though each of its rows can")


def _row_encoder(default: Callable[[Any], Any] | None) -> Callable[[Any, int], Sequence[str]]:
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False, default=default
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda row, _: (encoder.encode(row),)
    escape = json.encoder.encode_basestring
    return make(None, encoder.default, escape, None, ":", ",", False, False, False)  # type: ignore[no-any-return]
