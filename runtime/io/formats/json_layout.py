"""Parses JSON objects that all have one layout, straight from their bytes.

A program that writes a topic usually gives each object the same fields, in one order, with the same spaces.
Then the bytes between two field values are the same in each object: `{"id": `, then `, "user": "`, and so on.
These are the *literals* of the layout, which the first object of a batch shows. Numpy finds all quotes in one
pass. The quotes give the position of each value. The literals of each object are compared with those of the
first object.

**Why this is exact.** Every byte of a batch is accounted for. It is in a literal that is equal to the first
object's, in a string, or in another scalar that is checked. There are no backslashes and no control
characters except the line ends between objects, so a quote always begins or ends a string. A layout has no
two fields with the same name.

Anything else gives `None`, and Arrow's parser decides. Examples are another order, a missing field, a nested
value and an escape. So are `null` in a column of the schema, and a number that its column does not hold
exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Bytes after the text, so that eight bytes can be read at each of its positions.
_PADDING: Final = b" " * 8
_WORD: Final = 8
_SPACE, _QUOTE, _MINUS, _DOT, _ZERO, _NINE, _E = b' "-.09e'
#: The bit that makes an ASCII letter lower-case.
_LOWER: Final = 32
_LINE_END: Final = 10
_FIELD: Final = re.compile(rb'"([^"]*)" *: *(?:"([^"]*)"|([-+.0-9A-Za-z]+)) *(, *(?=")|\})')
#: A value of a field that the schema lacks. Arrow refuses `1e400` even there, so exponents are left to it.
_SCALAR: Final = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?|true|false|null)$"
_LONGEST_SCALAR: Final = 300
#: A float represents every integer below this one exactly.
_EXACT: Final = float(1 << 53)
_MOST_BYTES: Final = (1 << 31) - 1

#: Maximum number of digits that are read from two words: of an integer, and of a float.
_MOST_DIGITS, _MOST_FLOAT_DIGITS = 16, 15
#: Maximum width of strings that are copied by numpy, if all strings of a block have it.
_WIDEST_COPY: Final = 256

_Places: TypeAlias = npt.NDArray[np.int64]
_Words: TypeAlias = npt.NDArray[np.uint64]


def _in_each_byte(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)


_ZEROS, _DOTS, _ONES = map(_in_each_byte, (_ZERO, _DOT, 1))
#: The top bit of each byte, and the summand that sets it in a byte above nine.
_TOPS, _ABOVE_NINE = map(_in_each_byte, (0x80, 0x76))


class _Layout(NamedTuple):
    """The fields of an object, and the bytes around their values.

    Attributes:
        names: Names of the fields.
        texts: Whether the value of each field is a string.
        literals: One before each value, and one after the last.
    """

    names: tuple[str, ...]
    texts: tuple[bool, ...]
    literals: tuple[bytes, ...]


def parse_alike(values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """Parse objects of one layout to the columns of a schema; `None` if one may have another layout."""
    layout = _layout_of(values[0], schema)
    if layout is None:
        return None
    padded = b"\n".join([*values, _PADDING])
    length = len(padded) - len(_PADDING) - 1
    signs = np.frombuffer(padded, np.uint8)
    if b"\\" in padded or length > _MOST_BYTES or np.count_nonzero(signs < np.uint8(_SPACE)) != len(values):
        return None
    quotes = np.flatnonzero(signs == _QUOTE)
    of_one = sum(literal.count(b'"') for literal in layout.literals)
    if len(quotes) != len(values) * of_one or not _is_text(padded):
        return None
    words = np.ndarray(len(padded) - _WORD + 1, "<u8", padded, strides=(1,))
    text = _Text(padded, length, signs, words)
    starts = _starts_of_literals(layout, quotes.reshape(len(values), of_one), length)
    if starts[0][0] != 0 or (signs[starts[0][1:] - 1] != _LINE_END).any():
        return None
    if not all(map(text.has, starts, layout.literals)):
        return None
    fields = {}
    for name, is_string, literal, start, end in zip(
        layout.names, layout.texts, layout.literals, starts, starts[1:], strict=False
    ):
        kind = schema.field(name).type if name in schema.names else None
        column = text.column(start + len(literal), end, is_string, kind)
        if column is None:
            return None
        fields[name] = column
    columns = [
        fields[field.name] if field.name in fields else pa.nulls(len(values), field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_text(value: bytes) -> bool:
    try:
        return value.isascii() or bool(value.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _layout_of(value: bytes, schema: pa.Schema) -> _Layout | None:
    """Return the layout of an object; `None` if it can't be parsed here, or does not fit the schema."""
    at = value.find(b'"')
    if at < 0 or value[:at].rstrip(b" ") != b"{":
        return None
    names, texts, literals, end = [], [], [], 0
    is_last = False
    while not is_last:
        field = _FIELD.match(value, at)
        if field is None:
            return None
        kind = 3 if field[2] is None else 2
        names.append(field[1].decode("utf-8", "replace"))
        texts.append(kind == 2)
        literals.append(value[end : field.start(kind)])
        end, at, is_last = field.end(kind), field.end(), field[4] == b"}"
    literals.append(value[end:])
    if at != len(value) or len(set(names)) < len(names):
        return None
    for field_ in schema:
        if field_.name not in names:
            if not field_.nullable:
                return None
        elif not _is_read(field_.type, texts[names.index(field_.name)]):
            return None
    return _Layout(tuple(names), tuple(texts), tuple(literals))


