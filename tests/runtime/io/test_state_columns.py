"""State in columns is read as a flat table, changed, written, and taken up by a job's operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.aggregates import Count, CountDistinct, Sum
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.errors import ConfigurationError, KeyTypeError
from penstock.runtime.io.storage import open_location
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.runtime.state.state_backend import BackendSetup
from penstock.state import read_state, write_state
from penstock.windows import TumblingEventTimeWindows

GROUPS = 16


def sums(count: int = 50) -> pa.Table:
    return pa.table(
        {
            "k": [f"k{number}" for number in range(count)],
            "total:sum": pa.array(range(count), pa.int64()),
            "n:count": pa.array([1] * count, pa.int64()),
        }
    )


def written(tmp_path: Path, table: pa.Table, **options: Any) -> str:
    options = {"kind": "columns", "keys": ["k"], "max_parallelism": GROUPS} | options
    return write_state(table, tmp_path / "start", "sums", "aggregate", **options)


def without_groups(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.drop(["key_group"]).to_pylist(), key=repr)


def tables_of(url: str, state: str, parallelism: int) -> list[ColumnTable]:
    """The state that the subtasks of a job would find."""
    opened = open_snapshot(url, open_location)
    handles = [h for s in opened.checkpoint.operators["sums"].subtasks.values() for h in s.keyed]

    class Files:
        def read(self, handle: Any) -> bytes:
            return handle.data if isinstance(handle, InlineHandle) else opened.storage.get(handle.path)

    tables = []
    for index in range(parallelism):
        own = key_group_range(index, parallelism, GROUPS)
        backend = HeapKeyedStateBackend(BackendSetup("op", GROUPS, own, ValueCodec(allow_pickle=False)))
        backend.restore([h for h in handles if len(h.key_groups.intersection(own))], Files())
        tables.append(backend.column_table(state))
    return tables


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_is_written_is_read_as_it_was(tmp_path: Path, lanes: int) -> None:
    found = read_state(written(tmp_path, sums(), parallelism=lanes), "sums", "aggregate", columns=True)
    assert without_groups(found) == sorted(sums().to_pylist(), key=repr)
    assert found.schema.field("n:count").type == pa.int64()
    groups = dict(zip(found["k"].to_pylist(), found["key_group"].to_pylist(), strict=True))
    assert groups == {f"k{number}": key_group_of(f"k{number}", GROUPS) for number in range(50)}


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_an_aggregation_goes_on_from_what_was_written(tmp_path: Path, parallelism: int) -> None:
    url = written(tmp_path, sums(), parallelism=2)
    aggregation = Aggregation(["k"], {"total": Sum("v"), "n": Count()})
    seen = {}
    for table in tables_of(url, "aggregate", parallelism):
        keys = table.keys(table.all_slots).column(0)
        ones = pa.array([1] * len(keys))
        slots = aggregation.merge(table, aggregation.partials({"k": keys}, {"v": ones}))
        results = aggregation.results(table, slots)
        for key, total, n in zip(
            table.keys(slots).column(0).to_pylist(), *(c.to_pylist() for c in results.values()), strict=True
        ):
            seen[key] = (total, n)
    assert seen == {f"k{number}": (number + 1, 2) for number in range(50)}


def test_a_table_that_was_read_and_changed_is_written_without_names(tmp_path: Path) -> None:
    first = read_state(written(tmp_path, sums()), "sums", "aggregate", columns=True)
    changed = first.filter(pc.less(first["total:sum"], 10))
    url = write_state(
        changed, tmp_path / "next", "sums", "aggregate", kind="columns", base=tmp_path / "start"
    )
    found = read_state(url, "sums", "aggregate", columns=True)
    assert without_groups(found) == sorted(sums(10).to_pylist(), key=repr)


def test_windows_have_their_start_in_the_key(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "a"], ":start": [0, 60], "n:count": [1, 2]})
    url = written(tmp_path, table, keys=["k", ":start"])
    (state,) = tables_of(url, "aggregate", 1)
    assert state.key_numbers(":start", state.all_slots).tolist() == [0, 60]
    found = read_state(url, "sums", "aggregate", columns=True)
    assert found["key_group"].to_pylist() == [key_group_of("a", GROUPS)] * 2
    assert without_groups(found) == table.to_pylist()
    assert TumblingEventTimeWindows(60).size == 60_000_000


def test_the_values_of_a_distinct_count_are_a_table_of_keys(tmp_path: Path) -> None:
    pairs = pa.table({"k": ["a", "a", "b"], "v:": [1, 2, 1]})
    url = written(tmp_path, pairs, keys=["k", "v:"])
    assert without_groups(read_state(url, "sums", "aggregate", columns=True)) == pairs.to_pylist()
    aggregation, table = Aggregation(["k"], {"kinds": CountDistinct("v")}), ColumnTable("t", GROUPS)
    (state,) = tables_of(url, "aggregate", 1)
    keys, inputs = {"k": pa.array(["a", "a"])}, {"v": pa.array([2, 3])}
    slots = aggregation.merge(table, aggregation.partials(keys, inputs))
    aggregation.add_rows(table, {"kinds": state}, keys, inputs)
    assert aggregation.results(table, slots)["kinds"].to_pylist() == [1]


def test_nothing_is_a_state_too(tmp_path: Path) -> None:
    found = read_state(written(tmp_path, sums(0)), "sums", "aggregate", columns=True)
    assert found.num_rows == 0


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (sums(2), {"keys": None}, r"needs the names of the key's columns"),
        (sums(2), {"keys": ["m"]}, "no key column 'm'; its columns are 'k', 'total:sum'"),
        (pa.table({"k": ["a", "b", "a"]}), {}, "key 'a' is in several rows"),
        (sums(2), {"key": str}, "omit key=, value= and encoded="),
        (sums(2), {"kind": "keyed"}, 'needs kind="columns"'),
    ],
    ids=["no names", "no column", "double", "conversion", "rows"],
)
def test_what_can_not_be_meant_is_refused(
    tmp_path: Path, table: pa.Table, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        written(tmp_path, table, **options)


def test_a_column_that_can_be_no_key_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(KeyTypeError, match="column 'k' of type list"):
        written(tmp_path, pa.table({"k": [[1]]}))


def test_state_of_rows_is_not_read_as_columns(tmp_path: Path) -> None:
    url = write_state(pa.table({"key": [1], "value": [2]}), tmp_path / "rows", "sums")
    with pytest.raises(ConfigurationError, match="'reduce' of operator 'sums' is not in columns"):
        read_state(url, "sums", columns=True)
    with pytest.raises(ConfigurationError, match="has no state 'other'"):
        read_state(url, "sums", "other", columns=True)
