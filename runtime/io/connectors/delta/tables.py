"""Opens Delta tables."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.tables.types import table_schema
from penstock.runtime.redaction import redacted

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: A line of an error of the library that names a deeper cause, in colour.
_DEEPER: Final = re.compile(r"\s*\x1b\[\d+m\u21b3\x1b\[0m (?!<)(.*)")

StorageOptions: TypeAlias = Mapping[str, str]


def check_installed() -> None:
    if importlib.util.find_spec("deltalake") is None:
        msg = "Delta tables need the library deltalake: pip install 'penstock[delta]'"
        raise ConfigurationError(msg)


@contextmanager
def calls_to(path: str, beside: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn errors of the library into a `ConnectorError` that names the table; errors in `beside` stay."""
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
    return table_schema(pa.schema(table.schema().to_arrow()))
