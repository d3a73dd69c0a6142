"""Columns of CSV: which fields of a row are wanted, under which names, as which types.

**Types** are declared, or inferred from a sample so that no value changes. A type is inferred only where it
keeps every value in the sample. `007` is no number, and neither is one of more digits than a float keeps. A
column without a value in the sample is text.

What comes behind the sample is held to the same rule (`checked_column`). Arrow's parser reads more than the
rule allows: it takes ` 7`, `007` and `0x7` for 7. A text that is not in every letter a value of the inferred
type makes its row a bad one, so no value is changed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import UnreadableInputError, shown

_WHOLE: Final = re.compile(r"[ \t]*-?[0-9]+[ \t]*")

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


class BadRowError(ValueError):
    """A row that can't be converted; the message says why."""


def to_bool(text: str) -> bool:
    """Read `true`, `false`, `1` or `0`, in any case (`bool("false")` would be true).

    Raises:
        ValueError: It is none of them.

    Example:
        >>> to_bool("False"), to_bool("1")
        (False, True)
    """
    value = _BOOLS.get(text.strip().lower())
    if value is None:
        msg = f"{text!r} is neither true nor false"
        raise ValueError(msg)
    return value


def to_int(text: str) -> int:
    """Read an integer of 64 bits as a column of Arrow does; Python's `int` also takes `1_000` and `+5`.

    Raises:
        ValueError: It is none.

    Example:
        >>> to_int(" -7")
        -7
    """
    value = int(text)
    if not (_WHOLE.fullmatch(text) and -(1 << 63) <= value < 1 << 63):
        msg = f"{text!r} is no integer of 64 bits"
        raise ValueError(msg)
    return value


def to_float(text: str) -> float:
    """Read a float as a column of Arrow reads it; Python's `float` also takes `1_000`.

    Raises:
        ValueError: It is none.
    """
    if "_" in text or not text.isascii():
        msg = f"{text!r} is no number"
        raise ValueError(msg)
    return float(text)


