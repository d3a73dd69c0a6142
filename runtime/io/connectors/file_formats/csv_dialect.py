"""`CsvDialect`: the CSV dialect for `csv.reader` and for Arrow, and the types of columns.

`quoting_of` determines whether a block ends between two rows, and whether Arrow and Python read it alike.
Arrow and Python differ only outside RFC 4180: quotes within an unquoted field, text after a closing quote,
a carriage return that ends no line. Where all quotes are in allowed places, every second quote closes a field
or begins a doubled quote. So the number of quotes shows whether the block ends within a field.

**Types** are declared, or inferred from a sample without changing a value. `007` is not a number, and
neither is an integer of more than 18 digits, nor a decimal with more digits than a float keeps. A column
without a value in the sample is text. Rows after the sample follow the same rule (`checked_column`). Arrow's
parser is more lenient: it reads ` 7`, `007` and `0x7` as 7. A text that isn't exactly a value of the inferred
type makes its row bad, so no value is changed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import UnreadableInputError
from penstock.runtime.io.connectors.file_formats.line_blocks import head_of, line_end_of, lines_of
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit, open_for_lines
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.record.arrow_values import is_bytes, is_text


class Quoting(Enum):
    #: The block ends between two rows.
    CLOSED = "closed"
    #: The block ends within a quoted field.
    OPEN = "open"
    #: Arrow and Python may read the block differently. It has misplaced quotes or line ends, or an escape
    #: character, or the dialect has a special character that is not ASCII.
    IRREGULAR = "irregular"


class CsvRows(Protocol):
    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """The syntax of CSV files; its special characters must be single and different characters.

    Attributes:
        skip_rows: Number of rows skipped at the beginning of each file.
        encoding: Encoding used to find lines.
        stored_as: Encoding of the files, if they are recoded to UTF-8.
    """

    delimiter: str = ","
    quotechar: str | None = '"'
    escapechar: str | None = None
    null_values: tuple[str, ...] = ()
    skip_rows: int = 0
    encoding: str = "utf-8"
    stored_as: str | None = None
    max_field_size: int = 1024 * 1024

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in "\r\n":
            msg = f"delimiter={self.delimiter!r} is not allowed: give one character, not a line end"
            raise ConfigurationError(msg)
        for name, sign in (("quotechar", self.quotechar), ("escapechar", self.escapechar)):
            if sign is not None and (len(sign) != 1 or sign in "\r\n "):
                msg = (
                    f"{name}={sign!r} is not allowed: give one character, not a line end or a space, or None"
                )
                raise ConfigurationError(msg)
        signs = [sign for sign in (self.delimiter, self.quotechar, self.escapechar) if sign is not None]
        if len(set(signs)) < len(signs):
            msg = (
                f"delimiter={self.delimiter!r}, quotechar={self.quotechar!r} and "
                f"escapechar={self.escapechar!r} are not three different characters"
            )
            raise ConfigurationError(msg)
        if self.skip_rows < 0:
            msg = f"skip_rows={self.skip_rows} is not allowed: give a number of rows, at least 0"
            raise ConfigurationError(msg)

    def open(self, split: FileSplit, filesystem: FileSystem) -> InputFile:
        csv.field_size_limit(max(csv.field_size_limit(), self.max_field_size))
        return open_for_lines(filesystem, split.path, split.size, self.stored_as)

    def rows_of(self, lines: Iterable[str], *, strict: bool) -> CsvRows:
        """Parse lines into rows of strings; with `strict`, a misplaced quote is an error."""
        quoting: Any = csv.QUOTE_MINIMAL if self.quotechar is not None else csv.QUOTE_NONE
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quotechar,
            escapechar=self.escapechar,
            quoting=quoting,
            strict=strict,
        )

    def line_end_of(self, handle: InputFile, path: str) -> bytes:
        return line_end_of(handle, path, (self.quotechar or "").encode(self.encoding))

    def quoting_of(self, block: bytes, line_end: bytes) -> Quoting:
        if self.escapechar is not None and self.escapechar.encode(self.encoding) in block:
            return Quoting.IRREGULAR
        if not (self.delimiter + (self.quotechar or "")).isascii():
            return Quoting.IRREGULAR
        quote = -1 if self.quotechar is None else ord(self.quotechar)
        return quoting_of(block, ord(self.delimiter), quote, line_end)

    def arrow_options(self) -> Any:
        """Return Arrow's `ParseOptions` for blocks that are not irregular."""
        import pyarrow.csv as arrow_csv  # late: sources of other formats don't need it

        return arrow_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=False if self.quotechar is None else self.quotechar,
            newlines_in_values=self.quotechar is not None,
        )

    def sample(self, info: FileInfo, filesystem: FileSystem, *, header: bool) -> list[list[str]]:
        """Return the first non-blank rows of a file; with `header` the first row must be readable."""
        csv.field_size_limit(max(csv.field_size_limit(), self.max_field_size))
        head, is_all = head_of(info, filesystem, self.encoding, self.line_end_of, self.stored_as)
        text = head.decode(self.encoding, "replace")
        rows: list[list[str]] = []
        try:
            lines = lines_of(text, self.line_end_of(io.BytesIO(head), info.path))
            rows.extend(row for row in islice(self.rows_of(lines, strict=False), self.skip_rows, None) if row)
        except csv.Error as error:
            if header and not rows:
                raise unreadable_header(info.path, error) from error
            # The rows before the error are usable; the reader reports the error.
        if not is_all:
            # The sample may cut the last row within quotes.
            return rows[:1] if len(rows) == 1 else rows[:-1]
        return rows


