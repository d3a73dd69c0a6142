"""Checks Avro schemas, finds their Arrow types, and selects the schemas that pyruhvro decodes to columns.

Columns have these types. A nullable type is a union of null and the type.

    boolean, int, long, float, double            bool, int32, int64, float, double
    string, enum, uuid                           string
    bytes, fixed                                 binary
    date, time-millis, time-micros               date32, time32[ms], time64[us]
    timestamp-millis, timestamp-micros           timestamp in UTC
    local-timestamp-millis, -micros              timestamp without a zone
    decimal                                      decimal128
    array, map, record                           list, map, struct

pyruhvro crashes the process for a huge array of nulls, and keeps both entries of a map that has a key twice.
It lacks bytes, decimals and times of day. Such schemas are left to fastavro.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.formats.settings import imported

_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
#: Plain types of pyruhvro. An array of nulls has no bytes for its items, so a few bytes may claim billions.
_FAST: Final = _PLAIN.keys() - {"null", "bytes"}
#: Logical types as pyruhvro knows them; the columns are cast afterwards.
_FAST_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp-millis",
    ("long", "timestamp-micros"): "timestamp-micros",
    ("long", "local-timestamp-millis"): "timestamp-millis",
    ("long", "local-timestamp-micros"): "timestamp-micros",
}
#: Types to which a type can be promoted, by Avro's rules of schema resolution.
WIDER: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
}


class NoColumnsError(ConfigurationError):
    """An Avro schema has no Arrow columns; the message names the type."""


class FastSchema(NamedTuple):
    """A schema that pyruhvro decodes.

    Attributes:
        text: The schema for pyruhvro, as JSON.
        columns: The columns; all are nullable.
        is_flat: Whether no field is a record, an array or a map.
    """

    text: str
    columns: pa.Schema
    is_flat: bool


def parsed_schema(schema: str | Mapping[str, Any], parts: Sequence[str] = ()) -> dict[str, Any]:
    """Parse and check a schema; a string of logical type uuid becomes a plain string.

    Args:
        parts: Schemas of types that the schema refers to. A part follows the parts that it refers to.

    Raises:
        ConfigurationError: The schema is not an Avro schema of a record.
    """
    fastavro = imported("fastavro", "Avro", "avro")
    try:
        plain = json.loads(schema) if isinstance(schema, str) else schema
        named: dict[str, Any] = {}
        for part in parts:
            fastavro.parse_schema(_without_uuids(json.loads(part)), named)
        found = fastavro.parse_schema(_without_uuids(plain), named)
        if parts:
            found = fastavro.parse_schema(_with_types(found, named, set()))
    except fastavro.schema.UnknownType as error:
        msg = f"schema= is not an Avro schema: it names the unknown type {error}"
        raise ConfigurationError(msg) from error
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        msg = f"schema= is not an Avro schema: {type(error).__name__}: {error}"
        raise ConfigurationError(msg) from error
    if not isinstance(found, dict) or found.get("type") != "record":
        msg = f"schema= must be an Avro record, but it is {found!r:.200}"
        raise ConfigurationError(msg)
    return found


def _without_uuids(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_uuids(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    is_uuid = schema.get("type") == "string" and schema.get("logicalType") == "uuid"
    return {
        name: value if name == "default" else _without_uuids(value)
        for name, value in schema.items()
        if not (is_uuid and name == "logicalType")
    }


def _with_types(schema: Any, named: Mapping[str, Any], known: set[str]) -> Any:
    """Return a parsed schema that defines each type where it is first used.

    Args:
        known: Names of types that the schema has already defined.
    """
    if isinstance(schema, str):
        return schema if schema not in named or schema in known else _with_types(named[schema], named, known)
    if isinstance(schema, list):
        return [_with_types(part, named, known) for part in schema]
    if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
        known.add(schema["name"])
    found = {name: value for name, value in schema.items() if not name.startswith("__")}
    for name in ("type", "items", "values"):
        if name in found and not (name == "type" and found["type"] in ("record", "enum", "fixed")):
            found[name] = _with_types(found[name], named, known)
    if "fields" in found:
        found["fields"] = [
            {**field, "type": _with_types(field["type"], named, known)} for field in found["fields"]
        ]
    return found


def columns_of(schema: Mapping[str, Any]) -> pa.Schema:
    """The columns of a parsed schema.

    Raises:
        NoColumnsError: A type has no Arrow type.
    """
    known: dict[str, Any] = {}
    return pa.schema(list(_arrow_type(schema, known, ())))


def _arrow_type(schema: Any, known: dict[str, Any], outer: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        inner = [part for part in schema if part != "null"]
        if len(inner) != 1:
            msg = f"the Avro union {schema!r:.200} has no Arrow type: decode to rows instead"
            raise NoColumnsError(msg)
        return _arrow_type(inner[0], known, outer)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in outer:
            msg = f"the Avro record {schema!r} is recursive and has no Arrow type: decode to rows instead"
            raise NoColumnsError(msg)
        return _arrow_type(known[schema], known, outer)
    kind = schema["type"]
    if "name" in schema:
        known[schema["name"]] = schema
    if kind == "record":
        inside = (*outer, schema["name"])
        return pa.struct(
            [(field["name"], _arrow_type(field["type"], known, inside)) for field in schema["fields"]]
        )
    if kind == "array":
        return pa.list_(_arrow_type(schema["items"], known, outer))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_type(schema["values"], known, outer))
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind == "fixed":
        return pa.binary()
    if kind == "enum":
        return pa.string()
    logical = _LOGICAL.get((kind, schema.get("logicalType", "")))
    return _arrow_type(kind, known, outer) if logical is None else logical


class _SlowError(Exception):
    """pyruhvro can't decode a type."""


def fast_schema(schema: Mapping[str, Any]) -> FastSchema | None:
    """A parsed schema for pyruhvro; `None` if fastavro must decode it."""
    try:
        plain = _fast_record(schema)
        columns = columns_of(schema)
    except (_SlowError, NoColumnsError):
        return None
    is_flat = not any(pa.types.is_nested(kind) for kind in columns.types)
    return FastSchema(json.dumps(plain), columns, is_flat)


def _fast(schema: Any) -> Any:
    if isinstance(schema, list):
        if len(schema) != 2 or "null" not in schema:
            raise _SlowError
        return ["null" if part == "null" else _fast(part) for part in schema]
    if isinstance(schema, str):
        if schema not in _FAST:  # true also of a named type that is used again
            raise _SlowError
        return schema
    kind = schema["type"]
    make = _FAST_KINDS.get(kind) if isinstance(kind, str) else None
    if make is not None:
        return make(schema)
    if kind in ("map", "fixed"):
        raise _SlowError
    if "logicalType" not in schema:
        return _fast(kind)
    logical = _FAST_LOGICAL.get((kind, schema["logicalType"]))
    if logical is None:
        raise _SlowError
    return {"type": kind, "logicalType": logical}


def _fast_record(schema: Any) -> Any:
    if not schema["fields"]:
        raise _SlowError
    fields = [{"name": field["name"], "type": _fast(field["type"])} for field in schema["fields"]]
    return {"type": "record", "name": schema["name"], "fields": fields}


_FAST_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "record": _fast_record,
    "array": lambda schema: {"type": "array", "items": _fast(schema["items"])},
    "enum": lambda schema: {"type": "enum", "name": schema["name"], "symbols": schema["symbols"]},
}
