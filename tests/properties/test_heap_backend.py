"""A job's keyed state under any order of writes, checkpoints, lost uploads, aborts and restarts.

It is on the heap, and in RocksDB.

The state machine acts as the strictest possible coordinator. It deletes files of an aborted checkpoint at
once, and also files that only subsumed checkpoints reference. It keeps files of the retained checkpoint, and
of the confirmed checkpoint that a pending one builds on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from deep import DEEP
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.runtime.config.job_config import RocksDB
from penstock.runtime.errors import StorageError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import KeyToSubtask, key_group_range, reassign_keyed
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.harness_state import open_state_backend

KEY_GROUPS = 16
TABLES = ("counts", "windows")
NESTED = "pages"
KEYS = st.sampled_from([1, 2, 3, 4, 5, "a", "b", "c", (1, "x"), (2, "y"), None, b"z"])
POLICIES = st.builds(CompactionPolicy, st.integers(1, 4), st.floats(0.1, 9))
CHANGES = st.lists(
    st.tuples(st.sampled_from((*TABLES, NESTED, NESTED)), KEYS, st.none() | st.integers(0, 9)), max_size=6
)
#: By table and key a value; by table, key and second part one of a nested table.
Model = dict[tuple[Any, ...], Any]


class Store:
    """Files by path; small state stays inline."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.written = 0
        self.broken = False

    def write(self, data: bytes) -> StateHandle:
        if self.broken:
            msg = "the store is gone"
            raise StorageError(msg)
        if len(data) < 50:
            return InlineHandle(data)
        self.written += 1
        path = f"{self.written}"
        self.content[path] = data
        return FileHandle(path, len(data), "")

    def read(self, handle: StateHandle) -> bytes:
        return handle.data if isinstance(handle, InlineHandle) else self.content[handle.path]


def paths(handles: list[KeyedStateHandle]) -> set[str]:
    return {file.path for handle in handles for file in handle.files if isinstance(file, FileHandle)}


@dataclass
class Completed:
    checkpoint_id: int
    handles: list[KeyedStateHandle]
    model: Model
    is_savepoint: bool


@dataclass
class Pending:
    model: Model
    confirmed: Completed | None
    snapshots: list[Any]
    is_savepoint: bool
    handles: dict[int, KeyedStateHandle] = field(default_factory=dict)
    own_files: set[str] = field(default_factory=set)

    def needs(self) -> set[str]:
        return self.own_files | (set() if self.confirmed is None else paths(self.confirmed.handles))

    def may_name(self) -> set[str]:
        if self.is_savepoint or self.confirmed is None or self.confirmed.is_savepoint:
            return self.own_files
        return self.needs()