def unreadable_header(path: str, error: csv.Error) -> UnreadableInputError:
    what = f"{error}. Check delimiter, quotechar and escapechar, or set header=False"
    return UnreadableInputError(f"{path}: the header can't be read: {what}")


def quoting_of(block: bytes, delimiter: int, quote: int = ord('"'), line_end: bytes = b"\n") -> Quoting:
    r"""Classify the quoting of a block of whole lines that begins between two rows; -1 stands for no quote.

    Example:
        >>> [quoting_of(block, ord(",")).value for block in (b'1,"a\n', b'1,"a\nb"\n', b'1,5" disk\n')]
        ['open', 'closed', 'irregular']
    """
    if line_end == b"\r":
        if b"\n" in block:
            return Quoting.IRREGULAR
    elif b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return Quoting.IRREGULAR
    if quote < 0 or quote not in block:
        return Quoting.CLOSED
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == quote)
    opening, closing = quotes[::2], quotes[1::2]
    before = data[opening[1:] - 1] if opening[0] == 0 else data[opening - 1]
    after = data[np.minimum(closing + 1, len(data) - 1)]
    if not np.isin(before, (ord(line_end), delimiter, quote)).all():
        return Quoting.IRREGULAR
    if not np.isin(after, (*b"\r\n", delimiter, quote)).all():
        return Quoting.IRREGULAR
    return Quoting.OPEN if len(quotes) % 2 else Quoting.CLOSED


_WHOLE: Final = re.compile(r"[ \t]*-?[0-9]+[ \t]*")

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def to_bool(text: str) -> bool:
    """Read `true`, `false`, `1` or `0`, in any case (`bool("false")` would be true)."""
    value = _BOOLS.get(text.strip().lower())
    if value is None:
        msg = f"{text!r} is neither true nor false"
        raise ValueError(msg)
    return value


def to_int(text: str) -> int:
    """Read a 64-bit integer as Arrow does; Python's `int` also accepts `1_000` and `+5`."""
    value = int(text)
    if not (_WHOLE.fullmatch(text) and -(1 << 63) <= value < 1 << 63):
        msg = f"{text!r} is not a 64-bit integer"
        raise ValueError(msg)
    return value


def to_float(text: str) -> float:
    """Read a float as Arrow does; Python's `float` also accepts `1_000`."""
    if "_" in text or not text.isascii():
        msg = f"{text!r} is not a number"
        raise ValueError(msg)
    return float(text)


#: Functions that convert strings to Python's types.
CONVERTERS: Final[dict[Any, Callable[[str], Any] | None]] = {
    None: None,
    str: None,
    bool: to_bool,
    int: to_int,
    float: to_float,
}

