"""State with a TTL against a brute-force model: clocks move, sweeps run, snapshots are restored and rescaled.

The model keeps every entry for ever, with the time when it was last used, and computes what may be seen. The
backends must show exactly that, whatever was swept, and keep nothing in memory or in snapshots that is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deep import DEEP
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.runtime.config.job_config import RocksDB
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle, KeyedStateHandle, KeyGroupRange, StateHandle
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import KeyToSubtask, key_group_range, reassign_keyed
from penstock.runtime.state.keyed_states import ListState, MapState, ValueState
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.testing.harness_state import open_state_backend
from penstock.runtime.testing.manual_time import ManualClock

KEY_GROUPS = 8
KEYS = st.sampled_from(["a", "b", "c", 1, (2, "x")])
PARTS = st.integers(0, 3)
SECOND = 1_000_000
TTL = 100 * SECOND
#: An entry stays in memory for this long after its end at most.
BUCKET = TTL // 256 + 1

Entry = tuple[Any, ...]


class Record:
    """The current record."""

    timestamp: int | None = None


class InMemory:
    """Small files inside of their handles."""

    def write(self, data: bytes) -> StateHandle:
        return InlineHandle(data)

    def read(self, handle: StateHandle) -> bytes:
        assert isinstance(handle, InlineHandle)
        return handle.data


class StateWithTtl(RuleBasedStateMachine):
    @initialize(
        parallelism=st.integers(1, 3),
        event=st.booleans(),
        on_read=st.booleans(),
    )
    def deploy(self, parallelism: int, event: bool, on_read: bool) -> None:
        self.event, self.on_read = event, on_read
        self.ttl = StateTtl(
            TTL / SECOND,
            refreshed_by="reads_and_writes" if on_read else "writes",
            time="event" if event else "processing",
        )
        self.clock, self.record = ManualClock(start=1000), Record()
        self.watermarks: list[int | None] = [None] * parallelism
        self.latest = 0
        self.checkpoint_id = 0
        self.model: dict[Entry, tuple[Any, int]] = {}
        self.numbers: dict[Any, int] = {}
        self.start(parallelism, [], None)

    backends: Sequence[Any] = ()

    def start(self, parallelism: int, old: list[KeyedStateHandle], shared_id: int | None) -> None:
        self.subtask_of = KeyToSubtask(parallelism, KEY_GROUPS)
        self.close_backends()
        self.backends, self.views, old_watermarks, self.watermarks = [], [], self.watermarks, []
        shares = reassign_keyed([[h] for h in old], len(old), parallelism, KEY_GROUPS) if old else None
        for index in range(parallelism):
            own = key_group_range(index, parallelism, KEY_GROUPS)
            backend = self.new_backend(own)
            if shares is not None:
                backend.restore(shares[index], InMemory(), restored_checkpoint_id=shared_id)
            backend.time.record = self.record
            states: list[Any] = [
                ValueState(int, name="value", ttl=self.ttl),
                ListState(int, name="list", ttl=self.ttl),
                MapState(int, int, name="map", ttl=self.ttl),
            ]
            self.views.append([backend.bind(state) for state in states])
            self.backends.append(backend)
            parts = [
                watermark
                for part, watermark in enumerate(old_watermarks)
                if old and len(key_group_range(part, len(old), KEY_GROUPS).intersection(own))
            ]
            self.watermarks.append(
                None if None in parts else min((w for w in parts if w is not None), default=None)
            )
            assert backend.time.watermark == self.watermarks[-1]

    def close_backends(self) -> None:
        for backend in self.backends:
            backend.close()

    def teardown(self) -> None:
        self.close_backends()

    def new_backend(self, own: KeyGroupRange) -> Any:
        return HeapKeyedStateBackend(BackendSetup("op", KEY_GROUPS, own, ValueCodec(), clock=self.clock))

    def stamps(self, backend: Any) -> list[int]:
        """The stamps of all entries in memory."""
        return stamps(backend)

    # -- the model ------------------------------------------------------------------------------------------

    def now(self, key: Any) -> int | None:
        if not self.event:
            self.latest = max(self.latest, int(self.clock.now() * SECOND))
            return self.latest
        known = [t for t in (self.watermarks[self.subtask_of[key]], self.record.timestamp) if t is not None]
        return max(known, default=None)

    def swept_to(self, subtask: int) -> int | None:
        return self.watermarks[subtask] if self.event else self.now(None)

    def seen(self, table: str, key: Any) -> dict[Any, Any]:
        """The model's value of a key; reads refresh it."""
        now = self.now(key)
        assert now is not None
        found = {}
        for (of_table, of_key, part), (value, stamp) in list(self.model.items()):
            if (of_table, of_key) == (table, key) and stamp + TTL > now:
                found[part] = value
                if self.on_read:
                    self.model[of_table, of_key, part] = value, max(now, stamp)
        return found

    def put(self, entry: Entry, value: Any) -> None:
        now = self.now(entry[1])
        assert now is not None
        before = self.model.get(entry)
        # One that is over may be gone or not; its stamp is earlier than now either way.
        self.model[entry] = value, now if before is None else max(now, before[1])

    def forget_over(self) -> None:
        """A value that the clean-up removes has expired for good."""
        ends = {entry[1]: self.swept_to(self.subtask_of[entry[1]]) for entry in self.model}
        self.model = {
            entry: (value, stamp)
            for entry, (value, stamp) in self.model.items()
            if (end := ends[entry[1]]) is None or stamp + TTL > end
        }

    def use(self, key: Any, timestamp: int) -> list[Any]:
        self.record.timestamp = timestamp * SECOND if self.event else None
        self.forget_over()
        index = self.subtask_of[key]
        self.backends[index].set_current_key(key)
        return self.views[index]

    # -- what happens ---------------------------------------------------------------------------------------

    @rule(key=KEYS, value=st.integers(0, 9), timestamp=st.integers(0, 400))
    def write_a_value(self, key: Any, value: int, timestamp: int) -> None:
        self.use(key, timestamp)[0].update(value)
        self.put(("value", key, None), value)

    @rule(key=KEYS, part=PARTS, value=st.integers(0, 9), timestamp=st.integers(0, 400))
    def write_a_map(self, key: Any, part: int, value: int, timestamp: int) -> None:
        self.use(key, timestamp)[2][part] = value
        self.put(("map", key, part), value)

    @rule(key=KEYS, value=st.integers(0, 9), timestamp=st.integers(0, 400))
    def append_to_a_list(self, key: Any, value: int, timestamp: int) -> None:
        self.use(key, timestamp)[1].add(value)
        self.numbers[key] = self.numbers.get(key, 0) + 1
        self.put(("list", key, self.numbers[key]), value)

    @rule(key=KEYS, timestamp=st.integers(0, 400))
    def read(self, key: Any, timestamp: int) -> None:
        value, listed, mapped = self.use(key, timestamp)
        assert value.value() == self.seen("value", key).get(None)
        assert len(listed) == len(self.peek("list", key))
        assert listed.get() == list(dict(sorted(self.seen("list", key).items())).values())
        assert set(mapped) == set(self.peek("map", key))
        assert dict(mapped.items()) == self.seen("map", key)

    def peek(self, table: str, key: Any) -> dict[Any, Any]:
        on_read, self.on_read = self.on_read, False
        found = self.seen(table, key)
        self.on_read = on_read
        return found

    @rule(key=KEYS, part=PARTS, timestamp=st.integers(0, 400))
    def read_a_map(self, key: Any, part: int, timestamp: int) -> None:
        mapped = self.use(key, timestamp)[2]
        assert (part in mapped) == (part in self.peek("map", key))
        now = self.now(key)
        assert now is not None
        expected = self.peek("map", key).get(part)
        assert mapped.get(part) == expected
        if self.on_read and expected is not None:
            self.model["map", key, part] = expected, max(now, self.model["map", key, part][1])

    @rule(key=KEYS, timestamp=st.integers(0, 400), which=st.integers(0, 2))
    def clear(self, key: Any, timestamp: int, which: int) -> None:
        self.use(key, timestamp)[which].clear()
        table = ("value", "list", "map")[which]
        self.model = {e: v for e, v in self.model.items() if e[:2] != (table, key)}

    @rule(seconds=st.sampled_from([0.1, 1, 30, 99, 100, 250]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.integers(0, 100))
    def the_clock_is_set_back(self, seconds: int) -> None:
        self.now(None)  # a clock that was not read has not moved
        for backend in self.backends:
            assert backend.time.processing() == self.latest or self.event
        self.clock.set_wall_clock(self.clock.now() - seconds)

    @precondition(lambda self: self.event)
    @rule(seconds=st.integers(0, 400), only=st.none() | st.integers(0, 2))
    def a_watermark_comes(self, seconds: int, only: int | None) -> None:
        for subtask, backend in enumerate(self.backends):
            if only is None or only == subtask:
                self.watermarks[subtask] = max(seconds * SECOND, self.watermarks[subtask] or 0)
                backend.time.advance(seconds * SECOND)

    @rule(most=st.integers(1, 5))
    def a_slice_is_swept(self, most: int) -> None:
        for backend in self.backends:
            backend.sweep(most)

    @rule()
    def everything_is_swept_that_is_due(self) -> None:
        for subtask, backend in enumerate(self.backends):
            end = self.swept_to(subtask)
            while backend.sweep_in is not None and backend.sweep_in <= 0:
                backend.sweep(3)
            assert end is None or all(stamp + TTL + BUCKET > end for stamp in self.stamps(backend))

    @rule(parallelism=st.integers(1, 3), fails=st.booleans(), is_savepoint=st.booleans())
    def a_checkpoint_is_taken_and_restored(self, parallelism: int, fails: bool, is_savepoint: bool) -> None:
        ends = list(map(self.swept_to, range(len(self.backends))))
        confirmed, self.checkpoint_id = self.checkpoint_id or -1, self.checkpoint_id + 1
        handles = []
        for backend, end in zip(self.backends, ends, strict=True):
            snapshot = backend.snapshot(self.checkpoint_id, confirmed, self_contained=is_savepoint)
            assert end is None or all(stamp + TTL > end for stamp in self.stamps(backend))
            handles.append(snapshot.finish(InMemory()))
            backend.snapshot_finished(self.checkpoint_id, handles[-1])
        self.forget_over()
        if fails:
            self.record.timestamp = None
            self.start(parallelism, handles, None if is_savepoint else self.checkpoint_id)
            self.checkpoint_id = self.checkpoint_id if not is_savepoint else 0
            if None not in ends:
                end = min(each for each in ends if each is not None)
                assert all(stamp + TTL > end for backend in self.backends for stamp in self.stamps(backend))

    @invariant()
    def keys_are_those_that_have_something(self) -> None:
        if not self.backends:
            return
        self.forget_over()
        for table in ("value", "list", "map"):
            found = [key for backend in self.backends for key in backend.keys(table)]
            expected = {
                e[1]
                for e, (_, stamp) in self.model.items()
                if e[0] == table and ((now := self.now(e[1])) is None or stamp + TTL > now)
            }
            assert len(found) == len(set(found))
            assert set(found) == expected


def stamps(backend: HeapKeyedStateBackend) -> list[int]:
    """The stamps of all entries in memory."""
    flat = [cell[0] for cell in backend.table("value").entries.values()]
    nested = [
        cell[0]
        for name in ("list", "map")
        for held in backend.table(name, nested=True).entries.values()
        for cell in held.values()
    ]
    return flat + nested


TestStateWithTtl = StateWithTtl.TestCase
TestStateWithTtl.settings = settings(max_examples=30 * DEEP, stateful_step_count=40, deadline=None)


class StateWithTtlOnRocksDB(StateWithTtl):
    """The same on disk: what expired is not seen, but it may lie there until the clean-up has come by."""

    def new_backend(self, own: KeyGroupRange) -> Any:
        setup = BackendSetup("op", KEY_GROUPS, own, ValueCodec(), clock=self.clock)
        return open_state_backend(RocksDB(8 * 1024 * 1024, "/dev/shm"), setup)

    def stamps(self, backend: Any) -> list[int]:
        return []


TestStateWithTtlOnRocksDB = StateWithTtlOnRocksDB.TestCase
TestStateWithTtlOnRocksDB.settings = settings(max_examples=8 * DEEP, stateful_step_count=30, deadline=None)
