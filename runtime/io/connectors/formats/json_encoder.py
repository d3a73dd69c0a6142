"""Writes JSON lines: one JSON value per line, UTF-8.

Python's C encoder is made once and called per row; `json.dumps` would make a new one for every row, which
halves the speed. NaN and infinities are refused, because they are no JSON and most readers stumble over them.
"""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Any, Final

from penstock.runtime.io.connectors.arrow_rows import rows_of
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.formats.encoder import CountingOutput
from penstock.runtime.record.elements import Batch

#: Types of values that hold no dicts.
_LEAVES: Final = frozenset((str, int, float, bool, NoneType))
#: Deeper values are refused by the encoder, too.
_DEEPEST: Final = 1_000
#: Down to here values are looked at as often as they are held.
_SHALLOW: Final = 8

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
            check_names(rows)
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
                check_names([row])
                "".join(self._encode(row, 0)).encode("utf-8")
            except _FAILURES as error:
                return BadRecordError(
                    f"a row of type {type(row).__name__} can't be written as JSON: {error}; the row is "
                    f"{shown(row)}. Map it to dicts, lists, strings, finite numbers, booleans and None "
                    "before the sink, or give FileSink.json a default="
                )
        return BadRecordError("a batch can't be written as JSON, though each of its rows can")


def check_names(rows: Sequence[Any]) -> None:
    """Refuse dicts of which two keys are one name in JSON, such as `1` and `"1"`.

    Raises:
        ValueError: There is such a dict.
        RecursionError: Values hold themselves.

    Example:
        >>> check_names([{1: "a", "2": "b"}])
    """
    level: Sequence[Any] = rows
    for depth in range(_DEEPEST):
        dicts = level if set(map(type, level)) == {dict} else [x for x in level if isinstance(x, dict)]
        if not set(map(type, chain.from_iterable(dicts))) <= {str}:
            for each in dicts:
                _refuse_equal_names(each)
        values = list(chain.from_iterable(map(dict.values, dicts)))
        if dicts is not level:
            values += chain.from_iterable(x for x in level if isinstance(x, (list, tuple)))
        kinds = list(map(type, values))
        if set(kinds) <= _LEAVES:
            return
        level = [
            x
            for x, kind in zip(values, kinds, strict=True)
            if kind is dict or kind is list or (kind not in _LEAVES and isinstance(x, (dict, list, tuple)))
        ]
        if depth > _SHALLOW:
            # By identity, so that what is shared, or holds itself, is looked at once.
            level = list({id(x): x for x in level}.values())
    msg = "its values are nested too deep"
    raise RecursionError(msg)


def _refuse_equal_names(value: dict[Any, Any]) -> None:
    names: set[str] = set()
    for key in value:
        # A dict of one key, as the encoder writes it.
        name = key if isinstance(key, str) else next(iter(json.loads(json.dumps({key: None}))))
        if name in names:
            msg = f"two of its keys are the name {name!r}"
            raise ValueError(msg)
        names.add(name)


def _row_encoder(default: Callable[[Any], Any] | None) -> Callable[[Any, int], Sequence[str]]:
    def checked(value: Any) -> Any:
        assert default is not None
        made = default(value)
        check_names([made])
        return made

    encoder = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        check_circular=False,
        default=None if default is None else checked,
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda row, _: (encoder.encode(row),)
    escape = json.encoder.encode_basestring
    return make(None, encoder.default, escape, None, ":", ",", False, False, False)  # type: ignore[no-any-return]