class RowPlan(Protocol):
    """Converts the rows of one file."""

    def convert(self, rows: Sequence[Sequence[str]]) -> list[Any] | None:
        """Convert rows at once, leaving out blank ones; `None` if any of them is bad."""
        ...

    def convert_row(self, row: Sequence[str]) -> Any:
        """Convert one row.

        Raises:
            BadRowError: It has too many or too few fields, or a field can't be converted.
        """
        ...


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the rows of one file become dicts.

    Attributes:
        width: How many fields a row has.
        names: Names of the wanted columns.
        fields: Their indices in a row; `None` when all are wanted as they stand.
        converters: For each wanted column what makes a value of its text; `None` for text.
        nulls: Texts that are `None` in each of them.
    """

    width: int
    names: tuple[str, ...]
    fields: tuple[int, ...] | None
    converters: tuple[Callable[[str], Any] | None, ...]
    nulls: tuple[frozenset[str], ...]

    @staticmethod
    def without_header(
        names: Sequence[str], types: Mapping[str, Callable[[str], Any]], null_values: Iterable[str] = ()
    ) -> ColumnPlan:
        """The plan of files whose columns are named by the source."""
        return ColumnPlan(len(names), tuple(names), None, *_converted(names, types, null_values))

    @staticmethod
    def of_header(
        path: str,
        header: Sequence[str],
        wanted: Sequence[str] | None,
        types: Mapping[str, Callable[[str], Any]],
        null_values: Iterable[str] = (),
    ) -> ColumnPlan:
        """The plan of a file that names its columns itself.

        Raises:
            UnreadableInputError: A wanted column is not in the header, or there twice.
        """
        places = {name: at for at, name in reversed(list(enumerate(header)))}
        missing = [name for name in (*(wanted or ()), *types) if name not in places]
        if missing:
            msg = f"{path}: the header has no column {missing}; it has {shown(list(header))}"
            raise UnreadableInputError(msg)
        counts = Counter(header) if len(places) < len(header) else {}
        twice = sorted({name for name in (header if wanted is None else wanted) if counts.get(name, 1) > 1})
        if twice:
            msg = (
                f"{path}: the header has {twice} more than once. Name the columns that you want with "
                "columns=[...] without these, or name all of them yourself with skip_rows=1, header=False "
                "and columns=[...]"
            )
            raise UnreadableInputError(msg)
        if wanted is None:
            return ColumnPlan(len(header), tuple(header), None, *_converted(header, types, null_values))
        fields = tuple(places[name] for name in wanted)
        return ColumnPlan(len(header), tuple(wanted), fields, *_converted(wanted, types, null_values))

    def convert(self, rows: Sequence[Sequence[str]]) -> list[dict[str, Any]] | None:
        """Convert rows at once, leaving out blank ones; `None` if any of them is bad."""
        lengths = set(map(len, rows))
        if 0 in lengths:
            lengths.discard(0)
            rows = [row for row in rows if row]
        if not rows:
            return []
        if lengths != {self.width}:
            return None
        names = self.names
        if self.fields is None and not any(self.converters) and not any(self.nulls):
            return [dict(zip(names, row, strict=False)) for row in rows]
        columns: list[Sequence[Any]] = list(zip(*rows, strict=False))
        if self.fields is not None:
            columns = [columns[field] for field in self.fields]
        try:
            columns = [
                _values(column, convert, nulls)
                for column, convert, nulls in zip(columns, self.converters, self.nulls, strict=True)
            ]
        except Exception:
            # Whatever a user's converter raises makes the row bad; convert_row says which one it is.
            return None
        return [dict(zip(names, values, strict=False)) for values in zip(*columns, strict=True)]

    def convert_row(self, row: Sequence[str]) -> dict[str, Any]:
        """Convert one row.

        Raises:
            BadRowError: It has too many or too few fields, or a field can't be converted.
        """
        if len(row) != self.width:
            msg = f"the row has {len(row)} fields, the file has {self.width} columns"
            raise BadRowError(msg)
        texts = row if self.fields is None else [row[field] for field in self.fields]
        out: dict[str, Any] = {}
        for name, text, convert, nulls in zip(self.names, texts, self.converters, self.nulls, strict=True):
            try:
                (out[name],) = _values((text,), convert, nulls)
            except Exception as error:
                msg = f"column {name!r} can't be converted from {shown(text)}: {error}"
                raise BadRowError(msg) from error
        return out


def _values(
    texts: Sequence[str], convert: Callable[[str], Any] | None, nulls: frozenset[str]
) -> Sequence[Any]:
    if convert is not None:
        return [None if text in nulls else convert(text) for text in texts]
    return [None if text in nulls else text for text in texts] if nulls else texts


def _converted(
    names: Sequence[str], types: Mapping[str, Callable[[str], Any]], null_values: Iterable[str]
) -> tuple[tuple[Callable[[str], Any] | None, ...], tuple[frozenset[str], ...]]:
    """The converters of columns, and what is null in each; an empty field is, unless it is text."""
    converters, nulls = _converters(names, types), frozenset(null_values)
    return converters, tuple(nulls if convert is None else nulls | {""} for convert in converters)


def _converters(
    names: Sequence[str], types: Mapping[str, Callable[[str], Any]]
) -> tuple[Callable[[str], Any] | None, ...]:
    if not types:
        return (None,) * len(names)
    special: dict[Any, Callable[[str], Any] | None] = {
        None: None,
        str: None,
        bool: to_bool,
        int: to_int,
        float: to_float,
    }
    chosen = (types.get(name) for name in names)
    return tuple(special.get(each, each) for each in chosen)


#: What Python's types are called in Arrow.
_ARROW: Final[dict[Any, pa.DataType]] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    None: pa.string(),
}

TRUE: Final = ("true", "True", "TRUE", "1")

FALSE: Final = ("false", "False", "FALSE", "0")

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_TRUTH: Final = re.compile(r"(?:true|True|TRUE|false|False|FALSE)")

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

_TIME: Final = re.compile(_DAY.pattern + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?")

_TIME_IN_ZONE: Final = re.compile(_TIME.pattern + r"(?:Z|[+-][0-9]{2}:?[0-9]{2})")
#: A float keeps so many decimal digits.
_DIGITS: Final = 15

_FEW_DIGITS: Final = rf"^-?(?:[0-9]\.?){{1,{_DIGITS}}}(?:[eE].*)?$"

_NOT_ZERO: Final = r"^-?[0.]*[1-9]"

_KINDS: Final = (
    (_INTEGER, pa.int64()),
    (_NUMBER, pa.float64()),
    (_TRUTH, pa.bool_()),
    (_DAY, pa.date32()),
    (_TIME, pa.timestamp("us")),
    (_TIME_IN_ZONE, pa.timestamp("us", "UTC")),
)
#: Expressions that the texts of an inferred type match as a whole. Those of a float have few digits, too.
_PATTERNS: Final = {
    kind: (f"^(?:{pattern.pattern})$", *((_FEW_DIGITS,) if kind == pa.float64() else ()))
    for pattern, kind in _KINDS
}


def has_arrow_types(types: Any) -> bool:
    """Whether the types of a source ask for columns, also when it gives rows."""
    return types == "infer" or (
        isinstance(types, Mapping) and any(isinstance(kind, pa.DataType) for kind in types.values())
    )


def declared_types(types: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The Arrow types of declared columns.

    Raises:
        ConfigurationError: One is a function, or a type that CSV has no text for.

    Example:
        >>> declared_types({"id": int, "price": pa.decimal128(9, 2)})
        {'id': DataType(int64), 'price': Decimal128Type(decimal128(9, 2))}
    """
    return {name: _arrow_type(name, kind) for name, kind in types.items()}


