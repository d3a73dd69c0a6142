from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.runtime.errors import CorruptSnapshotError, ObjectNotFoundError, StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.handles import (
    ChannelStateHandle,
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    MasterState,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SavedState,
    SavedTime,
)
from penstock.runtime.snapshot.ids import EdgeId
from penstock.runtime.snapshot.metadata import (
    MOST_SUBTASKS,
    decode_metadata,
    encode_metadata,
    read_metadata,
    read_state,
    write_state_file,
)
from penstock.runtime.snapshot.sealed_file import seal
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.key_groups import MAX_KEY_GROUPS

HANDLES = st.one_of(
    st.binary(max_size=20).map(InlineHandle),
    st.builds(
        FileHandle,
        st.from_regex(r"[a-z0-9]{1,5}(/[a-z0-9._-]{0,3}[a-z]){0,3}", fullmatch=True),
        st.integers(0, 2**40),
        st.text(),
    ),
)
RANGES = st.tuples(st.integers(0, 127), st.integers(0, 127)).map(
    lambda pair: KeyGroupRange(min(pair), max(pair))
)
KEYED = st.builds(KeyedStateHandle, RANGES, st.lists(HANDLES, max_size=3).map(tuple), st.integers(0, 2**40))
LISTS = st.builds(
    OperatorStateHandle, st.text(), st.sampled_from(RedistributionMode), HANDLES, st.integers(0, 9)
)
EDGES = st.builds(EdgeId, st.text(), st.none() | st.text(), st.text(), st.integers(0, 9), st.integers(0, 9))
CHANNELS = st.builds(
    ChannelStateHandle, HANDLES, st.integers(0, 2**40), st.lists(EDGES, max_size=2).map(tuple)
)
SUBTASKS = st.builds(
    OperatorSubtaskState,
    keyed=st.lists(KEYED, max_size=2).map(tuple),
    operator=st.lists(LISTS, max_size=2).map(tuple),
    channels=st.none() | CHANNELS,
    raw_keyed=st.lists(KEYED, max_size=2).map(tuple),
    raw_operator=st.lists(LISTS, max_size=2).map(tuple),
)
NAMES = st.text(st.characters(exclude_categories=()))
PARTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "parallelism": st.just(10),
        "max_parallelism": st.integers(1, 128),
        "subtasks": st.dictionaries(st.integers(0, 9), SUBTASKS, max_size=2),
        "finished": st.frozensets(st.integers(0, 9), max_size=3),
        "coordinator": st.none() | HANDLES,
    }
)
OPERATORS = st.dictionaries(NAMES, PARTS).map(
    lambda found: {name: OperatorState(name, **parts) for name, parts in found.items()}
)
MASTERS = st.builds(MasterState, NAMES, st.binary(max_size=20))
CHECKPOINTS = st.builds(
    CompletedCheckpoint,
    checkpoint_id=st.integers(0, 2**40),
    attempt=st.integers(1, 2**20),
    kind=st.sampled_from(SnapshotKind),
    operators=OPERATORS,
    triggered_at=st.floats(0, 1e12),
    completed_at=st.floats(0, 1e12),
    metadata=st.none(),
    size=st.integers(0, 2**50),
    location=st.none() | st.text(),
    master_states=st.lists(MASTERS, max_size=3).map(tuple),
)


def small() -> CompletedCheckpoint:
    files = (FileHandle("j/chk-1-1/a", 3, "c"), FileHandle("j/shared/b", 4, "d"), InlineHandle(b"xyz"))
    keyed = KeyedStateHandle(KeyGroupRange(0, 127), files, 5)
    state = OperatorState("count", 1, 128, {0: OperatorSubtaskState((keyed,))})
    return CompletedCheckpoint(1, 1, SnapshotKind.CHECKPOINT, {"count": state}, 1.0, 2.0)


def full() -> CompletedCheckpoint:
    """A snapshot with every kind of state at once, each in a file of its own beside the metadata."""
    files = iter(FileHandle(f"j/chk-1-1/{letter}", 3, "c") for letter in "abcdef")
    groups = KeyGroupRange(0, 127)
    part = OperatorSubtaskState(
        keyed=(KeyedStateHandle(groups, (next(files),), 5),),
        operator=(OperatorStateHandle("splits", RedistributionMode.UNION, next(files), 2),),
        channels=ChannelStateHandle(next(files), 4, (EdgeId("read", None, "count"),)),
        raw_keyed=(KeyedStateHandle(groups, (next(files),), 6),),
        raw_operator=(OperatorStateHandle("raw", RedistributionMode.SPLIT_DISTRIBUTE, next(files), 3),),
    )
    state = OperatorState("count", 2, 128, {0: part}, frozenset([1]), next(files))
    masters = (MasterState("outside", b"mark"),)
    return replace(small(), operators={"count": state}, master_states=masters)


