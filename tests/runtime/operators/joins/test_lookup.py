"""Lookups: what is cached and for how long, what a failure does, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock import DataStream, GraphError, OperatorError, StreamEnvironment
from penstock.testing import OperatorHarness


class Service:
    """Answers by key; remembers its calls, and fails if told so."""

    def __init__(self) -> None:
        self.records: dict[Any, Any] = {"a": {"m": 1}}
        self.calls: list[Any] = []
        self.fails = False

    def __call__(self, key: Any) -> Any:
        self.calls.append(key)
        if self.fails:
            msg = "no answer"
            raise ConnectionError(msg)
        return self.records.get(key)


def looking_up(table: Any, **settings: Any) -> OperatorHarness:
    return OperatorHarness.of(lambda rows: rows.lookup(table, **{"on": "k", **settings}))


def found(harness: OperatorHarness, *keys: Any) -> list[Any]:
    return [row.get("m") for row in harness.push([{"k": key} for key in keys])]


def test_a_function_is_called_once_for_each_key() -> None:
    service = Service()
    with looking_up(service) as harness:
        assert found(harness, "a", "b", "a", "b") == [1, None, 1, None]
        assert service.calls == ["a", "b"]


def test_a_full_cache_drops_the_entry_that_was_not_used_for_the_longest_time() -> None:
    service = Service()
    with looking_up(service, cache=2) as harness:
        found(harness, "a", "b", "a", "c", "a", "b")
        assert service.calls == ["a", "b", "c", "b"]
    with looking_up(service, cache=0) as harness:
        service.calls.clear()
        found(harness, "a", "a")
        assert service.calls == ["a", "a"]


def test_negative_entries_have_their_own_expiry() -> None:
    service = Service()
    with looking_up(service, ttl=60, negative_ttl=5) as harness:
        assert found(harness, "a", "b") == [1, None]
        service.records = {"a": {"m": 2}, "b": {"m": 3}}
        harness.advance(4.9)
        assert found(harness, "a", "b") == [1, None]
        harness.advance(0.2)
        assert found(harness, "a", "b") == [1, 3]
        harness.advance(60)
        assert found(harness, "a") == [2]


def test_a_failed_refresh_surfaces() -> None:
    service = Service()
    with looking_up(service, ttl=60) as harness:
        assert found(harness, "a") == [1]
        service.fails = True
        assert found(harness, "a") == [1]
        harness.advance(60)
        with pytest.raises(OperatorError, match=r"lookup function .*no answer"):
            found(harness, "a")


def test_cached_records_cannot_be_changed_by_users() -> None:
    service = Service()
    service.records["a"] = {"m": [1]}

    def changing(row: Any, record: Any) -> Any:
        record["m"].append(2)
        return record

    with looking_up(service, select=changing) as harness:
        assert found(harness, "a", "a") == [[1, 2], [1, 2]]
        assert service.calls == ["a"]
    with looking_up(service) as harness:
        harness.push([{"k": "a"}])[0]["m"].append(3)
        service.records["a"]["m"].append(4)
        assert found(harness, "a") == [[1]]


def test_records_keep_their_order_and_their_timestamps() -> None:
    with looking_up(Service(), how="inner") as harness:
        rows = [{"k": key, "n": n} for n, key in enumerate("abaab")]
        assert [row["n"] for row in harness.push(rows, [5, 4, 3, 2, 1])] == [0, 2, 3]
        assert [list(batch.timestamps or ()) for batch in harness.batches] == [[5, 3, 2]]


def test_tables_are_looked_up_by_columns_and_null_keys_find_nothing() -> None:
    table = pa.table({"k": ["a", "b"], "j": [1, 2], "m": [10, 20]})
    with looking_up(table, on=["k", "j"]) as harness:
        rows = [{"k": "b", "j": 2, "m": 0}, {"k": "b", "j": None, "m": 1}]
        assert harness.push(rows) == [
            {"k": "b", "j": 2, "m": 0, "m_right": 20},
            {"k": "b", "j": None, "m": 1, "m_right": None},
        ]


def refused(message: str, build: Callable[[DataStream[Any]], object]) -> None:
    env = StreamEnvironment("refused")
    with pytest.raises(GraphError, match=message):
        build(env.from_collection("a", [{"k": 1}]))


async def answered(key: Any) -> Any:
    return key


def test_arguments_that_fit_no_lookup_are_refused_with_the_way_out() -> None:
    columns: Any = {"on": "k", "batch_format": "arrow"}
    refused("one of 'left', 'inner'", lambda a: a.lookup({}, on="k", how="full"))
    refused("cache is a number", lambda a: a.lookup({}, on="k", cache=-1))
    refused("give id=", lambda a: a.lookup(answered, on="k"))
    refused("retry is for coroutine functions", lambda a: a.lookup(len, on="k", retry=3))
    refused("ordered is for coroutine functions", lambda a: a.lookup({}, on="k", ordered=False))
    refused("capacity must be a whole number", lambda a: a.lookup(answered, on="k", id="l", capacity=0))
    refused("an Arrow batch has many keys", lambda a: a.lookup(answered, **columns, id="l", ordered=False))
    refused("not a dict of records", lambda a: a.lookup({}, **columns))
    refused("a key that names columns", lambda a: a.lookup(len, on=len, batch_format="arrow"))
    refused("use select or with_columns", lambda a: a.lookup(len, **columns, select=max))
    refused("lacks the key column 'k'", lambda a: a.lookup(pa.table({"j": [1]}), **columns))
    refused("the column ':used' twice", lambda a: a.lookup(pa.table({"k": [1], ":used": [1]}), **columns))
    refused("on is the name of a column", lambda a: a.lookup({}, on=5))
    refused("give select", lambda a: a.lookup({}, on=len))
    refused("the names of its key columns", lambda a: a.lookup(pa.table({"k": [1]}), on=len, select=max))
    refused("the key 1 twice", lambda a: a.lookup(pa.table({"k": [1, 1]}), on="k"))
    refused("lookup", lambda a: a.lookup(5, on="k"))
