"""`TableClient`: calls a catalog for one table, each time in a separate thread and with a timeout.

A catalog is a server or a database. A call that hangs would hold up the checkpoints of a job for ever. So
each call runs in a daemon thread, and the task waits for `timeout` at most. A call that is late may still
take effect: it is one request, and the next attempt finds its effect in the table. Work on many rows is a
call for each batch. So the length of a call depends on the storage, and not on the size of the table.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, ConnectorError, PenstockError
from penstock.runtime.io.connectors.daemon_threads import in_thread
from penstock.runtime.io.connectors.iceberg.columns import PartitionColumn
from penstock.runtime.redaction import redacted
from penstock.runtime.time.durations import seconds_in

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

T = TypeVar("T")

#: Properties whose values errors may show.
_SHOWN: Final = ("type", "uri", "warehouse")

#: Maximum number of tries of a change while other writers change the table.
_MOST_TRIES: Final = 20


def check_installed() -> None:
    if importlib.util.find_spec("pyiceberg") is None:
        msg = "Iceberg tables need the library pyiceberg: pip install 'penstock[iceberg]'"
        raise ConfigurationError(msg)


def checked_table(table: str, timeout: Any) -> float:
    """Check the settings that the sink and the source share; return the timeout in seconds."""
    check_installed()
    if len(table.split(".")) < 2 or not all(table.split(".")):
        msg = f"table={table!r} is not allowed: give a namespace and a name, such as 'shop.orders'"
        raise ConfigurationError(msg)
    return seconds_in("catalog_timeout", timeout, above=0.0)


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings among the values of properties, which may be nested."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


@dataclass
class TableClient:
    """Calls the catalog of one table.

    Attributes:
        identifier: Namespace and name of the table.
        name: Name of the catalog.
        properties: Properties of the catalog, as pyiceberg has them.
        timeout: Maximum seconds of one call.
    """

    identifier: str
    name: str
    properties: Mapping[str, str] = field(repr=False)
    timeout: float
    _catalog: Catalog | None = field(default=None, init=False)

    def call(self, what: str, work: Callable[[], T]) -> T:
        """Run work that calls the catalog or reads the table's metadata.

        Args:
            what: What the work does, for errors, such as `"load the table"`.

        Raises:
            ConnectorError: The call has failed, or it has taken too long.
        """
        future = in_thread(work)
        try:
            return future.result(self.timeout)
        except PenstockError:
            raise
        except Exception as error:
            if isinstance(error, LateError) and not future.done():
                msg = (
                    f"table {self.identifier}: the catalog did not answer within {self.timeout:g} s "
                    f"({what}). Check the catalog and the network, or raise catalog_timeout"
                )
                raise ConnectorError(msg) from None
            raise self.failed(what, error) from error

    def each(self, what: str, batches: Iterator[T]) -> Iterator[T]:
        """Iterate over batches that are read from the storage; each of them is a call."""
        while (batch := self.call(what, lambda: next(batches, None))) is not None:
            yield batch

    def failed(self, what: str, error: Exception) -> ConnectorError:
        cause = redacted(str(error)).split("\n", 1)[0]
        hidden = {name: value for name, value in self.properties.items() if name not in _SHOWN}
        for value in _texts(hidden):
            for form in (value, value.strip(), repr(value)[1:-1]):
                if len(form) > 3:
                    cause = cause.replace(form, "***")
        return ConnectorError(
            f"table {self.identifier}: it failed to {what}: {type(error).__name__}: {cause}. Check catalog=, "
            "the permissions and the storage"
        )

    def find(self) -> Table | None:
        """Load the table as it is now; `None` if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        def load() -> Table | None:
            try:
                return self._connected().load_table(self.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

        return self.call("load the table", load)

    def load(self) -> Table:
        """Load the table as it is now.

        Raises:
            ConnectorError: There is no such table.
        """
        table = self.find()
        if table is None:
            msg = f"there is no table {self.identifier} in the catalog: check the name, or create it first"
            raise ConnectorError(msg)
        return table

    def change(self, step: Callable[[Table], T | None], load: Callable[[], Table] | None = None) -> T:
        """Repeat a step until it returns a result; other writers may change the table at any time.

        Args:
            step: Gets the table as it is now. If a call in it is refused, the step is tried once more. While
                other writers change the table, it is tried up to 20 times. A timeout ends the tries.
            load: Loads the table; by default the method of this name.

        Raises:
            ConnectorError: The step has failed, and no other writer was the reason; or it fails each time.
        """
        seen: str | None = None
        failure: ConnectorError | None = None
        for _ in range(_MOST_TRIES):
            table = (load or self.load)()
            if failure is None or seen != table.metadata_location:
                seen, failure = table.metadata_location, None
            try:
                done = step(table)
                if done is not None:
                    return done
            except ConnectorError as error:
                if failure is not None or error.__cause__ is None:
                    raise
                failure = error
        msg = (
            f"table {self.identifier}: a change has failed {_MOST_TRIES} times, each time because another "
            f"writer changed the table: {failure}. Let fewer jobs write this table at a time"
        )
        raise ConnectorError(msg) from failure

    def make(
        self, schema: pa.Schema, partition_by: Sequence[PartitionColumn], properties: Mapping[str, str]
    ) -> Table:
        """Create the table and its namespace; load the table if another process was faster."""

        def create() -> None:
            catalog, namespace = self._connected(), self.identifier.rpartition(".")[0]
            try:
                catalog.create_namespace_if_not_exists(namespace)
            except Exception:
                # Another process may create it at the same time: SQL catalogs then raise a database's error.
                catalog.create_namespace_if_not_exists(namespace)
            transaction = catalog.create_table_transaction(
                self.identifier, schema, properties=dict(properties)
            )
            with transaction:
                if partition_by:
                    with transaction.update_spec() as update:
                        for column in partition_by:
                            update.add_field(column.source, column.transform)

        try:
            self.call("create the table", create)
        except ConnectorError as error:
            # Catalogs refuse the second of two creations with different errors.
            if error.__cause__ is None or (found := self.find()) is None:
                raise
            return found
        return self.load()

    def close(self) -> None:
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _connected(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        if self._catalog is None:
            try:
                self._catalog = load_catalog(self.name, **dict(self.properties))
            except Exception as error:
                if type(error).__module__.partition(".")[0] != "sqlalchemy":
                    raise
                # Another process may create the tables of a new SQL catalog at the same time.
                self._catalog = load_catalog(self.name, **dict(self.properties))
        return self._catalog
