"""A restore of `dedup`, `latest_by` or `top_n` with arguments that its state does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import DataStream
from penstock.runtime.errors import OperatorError
from penstock.testing import OperatorHarness

ROWS = [{"k": 1, "v": value, "w": -value} for value in (9, 8, 7)]

Build = Callable[[DataStream[Any]], DataStream[Any]]


def key(row: Any) -> Any:
    return row["k"]


def value(row: Any) -> Any:
    return row["v"]


def best(by: Any, n: int, keys: Any, **options: Any) -> Build:
    return lambda stream: stream.top_n("o", by, n, keys, **options)


def first(keys: Any, **options: Any) -> Build:
    return lambda stream: stream.dedup("o", keys, **options)


def latest(by: Any, keys: Any) -> Build:
    return lambda stream: stream.latest_by("o", by, keys)


def restored(before: Build, after: Build, rows: list[dict[str, Any]], **kwargs: Any) -> list[Any]:
    with OperatorHarness.of(before) as harness:
        harness.push(ROWS, [1, 2, 3])
        snapshot = harness.snapshot()
    with OperatorHarness.of(after, restored=[snapshot], **kwargs) as harness:
        return harness.push(rows, [4] * len(rows))


@pytest.mark.parametrize(("by", "keys"), [("v", "k"), (value, key)])
def test_top_n_keeps_its_number_its_order_and_its_kind_of_results(by: Any, keys: Any) -> None:
    for change in ({"n": 1}, {"n": 3}, {"descending": False}, {"change_kind": "is"}):
        given: dict[str, Any] = {"by": by, "n": 2, "keys": keys, **change}
        name = {"change_kind": "changes"}.get(*change, next(iter(change)))  # type: ignore[arg-type]
        with pytest.raises(OperatorError, match=rf"top_n: the restored state belongs to {name}=.*new id"):
            restored(best(by, 2, keys), best(**given), [])
    assert restored(best(by, 2, keys, ttl=9), best(by, 2, keys), ROWS[1:]) == [], "a TTL may change"


def test_the_column_that_ranks_records_stays_the_same() -> None:
    with pytest.raises(OperatorError, match=r"belongs to by='v'\. This program has by='w'\."):
        restored(best("v", 2, "k"), best("w", 2, "k"), [])
    with pytest.raises(OperatorError, match=r"belongs to by='v'\. This program has by='w'\."):
        restored(latest("v", "k"), latest("w", "k"), [])
    with pytest.raises(OperatorError, match=r"belongs to by=None\. This program has by='v'\."):
        restored(first("k", keep="last"), latest("v", "k"), [])
    with pytest.raises(OperatorError, match=r"belongs to by=None\. This program has by='a function'\."):
        restored(first(key, keep="last"), latest(value, key), [])


@pytest.mark.parametrize("keys", ["k", key])
def test_the_first_and_the_last_records_have_other_states(keys: Any) -> None:
    for before, after in (("first", "last"), ("last", "first")):
        with pytest.raises(OperatorError, match="it belonged to another kind of operator"):
            restored(first(keys, keep=before), first(keys, keep=after), [])


def test_state_in_rows_and_state_in_columns_are_not_mistaken_for_each_other() -> None:
    for before, after in (("k", key), (key, "k")):
        with pytest.raises(OperatorError, match="the restored state belongs to state="):
            restored(first(before), first(after), [])


def test_ranks_keep_their_kind_also_after_a_restore_at_another_parallelism() -> None:
    with pytest.raises(OperatorError, match="column 'v' has floats here and whole numbers in the state"):
        restored(latest("v", "k"), latest("v", "k"), [{"k": 5, "v": 1.5}], subtask=1, parallelism=2)