def _is_read(kind: pa.DataType, is_string: bool) -> bool:
    if is_string:
        return bool(kind == pa.string())
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_float64(kind) or types.is_boolean(kind))


def _starts_of_literals(layout: _Layout, quotes: _Places, length: int) -> list[_Places]:
    """The position of each literal in each object, if the object has the layout.

    Args:
        quotes: Positions of the quotes, with a row for each object.
    """
    starts, quote = [], 0
    for literal in layout.literals[:-1]:
        starts.append(quotes[:, quote] - literal.index(b'"'))
        quote += literal.count(b'"')
    # An object ends before the line end in front of the next one.
    ends = np.append(starts[0][1:] - 1, length)
    starts.append(ends - len(layout.literals[-1]))
    return starts


class _Text(NamedTuple):
    """All objects, padded.

    Attributes:
        length: Number of bytes without the padding.
        signs: The bytes.
        words: The eight bytes that begin at each position.
    """

    padded: bytes
    length: int
    signs: npt.NDArray[np.uint8]
    words: _Words

    def has(self, places: _Places, literal: bytes) -> bool:
        """Whether a literal is at all these positions."""
        if places[0] < 0 or places[-1] + len(literal) > self.length:
            return False
        last = len(literal) - _WORD
        for offset in (*range(0, last, _WORD), max(0, last)):
            part = literal[offset : offset + _WORD]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            found = self.words[offset:][places]
            if len(part) < _WORD:
                found &= mask
            if (found != np.uint64(int.from_bytes(part, "little"))).any():
                return False
        return True

    def column(
        self, starts: _Places, ends: _Places, is_string: bool, kind: pa.DataType | None
    ) -> pa.Array | None:
        """Read the values between positions.

        Args:
            kind: Type of the column; `None` if the values are only checked.

        Returns:
            The values, or `None` if one of them is not such a value.
        """
        widths = ends - starts
        if widths.min() < (0 if is_string else 1):
            return None
        if kind is not None and pa.types.is_boolean(kind):
            return self._booleans(starts, widths)
        if is_string:
            return pa.nulls(0) if kind is None else self._texts(starts, ends, widths)
        numbers = None if kind is None else self._plain_numbers(starts, widths, kind)
        if numbers is not None:
            return numbers
        taken = self._taken(starts, ends)
        if kind is None:
            return taken if widths.max() <= _LONGEST_SCALAR and _are_scalars(taken) else None
        if not _are_numbers(taken, is_float=pa.types.is_floating(kind)):
            return None
        try:
            numbers = taken.cast(kind)
        except pa.ArrowInvalid:
            return None
        return None if pa.types.is_floating(kind) and _is_inexact(numbers) else numbers

    def _taken(self, starts: _Places, ends: _Places) -> pa.Array:
        bounds = np.empty(2 * len(starts) + 1, np.int32)
        bounds[:-1:2], bounds[1::2] = starts, ends
        bounds[-1] = bounds[-2]
        values_and_gaps = pa.StringArray.from_buffers(
            len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(self.padded)
        )
        return values_and_gaps.take(pa.array(np.arange(0, len(bounds) - 1, 2)))

    def _texts(self, starts: _Places, ends: _Places, widths: _Places) -> pa.Array:
        width = int(widths[0])
        if not 0 < width <= _WIDEST_COPY or (widths != width).any():
            return self._taken(starts, ends)
        at_each = np.ndarray(len(self.padded) - width + 1, f"V{width}", self.padded, strides=(1,))
        bounds = np.arange(0, (len(starts) + 1) * width, width, dtype=np.int32)
        return pa.StringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(at_each[starts]))

    def _plain_numbers(self, starts: _Places, widths: _Places, kind: pa.DataType) -> pa.Array | None:
        """Read numbers of few digits without an exponent; `None` if one of them is anything else."""
        is_negative = self.signs[starts] == _MINUS
        if is_negative.any():
            starts, widths = starts + is_negative, widths - is_negative
        if widths.min() < 1:
            return None
        values: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None
        if pa.types.is_float64(kind):
            values = self._plain_floats(starts, widths)
        elif widths.max() <= _MOST_DIGITS and not self._has_leading_zero(starts, widths):
            values = self._integers(starts, widths)
            if values is not None and values.max() > np.iinfo(kind.to_pandas_dtype()).max:
                return None
        else:
            return None
        if values is None:
            return None
        if is_negative.any():
            np.negative(values, where=is_negative, out=values)
        return pa.array(values).cast(kind)

    def _has_leading_zero(self, starts: _Places, widths: _Places) -> bool:
        return bool(((self.signs[starts] == _ZERO) & (widths > 1)).any())

    def _plain_floats(self, starts: _Places, widths: _Places) -> npt.NDArray[np.float64] | None:
        """Read decimals of at most 15 digits, with at most eight on each side of the point.

        Such digits and their power of ten are exact floats, so one division rounds as a parser must. Source:
        Clinger, "How to Read Floating Point Numbers Accurately", 1990.
        """
        marks = self.words[starts] ^ _DOTS
        marks = (marks - _ONES) & ~marks & _TOPS
        # The bits below the lowest mark count the bytes in front of the point.
        whole = np.minimum(np.bitwise_count((marks & -marks) - np.uint64(1)) >> 3, widths)
        parts = np.maximum(widths - whole - 1, 0)
        if (
            whole.min() < 1
            or ((parts == 0) | (self.signs[starts + whole] != _DOT))[widths > whole].any()
            or max(whole.max(), parts.max()) > _WORD
            or (whole + parts).max() > _MOST_FLOAT_DIGITS
            or self._has_leading_zero(starts, whole)
        ):
            return None
        before, after = self._integers(starts, whole), self._integers(starts + whole + 1, parts)
        if before is None or after is None:
            return None
        scale: npt.NDArray[np.float64] = np.power(10.0, np.arange(_WORD + 1))[parts]
        values: npt.NDArray[np.float64] = (before * scale + after) / scale
        return values

    def _integers(self, starts: _Places, widths: _Places) -> npt.NDArray[np.int64] | None:
        """Read digits, at most 16 from each position; `None` if something else is among them."""
        if widths.max() <= _WORD:
            values = self._digits(starts, widths)
        else:
            high = np.maximum(widths - _WORD, 0)
            above, below = self._digits(starts, high), self._digits(starts + high, widths - high)
            values = None if above is None or below is None else above * np.uint64(10**_WORD) + below
        return None if values is None else values.view(np.int64)

    def _digits(self, starts: _Places, widths: _Places) -> _Words | None:
        """Read at most eight digits from each position: join digits to pairs, to fours, and to eights.

        Lemire, "Quickly parsing eight digits", 2018.
        """
        digits = self.words[starts] ^ _ZEROS
        digits <<= ((_WORD - widths) * 8).astype(np.uint64)  # a shift by all bits gives zero
        if ((digits + _ABOVE_NINE | digits) & _TOPS).any():
            return None
        for factor, bits, mask in (
            (10, 8, 0x00FF00FF00FF00FF),
            (100, 16, 0x0000FFFF0000FFFF),
            (10_000, 32, 0x00000000FFFFFFFF),
        ):
            digits = digits * np.uint64(factor) + (digits >> np.uint64(bits)) & np.uint64(mask)
        return digits

    def _booleans(self, starts: _Places, widths: _Places) -> pa.Array | None:
        first_four = self.words[starts] & np.uint64((1 << 32) - 1)
        trues = (first_four == np.uint64(int.from_bytes(b"true", "little"))) & (widths == 4)
        falses = (first_four == np.uint64(int.from_bytes(b"fals", "little"))) & (widths == 5)
        if falses.any() and (self.signs[starts[falses] + 4] != ord("e")).any():
            return None
        return pa.array(trues) if (trues | falses).all() else None


