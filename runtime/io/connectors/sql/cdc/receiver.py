"""`CdcReceiver`: reads the snapshot of the tables, and then follows the stream of the slot.

It retries only one thing: taking the slot while another process holds it. Any other error fails the attempt,
and the next attempt begins at the last checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.runtime.errors import ConnectorError, LostInputError, PenstockError
from penstock.runtime.io.connectors.sql.cdc.catalog import Catalog
from penstock.runtime.io.connectors.sql.cdc.changes import ChangeBatch
from penstock.runtime.io.connectors.sql.cdc.pgoutput import (
    UNCHANGED,
    Begin,
    Relation,
    Value,
    lsn_text,
    read_begin,
    read_commit,
    read_oid,
    read_relation,
    read_row,
    read_truncate,
)
from penstock.runtime.io.connectors.sql.cdc.snapshot import begin_snapshot, fetch, open_cursor
from penstock.runtime.io.connectors.sql.cdc.split import CdcSplit, CdcTable, Key, key_reader
from penstock.runtime.io.connectors.sql.cdc.stream import DATA, HEADER, ReplicationStream, SlotInUseError
from penstock.runtime.io.connectors.sql.postgres import Postgres
from penstock.runtime.operators.change_kinds import ChangeKind
from penstock.runtime.operators.source import Polled
from penstock.runtime.time.durations import as_seconds

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.messages.fetcher import Inbox
    from penstock.runtime.io.connectors.sql.cdc.source import PostgresCdcSource

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds between two status updates.
_STATUS: Final = 1.0
#: Seconds that a batch waits for further changes: after its last change, and at most after its first one.
_LINGER: Final = 0.002
_LONGEST: Final = 0.02
#: Size in bytes at which a batch is full, since rows may be large.
_MOST_BYTES: Final = 8 << 20
#: Rows of the first page of a table, whose size is not known.
_FIRST_ROWS: Final = 64
#: Factor by which a page may have more rows than the one before it; later rows may be larger.
_GROWTH: Final = 8
#: Seconds between two tries to take a slot that another process holds.
_AGAIN: Final = 0.2
#: Ids of types that are built in are below this one.
_FIRST_USER_TYPE: Final = 16_384

_BEGIN, _COMMIT, _RELATION, _TRUNCATE = map(ord, "BCRT")
_INSERT, _UPDATE, _DELETE = map(ord, "IUD")
_CHANGES: Final = frozenset([_INSERT, _UPDATE, _DELETE, _TRUNCATE])
_NEW, _OLD, _OLD_KEY = map(ord, "NOK")


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Run a call in a thread. If it is cancelled, wait for the end of the call first.

    The next step closes the connection, and libpq would free the memory that the call still uses. Every call
    of a `Postgres` ends within its timeout, so the wait is bounded, too.
    """
    work = asyncio.get_running_loop().create_task(asyncio.to_thread(call, *arguments))
    is_cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:  # raised again below
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError from work.exception()
    return work.result()


