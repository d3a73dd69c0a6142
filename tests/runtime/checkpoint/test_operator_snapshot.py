"""The two parts of a subtask's snapshot."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import count

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.checkpoint.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.errors import (
    CodecError,
    CorruptSnapshotError,
    KeyGroupError,
    KeyTypeError,
    StorageError,
)
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.operators.operator_state import RawState
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    INLINE_LIMIT,
    KeyGroupRange,
    OperatorStateHandle,
    RedistributionMode,
)
from penstock.runtime.snapshot.metadata import StateFiles, decode_atoms, encode_atoms
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup

CODEC = ValueCodec()
LARGE = "x" * (INLINE_LIMIT + 1)


class FailingStorage(MemoryStorage):
    """Fails to write the files whose number is named, and to delete when told to."""

    def __init__(self, *fails_at: int, deletes: bool = True) -> None:
        super().__init__()
        self._fails_at = fails_at
        self._deletes = deletes
        self._puts = count()

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        if next(self._puts) in self._fails_at:
            msg = "the disk is full"
            raise StorageError(msg)
        super().put(path, data, create=create)

    def delete(self, paths: Iterable[str]) -> None:
        if not self._deletes:
            msg = "it can't be deleted either"
            raise StorageError(msg)
        super().delete(paths)


def snapshot_of(
    storage: MemoryStorage, *values: object, backend: HeapKeyedStateBackend | None = None
) -> SubtaskSnapshotTask:
    """The asynchronous half of a snapshot of two operators, `a` with list states and `b` with keyed state."""
    numbers = count()
    lists = {f"list-{i}": SavedList([value]) for i, value in enumerate(values)}
    operators = {"a": OperatorSnapshot(encode_list_states(lists, CODEC))}
    backends = {}
    if backend is not None:
        backends["b"] = backend
        operators["b"] = OperatorSnapshot({}, backend.snapshot(1, -1))
    return SubtaskSnapshotTask(
        1, operators, backends, lambda operator: StateFiles(storage, lambda: f"{operator}/{next(numbers)}")
    )


def test_values_are_encoded_in_the_synchronous_half() -> None:
    values = [[1], [2]]
    states = encode_list_states({"s": SavedList(values, RedistributionMode.UNION)}, CODEC)
    values[0].append(99)
    assert states["s"].mode is RedistributionMode.UNION
    assert [CODEC.loads(atom) for atom in states["s"].atoms] == [[1], [2]]


def test_every_list_state_gets_a_handle_with_its_mode_and_size() -> None:
    storage = MemoryStorage()
    task = snapshot_of(storage, "small", LARGE)
    state = task.run().operators["a"]
    assert state.keyed == ()
    assert [(h.name, h.mode, h.count) for h in state.operator] == [
        ("list-0", RedistributionMode.SPLIT_DISTRIBUTE, 1),
        ("list-1", RedistributionMode.SPLIT_DISTRIBUTE, 1),
    ]
    assert storage.list("") == ["a/0"]
    assert task.written_bytes == sum(each.state.size for each in state.operator) > INLINE_LIMIT


def test_keyed_state_is_written_and_the_backend_builds_on_it_once_it_is_told() -> None:
    backend = HeapKeyedStateBackend(BackendSetup("op", 16, KeyGroupRange(0, 15), CODEC))
    backend.table("t").entries.update({"k": LARGE})
    backend.table("t").changed.add("k")
    task = snapshot_of(MemoryStorage(), backend=backend)
    snapshot = task.run()
    task.apply(snapshot)
    (handle,) = snapshot.operators["b"].keyed
    second = backend.snapshot(2, 1)
    assert second.base == handle


@pytest.mark.parametrize(
    ("error", "is_anew"), [(CorruptSnapshotError("x"), True), (StorageError("x"), False)]
)
def test_after_a_merge_that_met_damage_the_next_snapshot_builds_on_no_file(
    error: StorageError, is_anew: bool
) -> None:
    backend = HeapKeyedStateBackend(BackendSetup("op", 16, KeyGroupRange(0, 15), CODEC))
    backend.table("t").entries.update({"k": LARGE})
    backend.table("t").changed.add("k")
    task = snapshot_of(MemoryStorage(), backend=backend)
    task.apply(task.run())
    backend.snapshot(2, 1)

    SubtaskSnapshotTask(2, {}, {"b": backend}, lambda operator: pytest.fail(operator)).failed(error)

    third = backend.snapshot(3, 1)
    assert (third.base is None) == is_anew
    assert len(third.deltas) == int(is_anew)


@pytest.mark.parametrize(
    ("key", "own", "error", "why"),
    [
        (float("nan"), KeyGroupRange(0, 15), KeyTypeError, "can't be a key"),
        ("of another", KeyGroupRange(3, 3), KeyGroupError, "outside of this subtask's 3 to 3"),
    ],
)
def test_state_of_something_that_can_not_be_a_key_here_names_the_operator(
    key: object, own: KeyGroupRange, error: type[Exception], why: str
) -> None:
    backend = HeapKeyedStateBackend(BackendSetup("op", 16, own, CODEC))
    backend.table("t").entries[key] = 1
    backend.table("t").changed.update(backend.table("t").entries)
    storage = MemoryStorage()
    with pytest.raises(error, match=f"keyed state of operator 'b' can't be written: .*{why}"):
        snapshot_of(storage, LARGE, backend=backend).run()
    assert storage.list("") == []


def test_value_that_can_not_be_encoded_names_the_operator() -> None:
    """The rows of a log are encoded in the other thread, whatever they are."""
    backend = HeapKeyedStateBackend(BackendSetup("op", 16, KeyGroupRange(0, 15), ValueCodec(False)))
    table = backend.table("t")
    table.changed.never_in_place = True
    table.entries["key"] = array("i", [1])
    table.changed.put_new("key", array("i", [1]))
    with pytest.raises(
        CodecError, match=r"keyed state of operator 'b' can't be written: .*array.*can only be pickled"
    ):
        snapshot_of(MemoryStorage(), LARGE, backend=backend).run()


def test_when_a_file_can_not_be_written_those_before_it_are_removed() -> None:
    storage = FailingStorage(2)
    with pytest.raises(StorageError, match="full"):
        snapshot_of(storage, LARGE, LARGE, LARGE).run()
    assert storage.list("") == []


def test_the_first_error_is_told_even_if_nothing_can_be_removed() -> None:
    storage = FailingStorage(1, deletes=False)
    with pytest.raises(StorageError, match="full"):
        snapshot_of(storage, LARGE, LARGE).run()


def test_abandoned_before_the_end_it_removes_its_files_itself() -> None:
    storage = MemoryStorage()
    task = snapshot_of(storage, LARGE)
    assert task.abandon() is False
    task.run()
    assert storage.list("") == []


def test_abandoned_after_the_end_whoever_did_so_must_remove_the_files() -> None:
    storage = MemoryStorage()
    task = snapshot_of(storage, LARGE)
    task.run()
    assert storage.list("") == ["a/0"]
    assert task.abandon() is True
    task.remove()
    assert storage.list("") == []


@given(st.lists(st.binary(max_size=40)))
def test_atoms_come_back(atoms: list[bytes]) -> None:
    assert decode_atoms(encode_atoms(atoms), "here") == atoms


def unpack(data: bytes) -> object:
    try:
        return msgpack.unpackb(data)
    except ValueError:
        return None


@given(st.binary(max_size=60))
def test_whatever_the_bytes_are_damage_is_told_with_its_place(data: bytes) -> None:
    damage = r"the list state in file-7 is damaged"
    if isinstance(unpacked := unpack(data), list) and all(isinstance(atom, bytes) for atom in unpacked):
        assert decode_atoms(data, "file-7") == unpacked
    else:
        with pytest.raises(CorruptSnapshotError, match=damage):
            decode_atoms(data, "file-7")


@given(st.lists(st.binary(max_size=20), min_size=1), st.data())
def test_cut_off_list_state_is_damage(atoms: list[bytes], data: st.DataObject) -> None:
    encoded = encode_atoms(atoms)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CorruptSnapshotError):
        decode_atoms(encoded[:cut], "file-7")


def test_handles_name_the_states_of_the_operator() -> None:
    (handle,) = snapshot_of(MemoryStorage(), 5).run().operators["a"].operator
    assert isinstance(handle, OperatorStateHandle)
    assert handle.state.size < 10


@pytest.mark.parametrize(("limit", "passes"), [(9, False), (10, True), (None, True)])
def test_raw_state_of_an_operator_is_measured_as_a_whole(limit: int | None, passes: bool) -> None:
    raw = RawState([b"123", b"45"], {0: b"678", 7: b"90"})
    task = SubtaskSnapshotTask(
        1,
        {"a": OperatorSnapshot({}, raw=raw)},
        {},
        lambda operator: StateFiles(MemoryStorage(), lambda: "a/0"),
        max_raw_bytes=limit,
    )
    if passes:
        assert task.run().operators["a"].raw_operator[0].count == 2
    else:
        with pytest.raises(StorageError, match=r"'a' has 10 bytes, more than the 9"):
            task.run()
