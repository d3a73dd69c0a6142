from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock.runtime.operators.functions.record_functions import FilterOperator, MapOperator
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness


def test_map_replaces_each_record_and_keeps_its_timestamp():
    with OperatorHarness(MapOperator(lambda n: n * 2)) as harness:
        harness.push([1, 2], [10, 20])
        assert harness.batches == (RowBatch([2, 4], [10, 20]),)


def test_map_may_return_none():
    with OperatorHarness(MapOperator({1: "one"}.get)) as harness:
        assert harness.push([1, 2]) == ["one", None]


def test_filter_keeps_records_with_their_timestamps():
    with OperatorHarness(FilterOperator(lambda n: n % 2)) as harness:
        harness.push([1, 2, 3], [10, 20, 30])
        assert harness.batches == (RowBatch([1, 3], [10, 30]),)


def test_filter_takes_whatever_is_true():
    with OperatorHarness(FilterOperator(lambda row: row)) as harness:
        assert harness.push(["", "a", None, [], [0]]) == ["a", [0]]


@pytest.mark.parametrize("operator", [MapOperator(str), FilterOperator(bool)])
def test_no_records_make_no_batch(operator):
    with OperatorHarness(operator) as harness:
        assert harness.push([]) == []
        assert harness.batches == ()


def test_a_filter_that_keeps_nothing_makes_no_batch():
    with OperatorHarness(FilterOperator(lambda row: False)) as harness:
        harness.push([1, 2], [1, 2])
        assert harness.batches == ()


def test_rows_of_an_arrow_batch_come_as_dicts():
    arrow = ArrowBatch(pa.RecordBatch.from_pydict({"n": [1, 2], "s": ["a", None]}))
    with OperatorHarness(MapOperator(lambda row: SimpleNamespace(**row).s)) as harness:
        assert harness.push_batch(arrow) == ["a", None]


def test_rows_may_be_any_sequence():
    with OperatorHarness(MapOperator(lambda n: n + 1)) as harness:
        assert harness.push(range(3)) == [1, 2, 3]
        assert harness.push((7, 8)) == [8, 9]
