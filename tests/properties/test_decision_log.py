"""The decision log under several writers, crashes between any two storage calls, and lost answers.

Every writer has its own thread, but only one runs at a time: each storage call waits for the schedule.
Hypothesis draws the schedule. A call succeeds, fails, succeeds without an answer, happens much later, or is
the last one of its writer. A put may leave a slot that is cut off, and has no answer then. A listing may be
of any earlier moment, or miss its end. After each call, a new reader must see exactly the result of all
records that were put into a free slot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_order import check_order

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.reader import CompactionHint
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    CheckpointCompleted,
    CheckpointsDropped,
    JobEnded,
    LogRecord,
    LogView,
    decode_record,
)
from penstock.runtime.checkpoint.log.slots import Claimed, Fenced, OutcomeUnknownError
from penstock.runtime.errors import CorruptSnapshotError, ObjectExistsError, StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")
FATES = (
    "ok",
    "ok",
    "ok",
    "ok",
    "ok",
    "ok",
    "no_answer",
    "refused",
    "late",
    "crash_before",
    "crash_after",
    "land",
    "stale",
    "stale",
    "in_part",
    "cut_off",
)
ACTIONS = ("complete", "complete", "complete", "complete", "drop", "begin", "end")


class Crash(BaseException):
    """The writer's process is gone."""


