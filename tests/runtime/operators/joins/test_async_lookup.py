"""Lookups with coroutine functions: a cache beside retries, order, and what a restore calls again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import OperatorError, Retry
from penstock.testing import OperatorHarness

#: Seconds until the service answers a key.
DELAYS = {"a": 3.0, "b": 1.0, "c": 2.0}


class Service:
    """Answers by key after a time; remembers its calls, and fails `failures` times."""

    def __init__(self) -> None:
        self.records: dict[Any, Any] = {"a": {"m": 1}, "b": {"m": 2}}
        self.calls: list[Any] = []
        self.failures = 0

    async def __call__(self, key: Any) -> Any:
        self.calls.append(key)
        if self.failures:
            self.failures -= 1
            msg = "no answer"
            raise ConnectionError(msg)
        record = self.records.get(key)
        await asyncio.sleep(DELAYS[key])
        return record


def looking_up(service: Any, at: Any = None, **settings: Any) -> OperatorHarness:
    build = {"on": "k", "id": "lookup", **settings}
    return OperatorHarness.of(lambda rows: rows.lookup(service, **build), **(at or {}))


def rows(keys: str) -> list[dict[str, Any]]:
    return [{"k": key, "n": n} for n, key in enumerate(keys)]


def numbers(found: list[Any]) -> list[int]:
    return [row["n"] for row in found]


def test_a_retry_does_not_read_the_cache() -> None:
    service = Service()
    service.records = {}
    with looking_up(service, ttl=60, negative_ttl=2, retry=Retry(3, delay=10)) as harness:
        harness.push(rows("b"))
        assert harness.advance(1) == [{"k": "b", "n": 0}]
        harness.advance(2)
        service.failures, service.records = 1, {"b": {"m": 7}}
        harness.push(rows("b"))
        assert harness.advance(20) == [{"k": "b", "n": 0, "m": 7}], "not the entry without a record"
        assert service.calls == ["b", "b", "b"]
        harness.push(rows("b"))
        assert service.calls == ["b", "b", "b"]


def test_negative_entries_have_their_own_expiry() -> None:
    service = Service()
    with looking_up(service, ttl=60, negative_ttl=5) as harness:
        harness.push(rows("bc"))
        harness.advance(2)
        service.records["c"] = {"m": 3}
        assert [row.get("m") for row in harness.push(rows("bc"))] == [2, None]
        harness.advance(5.1)
        assert [row["m"] for row in (*harness.push(rows("bc")), *harness.advance(2))] == [2, 3]
        assert service.calls == ["b", "c", "c"]


def test_a_failed_refresh_surfaces() -> None:
    service = Service()
    with looking_up(service, ttl=60) as harness:
        harness.push(rows("a"))
        harness.advance(3)
        service.failures = 1
        assert harness.push(rows("a")) == [{"k": "a", "n": 0, "m": 1}]
        harness.advance(60)
        with pytest.raises(OperatorError, match=r"lookup function .*no answer.*on record .*'k': 'a'"):
            harness.push(rows("a")) or harness.advance(1)


@pytest.mark.parametrize("in_call", [False, True])
def test_cached_records_cannot_be_changed_by_users(in_call: bool) -> None:
    service = Service()
    service.records["b"] = {"m": [1]}

    def changing(row: Any, record: Any) -> Any:
        record["m"].append(2)
        return record

    with looking_up(service, select=changing if in_call else None) as harness:
        harness.push(rows("bb"))
        found = harness.advance(1)
        assert [row["m"] for row in found] == ([[1, 2], [1, 2]] if in_call else [[1], [1]])
        found[0]["m"].append(3)
        service.records["b"]["m"].append(4)
        found = harness.push(rows("b"))
        assert found[0]["m"] == ([1, 2] if in_call else [1])
        assert service.calls == ["b"]


@pytest.mark.parametrize("cache", [0, 10])
@pytest.mark.parametrize("ordered", [True, False])
def test_order_per_key_is_kept(cache: int, ordered: bool) -> None:
    service = Service()
    with looking_up(service, cache=cache, ordered=ordered) as harness:
        harness.push(rows("abcabc"))
        assert service.calls == ["a", "b", "c"], "calls of one key run one after the other"
        found = numbers(harness.advance(100))
        assert sorted(found) == list(range(6))
        assert all(found.index(n) < found.index(n + 3) for n in range(3))
        assert (found == sorted(found)) is ordered
        assert len(service.calls) == (3 if cache else 6)


def test_records_of_known_keys_leave_at_once_while_none_waits() -> None:
    service = Service()
    with looking_up(service) as harness:
        harness.push(rows("b"))
        harness.advance(1)
        assert harness.push(rows("bb"), [5, 6]) == [{"k": "b", "n": 0, "m": 2}, {"k": "b", "n": 1, "m": 2}]
        assert list(harness.batches[-1].timestamps or ()) == [5, 6]
        assert harness.push(rows("bab")) == rows_with({0: 2}, "b")
        assert harness.advance(3) == [{"k": "a", "n": 1, "m": 1}, {"k": "b", "n": 2, "m": 2}]
        assert harness.statistics().extra["async_in_flight"] == 0


def rows_with(values: dict[int, int], keys: str) -> list[dict[str, Any]]:
    return [{**row, "m": values[row["n"]]} for row in rows(keys)]


def test_a_key_that_is_null_finds_nothing_and_asks_nothing() -> None:
    service = Service()
    with looking_up(service, how="inner") as harness:
        harness.push([{"k": None}, {"k": "b"}])
        assert harness.advance(1) == [{"k": "b", "m": 2}]
        assert service.calls == ["b"]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_that_wait_are_in_a_snapshot_and_are_looked_up_again(parallelism: int) -> None:
    service = Service()
    with looking_up(service, capacity=2) as harness:
        harness.push(rows("b"))
        harness.advance(1)
        harness.push(rows("abca"), [1, 2, 3, 4])
        snapshot = harness.snapshot()
    service.calls.clear()
    found: list[Any] = []
    for subtask in range(parallelism):
        at = {"restored": [snapshot], "subtask": subtask, "parallelism": parallelism}
        with looking_up(service, at, capacity=2) as harness:
            found += harness.end_of_data()
    assert sorted(numbers(found)) == [0, 1, 2, 3]
    assert {(row["k"], row["m"]) for row in found} == {("a", 1), ("b", 2), ("c", None)}
    assert set(service.calls) == {"a", "b", "c"}, "the cache is in no snapshot"


def test_settings_of_calls_are_those_of_map_async() -> None:
    service = Service()
    with looking_up(service, timeout=2) as harness:
        harness.push(rows("a"))
        with pytest.raises(OperatorError, match=r"no answer within 2 s"):
            harness.advance(3)
    with looking_up(service, capacity=1) as harness:
        service.calls.clear()
        harness.push(rows("ab"))
        assert service.calls == ["a"]


def test_objects_of_a_class_live_on_the_event_loop() -> None:
    class Client:
        async def open(self, context: Any) -> None:
            self.records = {"b": {"m": context.subtask}}

        async def __call__(self, key: Any) -> Any:
            return self.records.get(key)

    with looking_up(Client) as harness:
        assert harness.push(rows("b")) == [{"k": "b", "n": 0, "m": 0}]


@given(
    steps=st.lists(st.one_of(st.text("abc", max_size=4), st.floats(0.5, 9)), max_size=12),
    cache=st.integers(0, 3),
    ordered=st.booleans(),
    capacity=st.integers(1, 4),
)
def test_each_record_has_one_result_of_its_key_in_the_order_of_its_key(
    steps: list[str | float], cache: int, ordered: bool, capacity: int
) -> None:
    service, pushed = Service(), 0
    with looking_up(service, cache=cache, ttl=4, ordered=ordered, capacity=capacity) as harness:
        for step in steps:
            if isinstance(step, str):
                harness.push([{"k": key, "n": pushed + n} for n, key in enumerate(step)])
                pushed += len(step)
            else:
                harness.advance(step)
        harness.end_of_data()
        found = harness.outputs
    assert sorted(numbers(found)) == list(range(pushed))
    assert all(row.get("m") == service.records.get(row["k"], {}).get("m") for row in found)
    for key in "abc":
        of_key = [row["n"] for row in found if row["k"] == key]
        assert of_key == sorted(of_key)
    if ordered:
        assert numbers(found) == list(range(pushed))