@example(full(), "j/chk-1-1/metadata")
@settings(max_examples=40)
@given(CHECKPOINTS, st.sampled_from(["", "metadata", "j/chk-1-1/metadata"]))
def test_a_checkpoint_comes_back_as_it_was(checkpoint: CompletedCheckpoint, path: str) -> None:
    decoded = decode_metadata(encode_metadata(checkpoint, path), path)
    assert decoded == replace(checkpoint, metadata=decoded.metadata)
    assert decoded.metadata is not None
    assert decoded.metadata.path == path


def test_the_full_snapshot_leaves_no_part_of_an_operator_out() -> None:
    (state,) = full().operators.values()
    parts: list[OperatorState | OperatorSubtaskState] = [state, *state.subtasks.values()]
    for part in parts:
        assert [each.name for each in fields(part) if not getattr(part, each.name)] == []


@given(st.data())
def test_a_flipped_bit_anywhere_is_found_and_the_file_is_named(data: st.DataObject) -> None:
    encoded = bytearray(encode_metadata(small()))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(
        CorruptSnapshotError, match="j/chk-1-1/metadata should be the metadata of a checkpoint"
    ):
        decode_metadata(bytes(encoded), "j/chk-1-1/metadata")


@given(st.integers(0, 200))
def test_a_file_that_was_cut_is_found(length: int) -> None:
    encoded = encode_metadata(small())
    with pytest.raises(CorruptSnapshotError):
        decode_metadata(encoded[: min(length, len(encoded) - 1)], "m")


def test_a_newer_format_is_refused_with_advice() -> None:
    with pytest.raises(StorageError, match="reads up to 1: use the version that wrote it") as caught:
        decode_metadata(seal(b"PENSTKCP", 2, {}), "m")
    assert not isinstance(caught.value, CorruptSnapshotError)


@pytest.mark.parametrize(
    "body",
    [{}, [], None, {"operators": [[1]]}, {"operators": 3}],
)
def test_a_sealed_file_of_another_shape_is_damaged(body: object) -> None:
    with pytest.raises(CorruptSnapshotError, match="a part is missing or wrong"):
        decode_metadata(seal(b"PENSTKCP", 1, body), "m")


def test_a_path_that_leaves_the_storage_is_refused() -> None:
    checkpoint = small()
    keyed = KeyedStateHandle(KeyGroupRange(0, 1), (FileHandle("../../etc/passwd", 1, ""),))
    state = OperatorState("count", 1, 128, {0: OperatorSubtaskState((keyed,))})
    with pytest.raises(CorruptSnapshotError, match="must be relative"):
        decode_metadata(encode_metadata(replace(checkpoint, operators={"count": state})), "m")


@pytest.mark.parametrize("number", [MAX_KEY_GROUPS + 1, 1 << 40, (1 << 62) - 1])
@pytest.mark.parametrize("field", ["parallelism", "max_parallelism"])
def test_an_operator_with_more_subtasks_than_a_job_can_have_is_damage(field: str, number: int) -> None:
    state = OperatorState("count", 1, MAX_KEY_GROUPS)
    for size, is_damage in ((number, True), (MAX_KEY_GROUPS, False)):
        operators = {"count": replace(state, **{field: size})}  # type: ignore[arg-type]
        encoded = encode_metadata(replace(small(), operators=operators))
        if is_damage:
            with pytest.raises(CorruptSnapshotError, match=f"'count' with {number} subtasks or key groups"):
                decode_metadata(encoded, "m")
        else:
            assert decode_metadata(encoded, "m").operators == operators


@pytest.mark.parametrize(("first", "last"), [(0, MAX_KEY_GROUPS), (1 << 40, 1 << 41), (0, (1 << 62) - 1)])
def test_key_groups_that_no_job_can_have_are_damage(first: int, last: int) -> None:
    keyed = KeyedStateHandle(KeyGroupRange(first, last), (InlineHandle(b"x"),))
    state = OperatorState("count", 1, 128, {0: OperatorSubtaskState((keyed,))})
    with pytest.raises(CorruptSnapshotError, match=f"key groups {first} to {last}"):
        decode_metadata(encode_metadata(replace(small(), operators={"count": state})), "m")


def test_metadata_takes_as_many_subtasks_as_a_job_can_have() -> None:
    assert MOST_SUBTASKS == MAX_KEY_GROUPS