def inferred_type(texts: Sequence[str]) -> pa.DataType:
    """The type of a column, from some of its texts; empty ones are nulls of any type.

    Example:
        >>> inferred_type(["1", "", "-2"]), inferred_type(["1", "2.5"]), inferred_type(["007"])
        (DataType(int64), DataType(double), DataType(string))
    """
    present = [text for text in texts if text]
    for pattern, kind in _KINDS if present else ():
        if all(map(pattern.fullmatch, present)) and _is_kept(present, kind):
            return kind
    return pa.string()


def checked_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of an inferred type; empty texts are null.

    Raises:
        pa.ArrowInvalid: A text is not in every letter a value of this type.

    Example:
        >>> checked_column(pa.array(["1", "", "-2"]), pa.int64()).to_pylist()
        [1, None, -2]
        >>> checked_column(pa.array(["007"]), pa.int64())
        Traceback (most recent call last):
        ...
        pyarrow.lib.ArrowInvalid: a text is no int64
    """
    import pyarrow.compute as pc  # not for sources of other formats

    present = pc.if_else(pc.equal(texts, ""), None, texts)
    for pattern in _PATTERNS[kind]:
        if not pc.all(pc.match_substring_regex(present, pattern)).as_py() and present.null_count < len(
            present
        ):
            msg = f"a text is no {kind}"
            raise pa.ArrowInvalid(msg)
    values = present.cast(kind)
    if pa.types.is_floating(kind):
        zeros = present.filter(pc.equal(values, 0.0))
        if pc.any(pc.is_inf(values)).as_py() or pc.any(pc.match_substring_regex(zeros, _NOT_ZERO)).as_py():
            msg = "a number is too large or too small for a float"
            raise pa.ArrowInvalid(msg)
    return values


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of CSV holds its texts as they stand, so that Arrow finds no nulls in it."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(
        check(value)
        for check in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def without_texts(column: pa.Array, texts: Sequence[str]) -> pa.Array:
    """A column of texts in which some are null.

    Example:
        >>> without_texts(pa.array(["a", "NA", ""]), ["NA"]).to_pylist()
        ['a', None, '']
    """
    import pyarrow.compute as pc  # not for sources of other formats

    found = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    nulls = pa.array([text.encode() for text in texts], pa.binary()).cast(pa.string())
    is_null = pc.is_in(found.cast(pa.binary()).cast(pa.string()), value_set=nulls)
    return pc.if_else(is_null, pa.scalar(None, found.type), found).cast(column.type)


def _is_kept(texts: Sequence[str], kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        if any(
            math.isinf(float(text)) or (float(text) == 0 and re.search(_NOT_ZERO, text)) for text in texts
        ):
            return False  # 1e400, 1e-400
        mantissas = (re.split("[eE]", text)[0] for text in texts)
        return max(sum(map(str.isdigit, mantissa)) for mantissa in mantissas) <= _DIGITS
    if pa.types.is_temporal(kind):
        try:
            pa.array(texts).cast(kind)
        except pa.ArrowException:
            return False  # the 30th of February
    return True


def _arrow_type(name: str, kind: Any) -> pa.DataType:
    found = kind if isinstance(kind, pa.DataType) else _ARROW.get(kind)
    if found is None:
        msg = (
            f"schema[{name!r}] is {getattr(kind, '__name__', kind)!r}, which can't make a column: give an "
            "Arrow type, such as pa.date32() or pa.decimal128(12, 2), or one of int, float, bool, str"
        )
        raise ConfigurationError(msg)
    if pa.types.is_nested(found):
        msg = f"schema[{name!r}] is {found}, which a field of CSV can't hold: read it as text, and parse that"
        raise ConfigurationError(msg)
    return found
