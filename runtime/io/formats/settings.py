"""Checks of the settings of formats, and imports and calls of their libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.elements import BatchFormat


def checked_batch_format(batch_format: str) -> BatchFormat:
    if batch_format == "rows":
        return "rows"
    if batch_format == "arrow":
        return "arrow"
    msg = f"batch_format={batch_format!r} is not allowed: use one of 'rows', 'arrow'"
    raise ConfigurationError(msg)


def checked_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns may be null; refuse a name that occurs twice, even in structs."""
    check_field_names(schema)
    return pa.schema([field.with_nullable(True) for field in schema])


def check_field_names(fields: Iterable[pa.Field]) -> None:
    seen: set[str] = set()
    for child in fields:
        if child.name in seen:
            msg = f"schema= has the field {child.name!r} twice"
            raise ConfigurationError(msg)
        seen.add(child.name)
        check_field_names(child.type.field(place) for place in range(child.type.num_fields))


def without_panic(call: Callable[..., Any], *values: Any) -> Any:
    """Call a library written in Rust, which may panic on damaged bytes instead of raising an error.

    Raises:
        ValueError: The library panicked.
    """
    try:
        return call(*values)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # it has no module to import it from
            raise
        msg = f"the library can't read it: {error}"
        raise ValueError(msg) from error


def imported(module: str, format_name: str, extra: str) -> Any:
    """Import a library of a format.

    Args:
        extra: The extra of Penstock that installs the library.

    Raises:
        ConfigurationError: The library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        msg = (
            f"the format {format_name} needs the library {error.name}, which is not installed here. Install "
            f"it on every node: pip install 'penstock[{extra}]'"
        )
        raise ConfigurationError(msg) from error