def test_declared_types_come_back_by_operator() -> None:
    types = (("seen", "int"), ("sum", "float"))
    typed = KeyedStateHandle(KeyGroupRange(0, 1), (InlineHandle(b"x"),), 1, types)
    operators = {
        "count": OperatorState("count", 1, 2, {0: OperatorSubtaskState((typed,))}),
        "other": OperatorState("other", 1, 2, {0: OperatorSubtaskState((replace(typed, types=()),))}),
    }
    checkpoint = CompletedCheckpoint(1, 1, SnapshotKind.SAVEPOINT, operators, 0.0, 1.0)
    assert decode_metadata(encode_metadata(checkpoint), "m").operators == operators


@pytest.mark.parametrize("names", [(), ("CURRENT",)])
@pytest.mark.parametrize("event", [None, -5, 10])
def test_the_time_of_state_with_a_ttl_comes_back(names: tuple[str, ...], event: int | None) -> None:
    time = SavedTime(event, 7, (("pages", -3), ("seen", 4)))
    saved = KeyedStateHandle(KeyGroupRange(0, 1), (InlineHandle(b"x"),), 1, names=names, time=time)
    operators = {"count": OperatorState("count", 1, 2, {0: OperatorSubtaskState((saved,))})}
    checkpoint = CompletedCheckpoint(1, 1, SnapshotKind.SAVEPOINT, operators, 0.0, 1.0)
    assert decode_metadata(encode_metadata(checkpoint), "m").operators == operators


def test_kinds_of_states_come_back_by_operator() -> None:
    states = (SavedState("pages", "map", is_declared=True), SavedState("seen", "value"))
    saved = KeyedStateHandle(KeyGroupRange(0, 1), (InlineHandle(b"x"),), 1, states=states)
    operators = {
        "count": OperatorState("count", 1, 2, {0: OperatorSubtaskState((saved,))}),
        "other": OperatorState("other", 1, 2, {0: OperatorSubtaskState((replace(saved, states=()),))}),
    }
    checkpoint = CompletedCheckpoint(1, 1, SnapshotKind.SAVEPOINT, operators, 0.0, 1.0)
    assert decode_metadata(encode_metadata(checkpoint), "m").operators == operators


def test_files_beside_the_metadata_move_with_it() -> None:
    encoded = encode_metadata(small(), "j/chk-1-1/metadata")
    moved = [f.path for f in decode_metadata(encoded, "elsewhere/metadata").files()]
    assert moved == ["elsewhere/a", "j/shared/b", "elsewhere/metadata"]
    assert next(decode_metadata(encoded, "metadata").files()).path == "a"


def test_files_of_every_kind_of_state_move_with_the_metadata() -> None:
    encoded = encode_metadata(full(), "j/chk-1-1/metadata")
    moved = {f.path for f in decode_metadata(encoded, "elsewhere/metadata").files()}
    assert moved == {f"elsewhere/{name}" for name in (*"abcdef", "metadata")}


def test_metadata_is_plain_msgpack() -> None:
    body = msgpack.unpackb(encode_metadata(small())[26:])
    assert body["id"] == 1
    assert body["kind"] == "checkpoint"


def test_state_comes_back_and_inline_state_needs_no_storage() -> None:
    storage = MemoryStorage()
    handle = write_state_file(storage, "j/shared/a", b"state")
    assert handle.size == 5
    assert read_state(storage, handle) == b"state"
    assert read_state(storage, InlineHandle(b"x")) == b"x"


@pytest.mark.parametrize("content", [b"stat", b"statE", b""])
def test_a_damaged_state_file_is_named(content: bytes) -> None:
    storage = MemoryStorage()
    handle = write_state_file(storage, "j/shared/a", b"state")
    storage.put("j/shared/a", content)
    with pytest.raises(CorruptSnapshotError, match="memory:/j/shared/a should be a file of a snapshot"):
        read_state(storage, handle)


def test_a_missing_state_file_is_damage_too() -> None:
    with pytest.raises(CorruptSnapshotError, match="j/shared/a is part of a snapshot but is not there"):
        read_state(MemoryStorage(), FileHandle("j/shared/a", 1, ""))


def test_a_savepoint_is_read_by_its_path_alone() -> None:
    storage = MemoryStorage()
    storage.put("j/savepoint-1-1/metadata", encode_metadata(small()))
    assert read_metadata(storage, "j/savepoint-1-1/metadata").checkpoint_id == 1
    with pytest.raises(ObjectNotFoundError):
        read_metadata(storage, "j/savepoint-2-1/metadata")


def test_all_state_counts_for_the_size() -> None:
    assert state_size(small().operators) == 3 + 4 + 3
    assert state_size(full().operators, full().master_states) == 6 * 3 + len(b"mark")
