"""A combiner sends one row a key instead of the records, and steps aside where keys hardly repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.operators.aggregation.aggregation import Aggregation, is_partial
from penstock.runtime.operators.aggregation.functions import Count
from penstock.runtime.operators.aggregation.keyed_aggregate import MOST_KEYS, PATIENCE, CombineOperator
from penstock.runtime.operators.aggregation.sums import Sum
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.testing.manual_time import ManualClock


@pytest.fixture
def combiner(make_context: Callable[..., OperatorContext]) -> tuple[CombineOperator, ManualClock]:
    key = ColumnKey(("k",))
    operator = CombineOperator(key, Aggregation(key.names, {"total": Sum("v"), "n": Count()}))
    context = make_context(0, operator)
    operator.open(context)
    clock = context.connector.clock
    assert isinstance(clock, ManualClock)
    return operator, clock


def columns(keys: list[Any], values: list[Any]) -> ArrowBatch:
    return ArrowBatch(pa.record_batch({"k": keys, "v": values, "other": values}))


def sent(batch: Any) -> dict[str, list[Any]]:
    assert isinstance(batch, ArrowBatch)
    sent: dict[str, list[Any]] = batch.batch.to_pydict()
    return sent


def test_records_of_several_batches_leave_as_one_row_a_key(combiner: Any) -> None:
    operator, _ = combiner
    assert list(operator.process(columns(["a", "b", "a"], [1, 2, 3]))) == []
    assert list(operator.process(RowBatch([{"k": "b", "v": 10}, {"k": "c"}]))) == []
    (batch,) = operator.flush()
    assert is_partial(batch.batch)
    assert sent(batch) == {"k": ["a", "b", "c"], "total:sum": [4, 12, None], "n:count": [2, 2, 1]}
    assert list(operator.flush()) == []


def test_what_is_kept_is_due_a_tenth_of_a_second_after_its_first_record(combiner: Any) -> None:
    operator, clock = combiner
    assert operator.flush_at is None
    list(operator.process(columns(["a"], [1])))
    due = operator.flush_at
    assert due == clock.monotonic() + PATIENCE
    clock.advance(PATIENCE / 2)
    list(operator.process(columns(["a"], [1])))
    assert operator.flush_at == due
    list(operator.flush())
    assert operator.flush_at is None


@pytest.mark.parametrize("moment", ["prepare_snapshot_pre_barrier", "end_of_data"])
def test_nothing_is_kept_behind_a_barrier_or_the_end(combiner: Any, moment: str) -> None:
    operator, _ = combiner
    list(operator.process(columns(["a"], [1])))
    assert [sent(batch)["k"] for batch in getattr(operator, moment)()] == [["a"]]
    assert list(operator.flush()) == []


def test_where_keys_hardly_repeat_records_pass_as_they_are_until_it_is_tried_again(combiner: Any) -> None:
    operator, _ = combiner
    unlike = columns(list(range(1000)), list(range(1000)))
    assert list(operator.process(columns([0], [7]))) == []
    kept, tried = operator.process(unlike)
    assert sent(kept) == {"k": [0], "total:sum": [7], "n:count": [1]}, "what was kept goes first"
    assert is_partial(tried.batch), "the batch has to be reduced to know"
    assert len(tried) == 1000
    passed = [batch for _ in range(32) for batch in operator.process(unlike)]
    assert [is_partial(batch.batch) for batch in passed] == [False] * 32
    assert passed[0].batch.schema.names == ["k", "v"], "without the column that nobody looks at"
    assert sum(len(batch) for batch in passed) == 32_000
    (again,) = operator.process(unlike)
    assert is_partial(again.batch), "it tries again"
    assert list(operator.process(columns([0], [7]))) != [], "and knows again"


def test_small_batches_tell_nothing_about_keys_that_repeat(combiner: Any) -> None:
    operator, _ = combiner
    for number in range(100):
        assert list(operator.process(columns([number], [1]))) == []
    (batch,) = operator.flush()
    assert len(batch) == 100


def test_no_more_keys_are_kept_than_fit(combiner: Any) -> None:
    operator, _ = combiner
    batches = []
    for start in range(0, MOST_KEYS + 4096, 128):
        batches += operator.process(columns(list(range(start, start + 128)), [1] * 128))
    (batch,) = batches
    assert len(batch) == MOST_KEYS