class CdcReceiver:
    """Reads one slot.

    Args:
        names: Prefix of the names of this job's connections, and the attempt.
    """

    transient: tuple[type[BaseException], ...] = ()

    def __init__(
        self, source: PostgresCdcSource, split: CdcSplit, where: str, names: tuple[str, int]
    ) -> None:
        self._source = source
        self._split = split
        self._prefix, self._attempt = names
        self._timeout = as_seconds(source.timeout)
        self._base_types: dict[int, tuple[int, int]] = {}
        self._changes = ChangeBatch(source.batch_format, source.fields, self._base_types)
        self._catalog: Catalog | None = None
        self._stream: ReplicationStream | None = None
        self._status: asyncio.Task[None] | None = None
        self._is_asking = asyncio.Lock()
        #: LSN up to which a completed checkpoint covers all changes.
        self._confirmed = split.lsn
        self._received = split.lsn
        #: Set when a table is gone, renamed or unpublished: the end of the log at that time, and the message.
        self._happened: tuple[int, str] | None = None
        self._relations: dict[int, Relation] = {}
        self._tables = {table.oid: table for table in split.tables}
        #: Position of the last batch, without a partly read transaction, and the start time of the next one.
        self._handed_out = split
        self._first_at = 0.0
        self._bytes = 0
        # The transaction that is being read:
        self._begin: Begin | None = None
        self._commit = (0, 0)
        self._count = 0
        self._skipped = 0
        self._verdicts: dict[int, bool | tuple[bool, ...]] = {}
        self._keys: dict[int, Callable[[Sequence[object]], Key]] = {}
        self.where = where

    async def receive(self, inbox: Inbox) -> None:
        self._catalog = catalog = await in_thread(self._open)
        if self._split.reading is not None:
            await self._read_snapshot(inbox)
        await self._start(catalog)
        await self._follow(inbox)

    async def acknowledge(self, tokens: Sequence[int]) -> None:
        """Let the server remove changes that a completed checkpoint covers."""
        self._confirmed = max(self._confirmed, *tokens)
        if self._stream is not None:
            self._stream.report(self._received, self._confirmed)

    async def find_end(self) -> int | None:
        """Return the end of the log; also check that the changes of all tables still come."""
        if self._catalog is None:
            return None
        end, happened = await self._ask(self._catalog.look, self._split.tables)
        if happened is not None and self._happened is None:
            self._happened = end, happened
        return end

    async def close(self) -> None:
        if self._status is not None:
            self._status.cancel()
        for connection in (self._stream, self._catalog):
            if connection is not None:
                await in_thread(connection.close)

    def _connect(self) -> Postgres:
        return self._source.connect(f"{self._prefix}{self._attempt}")

    def _open(self) -> Catalog:
        """Connect, end earlier attempts, and compare the tables with those of the position."""
        source, split = self._source, self._split
        catalog = Catalog(self._connect(), source.publication, source.slot)
        catalog.database.fence(self._prefix, self._attempt)
        catalog.check_settings()
        catalog.check_nothing_lost(split.lsn)
        found, _ = catalog.tables(source.tables)
        known = {table.oid: table for table in split.tables}
        for each in found:
            if each.table.oid not in known:
                msg = (
                    f"{self.where}: the restored state does not know the table {each.table.name}, so its "
                    "rows and earlier changes would be missing. Was it added to tables=, or dropped and "
                    "created again? Start a job without this snapshot, or read it with a source of its own"
                )
                raise ConnectorError(msg)
        named = {each.table.oid: each.table for each in found}
        kept = tuple(
            replace(table, name=named[table.oid].name) for table in split.tables if table.oid in named
        )
        reading = split.reading
        if reading is not None:  # tables before this index have been read
            reading = sum(table.oid in named for table in split.tables[:reading])
            kept = (
                *kept[:reading],
                *(replace(table, columns=named[table.oid].columns) for table in kept[reading:]),
            )
        self._split = replace(split, tables=kept, reading=reading)
        self._tables = {table.oid: table for table in kept}
        types = {column[1] for table in kept for column in table.columns}
        self._base_types.update(catalog.base_types(sorted(types)))
        return catalog

    async def _ask(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the catalog in a thread; its connection serves one call at a time."""
        async with self._is_asking:
            return await in_thread(call, *arguments)

    # -- the snapshot -------------------------------------------------------------------------------------

    async def _read_snapshot(self, inbox: Inbox) -> None:
        database = await in_thread(self._connect)
        try:
            snapshot, lsn, timestamp = await in_thread(begin_snapshot, database)
            # Later transactions are in no chunk.
            self._split = replace(self._split, settled=max(self._split.settled, lsn))
            while self._split.reading is not None and self._split.reading < len(self._split.tables):
                await self._read_table(inbox, database, self._split.reading, snapshot, (lsn, timestamp))
            self._split = replace(self._split, reading=None)
            await inbox.put(Polled(), self._split)
        finally:
            await in_thread(database.close)

    async def _read_table(
        self, inbox: Inbox, database: Postgres, index: int, snapshot: str, commit: tuple[int, int]
    ) -> None:
        table = self._split.tables[index]
        schema, _, name = table.name.partition(".")
        relation = Relation(table.oid, schema, name, "f", table.columns, (True,) * len(table.columns))
        key_of = key_reader(table.columns, table.key)
        await in_thread(open_cursor, database, table)
        most = _FIRST_ROWS
        while True:
            limit = min(inbox.max_rows, self._source.page_rows, most)
            rows = await in_thread(fetch, database, limit, len(table.columns))
            for row in rows:
                self._changes.add("insert", relation, row, commit)
            most = _rows_that_fit(rows)
            is_last = len(rows) < limit
            table = table.read_to(None if is_last else key_of(rows[-1]), snapshot)
            self._tables[table.oid] = table
            self._split = replace(self._split.with_table(table), reading=index + 1 if is_last else index)
            batch = await in_thread(self._changes.take)
            await inbox.put(Polled(batch), self._split)
            if is_last:
                await in_thread(database.query, "read", "CLOSE rows")
                return

    # -- the stream ---------------------------------------------------------------------------------------

    async def _start(self, catalog: Catalog) -> None:
        """Take the slot, as soon as no other process holds it."""
        stream = await in_thread(self._source.connect_stream, f"{self._prefix}{self._attempt}")
        try:
            system = await in_thread(stream.system)
            if system != self._split.system:
                msg = (
                    f"{self.where} is the database system {system}, but the restored state is of "
                    f"{self._split.system}. Start a job without this snapshot for another server"
                )
                raise LostInputError(msg)
            give_up_at = time.monotonic() + self._timeout
            while True:
                try:
                    await in_thread(
                        stream.start, self._source.slot, self._split.lsn, self._source.publication
                    )
                    break
                except SlotInUseError as error:
                    if time.monotonic() > give_up_at:
                        msg = (
                            f"{error}. It has been in use for {self._timeout:g} s. Does another job use the "
                            "slot? Stop that job, or end its connection with pg_terminate_backend"
                        )
                        raise ConnectorError(msg) from None
                await asyncio.sleep(_AGAIN)
            # An earlier attempt may have moved the slot in the meantime.
            await self._ask(catalog.check_nothing_lost, self._split.lsn)
        except BaseException:
            stream.close()
            raise
        self._stream = stream
        self._status = asyncio.get_running_loop().create_task(self._send_status(stream))

    async def _send_status(self, stream: ReplicationStream) -> None:
        while True:
            try:
                stream.report(self._received, self._confirmed)
            except ConnectorError as error:  # `take` raises it again
                logger.info("%s", error)
                return
            await asyncio.sleep(_STATUS)

    async def _follow(self, inbox: Inbox) -> None:
        stream, changes = self._stream, self._changes
        assert stream is not None, "it was started"
        answered_at = time.monotonic()
        while True:
            message = stream.take()
            if message is not None:
                if message[0] == DATA:
                    await self._handle_or_fail(message, inbox)
                else:
                    self._keepalive(int.from_bytes(message[1:9], "big"))
                if self._begin is not None or not self._is_full(inbox):
                    continue
            now = time.monotonic()
            if self._begin is None and self._has_ended():
                await self._put(inbox, is_last=True)
                return
            if not changes and self._split is self._handed_out:
                self._check_tables()
                if await stream.readable(_STATUS):
                    answered_at = time.monotonic()
                elif now - answered_at > self._timeout:
                    msg = f"{self.where} gave no answer for {self._timeout:g} s"
                    raise ConnectorError(msg)
                self._first_at = 0.0
                continue
            self._first_at = self._first_at or now
            if self._is_full(inbox) or now - self._first_at >= _LONGEST or not await stream.readable(_LINGER):
                await self._put(inbox)
                answered_at = time.monotonic()

    async def _put(self, inbox: Inbox, *, is_last: bool = False) -> None:
        begin, position = self._begin, self._split
        if begin is not None and self._count > self._skipped:
            position = replace(position, commit_lsn=begin.commit_lsn, changes=self._count)
        batch = self._changes.take()
        self._handed_out, self._first_at, self._bytes = self._split, 0.0, 0
        await inbox.put(Polled(batch), position, (position.lsn,), is_last=is_last)
        await asyncio.sleep(0)  # lets status updates be sent even while there is always more data

    def _is_full(self, inbox: Inbox) -> bool:
        return len(self._changes) >= inbox.max_rows or self._bytes >= _MOST_BYTES

    def _has_ended(self) -> bool:
        return self._split.stop is not None and self._split.lsn >= self._split.stop

    def _check_tables(self) -> None:
        """Fail if a table is gone, renamed or unpublished, once all changes before that have been read."""
        if self._happened is not None and self._split.lsn >= self._happened[0]:
            raise ConnectorError(self._happened[1])

    def _keepalive(self, end: int) -> None:
        """Move the position while no change comes, so that the server can remove its log."""
        self._received = max(self._received, end)
        if self._begin is None:
            self._move(end)

    def _move(self, lsn: int) -> None:
        if lsn > self._split.lsn:
            was_settled = not self._split.settled
            self._split = self._split.at(lsn)
            if not self._split.settled and not was_settled:
                self._tables = {table.oid: table for table in self._split.tables}

    async def _handle_or_fail(self, data: bytes, inbox: Inbox) -> None:
        """Handle a message; if that fails, first hand out what came before it."""
        try:
            await self._handle(data, inbox)
        except PenstockError:
            if data[HEADER] in _CHANGES:
                self._count -= 1  # so that the position is before it
            if self._changes:
                await self._put(inbox)
            raise

    async def _handle(self, data: bytes, inbox: Inbox) -> None:
        kind = data[HEADER]
        at = HEADER + 1
        if kind == _BEGIN:
            self._begin = begin = read_begin(data, at)
            self._commit = begin.commit_lsn, begin.timestamp
            self._count, self._skipped = 0, 0
            if begin.commit_lsn == self._split.commit_lsn:
                self._skipped = self._split.changes
            self._verdicts.clear()
        elif kind == _COMMIT:
            end = read_commit(data, at)
            self._received = max(self._received, end)
            self._begin = None
            self._move(end)
        elif kind == _RELATION:
            await self._relation(read_relation(data, at), inbox)
        elif kind in _CHANGES:
            if self._is_full(inbox):  # only now, since a batch had better end with its transaction
                await self._put(inbox)
            self._count += 1
            self._bytes += len(data)
            if self._is_read():
                return
            if kind == _TRUNCATE:
                self._truncated(read_truncate(data, at))
            else:
                self._change(kind, data, at)

    def _is_read(self) -> bool:
        """Whether the position already covers the change."""
        begin = self._begin
        assert begin is not None, "changes come in transactions"
        return self._count <= self._skipped or begin.commit_lsn < self._split.lsn

    # -- tables -------------------------------------------------------------------------------------------

    async def _relation(self, relation: Relation, inbox: Inbox) -> None:
        table = self._tables.get(relation.oid)
        if table is None:
            again = next((each for each in self._tables.values() if each.name == relation.label), None)
            if again is not None:
                msg = (
                    f"{self.where}: the table {again.name} was dropped and created again. Start a job "
                    "without this snapshot, which reads it again"
                )
                raise ConnectorError(msg)
            return
        unknown = {
            kind for _, kind, _ in relation.columns if kind >= _FIRST_USER_TYPE
        } - self._base_types.keys()
        if unknown:
            assert self._catalog is not None, "it is open"
            self._base_types.update(await self._ask(self._catalog.base_types, sorted(unknown)))
        # The record has the name that the table has now.
        schema, _, name = table.name.partition(".")
        relation = replace(relation, schema=schema, name=name)
        if not self._changes.fits(relation):
            await self._put(inbox)
        if self._split.settled == 0 and relation.columns != table.columns:
            self._altered(table, relation)
        self._relations[relation.oid] = relation
        self._keys.pop(relation.oid, None)

    def _altered(self, table: CdcTable, relation: Relation) -> None:
        """Follow a table that has other columns than before, or fail."""
        before = {name: kind for name, *kind in table.columns}
        after = {name: kind for name, *kind in relation.columns}
        gone = [name for name in before if name not in after]
        changed = [name for name in before if name in after and before[name] != after[name]]
        added = [name for name in after if name not in before]
        if (gone or changed) and self._source.on_schema_change == "error":
            if gone and added:
                what = f"the columns {gone} are gone, and {added} are new: were they renamed? "
            elif gone:
                what = f"the columns {gone} were dropped. "
            else:
                what = f"the columns {changed} have another type. "
            msg = (
                f"{self.where}: table {table.name} was altered: {what}Records from here on differ. Check the "
                'job, and restore the last checkpoint with on_schema_change="follow" to continue'
            )
            raise ConnectorError(msg)
        if added or gone or changed:
            logger.warning(
                "%s: table %s was altered: added %s, gone %s, other types %s",
                *(self.where, table.name, added, gone, changed),
            )
        table = replace(table, columns=relation.columns)
        self._tables[table.oid] = table
        self._split = self._split.with_table(table)

    def _truncated(self, oids: Sequence[int]) -> None:
        for oid in oids:
            table = self._tables.get(oid)
            if table is None:
                continue
            verdict = self._verdict(table)
            if verdict is False or self._source.on_truncate == "skip":
                continue
            msg = (
                f"{self.where}: table {table.name} was emptied by TRUNCATE at {lsn_text(self._commit[0])}, "
                "which no record can express. Correct what the job has written, and restore the last "
                'checkpoint with on_truncate="skip". Use DELETE to get a record for each row'
            )
            raise ConnectorError(msg)

    # -- changes ------------------------------------------------------------------------------------------

    def _change(self, kind: int, data: bytes, at: int) -> None:
        oid = read_oid(data, at)
        table = self._tables.get(oid)
        if table is None:
            return
        relation = self._relations[oid]
        verdict = self._verdict(table) if table.chunks else True
        if verdict is False:
            return
        old: list[Value] | None = None
        old_is_full = data[at + 4] == _OLD
        at += 4
        if data[at] in (_OLD, _OLD_KEY):
            old, at = read_row(data, at + 1)
        new = read_row(data, at + 1)[0] if kind != _DELETE else None
        if kind == _INSERT:
            assert new is not None, "an insert has a row"
            self._add("insert", relation, new, verdict)
        elif kind == _DELETE:
            assert old is not None, "a delete has the old row"
            self._add("delete", relation, old, verdict, is_full=old_is_full)
        else:
            assert new is not None, "an update has a row"
            present = None
            if UNCHANGED in new:
                new, present = self._completed(relation, new, old if old_is_full else None)
            if old is not None:
                self._add("update_preimage", relation, old, verdict, is_full=old_is_full)
            self._add("update_postimage", relation, new, verdict, present=present)

    def _completed(
        self, relation: Relation, new: list[Value], old: list[Value] | None
    ) -> tuple[list[Value], tuple[bool, ...] | None]:
        """Fill in the values that the server left out of a row; return the row, and which columns it has.

        Raises:
            ConnectorError: Values are missing, and the source must not leave fields out.
        """
        if old is not None:
            return [b if a is UNCHANGED else a for a, b in zip(new, old, strict=True)], None
        present = tuple(value is not UNCHANGED for value in new)
        if self._source.on_unchanged == "omit":
            return new, present
        columns = zip(relation.columns, present, strict=True)
        missing = [name for (name, *_), is_there in columns if not is_there]
        table = relation.label
        msg = (
            f"{self.where}: an update of table {table} lacks the columns {missing}: they are large, did not "
            f"change, and the table has no full replica identity. ALTER TABLE {table} REPLICA IDENTITY FULL "
            'sends them from now on. To read this update, set on_unchanged="omit", which leaves them out of '
            "such a record"
        )
        raise ConnectorError(msg)

    def _add(
        self,
        kind: ChangeKind,
        relation: Relation,
        values: Sequence[Value],
        verdict: bool | tuple[bool, ...],
        *,
        is_full: bool = True,
        present: tuple[bool, ...] | None = None,
    ) -> None:
        if verdict is not True and not self._is_new(relation, values, verdict):
            return
        if not is_full:
            present = relation.in_identity
        if present is not None and all(present):
            present = None
        if present is not None and self._source.batch_format == "arrow":
            msg = (
                f"{self.where}: a change of table {relation.label} lacks columns, but Arrow batches have all "
                f"of them: ALTER TABLE {relation.label} REPLICA IDENTITY FULL, or read rows"
            )
            raise ConnectorError(msg)
        self._changes.add(kind, relation, values, self._commit, present)

    def _verdict(self, table: CdcTable) -> bool | tuple[bool, ...]:
        if not table.chunks:
            return True
        verdict = self._verdicts.get(table.oid)
        if verdict is None:
            assert self._begin is not None, "changes come in transactions"
            verdict = self._verdicts[table.oid] = table.verdict(self._begin.xid)
        return verdict

    def _is_new(self, relation: Relation, values: Sequence[Value], verdict: bool | tuple[bool, ...]) -> bool:
        """Whether the snapshot of the row's chunk does not see the transaction."""
        if isinstance(verdict, bool):
            return verdict
        table = self._tables[relation.oid]
        read = self._keys.get(relation.oid)
        if read is None:
            read = self._keys[relation.oid] = key_reader(relation.columns, table.key)
        return verdict[table.chunk_of(read(values))]


def _rows_that_fit(rows: Sequence[Sequence[Value]]) -> int:
    """Number of rows for the next page, if its rows are as large as `rows`."""
    size = sum(len(value) for row in rows for value in row if isinstance(value, bytes))
    fit = len(rows) * _MOST_BYTES // max(size, 1)
    return max(1, min(fit, len(rows) * _GROWTH))
