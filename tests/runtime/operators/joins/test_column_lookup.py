"""Lookups over Arrow batches give what those over rows give, and ask once a batch, for new keys."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import OperatorError, Retry
from penstock.operators import ArrowBatch
from penstock.testing import OperatorHarness

NAN = float("nan")


class Service:
    """Answers batches of keys from a dict; remembers the keys of each call."""

    def __init__(self) -> None:
        self.records: dict[Any, int] = {"a": 1}
        self.calls: list[list[Any]] = []
        self.failures = 0

    def __call__(self, keys: pa.RecordBatch) -> Any:
        asked = keys["k"].to_pylist()
        self.calls.append(asked)
        if self.failures:
            self.failures -= 1
            msg = "no answer"
            raise ConnectionError(msg)
        found = [key for key in asked if key in self.records]
        values = np.array([self.records[key] for key in found], np.int64)
        return pa.table({"m": values, "k": pa.array(found, keys["k"].type)})


class SlowService(Service):
    """The same as a coroutine function; it needs three seconds for a batch with the key `a`."""

    async def __call__(self, keys: pa.RecordBatch) -> Any:  # type: ignore[override]
        answer = Service.__call__(self, keys)
        await asyncio.sleep(3 if "a" in keys["k"].to_pylist() else 1)
        return answer


def looking_up(table: Any, **settings: Any) -> OperatorHarness:
    build = {"on": "k", "id": "lookup", "batch_format": "arrow", **settings}
    return OperatorHarness.of(lambda rows: rows.lookup(table, **build))


def batch(*keys: Any, stamps: list[int] | None = None) -> ArrowBatch:
    columns = pa.record_batch({"k": pa.array(keys), "n": pa.array(range(len(keys)))})
    return ArrowBatch(columns, None if stamps is None else pa.array(stamps))


def push(harness: OperatorHarness, *keys: Any) -> list[Any]:
    return [row.get("m") for row in harness.push_batch(batch(*keys))]


def test_a_table_is_looked_up_by_columns_and_null_keys_find_nothing() -> None:
    table = pa.table({"k": ["a", "b", None], "j": [1, 2, 2], "m": [10, 20, 30], "t": ["x", None, "z"]})
    with looking_up(table, on=["k", "j"]) as harness:
        rows = pa.record_batch({"m": [0, 1, 2], "j": [2, None, 1], "k": ["b", "b", "b"]})
        assert harness.push_batch(ArrowBatch(rows, pa.array([7, 8, 9]))) == [
            {"k": "b", "j": 2, "m": 0, "m_right": 20, "t": None},
            {"k": "b", "j": None, "m": 1, "m_right": None, "t": None},
            {"k": "b", "j": 1, "m": 2, "m_right": None, "t": None},
        ]
        assert harness.batches[0].timestamps.to_pylist() == [7, 8, 9]
    with looking_up(table, on=["k", "j"], how="inner") as harness:
        assert harness.push_batch(ArrowBatch(rows, pa.array([7, 8, 9])))[0]["m_right"] == 20
        assert [part.timestamps.to_pylist() for part in harness.batches] == [[7]]


#: Three moments, each in two zones.
MOMENTS = [datetime(2024, 1, 1, 9 + n % 3, tzinfo=timezone(timedelta(hours=n % 3))) for n in range(3)]

#: Known and asked keys of one kind.
KEYS = st.sampled_from(
    [
        [None, *range(-3, 4)],
        [None, 0.0, -0.0, 1.0, 1.5, NAN],
        [None, "", "a", "b", "ab"],
        [None, Decimal("1.0"), Decimal("2.5"), Decimal("3")],
        MOMENTS,
    ]
).flatmap(lambda keys: st.tuples(st.lists(st.sampled_from(keys)), st.lists(st.sampled_from(keys))))


@given(KEYS, st.sampled_from(["left", "inner"]))
def test_a_table_gives_over_columns_what_it_gives_over_rows(keys: Any, how: Any) -> None:
    known, asked = keys
    unique = list({_canonical(key): key for key in known}.values())
    table = pa.table({"k": pa.array(unique), "m": pa.array(range(len(unique)), pa.int64())})
    rows = [{"k": key, "n": n} for n, key in enumerate(asked)]
    found = []
    for batch_format in ("rows", "arrow"):
        with looking_up(table, how=how, batch_format=batch_format) as harness:
            found.append([(row["n"], row.get("m")) for row in harness.push(rows)])
    assert found[0] == found[1]


def _canonical(key: Any) -> Any:
    return "nan" if key != key else key.astimezone(UTC) if isinstance(key, datetime) else key


def test_keys_that_can_never_be_in_the_table_are_refused() -> None:
    with (
        looking_up(pa.table({"k": [1], "m": [1]})) as harness,
        pytest.raises(OperatorError, match=r"lookup by column 'k'.* can never be equal"),
    ):
        push(harness, "1")


def test_a_function_is_asked_for_the_distinct_keys_that_the_cache_lacks() -> None:
    service = Service()
    with looking_up(service) as harness:
        assert push(harness, "a", "b", "a", None) == [1, None, 1, None]
        assert push(harness, "b", "a") == [None, 1]
        service.records["c"] = 3
        assert push(harness, "a", "c", "b") == [1, 3, None]
        assert service.calls == [["a", "b"], ["c"]]


def test_a_full_cache_drops_the_entries_that_were_not_used_for_the_longest_time() -> None:
    service = Service()
    with looking_up(service, cache=2) as harness:
        for keys in ("ab", "a", "c", "a", "b"):
            push(harness, *keys)
        assert service.calls == [["a", "b"], ["c"], ["b"]]
        assert push(harness, "a", "b", "c") == [1, None, None], "also more keys than the cache holds"
    with looking_up(service, cache=0) as harness:
        service.calls.clear()
        assert push(harness, "a", "a") + push(harness, "a") == [1, 1, 1]
        assert service.calls == [["a"], ["a"]]


def test_negative_entries_have_their_own_expiry() -> None:
    service = Service()
    with looking_up(service, ttl=60, negative_ttl=5) as harness:
        assert push(harness, "a", "b") == [1, None]
        service.records = {"a": 2, "b": 3}
        harness.advance(4.9)
        assert push(harness, "a", "b") == [1, None]
        harness.advance(0.2)
        assert push(harness, "a", "b") == [1, 3]
        harness.advance(60)
        assert push(harness, "a") == [2]


def test_a_failed_refresh_surfaces() -> None:
    service = Service()
    with looking_up(service, ttl=60) as harness:
        assert push(harness, "a") == [1]
        harness.advance(60)
        service.failures = 1
        with pytest.raises(OperatorError, match=r"lookup function .*no answer"):
            push(harness, "a")


def test_cached_records_cannot_be_changed_by_users() -> None:
    kept = np.array([1])

    def numbers(keys: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"k": keys["k"], "m": pa.array(kept)})

    with looking_up(numbers) as harness:
        assert push(harness, "a") == [1]
        kept[0] = 9
        assert push(harness, "a") == [1]


def test_a_retry_does_not_read_the_cache() -> None:
    service = SlowService()
    service.records = {}
    with looking_up(service, ttl=60, negative_ttl=2, retry=Retry(3, delay=10)) as harness:
        push(harness, "b")
        assert [row.get("m") for row in harness.advance(1)] == [None]
        harness.advance(2)
        service.failures, service.records = 1, {"b": 7}
        push(harness, "b")
        assert [row["m"] for row in harness.advance(20)] == [7]
        assert service.calls == [["b"]] * 3


def test_batches_of_a_coroutine_function_keep_their_order() -> None:
    service = SlowService()
    with looking_up(service) as harness:
        assert push(harness, "a", "b") + push(harness, "b") == []
        assert service.calls == [["a", "b"], ["b"]]
        assert [(row["k"], row["m"]) for row in harness.advance(3)] == [("a", 1), ("b", None), ("b", None)]
        assert push(harness, "b", "a") == [None, 1], "known keys leave at once"


@pytest.mark.parametrize("service", [Service(), SlowService()])
def test_a_batch_without_records_has_the_same_columns_after_a_restore(service: Any) -> None:
    with looking_up(service) as harness:
        harness.push_batch(batch("a"))
        harness.advance(3)
        harness.push_batch(batch("b", stamps=[4]))
        snapshot = harness.snapshot()
    build: Any = {"on": "k", "id": "lookup", "batch_format": "arrow"}
    with OperatorHarness.of(lambda rows: rows.lookup(service, **build), restored=[snapshot]) as harness:
        harness.push_batch(batch("b", stamps=[5]))
        harness.end_of_data()
        found = harness.outputs
    waited = isinstance(service, SlowService)
    assert found == [{"k": "b", "n": 0, "m": None}] * (2 if waited else 1)


ANSWERS: dict[str, Any] = {
    r"it returned 5 of type int; give a pa.RecordBatch": lambda keys: 5,
    r"lacks the key column 'k'; its columns are 'm'": lambda keys: pa.table({"m": [1]}),
    r"has the key 'a' twice": lambda keys: pa.table({"k": ["a", "a"], "m": [1, 2]}),
    r"the column 'm' twice": lambda keys: pa.table([["a"], [1], [2]], ["k", "m", "m"]),
    r"can never be equal": lambda keys: pa.table({"k": [1], "m": [1]}),
}


@pytest.mark.parametrize("message", ANSWERS)
def test_answers_that_fit_no_batch_say_what_to_return(message: str) -> None:
    with looking_up(ANSWERS[message]) as harness, pytest.raises(OperatorError, match=message):
        push(harness, "a")


def test_a_column_keeps_its_type() -> None:
    answers = [pa.table({"k": ["a"], "m": [1]}), pa.table({"k": ["b"], "m": ["x"]})]
    with looking_up(lambda keys: answers.pop(0)) as harness:
        push(harness, "a")
        with pytest.raises(OperatorError, match=r"column 'm' is of type string here and of type int64"):
            push(harness, "b")


@given(
    steps=st.lists(st.one_of(st.text("abcd", max_size=5), st.floats(0.5, 9)), max_size=12),
    cache=st.integers(0, 3),
    slow=st.booleans(),
    how=st.sampled_from(["left", "inner"]),
)
def test_each_row_has_the_record_of_its_key(
    steps: list[str | float], cache: int, slow: bool, how: Any
) -> None:
    service = SlowService() if slow else Service()
    service.records = {"a": 1, "b": 2}
    pushed = ""
    with looking_up(service, cache=cache, ttl=4, negative_ttl=2, how=how) as harness:
        for step in steps:
            if isinstance(step, float):
                harness.advance(step)
            elif step:
                harness.push_batch(batch(*step))
                pushed += step
        harness.end_of_data()
        found = harness.outputs
    wanted = [(key, service.records.get(key)) for key in pushed if how == "left" or key in service.records]
    assert [(row["k"], row.get("m")) for row in found] == wanted
