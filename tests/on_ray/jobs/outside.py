"""A system outside of a job, in a database file: its positions, its data with marks, and what hooks did.

It outlives every process of the job. Each answer of a hook is a position that was never given before. So a
restore shows from which answer it was made. Tests give orders: what happens to a hook at a place.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs.faults import kill_this_process

from penstock.connectors import ConnectorContext, Polled, Source, SourceReader
from penstock.operators import RowBatch
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import AttemptBegun, CheckpointCompleted, decode_record
from penstock.runtime.io.storage import ObjectStorage, open_storage
from penstock.runtime.snapshot.paths import SnapshotPaths

#: Places that a hook passes, ...
BEFORE: Final = "before its answer"
DURING: Final = "between what it does outside and its answer"
#: ... and that the JobMaster passes when all hooks have answered.
AT_RECORD: Final = "in front of the record"
BEHIND_RECORD: Final = "behind the record"
#: Orders.
KILL: Final = "kill"
FAIL: Final = "fail"
HANG: Final = "hang"

PARTS: Final = 2
_POLL: Final = 0.02
_SCHEMA: Final = """
CREATE TABLE given (position INTEGER PRIMARY KEY AUTOINCREMENT, hook TEXT, checkpoint_id INTEGER);
CREATE TABLE asked (n INTEGER PRIMARY KEY AUTOINCREMENT, hook TEXT, checkpoint_id INTEGER, position INTEGER);
CREATE TABLE orders (n INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, hook TEXT, place TEXT, done INTEGER);
CREATE TABLE parts (part INTEGER PRIMARY KEY, length INTEGER, held INTEGER DEFAULT 0);
CREATE TABLE marks (part INTEGER, position INTEGER, checkpoint_id INTEGER);
CREATE TABLE met (n INTEGER PRIMARY KEY AUTOINCREMENT, part INTEGER, checkpoint_id INTEGER);
CREATE TABLE flags (name TEXT PRIMARY KEY);
"""


class Outside:
    """The database; any process may use it.

    Args:
        path: Its file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)

    @classmethod
    def created(cls, path: Path) -> Outside:
        outside = cls(path)
        with outside._open() as database:
            database.executescript(_SCHEMA)
            database.executemany("INSERT INTO parts VALUES (?, 0, 0)", [(part,) for part in range(PARTS)])
        return outside

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=60)
        try:
            with database:
                database.execute("BEGIN IMMEDIATE")
                yield database
        finally:
            database.close()

    def rows(self, query: str, *values: Any) -> list[Any]:
        """The result of a query."""
        database = sqlite3.connect(self._path, timeout=60)
        try:
            return database.execute(query, values).fetchall()
        finally:
            database.close()

    # -- hooks ----------------------------------------------------------------------------------------------

    def cut(self, hook: str, checkpoint_id: int, *, marks: bool) -> dict[str, Any]:
        """The outside effects of a hook: a new position, and the marks of the checkpoint behind all data."""
        with self._open() as database:
            insert = "INSERT INTO given (hook, checkpoint_id) VALUES (?, ?)"
            position = database.execute(insert, (hook, checkpoint_id)).lastrowid
            cut = [length for (length,) in database.execute("SELECT length FROM parts ORDER BY part")]
            if marks:
                rows = [(part, length, checkpoint_id) for part, length in enumerate(cut)]
                database.executemany("INSERT INTO marks VALUES (?, ?, ?)", rows)
        return {"position": position, "cut": cut}

    def asked(self, hook: str, checkpoint_id: int | None, state: Any) -> None:
        """A hook is asked to restore a state, or to reset."""
        with self._open() as database:
            position = None if state is None else state["position"]
            database.execute(
                "INSERT INTO asked (hook, checkpoint_id, position) VALUES (?, ?, ?)",
                (hook, checkpoint_id, position),
            )

    def order(self, what: str, hook: str, place: str) -> int:
        """Let something happen to a hook when it passes a place the next time; the number of the order."""
        with self._open() as database:
            row = "INSERT INTO orders (what, hook, place) VALUES (?, ?, ?)"
            return int(database.execute(row, (what, hook, place)).lastrowid or 0)

    def done(self, order: int) -> int | None:
        """The checkpoint at which an order was carried out; `None` when it was not yet."""
        return self.rows("SELECT done FROM orders WHERE n = ?", order)[0][0]  # type: ignore[no-any-return]

    def obey(self, hook: str, place: str, checkpoint_id: int) -> None:
        """A hook passes a place."""
        with self._open() as database:
            find = "SELECT n, what FROM orders WHERE hook = ? AND place = ? AND done IS NULL"
            found = database.execute(find, (hook, place)).fetchone()
            if found is None:
                return
            number, what = found
            database.execute("UPDATE orders SET done = ? WHERE n = ?", (checkpoint_id, number))
        if what == KILL:
            kill_this_process()
        if what == FAIL:
            msg = f"{hook} has no answer for checkpoint {checkpoint_id}"
            raise ConnectionError(msg)
        while not self.has(f"release {number}"):
            time.sleep(_POLL)
        if self.has(f"fail {number}"):
            msg = f"{hook} gives up on checkpoint {checkpoint_id}"
            raise ConnectionError(msg)

    def raise_flag(self, name: str) -> None:
        with self._open() as database:
            database.execute("INSERT INTO flags VALUES (?)", (name,))

    def has(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM flags WHERE name = ?", name))

    def release(self, order: int, *, fails: bool = False) -> None:
        """Let a hook that hangs return, or fail."""
        if fails:
            self.raise_flag(f"fail {order}")
        self.raise_flag(f"release {order}")

    # -- data -----------------------------------------------------------------------------------------------

    def write(self, first: int, second: int) -> None:
        """So many more numbers in each part."""
        with self._open() as database:
            rows = [(first, 0), (second, 1)]
            database.executemany("UPDATE parts SET length = length + ? WHERE part = ?", rows)

    def hold(self, part: int | None) -> None:
        """Let nothing be read from a part, until another one is held, or none."""
        with self._open() as database:
            database.execute("UPDATE parts SET held = (part IS ?)", (part,))

    def meet(self, part: int, checkpoint_id: int) -> None:
        """The reader of a part has met a mark."""
        with self._open() as database:
            database.execute("INSERT INTO met (part, checkpoint_id) VALUES (?, ?)", (part, checkpoint_id))

    def parts_that_met(self, checkpoint_id: int) -> set[int]:
        return {part for (part,) in self.rows("SELECT part FROM met WHERE checkpoint_id = ?", checkpoint_id)}


class OutsideHook:
    """Gives a position for each checkpoint; lives in the JobMaster.

    Args:
        marks: Whether it writes marks into the data.
    """

    def __init__(self, identifier: str, path: str, *, marks: bool) -> None:
        self.identifier = identifier
        self._outside = Outside(path)
        self._marks = marks
        if not marks:
            _obey_beside_records(self._outside)

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> Any:
        self._outside.obey(self.identifier, BEFORE, checkpoint_id)
        state = self._outside.cut(self.identifier, checkpoint_id, marks=self._marks)
        self._outside.obey(self.identifier, DURING, checkpoint_id)
        return state

    def restore_checkpoint(self, checkpoint_id: int, state: Any) -> None:
        self._outside.asked(self.identifier, checkpoint_id, state)

    def reset(self) -> None:
        self._outside.asked(self.identifier, None, None)

    def close(self) -> None:
        self._outside.raise_flag(f"closed {self.identifier} {os.getpid()}")


def _obey_beside_records(outside: Outside) -> None:
    """Pass two places around the put of every record of a complete checkpoint, once in a process."""
    put = ObjectStorage.put
    if put.__name__ != "put":
        return

    def watched_put(storage: ObjectStorage, path: str, data: bytes, *, create: bool = False) -> None:
        record = "/log/" in path and decode_record(data, path)
        if isinstance(record, CheckpointCompleted):
            outside.obey("", AT_RECORD, record.checkpoint_id)
        put(storage, path, data, create=create)
        if isinstance(record, CheckpointCompleted):
            outside.obey("", BEHIND_RECORD, record.checkpoint_id)

    ObjectStorage.put = watched_put  # type: ignore[method-assign]


@dataclass(frozen=True)
class Hooked:
    """A source that reads what another one does, with a hook.

    Attributes:
        database: File of the system outside.
    """

    inner: Source[Any]
    identifier: str
    database: str

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[Any]:
        return self.inner.reader(context, splits)

    def master_hook(self) -> OutsideHook:
        return OutsideHook(self.identifier, self.database, marks=False)


@dataclass(frozen=True)
class Journal:
    """Reads the data of the system part by part; a split is `(part, position, last mark met)`."""

    database: str

    def splits(self, parallelism: int) -> Sequence[tuple[int, int, int]]:
        return [(part, 0, 0) for part in range(PARTS)]

    def reader(self, context: ConnectorContext, splits: Sequence[tuple[int, int, int]]) -> JournalReader:
        return JournalReader(Outside(self.database), context, splits)

    def master_hook(self) -> OutsideHook:
        return OutsideHook("journal", self.database, marks=True)


class JournalReader:
    """Gives pairs of part and number; ends when the data has ended."""

    def __init__(self, outside: Outside, context: ConnectorContext, splits: Sequence[Any]) -> None:
        [(self._part, self._position, self._met)] = splits
        self._outside = outside
        self._clock = context.clock
        self._is_held = False

    def poll(self, max_rows: int) -> Polled[dict[str, int]]:
        [(length, held)] = self._outside.rows("SELECT length, held FROM parts WHERE part = ?", self._part)
        self._is_held = bool(held)
        if held:
            return Polled(ready_at=self._clock.monotonic() + _POLL)
        mark = self._next_mark()
        end = min(length if mark is None else mark[0], self._position + 7)
        if end == self._position:
            ended = mark is None and self._outside.has("ended")
            return Polled(finished=ended, ready_at=None if ended else self._clock.monotonic() + _POLL)
        rows = [{"part": self._part, "n": n} for n in range(self._position, end)]
        self._position = end
        return Polled(RowBatch(rows))

    def should_trigger_checkpoint(self) -> int | None:
        mark = None if self._is_held else self._next_mark()
        if mark is None or mark[0] != self._position:
            return None
        self._met = int(mark[1])
        self._outside.meet(self._part, self._met)
        return self._met

    def _next_mark(self) -> tuple[int, int] | None:
        """Position and checkpoint of the first mark that was not met yet."""
        find = (
            "SELECT position, checkpoint_id FROM marks "
            "WHERE part = ? AND position >= ? AND checkpoint_id > ? ORDER BY position, checkpoint_id LIMIT 1"
        )
        found = self._outside.rows(find, self._part, self._position, self._met)
        return tuple(found[0]) if found else None

    def snapshot(self) -> Sequence[tuple[int, int, int]]:
        return [(self._part, self._position, self._met)]

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Decisions:
    """The decisions in the log of a job.

    Attributes:
        restored: The checkpoint that each attempt began from, in order.
        completed: The complete checkpoints that the job keeps.
    """

    restored: list[int | None]
    completed: dict[int, CheckpointCompleted]

    @classmethod
    def of(cls, storage: Path, job_id: str) -> Decisions:
        place, paths = open_storage(str(storage), create=False), SnapshotPaths(job_id)
        view, reader = DecisionLog(place, paths).replay(), DecisionLogReader(place, paths)
        begun = [reader.read(slot) for slot in view.begun_slots]
        restored = [record.restored_checkpoint for record in begun if isinstance(record, AttemptBegun)]
        return cls(restored, {record.checkpoint_id: record for record in view.completed})
