"""State of snapshots as tables, and savepoints made of tables."""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_tables import TABLES, Account, entries_of, keyed, restored

from penstock import ConfigurationError, PenstockError, StorageError
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.handles import (
    OperatorState,
)
from penstock.runtime.snapshot.metadata import encode_metadata, read_metadata
from penstock.runtime.state.key_groups import key_group_of
from penstock.state import read_state, write_state


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
    monkeypatch.setattr(metadata, "INLINE_LIMIT", request.param)


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


def test_a_savepoint_that_could_not_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 0)
    url = write_state(keyed({i: i for i in range(100)}), tmp_path / "s", "count", parallelism=4)
    damaged = next(file for file in Path(url).iterdir() if file.name != "metadata")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(StorageError, match=damaged.name):
        write_state(keyed({1: 1}), tmp_path / "t", "other", base=url)
    assert [*(tmp_path / "t").iterdir()] == []
    with pytest.raises(StorageError, match=damaged.name):
        read_state(url, "count")


def test_a_replaced_state_loses_the_type_that_was_declared_for_the_old_one(tmp_path: Path) -> None:
    """A job whose program declares that type would not check the new values."""
    one = write_state(keyed({"a": 1}), tmp_path / "1", "count")
    two = write_state(keyed({"a": 2}), tmp_path / "2", "count", "seen", base=one)
    storage = open_location(two)
    base = read_metadata(storage, "metadata")
    subtasks = {
        index: replace(
            part, keyed=tuple(replace(h, types=(("reduce", "int"), ("seen", "int"))) for h in part.keyed)
        )
        for index, part in base.operators["count"].subtasks.items()
    }
    base.operators["count"] = replace(base.operators["count"], subtasks=subtasks)  # type: ignore[index]
    storage.put("metadata", encode_metadata(base, "metadata"))
    three = write_state(keyed({"a": "text"}), tmp_path / "3", "count", "seen", base=two)
    new = open_snapshot(three, open_location).checkpoint.operators["count"].subtasks
    assert {pair for part in new.values() for h in part.keyed for pair in h.types} == {("reduce", "int")}


def test_an_operator_that_has_finished_gets_no_state(tmp_path: Path) -> None:
    url = write_state(keyed({1: 1}), tmp_path / "s", "count")
    storage = open_location(url)
    base = read_metadata(storage, "metadata")
    done = OperatorState("count", 1, 128, base.operators["count"].subtasks, frozenset({0}))
    base.operators["count"] = done  # type: ignore[index]
    storage.put("metadata", encode_metadata(base, "metadata"))
    with pytest.raises(ConfigurationError, match="had reached the end of its data"):
        write_state(keyed({1: 1}), tmp_path / "t", "count", base=url)


@pytest.mark.parametrize("kind", ["value", "map"])
def test_nan_is_one_key_that_is_written_and_read(tmp_path: Path, kind: Any) -> None:
    numbers = pa.array([math.nan, 1.5])
    names = {"key": numbers} if kind == "value" else {"key": pa.array([1, 1]), "map_key": numbers}
    table = pa.table({**names, "value": pa.array([10, 20])})
    options: dict[str, Any] = {} if kind == "value" else {"kind": "map"}
    url = write_state(table, tmp_path / "start", "count", **options)
    read = read_state(url, "count").drop_columns("key_group")
    again = write_state(read, tmp_path / "again", "count", **options)
    rows = read_state(again, "count").to_pylist()
    name = "key" if kind == "value" else "map_key"
    assert sorted((str(row[name]), row["value"]) for row in rows) == [("1.5", 20), ("nan", 10)]
    twice = pa.concat_tables([table, table.slice(0, 1)])
    with pytest.raises(ConfigurationError, match=r"nan.* is in several rows"):
        write_state(twice, tmp_path / "twice", "count", **options)


def test_a_date_with_a_time_of_day_is_refused_and_not_cut(tmp_path: Path) -> None:
    table = pa.table({"key": pa.array([1], pa.date64()), "value": [1]})
    with pytest.raises(PenstockError, match="would lose data"):
        write_state(table, tmp_path / "start", "count")
