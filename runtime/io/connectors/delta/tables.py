"""Opens Delta tables, and converts Arrow schemas to those that a Delta table can have."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.redaction import redacted

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Arrow types that Delta lacks, and the types that hold their values.
_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}

_SAME: Final = frozenset(
    [
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.string(),
        pa.binary(),
    ]
)

_MOST_DIGITS: Final = 38

#: A line of an error of the library that names a deeper cause, in colour.
_DEEPER: Final = re.compile(r"\s*\x1b\[\d+m\u21b3\x1b\[0m (?!<)(.*)")

StorageOptions: TypeAlias = Mapping[str, str]


def check_installed() -> None:
    if importlib.util.find_spec("deltalake") is None:
        msg = "Delta tables need the library deltalake: pip install 'penstock[delta]'"
        raise ConfigurationError(msg)


@contextmanager
def calls_to(path: str, beside: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn errors of the library into a `ConnectorError` that names the table, except those of `beside`."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except beside:
        raise
    except Exception as error:
        # Some errors of the library have no class of their own.
        if not isinstance(error, DeltaError | OSError) and type(error) is not Exception:
            raise
        msg = f"table {path}: {_cause_of(error)}. Check the path, the permissions and storage_options"
        raise ConnectorError(msg) from error


def _cause_of(error: Exception) -> str:
    """The library's message: its first line, and those that name deeper causes; without stacks and XML."""
    first, *others = str(error).split("\n")
    deeper = [found[1] for line in others if (found := _DEEPER.match(line)) is not None]
    return redacted(": ".join([first, *deeper]))


def find_table(path: str, options: StorageOptions, version: int | None = None) -> DeltaTable | None:
    """Open a table at a version, by default at its newest; `None` if there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with calls_to(path):
        try:
            return DeltaTable(path, version=version, storage_options=dict(options) or None)
        except TableNotFoundError:
            return None


def make_table(
    path: str,
    options: StorageOptions,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    properties: Mapping[str, str],
) -> DeltaTable:
    """Create a table; return the existing one if another process was faster."""
    from deltalake import DeltaTable, Schema

    with calls_to(path):
        return DeltaTable.create(
            path,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties),
            storage_options=dict(options) or None,
        )


def arrow_schema_of(table: DeltaTable) -> pa.Schema:
    """The schema of a table, in types that Penstock writes."""
    return delta_schema(pa.schema(table.schema().to_arrow()))


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The schema whose columns a Delta table can have and that holds the same values.

    Raises:
        BadRecordError: A column has a type without a counterpart.

    Example:
        >>> delta_schema(pa.schema({"n": pa.uint8(), "at": pa.timestamp("ns", "Europe/Paris")})).types
        [DataType(int16), TimestampType(timestamp[us, tz=UTC])]
    """
    if len({name.lower() for name in schema.names}) < len(schema.names):
        msg = (
            "a Delta table needs column names that differ in more than upper and lower case, and the columns "
            f"are {schema.names}"
        )
        raise BadRecordError(msg)
    return pa.schema([_field(field, field.name) for field in schema])


def _field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _type(field.type, path), field.nullable)


def _type(kind: pa.DataType, path: str) -> pa.DataType:
    if kind in _SAME:
        return kind
    for is_kind, converted in _CONVERSIONS:
        if is_kind(kind):
            return converted(kind, path)
    if kinds.is_null(kind):
        msg = f"column '{path}' has only nulls in the first records, so its type is unknown: give schema="
        raise BadRecordError(msg)
    msg = (
        f"column '{path}' has the Arrow type {kind}, which a Delta table can't have: cast the column to a "
        "number, text, bytes, a date or a timestamp before the sink"
    )
    raise BadRecordError(msg)


def _timestamp(kind: Any, path: str) -> pa.DataType:
    return pa.timestamp("us", None if kind.tz is None else "UTC")


def _list(kind: Any, path: str) -> pa.DataType:
    element = kind.value_field
    return pa.list_(pa.field("element", _type(element.type, f"{path}[]"), element.nullable))


def _map(kind: Any, path: str) -> pa.DataType:
    value = pa.field("value", _type(kind.item_type, f"{path}.value"), kind.item_field.nullable)
    return pa.map_(_type(kind.key_type, f"{path}.key"), value)


def _struct(kind: Any, path: str) -> pa.DataType:
    return pa.struct([_field(field, f"{path}.{field.name}") for field in kind])


_CONVERSIONS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, str], pa.DataType]], ...]] = (
    (_WIDER.__contains__, lambda kind, path: _WIDER[kind]),
    (kinds.is_timestamp, _timestamp),
    (kinds.is_dictionary, lambda kind, path: _type(kind.value_type, path)),
    (lambda kind: kinds.is_decimal(kind) and kind.precision <= _MOST_DIGITS,
     lambda kind, path: pa.decimal128(kind.precision, kind.scale)),
    (lambda kind: kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind), _list),
    (kinds.is_map, _map),
    (kinds.is_struct, _struct),
)  # fmt: skip
