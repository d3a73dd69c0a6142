"""State of snapshots as tables, and savepoints made of tables."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.runtime import ConfigurationError, StorageError, read_state, write_state
from penstock.runtime.checkpoint import state_files
from penstock.runtime.checkpoint.metadata import encode_metadata, read_metadata
from penstock.runtime.checkpoint.opened_snapshot import open_snapshot
from penstock.runtime.checkpoint.snapshot import (
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.errors import CorruptSnapshotError, KeyTypeError
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.arrow_inference import NoArrowTypeError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.runtime.state.keyed_blocks import Block, encode_deleted, encode_written
from penstock.runtime.state.keyed_chunk import write_chunk


@dataclass(frozen=True)
class Account:
    owner: str
    cents: int


class Point(NamedTuple):
    x: int
    y: int


class Strange:
    """Of no kind that the codec knows."""


def keyed(entries: Mapping[Any, Any]) -> pa.Table:
    return pa.table({"key": list(entries), "value": list(entries.values())})


def entries_of(table: pa.Table) -> dict[Any, Any]:
    from penstock.runtime.record.arrow_values import from_arrow

    return dict(zip(from_arrow(table["key"]), from_arrow(table["value"]), strict=True))


def restored(url: str, operator: str, table: str, parallelism: int, groups: int) -> dict[Any, Any]:
    """What the subtasks of a job would find, each in its own range."""
    opened = open_snapshot(url, open_location)
    found: dict[Any, Any] = {}
    handles = [h for s in opened.checkpoint.operators[operator].subtasks.values() for h in s.keyed]

    class Files:
        def read(self, handle: Any) -> bytes:
            return handle.data if isinstance(handle, InlineHandle) else opened.storage.get(handle.path)

    for index in range(parallelism):
        own = key_group_range(index, parallelism, groups)
        backend = HeapKeyedStateBackend(groups, own, ValueCodec(allow_pickle=False))
        backend.restore([h for h in handles if len(h.key_groups.intersection(own))], Files())
        mine = backend.table(table).entries
        assert all(key_group_of(key, groups) in own for key in mine)
        assert not found.keys() & mine.keys()
        found.update(mine)
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
KEYS = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        TEXT,
        st.binary(max_size=3),
        st.dates(),
        st.tuples(TEXT, st.integers(0, 9)),
    ]
)
VALUES = st.sampled_from(
    [
        st.integers(-9, 9),
        st.floats(allow_nan=False),
        TEXT,
        st.decimals(-99, 99, places=2),
        st.tuples(TEXT, st.none() | st.integers(0, 9)),
        st.lists(TEXT, max_size=2),
        st.fixed_dictionaries({"n": st.integers(0, 9), "tags": st.lists(TEXT, max_size=2)}),
        st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    ]
)
TABLES = st.tuples(KEYS, VALUES).flatmap(lambda both: st.dictionaries(*both, max_size=12))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES, st.integers(1, 4), st.integers(1, 4), st.sampled_from([4, 16, 128]), st.booleans())
def test_rows_that_are_written_are_read_and_restored_at_any_parallelism(
    tmp_path_factory: pytest.TempPathFactory,
    entries: dict[Any, Any],
    old: int,
    new: int,
    groups: int,
    encoded: bool,
) -> None:
    from penstock.runtime.record.arrow_values import to_arrow

    folder = tmp_path_factory.mktemp("state")
    values = [ValueCodec().dumps(v) for v in entries.values()] if encoded else list(entries.values())
    table = pa.table({"key": to_arrow(list(entries), "key"), "value": to_arrow(values, "value")})

    options: dict[str, Any] = {"parallelism": old, "max_parallelism": groups, "encoded": encoded}
    url = write_state(table, folder / "start", "count", **options)
    moved = shutil.move(url, folder / "moved")

    back = read_state(moved, "count")
    assert entries_of(back) == entries
    keys = list(entries_of(back))
    assert back["key_group"].to_pylist() == [key_group_of(key, groups) for key in keys]
    assert restored(str(moved), "count", "reduce", new, groups) == entries


@pytest.fixture(params=[0, 1 << 20])
def _files_or_inline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "INLINE_LIMIT", request.param)


@pytest.mark.usefixtures("_files_or_inline")
def test_states_are_added_and_replaced_one_after_the_other(tmp_path: Path) -> None:
    one = write_state(keyed({"a": 1, "b": 2}), tmp_path / "1", "count", parallelism=3, max_parallelism=8)
    two = write_state(keyed({"a": [1.5]}), tmp_path / "2", "count", "seen", base=one)
    three = write_state(keyed({7: "x"}), tmp_path / "3", "other", base=two)
    four = write_state(keyed({"c": 9}), tmp_path / "4", "count", base=three)
    offsets = pa.table({"value": [10, 20, 30, 40]})
    five = write_state(offsets, tmp_path / "5", "count", "offsets", kind="union", base=four)
    for old in (one, two, three, four):
        shutil.rmtree(old)  # nothing of the base is needed

    assert entries_of(read_state(five, "count")) == {"c": 9}
    assert entries_of(read_state(five, "count", "seen")) == {"a": [1.5]}
    assert entries_of(read_state(five, "other")) == {7: "x"}
    assert read_state(five, "count", "offsets").to_pydict() == {
        "subtask": [0, 0, 1, 2],
        "value": [10, 20, 30, 40],
    }
    assert restored(five, "count", "seen", 2, 8) == {"a": [1.5]}


def test_a_broadcast_state_is_written_to_all_and_read_once(tmp_path: Path) -> None:
    rules = pa.table({"value": ["a", "b"]})
    url = write_state(rules, tmp_path / "s", "join", "rules", kind="broadcast", parallelism=3)
    assert read_state(url, "join", "rules")["value"].to_pylist() == ["a", "b"]
    subtasks = open_snapshot(url, open_location).checkpoint.operators["join"].subtasks
    assert [s.operator[0].count for s in subtasks.values()] == [2, 2, 2]


def test_a_table_without_rows_is_a_state_without_keys(tmp_path: Path) -> None:
    empty = pa.table({"key": pa.array([], "string"), "value": pa.array([], "int64")})
    url = write_state(empty, tmp_path / "s", "count")
    assert read_state(url, "count").num_rows == 0
    assert restored(url, "count", "reduce", 1, 128) == {}


def test_pandas_frames_are_written_and_read(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"key": ["a", "b"], "value": [1.5, 2.5]}, index=[7, 8])
    url = write_state(frame, tmp_path / "s", "count")
    back = read_state(url, "count").to_pandas().sort_values("key")
    assert back[["key", "value"]].values.tolist() == [["a", 1.5], ["b", 2.5]]


def test_functions_convert_keys_and_values_both_ways(tmp_path: Path) -> None:
    table = keyed({"1": {"owner": "a", "cents": 5}})
    url = write_state(table, tmp_path / "s", "sum", key=int, value=lambda v: Account(**v))

    options: dict[str, Any] = {"classes": [Account], "value": asdict}
    assert entries_of(read_state(url, "sum", **options)) == {1: {"owner": "a", "cents": 5}}
    # Without a function a dataclass is a struct all the same.
    assert entries_of(read_state(url, "sum", classes=[Account], key=str)) == {"1": {"owner": "a", "cents": 5}}


def of_another_job(tmp_path: Path, values: Mapping[Any, Any], codec: ValueCodec | None = None) -> str:
    """A savepoint with values that only its job knows."""
    codec = codec or ValueCodec()
    blocks = list(encode_written("reduce", list(values), list(values.values()), codec))
    return with_chunks(tmp_path, blocks, codec=codec)


def with_chunks(tmp_path: Path, *files: list[Block], codec: ValueCodec) -> str:
    everything = KeyGroupRange(0, 7)
    handles = tuple(InlineHandle(write_chunk(blocks, 8, everything, codec)) for blocks in files)
    subtask = OperatorSubtaskState((KeyedStateHandle(everything, handles, 1),))
    url = write_state(keyed({"x": 1}), tmp_path / "base", "none")
    storage = open_location(url)
    base = read_metadata(storage, "metadata")
    base.operators["sum"] = OperatorState("sum", 1, 8, {0: subtask})  # type: ignore[index]
    storage.put("metadata", encode_metadata(base, "metadata"))
    return url


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({1: 1, 2: 2.5}, r"it holds both 1 \(int\) and 2.5 \(float\)"),
        ({1: {1, 2}}, r"it holds \{1, 2\} \(set\)"),
        ({1: 1 << 70}, "can't carry its values"),
        ({1: {"a": 1, "b": [None, "x", 3]}}, r"column 'value.b\[\]'.*both 'x' \(str\) and 3 \(int\)"),
        ({1: (1,), 2: (1, 2)}, "tuples of different lengths"),
        ({1: Decimal("1e30"), 2: Decimal("1e-30")}, "take 61 digits together, and 38 is the most"),
    ],
)
def test_values_that_no_arrow_type_carries_are_named_and_can_be_taken_encoded(
    tmp_path: Path, values: dict[int, Any], told: str
) -> None:
    url = of_another_job(tmp_path, values)
    with pytest.raises(NoArrowTypeError, match=told):
        read_state(url, "sum")
    taken = read_state(url, "sum", encoded=True)
    assert taken["value"].type == pa.binary()
    again = write_state(taken, tmp_path / "again", "sum", encoded=True, max_parallelism=8)
    assert restored(again, "sum", "reduce", 1, 8) == values
    as_text = read_state(url, "sum", value=repr)
    assert entries_of(as_text) == {key: repr(value) for key, value in values.items()}


def test_nothing_is_unpickled_without_consent(tmp_path: Path) -> None:
    url = of_another_job(tmp_path, {1: Strange()})
    with pytest.raises(CorruptSnapshotError, match="pickle"):
        read_state(url, "sum")
    named = read_state(url, "sum", allow_pickle=True, classes=[Strange], value=lambda v: type(v).__name__)
    assert entries_of(named) == {1: "Strange"}


def test_other_states_are_kept_without_being_understood(tmp_path: Path) -> None:
    """Neither a pickle nor a class of another job is in the way of reading or replacing what is beside it."""
    codec = ValueCodec()
    blocks = [*encode_written("strange", [1], [Strange()], codec), *encode_written("n", [1], [5], codec)]
    url = with_chunks(tmp_path, blocks, codec=codec)
    assert entries_of(read_state(url, "sum", "n")) == {1: 5}
    new = write_state(keyed({2: 6}), tmp_path / "new", "sum", "n", base=url)
    assert entries_of(read_state(new, "sum", "n")) == {2: 6}
    kept = read_state(new, "sum", "strange", allow_pickle=True, classes=[Strange], value=repr)
    assert kept["key"].to_pylist() == [1]


def test_a_chain_of_changes_is_read_as_what_is_left_of_it(tmp_path: Path) -> None:
    codec = ValueCodec()
    url = with_chunks(
        tmp_path,
        list(encode_written("reduce", ["a", "b", "c"], [1, 2, 3], codec)),
        [*encode_deleted("reduce", ["b"]), *encode_written("reduce", ["c", "d"], [30, 4], codec)],
        codec=codec,
    )
    assert entries_of(read_state(url, "sum")) == {"a": 1, "c": 30, "d": 4}
    new = write_state(keyed({"a": 9}), tmp_path / "new", "sum", base=url)
    assert restored(new, "sum", "reduce", 2, 8) == {"a": 9}


def test_arguments_that_can_not_be_meant_are_told(tmp_path: Path) -> None:
    url = write_state(keyed({"a": 1}), tmp_path / "s", "count", parallelism=2, max_parallelism=8)
    with pytest.raises(ConfigurationError, match="it has state of: 'count'"):
        read_state(url, "sum")
    with pytest.raises(ConfigurationError, match="no state 'hot' in this snapshot; it has: 'reduce'"):
        read_state(url, "count", "hot")
    with pytest.raises(ConfigurationError, match="holds a snapshot already"):
        write_state(keyed({"b": 1}), url, "count")
    with pytest.raises(ConfigurationError, match="max_parallelism=16 is not possible"):
        write_state(keyed({"b": 1}), tmp_path / "t", "count", base=url, max_parallelism=16)
    with pytest.raises(ConfigurationError, match="no column 'value', only"):
        write_state(pa.table({"key": [1], "total": [1]}), tmp_path / "t", "count")
    with pytest.raises(ConfigurationError, match="key 'a' comes in several rows"):
        write_state(pa.table({"key": ["a", "b", "a"], "value": [1, 2, 3]}), tmp_path / "t", "count")
    with pytest.raises(KeyTypeError):
        write_state(pa.table({"key": [[1]], "value": [1]}), tmp_path / "t", "count")
    with pytest.raises(ConfigurationError, match="kind='list' is not allowed"):
        write_state(keyed({}), tmp_path / "t", "count", kind="list")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="nowhere is no folder"):
        read_state(tmp_path / "nowhere", "count")
    assert [*tmp_path.glob("t/*")] == []  # what was refused has left nothing


def test_a_savepoint_that_could_not_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "INLINE_LIMIT", 0)
    url = write_state(keyed({i: i for i in range(100)}), tmp_path / "s", "count", parallelism=4)
    damaged = next(file for file in Path(url).iterdir() if file.name != "metadata")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match=damaged.name):
        write_state(keyed({1: 1}), tmp_path / "t", "other", base=url)
    assert [*(tmp_path / "t").iterdir()] == []
    with pytest.raises(StorageError, match=damaged.name):
        read_state(url, "count")


def test_an_operator_that_has_finished_gets_no_state(tmp_path: Path) -> None:
    url = write_state(keyed({1: 1}), tmp_path / "s", "count")
    storage = open_location(url)
    base = read_metadata(storage, "metadata")
    done = OperatorState("count", 1, 128, base.operators["count"].subtasks, frozenset({0}))
    base.operators["count"] = done  # type: ignore[index]
    storage.put("metadata", encode_metadata(base, "metadata"))
    with pytest.raises(ConfigurationError, match="had come to the end of its data"):
        write_state(keyed({1: 1}), tmp_path / "t", "count", base=url)