@dataclass
class World:
    """The one storage, and what ever happened in it."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    history: dict[int, LogRecord | None] = field(default_factory=dict)
    in_flight: list[tuple[str, bytes, bool]] = field(default_factory=list)
    listings: list[list[str]] = field(default_factory=lambda: [[]])

    def put(self, path: str, data: bytes, create: bool) -> None:
        self.storage.put(path, data, create=create)
        slot = PATHS.slot_of(path)
        assert create is (slot is not None)
        if slot is not None:
            self.history.setdefault(slot, decode_record(data, path))
        self.changed()

    def cut_off(self, path: str, data: bytes) -> None:
        """A power cut strikes the storage: the slot has a name, and not all of its content."""
        self.storage.put(path, data[: len(data) * (len(self.history) % 3) // 3], create=True)
        slot = PATHS.slot_of(path)
        assert slot is not None
        self.history.setdefault(slot, None)
        self.changed()

    def land(self) -> None:
        if self.in_flight:
            path, data, create = self.in_flight.pop(0)
            try:
                self.put(path, data, create)
            except ObjectExistsError:
                return

    def changed(self) -> None:
        self.listings.append(self.storage.list(PATHS.log))

    def truth(self) -> LogView:
        """The state after all records, without any compaction."""
        assert sorted(self.history) == list(range(len(self.history)))
        view = LogView()
        for slot in sorted(self.history):
            record = self.history[slot]
            view = replace(view, next_slot=slot + 1) if record is None else view.after(record)
        return comparable(view)

    def happened(self) -> list[LogRecord]:
        found = (self.history[slot] for slot in sorted(self.history))
        return [record for record in found if record is not None]

    def check(self) -> None:
        assert comparable(DecisionLog(self.storage, PATHS).replay()) == self.truth()
        stale = WithListing(self.storage, self.listings[len(self.listings) // 3])
        try:
            view = DecisionLog(stale, PATHS).replay()
        except CorruptSnapshotError:
            # A writer that slept may leave a hint whose compaction is gone. With a stale listing, too, that
            # is an error. A wrong answer it is never.
            hint = CompactionHint(self.storage, PATHS).read()
            assert hint is not None
            assert PATHS.log_slot(hint) not in self.storage.list(PATHS.log)
        else:
            assert comparable(view) == self.truth()


def comparable(view: LogView) -> LogView:
    """The state after a log, however it was compacted and whatever was skipped."""
    return replace(view, compacted_at=None, passed_slots=(), to_pass=())


class WithListing(MemoryStorage):
    """A storage that always lists the same."""

    def __init__(self, storage: MemoryStorage, listing: list[str]) -> None:
        super().__init__()
        self._objects = storage._objects
        self._listing = listing

    def list(self, prefix: str) -> list[str]:
        return self._listing


class Writer(threading.Thread):
    """One process: it begins, decides things, and notes the answers."""

    def __init__(self, world: World, number: int, actions: list[str], compact_every: int) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.number = number
        self.actions = actions
        # Without tokens all writers put the same bytes when they begin.
        token = f"writer {number}" if number % 2 else ""
        gated = GatedStorage(world, self)
        self.log = DecisionLog(gated, PATHS, compact_every=compact_every, writer=token)
        self.wanted: Callable[[str], Any] | None = None
        self.fate = "ok"
        self.waits = threading.Semaphore(0)
        self.goes = threading.Semaphore(0)
        self.told: list[tuple[LogRecord, Claimed | Fenced]] = []
        self.begun: list[AttemptBegun] = []
        self.failure: BaseException | None = None
        self.ended = False
        self.count = 0
        self.newest_id = -1

    def run(self) -> None:
        try:
            self._begin()
            for action in self.actions:
                self._act(action)
        except Crash:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self.ended = True
            self.waits.release()

    def step(self, call: Callable[[str], Any]) -> Any:
        """Wait until the schedule lets this call happen."""
        self.wanted = call
        self.waits.release()
        self.goes.acquire()
        self.wanted = None
        return call(self.fate)

    def _act(self, action: str) -> None:
        self.count += 1
        now = float(self.number * 1000 + self.count)
        if action == "begin" or not self.begun:
            self._begin()
            return
        attempt = self.begun[-1].attempt
        record: LogRecord
        match action:
            case "complete":
                # As the coordinator: no id twice, also when it is not known what came of the first.
                self.newest_id = number = max(self.newest_id, self.log.view.highest_checkpoint_id) + 1
                metadata = FileHandle(f"job/chk-{number}-{attempt}/metadata", int(now), "")
                record = CheckpointCompleted(number, attempt, SnapshotKind.CHECKPOINT, metadata, now)
                self._tell(record, lambda: self.log.complete(record))
            case "drop":
                ids = tuple(c.checkpoint_id for c in self.log.view.completed[:1])
                record = CheckpointsDropped(ids, attempt, now)
                self._tell(record, lambda: self.log.drop(ids, now))
            case "end":
                record = JobEnded("finished", str(now), attempt, now)
                self._tell(record, lambda: self.log.end("finished", str(now), now))

    def _begin(self) -> None:
        self.count += 1
        try:
            # All writers say the same time, so that their records are the same bytes.
            record = self.log.begin_attempt(0.0)
        except StorageError:
            return
        if isinstance(record, AttemptBegun):
            self.begun.append(record)

    def _tell(self, record: LogRecord, call: Callable[[], Claimed | Fenced]) -> None:
        try:
            self.told.append((record, call()))
        except OutcomeUnknownError:
            return


class GatedStorage:
    """A storage that does nothing before the schedule says how it ends."""

    url = "gated:"

    def __init__(self, world: World, writer: Writer) -> None:
        self._world = world
        self._writer = writer

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        def effect(fate: str) -> None:
            if fate == "cut_off" and create:
                self._world.cut_off(path, data)
                raise StorageError("no answer")
            self._world.put(path, data, create)

        self._do(effect, late=lambda: self._world.in_flight.append((path, data, create)))

    def get(self, path: str) -> bytes:
        return self._do(lambda fate: self._world.storage.get(path))

    def list(self, prefix: str) -> list[str]:
        def effect(fate: str) -> list[str]:
            listings = self._world.listings
            if fate == "stale":
                return listings[len(listings) // 3]
            now = self._world.storage.list(prefix)
            return now[: len(now) // 2] if fate == "in_part" else now

        return self._do(effect)

    def delete(self, paths: Iterable[str]) -> None:
        # The last first: a store deletes in any order.
        for path in reversed(list(paths)):
            self._do(lambda fate, path=path: self._delete(path))

    def _delete(self, path: str) -> None:
        self._world.storage.delete([path])
        self._world.changed()

    def _do(self, effect: Callable[[str], Any], late: Callable[[], None] | None = None) -> Any:
        def call(fate: str) -> Any:
            if fate == "crash_before":
                raise Crash
            if fate == "late" and late is not None:
                late()
            if fate in ("late", "refused"):
                raise StorageError("no answer")
            result = effect(fate)
            if fate == "crash_after":
                raise Crash
            if fate == "no_answer":
                raise StorageError("no answer")
            return result

        return self._writer.step(call)


def play(world: World, writers: list[Writer], schedule: list[tuple[int, str]]) -> None:
    """Let the writers do one storage call at a time, in the order and with the ends that are drawn."""
    for writer in writers:
        writer.start()
        writer.waits.acquire()
    steps = iter(schedule)
    while alive := [writer for writer in writers if not writer.ended]:
        choice, fate = next(steps, (0, "ok"))
        if fate == "land":
            world.land()
        else:
            writer = alive[choice % len(alive)]
            writer.fate = fate
            writer.goes.release()
            writer.waits.acquire()
        world.check()
    while world.in_flight:
        world.land()
        world.check()


def check_answers(world: World, writers: list[Writer]) -> None:
    happened = world.happened()
    for writer in writers:
        assert writer.failure is None, writer.failure
        assert all(record in happened for record in writer.begun)
        for record, answer in writer.told:
            if isinstance(answer, Fenced):
                assert record not in happened
                assert answer.newer_attempt > record.attempt or isinstance(happened[-1], JobEnded)
            else:
                same_end = isinstance(record, JobEnded) and isinstance(happened[-1], JobEnded)
                assert record in happened or same_end
    numbers = [record.attempt for writer in writers for record in writer.begun]
    assert len(set(numbers)) == len(numbers)


@settings(deadline=None, max_examples=35 * DEEP)
@given(
    st.lists(st.lists(st.sampled_from(ACTIONS), max_size=12), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(FATES)), max_size=150),
    st.integers(2, 5),
)
def test_the_log_decides_whatever_crashes_and_whoever_sleeps(
    scripts: list[list[str]], schedule: list[tuple[int, str]], compact_every: int
) -> None:
    world = World()
    writers = [Writer(world, n, actions, compact_every) for n, actions in enumerate(scripts)]
    play(world, writers, schedule)
    check_answers(world, writers)
    check_order(world.happened())


@settings(deadline=None, max_examples=12 * DEEP)
@example(before=0, sleep_after=8, compact_every=2, completions=2, fate="ok")
@example(before=0, sleep_after=13, compact_every=2, completions=2, fate="late")
@given(
    st.integers(0, 20),
    st.integers(1, 20),
    st.integers(2, 5),
    st.integers(0, 60),
    st.sampled_from(["ok", "late"]),
)
def test_somebody_who_slept_while_others_compacted_is_never_believed(
    before: int, sleep_after: int, compact_every: int, completions: int, fate: str
) -> None:
    """A writer stops at any of its storage calls; another one works and compacts; the first wakes up."""
    world = World()
    sleeper = Writer(world, 0, ["complete"] * 8, compact_every)
    worker = Writer(world, 1, ["complete", "drop"] * (completions // 2), compact_every)
    schedule = [(1, "ok")] * before + [(0, "ok")] * (sleep_after - 1) + [(0, fate)] + [(1, "ok")] * 400
    play(world, [sleeper, worker], schedule)
    check_answers(world, [sleeper, worker])
    check_order(world.happened())
