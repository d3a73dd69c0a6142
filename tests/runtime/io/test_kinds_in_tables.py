"""`read_state`, `write_state` and the inspection of snapshots with keyed state of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    RuntimeContext,
    StateTtl,
    ValueState,
)
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import OperatorState, OperatorSubtaskState
from penstock.runtime.snapshot.metadata import encode_metadata
from penstock.runtime.snapshot.metadata import read_state as read_bytes
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state_processor.inspection import StateSummary, inspect_snapshot
from penstock.runtime.testing.harness_state import HarnessSnapshot
from penstock.runtime.testing.manual_time import ManualClock
from penstock.state import read_state, write_state
from penstock.testing import OperatorHarness

START = datetime.fromtimestamp(1_000_000, UTC)


class Everything(KeyedProcessFunction[str, tuple[str, int], Any]):
    last = ValueState(int)
    numbers = ListState(int)
    counts = MapState(str, int)
    highest = ReducingState(max, int)
    recent = MapState(str, int, ttl=60)
    unused = ListState(str)

    def process(self, value: tuple[str, int], ctx: RuntimeContext) -> Iterator[Any]:
        _, number = value
        self.last.update(number)
        self.numbers.add(number)
        self.counts[f"n{number % 2}"] = number
        self.highest.add(number)
        self.recent[f"n{number}"] = number
        yield self.last.value(), self.numbers.get(), dict(self.counts), self.highest.get(), dict(self.recent)


def harness(**settings: Any) -> OperatorHarness:
    return OperatorHarness.of(
        lambda pairs: pairs.key_by(lambda pair: pair[0]).process("p", Everything()), **settings
    )


def folder_of(snapshot: HarnessSnapshot, folder: Path) -> str:
    """A snapshot of the harness as the savepoint of a job."""
    assert snapshot.keyed is not None
    state = OperatorState("p", 1, 128, {0: OperatorSubtaskState((snapshot.keyed,))})
    checkpoint = CompletedCheckpoint(1, 1, SnapshotKind.SAVEPOINT, {"p": state}, 0.0, 1.0)
    storage = open_location(str(folder), create=True)
    storage.put("metadata", encode_metadata(checkpoint, "metadata"))
    return str(folder)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    with harness() as running:
        running.push([("a", 3), ("b", 8)])
        running.clock.advance(1)
        running.push([("a", 1), ("a", 4)])
        return folder_of(running.snapshot(), tmp_path / "saved")


def rows(url: str, state: str) -> list[tuple[Any, ...]]:
    table = read_state(url, "p", state)
    assert table.schema.names[0] == "key_group"
    return sorted(zip(*(table[name].to_pylist() for name in table.schema.names[1:]), strict=True))


def test_every_kind_is_read_as_rows(saved: str) -> None:
    assert rows(saved, "last") == [("a", 4), ("b", 8)]
    assert rows(saved, "highest") == [("a", 4), ("b", 8)]
    assert read_state(saved, "p", "numbers").schema.names == ["key_group", "key", "position", "value"]
    assert rows(saved, "numbers") == [("a", 0, 3), ("a", 1, 1), ("a", 2, 4), ("b", 0, 8)]
    assert read_state(saved, "p", "counts").schema.names == ["key_group", "key", "map_key", "value"]
    assert rows(saved, "counts") == [("a", "n0", 4), ("a", "n1", 1), ("b", "n0", 8)]


def test_state_with_a_ttl_is_read_with_the_moment_of_its_last_use(saved: str) -> None:
    table = read_state(saved, "p", "recent")
    assert table.schema.names == ["key_group", "key", "map_key", "value", "last_used"]
    assert table.schema.field("last_used").type == pa.timestamp("us", "UTC")
    later = START + timedelta(seconds=1)
    assert rows(saved, "recent") == [
        ("a", "n1", 1, later),
        ("a", "n3", 3, START),
        ("a", "n4", 4, later),
        ("b", "n8", 8, START),
    ]


@pytest.mark.parametrize(
    ("state", "kind"),
    [("last", "keyed"), ("numbers", "list"), ("counts", "map"), ("highest", "keyed"), ("recent", "map")],
)
def test_what_is_read_is_written_back_and_a_job_goes_on_from_it(
    saved: str, tmp_path: Path, state: str, kind: Any
) -> None:
    before = read_state(saved, "p", state)
    again = write_state(before, tmp_path / "again", "p", state, kind=kind, base=saved)
    assert rows(again, state) == rows(saved, state)
    others = [other for other in ("last", "numbers", "counts", "highest", "recent") if other != state]
    assert [rows(again, other) for other in others] == [rows(saved, other) for other in others]
    (subtask,) = open_snapshot(again, open_location).checkpoint.operators["p"].subtasks.values()
    storage = open_location(again)
    with harness(clock=ManualClock(1_000_001)) as running:
        backend = running._backend
        assert backend is not None
        files = type("Files", (), {"read": lambda _, handle: read_bytes(storage, handle)})()
        setup = BackendSetup("p", 128, backend.key_groups, ValueCodec(), clock=running.clock)
        fresh = HeapKeyedStateBackend(setup)
        fresh.restore(subtask.keyed, files)
        views = {each.name: fresh.bind(each) for each in vars(Everything).values() if hasattr(each, "kind")}
        fresh.set_current_key("a")
        found: Any = views[state]
        expected: Any = {
            "last": lambda: (found.value(), 4),
            "numbers": lambda: (found.get(), [3, 1, 4]),
            "counts": lambda: (dict(found), {"n0": 4, "n1": 1}),
            "highest": lambda: (found.get(), 4),
            "recent": lambda: (dict(found), {"n1": 1, "n3": 3, "n4": 4}),
        }[state]()
        assert expected[0] == expected[1]


def test_a_list_is_written_in_the_order_of_its_positions_or_rows(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "b", "a"], "value": [1, 2, 3]})
    url = write_state(table, tmp_path / "rows", "p", "numbers", kind="list", parallelism=2)
    assert rows(url, "numbers") == [("a", 0, 1), ("a", 1, 3), ("b", 0, 2)]
    table = table.append_column("position", pa.array([7, 0, 2]))
    url = write_state(table, tmp_path / "positions", "p", "numbers", kind="list")
    assert rows(url, "numbers") == [("a", 0, 3), ("a", 1, 1), ("b", 0, 2)]


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"key": ["a"], "value": [1]}, "has no column 'map_key', only"),
        ({"key": ["a", "a"], "map_key": ["x", "x"], "value": [1, 2]}, r"\('a', 'x'\) is in several rows"),
        (
            {"key": ["a"], "map_key": ["x"], "value": [1], "last_used": ["now"]},
            "make it a column of timestamps",
        ),
    ],
)
def test_a_table_that_is_no_map_is_refused(table: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=what):
        write_state(pa.table(table), tmp_path / "map", "p", "counts", kind="map")


def test_the_inspection_lists_declared_states_also_those_that_hold_nothing(saved: str) -> None:
    opened = open_snapshot(saved, open_location)
    summary = inspect_snapshot(
        opened.checkpoint, lambda handle: read_bytes(opened.storage, handle), ValueCodec()
    )
    found = [state for state in summary.operators[0].states if state.kind == "keyed"]
    assert found == [
        StateSummary("counts", "keyed", 3, of_type="str: int", holds="map", is_declared=True),
        StateSummary("highest", "keyed", 2, of_type="int", holds="reducing", is_declared=True),
        StateSummary("last", "keyed", 2, of_type="int", holds="value", is_declared=True),
        StateSummary("numbers", "keyed", 4, of_type="int", holds="list", is_declared=True),
        StateSummary("recent", "keyed", 4, of_type="str: int", holds="map", is_declared=True, has_ttl=True),
        StateSummary("unused", "keyed", 0, of_type="str", holds="list", is_declared=True),
    ]


def test_values_with_a_ttl_are_written_for_any_kind_with_one_value(tmp_path: Path) -> None:
    table = pa.table({"key": ["a"], "value": [1], "last_used": pa.array([START], pa.timestamp("ms", "UTC"))})
    url = write_state(table, tmp_path / "ttl", "p", "last")
    assert rows(url, "last") == [("a", 1, START)]
    assert StateTtl(timedelta(minutes=1)).duration == 60.0