#: Arrow types of Python's types.
_ARROW: Final[dict[Any, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    None: pa.string(),
}

TRUE: Final = ("true", "True", "TRUE", "1")

FALSE: Final = ("false", "False", "FALSE", "0")

_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = _DAY + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
#: Decimal digits that a float keeps.
_DIGITS: Final = 15
_NOT_ZERO: Final = r"^-?[0.]*[1-9]"
#: Regular expressions that all strings of an inferred type match; a column has the first type that fits.
_PATTERNS: Final = {
    pa.int64(): ("^(?:0|-?[1-9][0-9]{0,17})$",),
    pa.float64(): (
        r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$",
        rf"^-?(?:[0-9]\.?){{1,{_DIGITS}}}(?:[eE].*)?$",
    ),
    pa.bool_(): ("^(?:true|True|TRUE|false|False|FALSE)$",),
    pa.date32(): (f"^{_DAY}$",),
    pa.timestamp("us"): (f"^{_TIME}$",),
    pa.timestamp("us", "UTC"): (f"^{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})$",),
}


def has_arrow_types(types: Mapping[str, Any]) -> bool:
    """Whether the types of a source require columns, even if the source returns rows."""
    return any(isinstance(kind, pa.DataType) for kind in types.values())


def declared_types(types: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the Arrow types of declared columns; refuses functions, and types without a CSV form."""
    return {name: _arrow_type(name, kind) for name, kind in types.items()}


def inferred_type(texts: Sequence[str]) -> pa.DataType:
    """Infer the type of a column from some of its strings; empty strings are nulls of any type.

    Example:
        >>> inferred_type(["1", "", "-2"]), inferred_type(["1", "2.5"]), inferred_type(["007"])
        (DataType(int64), DataType(double), DataType(string))
    """
    present = pa.array(filter(None, texts), pa.string())
    for kind in _PATTERNS if len(present) else ():
        try:
            checked_column(present, kind)
        except pa.ArrowInvalid:
            continue
        return kind
    return pa.string()


def checked_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of an inferred type; empty strings are null.

    Raises:
        pa.ArrowInvalid: A text is not exactly a value of this type.
    """
    import pyarrow.compute as pc  # late: sources of other formats don't need it

    present = pc.if_else(pc.equal(texts, ""), None, texts)
    for pattern in _PATTERNS[kind]:
        if not pc.all(pc.match_substring_regex(present, pattern), min_count=0).as_py():
            msg = f"a text is not a value of type {kind}"
            raise pa.ArrowInvalid(msg)
    values = present.cast(kind)
    if pa.types.is_floating(kind):
        zeros = present.filter(pc.equal(values, 0.0))
        if pc.any(pc.is_inf(values)).as_py() or pc.any(pc.match_substring_regex(zeros, _NOT_ZERO)).as_py():
            msg = "a number is too large or too small for a float"
            raise pa.ArrowInvalid(msg)
    return values


def keeps_texts(kind: pa.DataType) -> bool:
    """Whether a CSV column keeps its strings unchanged, so that Arrow finds no nulls in it."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(value) or is_bytes(value)


def without_texts(column: pa.Array, texts: Sequence[str]) -> pa.Array:
    """Return a text column with the given strings replaced by null."""
    import pyarrow.compute as pc  # late: sources of other formats don't need it

    found = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    nulls = pa.array([text.encode() for text in texts], pa.binary()).cast(pa.string())
    is_null = pc.is_in(found.cast(pa.binary()).cast(pa.string()), value_set=nulls)
    return pc.if_else(is_null, pa.scalar(None, found.type), found).cast(column.type)


def _arrow_type(name: str, kind: Any) -> pa.DataType:
    found = kind if isinstance(kind, pa.DataType) else _ARROW.get(kind)
    if found is None:
        msg = (
            f"schema[{name!r}] is {getattr(kind, '__name__', kind)!r}, which is not a column type: give an "
            "Arrow type, such as pa.date32() or pa.decimal128(12, 2), or one of int, float, bool, str"
        )
        raise ConfigurationError(msg)
    if pa.types.is_nested(found):
        msg = f"schema[{name!r}] is {found}, which a CSV field can't hold: read text and parse it"
        raise ConfigurationError(msg)
    return found