def _is_inexact(numbers: pa.Array) -> bool:
    import pyarrow.compute as pc  # late: files of rows don't need it

    largest: float = pc.max(pc.abs(numbers)).as_py()
    return largest >= _EXACT


def _are_scalars(tokens: pa.Array) -> bool:
    import pyarrow.compute as pc  # late, too

    return bool(pc.all(pc.match_substring_regex(tokens, _SCALAR)).as_py())


def _are_numbers(tokens: pa.Array, *, is_float: bool) -> bool:
    """Whether all tokens that Arrow casts to numbers are JSON numbers; Arrow also accepts `007` and `1.`."""
    _, bounds, data = tokens.buffers()
    signs = np.frombuffer(data, np.uint8)
    places = np.frombuffer(bounds, np.int32)[: len(tokens) + 1]
    starts, ends = places[:-1], places[1:]
    first = signs[starts]
    is_negative = first == _MINUS
    if is_negative.any():
        starts = starts + is_negative
        if (starts >= ends).any():
            return False
        first = signs[starts]
    zeros = (first == _ZERO) & (ends - starts > 1)
    if not is_float:
        return not zeros.any()
    last = signs[ends - 1]
    if ((first < _ZERO) | (first > _NINE) | (last < _ZERO) | (last > _NINE)).any():
        return False
    after_zeros = signs[starts[zeros] + 1]
    if ((after_zeros != _DOT) & (after_zeros | _LOWER != _E)).any():
        return False
    # All tokens begin and end with a digit, so `1.e5` is the only form left that JSON does not have.
    return not ((signs[:-1] == _DOT) & (signs[1:] | _LOWER == _E)).any()
