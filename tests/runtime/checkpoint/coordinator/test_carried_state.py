"""State of finished subtasks that a checkpoint takes over: whose files it names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from memory_storages import MemoryPlaces

from penstock.runtime.checkpoint.coordinator.operator_states import bring_along, left_behind
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CarriedState, CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import read_state, write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")
OWN = PATHS.shared_file(checkpoint_id=1, attempt=1, operator_id="read", subtask=0, number=0)
ELSEWHERE = "/saved"


def list_state(state: StateHandle) -> OperatorStateHandle:
    return OperatorStateHandle("splits", RedistributionMode.UNION, state, 1)


def keyed_state(*files: StateHandle) -> KeyedStateHandle:
    return KeyedStateHandle(KeyGroupRange(0, 127), files)


@dataclass
class World:
    """A checkpoint of one finished subtask, whose state is in a file and in the metadata."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    places: MemoryPlaces = field(default_factory=MemoryPlaces)

    def place(self, location: str | None) -> MemoryStorage:
        return self.storage if location is None else self.places(location, create=True)

    def carried(
        self, path: str, before: str | None, kind: SnapshotKind, location: str | None
    ) -> CompletedCheckpoint:
        file = write_state_file(self.place(before), path, b"kept")
        small = InlineHandle(b"small")
        state = OperatorSubtaskState(
            (keyed_state(file, small),), (list_state(file),), None, (keyed_state(file),), (list_state(small),)
        )
        operators = {"read": OperatorState("read", 1, 128, {0: state}, frozenset({0}))}
        carried = CarriedState({"read": (0,)}, before)
        return CompletedCheckpoint(7, 2, kind, operators, 1.0, 2.0, location=location, carried=carried)

    def brought(self, checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
        return bring_along(checkpoint, self.storage, PATHS, self.places)


@pytest.mark.parametrize(
    ("path", "before", "kind", "location", "named"),
    [
        (OWN, None, SnapshotKind.CHECKPOINT, None, OWN),
        ("read-0-0", ELSEWHERE, SnapshotKind.CHECKPOINT, None, "job/shared/2-7-read-0-0"),
        ("old/shared/1-1-read-0-0", "memory:", SnapshotKind.CHECKPOINT, None, "job/shared/2-7-read-0-0"),
        ("job/savepoint-3-1/read-0-0", None, SnapshotKind.CHECKPOINT, None, "job/shared/2-7-read-0-0"),
        (OWN, None, SnapshotKind.SAVEPOINT, None, "job/savepoint-7-2/read-0-0"),
        (OWN, None, SnapshotKind.SYNC_SAVEPOINT, "/mine/here", "read-0-0"),
        ("read-0-0", ELSEWHERE, SnapshotKind.SAVEPOINT, "/mine/here", "read-0-0"),
    ],
)
def test_a_checkpoint_names_files_of_its_own_job_and_a_savepoint_those_in_its_own_folder(
    path: str, before: str | None, kind: SnapshotKind, location: str | None, named: str
) -> None:
    world = World()
    checkpoint = world.carried(path, before, kind, location)

    brought = world.brought(checkpoint)

    assert brought.carried is None
    files = list(brought.files())
    assert {handle.path for handle in files} == {named}
    assert len(files) == 3  # each place in which it was named names the one copy
    assert read_state(world.place(location), files[0]) == b"kept"
    old = checkpoint.operators["read"].subtasks[0]
    assert isinstance(old.operator[0].state, FileHandle)
    renamed = replace(old.operator[0].state, path=named)
    assert brought.operators["read"] == replace(
        checkpoint.operators["read"],
        subtasks={
            0: replace(
                old,
                keyed=(keyed_state(renamed, InlineHandle(b"small")),),
                operator=(list_state(renamed),),
                raw_keyed=(keyed_state(renamed),),
            )
        },
    )


def test_a_checkpoint_that_carries_nothing_stays_as_it_is() -> None:
    checkpoint = replace(World().carried(OWN, None, SnapshotKind.CHECKPOINT, None), carried=None)
    assert bring_along(checkpoint, MemoryStorage(), PATHS, None) is checkpoint


def test_a_file_that_is_gone_or_that_nobody_can_open_is_told() -> None:
    world = World()
    checkpoint = world.carried("read-0-0", ELSEWHERE, SnapshotKind.CHECKPOINT, None)
    with pytest.raises(StorageError, match=r"/saved.* can't be opened to copy"):
        bring_along(checkpoint, world.storage, PATHS, None)
    moved = replace(checkpoint, carried=CarriedState({"read": (0,)}, "/moved"))
    with pytest.raises(StorageError, match="/moved is not a folder"):
        world.brought(moved)
    world.places(ELSEWHERE).delete(["read-0-0"])
    with pytest.raises(CorruptSnapshotError, match="/saved/read-0-0 is part of a snapshot but is not there"):
        world.brought(checkpoint)


def test_a_savepoint_gathers_what_subtasks_of_an_earlier_attempt_wrote_into_another_folder() -> None:
    world = World()
    names = [
        PATHS.savepoint_file(checkpoint_id=7, attempt=attempt, operator_id="count", subtask=index, number=0)
        for index, attempt in enumerate((1, 2))
    ]
    files = [write_state_file(world.storage, name, name.encode()) for name in names]
    subtasks = {i: OperatorSubtaskState((keyed_state(file),)) for i, file in enumerate(files)}
    operators = {"count": OperatorState("count", 2, 128, subtasks)}
    taken = CompletedCheckpoint(7, 2, SnapshotKind.SAVEPOINT, operators, 1.0, 2.0)

    brought = world.brought(taken)

    assert [file.path for file in brought.files()] == [
        "job/savepoint-7-2/count-0-0",
        "job/savepoint-7-2/count-1-0",
    ]
    assert [read_state(world.storage, file) for file in brought.files()] == [name.encode() for name in names]
    assert left_behind(taken, brought, PATHS) == ("job/savepoint-7-1/count-0-0",)


def test_files_of_checkpoints_that_a_savepoint_copies_stay() -> None:
    world = World()
    taken = world.carried(OWN, None, SnapshotKind.SAVEPOINT, None)
    assert left_behind(taken, world.brought(taken), PATHS) == ()