class KeyedStateOfAJob(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.model: Model = {}
        self.pending: dict[int, Pending] = {}
        self.latest: Completed | None = None
        self.coordinator_knows_latest = True
        self.last_id = 0
        self.backends: list[Any] = []

    @initialize(parallelism=st.integers(1, 3), policy=POLICIES, savepoints_subsume=st.booleans())
    def deploy(self, parallelism: int, policy: CompactionPolicy, savepoints_subsume: bool) -> None:
        self.policy = policy
        self.savepoints_subsume = savepoints_subsume
        self.backends = self.fresh_backends(parallelism)
        self.subtask_of = KeyToSubtask(parallelism, KEY_GROUPS)

    def fresh_backends(self, parallelism: int) -> list[Any]:
        return [
            self.new_backend(key_group_range(index, parallelism, KEY_GROUPS)) for index in range(parallelism)
        ]

    def new_backend(self, own: KeyGroupRange) -> Any:
        return HeapKeyedStateBackend(BackendSetup("op", KEY_GROUPS, own, ValueCodec()), self.policy)

    @rule(changes=CHANGES)
    def process(self, changes: list[tuple[str, Any, int | None]]) -> None:
        for name, key, value in changes:
            if name == NESTED:
                self.change_nested(key, value)
                continue
            table = self.backends[self.subtask_of[key]].table(name)
            if value is None:
                table.entries.pop(key, None)
                self.model.pop((name, key), None)
            else:
                # The list is changed in place: snapshots that were taken before must not see it.
                table.entries.setdefault(key, []).append(value)
                self.model[name, key] = list(table.entries[key])
            table.changed.add(key)

    def change_nested(self, key: Any, value: int | None) -> None:
        """Write an entry of a key, or delete its first one; the second part says when it was written."""
        table = self.backends[self.subtask_of[key]].table(NESTED, nested=True)
        if value is None:
            held = table.entries.get(key, {})
            part = next(iter(held), None)
            held.pop(part, None)
            self.model.pop((NESTED, key, part), None)
            if not held:
                table.entries.pop(key, None)
            table.changed.add((key, part))
        else:
            table.entries.setdefault(key, {})[value % 4] = value
            table.changed.add((key, value % 4))
            self.model[NESTED, key, value % 4] = value

    @precondition(lambda self: len(self.pending) < 4)
    @rule(changes=CHANGES, is_savepoint=st.sampled_from([False, False, False, True]))
    def trigger(self, changes: list[tuple[str, Any, int | None]], is_savepoint: bool) -> None:
        self.process(changes)
        self.last_id += 1
        confirmed = self.latest if self.coordinator_knows_latest else None
        confirmed_id = -1 if confirmed is None else confirmed.checkpoint_id
        snapshots = [
            b.snapshot(self.last_id, confirmed_id, self_contained=is_savepoint) for b in self.backends
        ]
        self.pending[self.last_id] = Pending(dict(self.model), confirmed, snapshots, is_savepoint)

    def upload(self, checkpoint_id: int, index: int) -> None:
        pending = self.pending[checkpoint_id]
        before = set(self.store.content)
        handle = pending.snapshots[index].finish(self.store)
        pending.own_files |= set(self.store.content) - before
        assert paths([handle]) <= pending.may_name()
        pending.handles[index] = handle

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "is refused", "its answer is lost"]))
    def one_upload_ends(self, data: st.DataObject, fate: str) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.pending)))
        index = data.draw(st.integers(0, len(self.backends) - 1))
        if index in self.pending[checkpoint_id].handles:
            return
        self.store.broken = fate == "is refused"
        with suppress(StorageError):
            self.upload(checkpoint_id, index)
        self.store.broken = False
        if fate == "arrives":
            handle = self.pending[checkpoint_id].handles[index]
            self.backends[index].snapshot_finished(checkpoint_id, handle)
        else:
            self.abort(checkpoint_id)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def one_is_given_up(self, data: st.DataObject) -> None:
        self.abort(data.draw(st.sampled_from(sorted(self.pending))))

    def abort(self, checkpoint_id: int) -> None:
        pending = self.pending.pop(checkpoint_id)
        for path in pending.own_files:
            del self.store.content[path]
        self.delete_unnamed_files()

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), parallelism=st.integers(1, 5))
    def one_completes(self, data: st.DataObject, parallelism: int) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.pending)))
        pending = self.pending[checkpoint_id]
        for index, backend in enumerate(self.backends):
            if index not in pending.handles:
                self.upload(checkpoint_id, index)
                backend.snapshot_finished(checkpoint_id, pending.handles[index])
        handles = [pending.handles[index] for index in range(len(self.backends))]
        completed = Completed(checkpoint_id, handles, pending.model, pending.is_savepoint)
        self.without(self.restored(completed, parallelism))
        if pending.is_savepoint and not self.savepoints_subsume:
            self.abort(checkpoint_id)  # it is the user's, and may be deleted at any time
            return
        del self.pending[checkpoint_id]
        self.latest, self.coordinator_knows_latest = completed, True
        for older in [i for i in self.pending if i < checkpoint_id]:
            self.abort(older)
        self.delete_unnamed_files()

    def delete_unnamed_files(self) -> None:
        kept = set() if self.latest is None else paths(self.latest.handles)
        for pending in self.pending.values():
            kept |= pending.needs()
        for path in set(self.store.content) - kept:
            del self.store.content[path]
        if self.latest is not None:
            self.without(self.restored(self.latest, len(self.latest.handles)))

    @precondition(lambda self: self.latest is not None and self.last_id > self.latest.checkpoint_id + 1)
    @rule(parallelism=st.none() | st.integers(1, 3), coordinator_knows_latest=st.booleans())
    def the_job_restarts(self, parallelism: int | None, coordinator_knows_latest: bool) -> None:
        assert self.latest is not None
        for checkpoint_id in list(self.pending):
            self.abort(checkpoint_id)
        self.without(self.backends)
        self.backends = self.restored(self.latest, parallelism or len(self.backends))
        self.subtask_of = KeyToSubtask(len(self.backends), KEY_GROUPS)
        self.model = dict(self.latest.model)
        self.coordinator_knows_latest = coordinator_knows_latest

    def restored(self, completed: Completed, parallelism: int) -> list[Any]:
        backends = self.fresh_backends(parallelism)
        old = [[handle] for handle in completed.handles]
        shareable_id = None if completed.is_savepoint else completed.checkpoint_id
        for backend, share in zip(
            backends, reassign_keyed(old, len(old), parallelism, KEY_GROUPS), strict=True
        ):
            backend.restore(share, self.store, restored_checkpoint_id=shareable_id)
        assert contents(backends) == completed.model
        return backends

    def without(self, backends: list[Any]) -> None:
        """These subtasks are gone."""
        for backend in backends:
            backend.close()

    def teardown(self) -> None:
        self.without(self.backends)


def contents(backends: list[Any]) -> Model:
    """All entries of all subtasks; an entry that is in two subtasks is an error."""
    entries: list[tuple[tuple[Any, ...], Any]] = [
        ((table, key), value)
        for backend in backends
        for table in TABLES
        for key, value in backend.table(table).entries.items()
    ]
    for backend in backends:
        for key, held in backend.table(NESTED, nested=True).entries.items():
            assert held, f"{key!r} has an empty entry"
            entries += [((NESTED, key, part), value) for part, value in held.items()]
    assert len(dict(entries)) == len(entries)
    return dict(entries)


TestKeyedStateOfAJob = KeyedStateOfAJob.TestCase
TestKeyedStateOfAJob.settings = settings(max_examples=30 * DEEP, stateful_step_count=50, deadline=None)


class KeyedStateInRocksDB(KeyedStateOfAJob):
    """The same, with checkpoints of RocksDB's own files and savepoints in the format of all backends."""

    def new_backend(self, own: KeyGroupRange) -> Any:
        setup = BackendSetup("op", KEY_GROUPS, own, ValueCodec())
        return open_state_backend(RocksDB(8 * 1024 * 1024, "/dev/shm"), setup)


TestKeyedStateInRocksDB = KeyedStateInRocksDB.TestCase
TestKeyedStateInRocksDB.settings = settings(max_examples=4 * DEEP, stateful_step_count=30, deadline=None)
