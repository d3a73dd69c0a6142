"""Filters of a job that Spark computes before the transfer.

A filter of the job is a `pyarrow.compute` expression. It is split at its outer `and`s. Each part that means
the same in Spark becomes a condition; only the job computes the others. The job's own filter still runs. So a
condition may keep too many rows, and must never drop a row for which the expression is true.

Both systems compute `and`, `or` and `not` with three values (Kleene). So `not` can be moved to the
comparisons, and only comparisons and their negations are left below `and` and `or`. Then an answer of null
does the same as false: it can't make the whole true. So each comparison only has to be true for the same
rows in both systems:

- *Comparisons* of a column with a literal: integers, strings, dates, booleans, and timestamps with a zone.
  Both compare integers as numbers, and strings byte by byte. A literal must fit the type exactly, so that no
  system rounds.
- *Floats.* In Arrow every comparison with NaN is false, except `!=`. In Spark, NaN equals NaN and is
  greater than all other numbers. So conditions exclude or include NaN themselves. Spark does not get
  comparisons with a literal NaN, nor `isin`, which distinguishes 0.0 and -0.0 in Arrow.
- *Zeros.* Spark may pass a condition on to its files, and Parquet's dictionaries distinguish 0.0 and -0.0. So
  the zero of `>=` is -0.0, that of `<=` is 0.0, and equality with zero becomes both.
- *Strings.* Spark may pass a condition on to a database that ignores case or sorts by language. So only
  equality names the column itself; a database may then return too many rows. All other relations compare
  bytes.
- *Null tests* and `isin`, which is false for null in Arrow, unless the values include null.

Columns of type CHAR or VARCHAR are left out, because Spark pads their literals with spaces.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.operators.expression_tree import Call, Field, Literal, Node, tree_of
from penstock.runtime.operators.expressions import columns_of_expression

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Maximum number of values of an `isin`; each is a call from Python to Java.
_MOST_VALUES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison with a literal that is not null.

    Attributes:
        place: Position of the column in the DataFrame.
        kind: `integer`, `boolean`, `string`, `date`, `timestamp` or `float`.
        relation: `=`, `!=`, `<`, `<=`, `>` or `>=`.
        value: An integer for dates (days) and timestamps (microseconds), else the literal.
        with_nan: Whether it is true for NaN.
    """

    place: int
    kind: str
    relation: str
    value: Any
    with_nan: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    place: int
    negated: bool


@dataclass(frozen=True, slots=True)
class IsIn:
    """A test for values; `with_null` is the answer for null."""

    place: int
    kind: str
    values: tuple[Any, ...]
    with_null: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions that must all be true (`needs_all`), or at least one of them."""

    needs_all: bool
    parts: tuple[Condition, ...]


Condition: TypeAlias = Compared | IsNull | IsIn | Joined

_RELATIONS: Final = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
#: The relation after its sides are exchanged.
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


#: Position and type of each column, by its name.
_Known: TypeAlias = Mapping[str, tuple[int, pa.DataType]]


class _Untranslatable(Exception):
    """Spark can't compute a part of an expression."""


def conditions_of(
    wanted: pc.Expression | None, schema: pa.Schema, padded: Collection[str] = ()
) -> tuple[tuple[Condition, ...], bool]:
    """The parts of a filter that Spark computes, and whether these are all its parts.

    Args:
        padded: Columns of type CHAR or VARCHAR.

    Example:
        >>> schema = pa.schema({"v": pa.int64(), "w": pa.int64()})
        >>> conditions_of((pc.field("v") > 3) & (pc.field("w") * 2 > 1), schema)
        ((Compared(place=0, kind='integer', relation='>', value=3, with_nan=False),), False)
    """
    if wanted is None or columns_of_expression(wanted, schema) is None:
        return (), False  # a filter that can't be computed must fail in the job
    root = tree_of(wanted)
    if root is None:
        return (), False
    known = {
        field.name: (place, field.type) for place, field in enumerate(schema) if field.name not in padded
    }
    found = [_translated(part, known) for part in _outer(root)]
    return tuple(one for one in found if one is not None), None not in found


