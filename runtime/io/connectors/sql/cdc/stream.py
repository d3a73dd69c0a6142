"""`ReplicationStream`: a connection that streams the changes of a slot.

psycopg does not implement the replication protocol. But libpq transports its messages, and psycopg exposes
libpq. Only one thread at a time uses the stream. Only `start` and the calls of `Postgres` block.

https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from struct import Struct
from typing import Final

import psycopg
from psycopg import pq, sql

from penstock.runtime.errors import ConnectorError, LostInputError
from penstock.runtime.io.connectors.sql.cdc.pgoutput import lsn_text
from penstock.runtime.io.connectors.sql.postgres import Postgres
from penstock.runtime.redaction import redacted

#: First byte of a message with data, and of a keepalive message.
DATA: Final = ord("w")
KEEPALIVE: Final = ord("k")
#: Length of the header of a message with data.
HEADER: Final = 25

_NO_RIGHT: Final = "permission denied to start WAL sender"
_STATUS: Final = Struct(">cQQQqB")
_EPOCH: Final = 946_684_800.0


class SlotInUseError(ConnectorError):
    """Another process reads the slot."""


class ReplicationStream(Postgres):
    def __init__(self, url: str, timeout: float, name: str) -> None:
        try:
            super().__init__(url, timeout, name, replication=True)
        except ConnectorError as error:
            if _NO_RIGHT not in str(error):
                raise
            user = psycopg.conninfo.conninfo_to_dict(url).get("user")
            msg = f"{error} Give the user this right: ALTER ROLE {user} REPLICATION"
            raise ConnectorError(msg) from None

    def system(self) -> str:
        """The identifier of the database cluster."""
        return str(self.query("identify the server", "IDENTIFY_SYSTEM")[0][0])

    def start(self, slot: str, lsn: int, publication: str) -> None:
        """Begin to stream all transactions that were committed after an LSN.

        Raises:
            SlotInUseError: Another process reads the slot.
            LostInputError: The server has invalidated the slot.
            ConnectorError: The server refuses the request for another reason.
        """
        names = sql.Identifier(publication).as_string(self._connection).replace("'", "''")
        command = (
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(lsn)} '
            f"(proto_version '1', publication_names '{names}')"
        )
        with self._call(f"stream the slot {slot}"):
            result = self._connection.pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._refusal(result)
        self._connection.pgconn.nonblocking = 1

    def take(self) -> bytes | None:
        """The next message; `None` if none has arrived.

        Raises:
            ConnectorError: The server has ended the stream.
        """
        connection = self._connection.pgconn
        try:
            size, data = connection.get_copy_data(1)
            if size == 0:
                connection.consume_input()
                size, data = connection.get_copy_data(1)
        except psycopg.Error as error:
            raise self._broken(error) from None
        if size > 0:
            return bytes(data)
        if size == 0:
            return None
        result = connection.get_result()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            msg = f"{self.where} has ended the stream: is the server shutting down?"
            raise ConnectorError(msg)
        raise self._refusal(result)

    async def readable(self, seconds: float) -> bool:
        """Wait for more data; return whether there may be some."""
        loop = asyncio.get_running_loop()
        has_data = asyncio.Event()
        try:
            socket = self._connection.pgconn.socket
        except psycopg.Error as error:
            raise self._broken(error) from None
        loop.add_reader(socket, has_data.set)
        try:
            async with asyncio.timeout(seconds):
                await has_data.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(socket)
        return True

    def report(self, received: int, confirmed: int) -> None:
        """Send a status update, and request a reply.

        Args:
            received: LSN up to which all data has arrived.
            confirmed: LSN up to which the server may remove the data.
        """
        micros = int((time.time() - _EPOCH) * 1_000_000)
        connection = self._connection.pgconn
        try:
            connection.put_copy_data(_STATUS.pack(b"r", received, confirmed, confirmed, micros, 1))
            connection.flush()
        except psycopg.Error as error:
            raise self._broken(error) from None

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):  # the server may have closed it before
            self._connection.close()

    def _broken(self, error: psycopg.Error) -> ConnectorError:
        said = redacted(" ".join(str(error).split()))
        return ConnectorError(f"{self.where}: the connection is lost: {said}")

    def _refusal(self, result: pq.abc.PGresult) -> ConnectorError | LostInputError:
        field = result.error_field
        code = field(pq.DiagnosticField.SQLSTATE) or b""
        parts = (pq.DiagnosticField.MESSAGE_PRIMARY, pq.DiagnosticField.MESSAGE_DETAIL)
        said = redacted(": ".join(text.decode() for part in parts if (text := field(part))))
        if code == b"55006":
            return SlotInUseError(f"{self.where}: {said}")
        if code == b"55000":
            return LostInputError(
                f"{self.where} can't stream: {said}. Drop the slot, and start the job without this snapshot"
            )
        return ConnectorError(f"{self.where} can't stream: {said}")
