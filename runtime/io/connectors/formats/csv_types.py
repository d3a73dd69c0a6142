"""Types of CSV columns: as they were declared, or inferred from a sample so that no value changes.

A type is inferred only where it keeps every value in the sample. `007` is no number, and neither is one of
more digits than a float keeps. A column without a value in the sample is text.

What comes behind the sample is held to the same rule (`checked_column`). Arrow's parser reads more than the
rule allows: it takes ` 7`, `007` and `0x7` for 7. A text that is not in every letter a value of the inferred
type makes its row a bad one, so no value is changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError

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
            f"types[{name!r}] is {getattr(kind, '__name__', kind)!r}, which can't make a column: give an "
            "Arrow type, such as pa.date32() or pa.decimal128(12, 2), or one of int, float, bool, str"
        )
        raise ConfigurationError(msg)
    if pa.types.is_nested(found):
        msg = f"types[{name!r}] is {found}, which a field of CSV can't hold: read it as text, and parse that"
        raise ConfigurationError(msg)
    return found