def _outer(node: Node) -> Iterator[Node]:
    """The parts between the outer `and`s; a deep filter must not exhaust the stack."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call) and node.function == "and_kleene":
            waiting += reversed(node.arguments)
        else:
            yield node


def _translated(part: Node, schema: _Known) -> Condition | None:
    try:
        return _condition(part, schema, negated=False)
    except (_Untranslatable, RecursionError):
        return None


def _condition(node: Node, schema: _Known, *, negated: bool) -> Condition:
    match node:
        case Call("and_kleene" | "or_kleene", arguments):
            parts = tuple(_condition(each, schema, negated=negated) for each in arguments)
            return Joined((node.function == "and_kleene") is not negated, parts)
        case Call("invert", (inner,)):
            return _condition(inner, schema, negated=not negated)
        case Call("is_valid", (Field() as field,)):
            return IsNull(_place(field, schema)[0], not negated)
        case Call("is_null", (Field() as field,), options) if not options["nan_is_null"].as_py():
            return IsNull(_place(field, schema)[0], negated)
        case Call("is_in", (Field() as field,), options):
            return _is_in(field, options["value_set"], options["null_matching_behavior"], schema, negated)
        case Call(function, (Field() as field, Literal(value))) if function in _RELATIONS:
            return _compared(field, _RELATIONS[function], value, schema, negated)
        case Call(function, (Literal(value), Field() as field)) if function in _RELATIONS:
            return _compared(field, _MIRRORED[_RELATIONS[function]], value, schema, negated)
        case Field():
            return _compared(node, "=", pa.scalar(True), schema, negated)
    raise _Untranslatable


def _place(field: Field, schema: _Known) -> tuple[int, pa.DataType]:
    name, *inner = field.path
    if inner or name not in schema:
        raise _Untranslatable
    return schema[name]


def _compared(field: Field, relation: str, value: pa.Scalar, schema: _Known, negated: bool) -> Compared:
    place, type_of_column = _place(field, schema)
    kind, converted = _value(value, type_of_column)
    if kind == "boolean" and relation not in ("=", "!="):
        raise _Untranslatable
    with_nan = kind == "float" and (relation == "!=") is not negated
    return Compared(place, kind, _NEGATED[relation] if negated else relation, converted, with_nan)


def _is_in(field: Field, values: pa.ListScalar, matching: pa.Scalar, schema: _Known, negated: bool) -> IsIn:
    place, type_of_column = _place(field, schema)
    if matching.as_py() != _MATCH or not 0 < len(values) <= _MOST_VALUES:
        raise _Untranslatable
    found = [_value(value, type_of_column) for value in values if value.is_valid]
    if not found or found[0][0] == "float":
        raise _Untranslatable
    return IsIn(place, found[0][0], tuple(value for _, value in found), len(found) < len(values), negated)


#: Arrow's `SetLookupOptions::MATCH`: null is like any other value.
_MATCH: Final = 0


def _value(value: pa.Scalar, column: pa.DataType) -> tuple[str, Any]:
    """The kind of a column and a literal for it, as both systems see it."""
    if not value.is_valid:
        raise _Untranslatable
    given = value.type
    if kinds.is_signed_integer(column) and kinds.is_integer(given):
        return "integer", _long(value.as_py())
    if kinds.is_boolean(column) and kinds.is_boolean(given):
        return "boolean", value.as_py()
    if kinds.is_string(column) and (kinds.is_string(given) or kinds.is_large_string(given)):
        return "string", value.as_py()
    if kinds.is_date32(column) and kinds.is_date32(given):
        return "date", value.value
    if kinds.is_timestamp(column) and kinds.is_timestamp(given):
        if column.tz is not None and given.tz is not None and given.unit == column.unit == "us":
            return "timestamp", value.value
    elif kinds.is_floating(column) and (kinds.is_integer(given) or kinds.is_floating(given)):
        number = value.as_py()
        rounded = float(np.float32(number)) if kinds.is_float32(column) else float(number)
        if rounded == number:
            return "float", rounded
    raise _Untranslatable


def _long(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise _Untranslatable
    return number


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def spark_column(condition: Condition, column: Callable[[int], Column]) -> Column:
    """The condition in Spark; `column` returns the column at a position."""
    match condition:
        case Joined():
            columns = [spark_column(part, column) for part in condition.parts]
            return reduce(operator.and_ if condition.needs_all else operator.or_, columns)
        case IsNull():
            given = column(condition.place)
            return given.isNotNull() if condition.negated else given.isNull()
        case IsIn():
            return _spark_is_in(condition, column(condition.place))
        case Compared(kind="float"):
            return _spark_float(condition, column(condition.place))
        case Compared():
            given, kind = column(condition.place), condition.kind
            if kind == "string" and condition.relation != "=":
                given, kind = given.cast("binary"), "bytes"
            compared: Column = _COMPARISONS[condition.relation](given, _literal(kind, condition.value))
            return compared


def _spark_is_in(condition: IsIn, column: Column) -> Column:
    kind, compared = condition.kind, column
    if kind == "string" and condition.negated:
        kind, compared = "bytes", column.cast("binary")
    found = compared.isin([_literal(kind, value) for value in condition.values])
    if condition.negated:
        return ~found & column.isNotNull() if condition.with_null else ~found | column.isNull()
    return found | column.isNull() if condition.with_null else found


def _spark_float(condition: Compared, column: Column) -> Column:
    from pyspark.sql import functions as F

    relation, value = condition.relation, condition.value
    if value == 0.0 and relation in ("=", "!="):
        is_zero = (column >= F.lit(-0.0)) & (column <= F.lit(0.0))
        found = is_zero if relation == "=" else ~is_zero
    else:
        zero = -0.0 if relation in (">=", "<") else 0.0
        found = _COMPARISONS[relation](column, F.lit(value or zero))
    if condition.with_nan:
        # Spark does not push an `or` with `isnan` down to files, whose statistics may ignore NaN.
        return found | F.isnan(column)
    return found & ~F.isnan(column) if relation in (">", ">=") else found


def _literal(kind: str, value: Any) -> Column:
    from pyspark.sql import functions as F

    # Dates and times of Python would pass through Java's old calendar and the session's time zone.
    match kind:
        case "date":
            return F.date_from_unix_date(F.lit(value))
        case "timestamp":
            return F.timestamp_micros(F.lit(value).cast("long"))
        case "bytes":
            return F.lit(value).cast("binary")
    return F.lit(value)
