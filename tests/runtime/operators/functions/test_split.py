"""`split`: by functions of a record, and by expressions of columns."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.expression_operators import SplitExpressionsOperator
from penstock.runtime.operators.functions.record_functions import SplitOperator
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness

ROWS = [{"v": 1}, {"v": None}, {"v": 5}, {"v": 9}, {}]


def is_negative(number: int) -> bool:
    return number < 0


def is_even(number: int) -> bool:
    return number % 2 == 0


def test_a_record_goes_to_the_first_predicate_that_is_true_with_its_timestamp() -> None:
    with OperatorHarness(SplitOperator({"negative": is_negative, "even": is_even})) as harness:
        assert harness.push([-2, -1, 0, 1], [1, 2, 3, 4]) == [1]
        assert [harness.side_output(tag) for tag in ("negative", "even")] == [[-2, -1], [0]]
        assert harness.batches == (RowBatch([1], [4]),)


def test_a_predicate_is_not_called_with_what_another_one_has_taken() -> None:
    seen = list[int]()
    with OperatorHarness(SplitOperator({"negative": is_negative, "any": seen.append})) as harness:
        assert harness.push([-1, 1, 2]) == [1, 2]
        assert seen == [1, 2]


def test_counters_are_those_of_the_main_output() -> None:
    with OperatorHarness(SplitOperator({"even": is_even})) as harness:
        harness.push([1, 2, 3])
        counters = harness.statistics()
        assert (counters.records_in, counters.records_out) == (3, 2)


def test_the_error_of_a_predicate_names_it_and_the_record() -> None:
    operator = SplitOperator({"negative": is_negative, "first": itemgetter(0)})
    with OperatorHarness(operator) as harness, pytest.raises(OperatorError, match=r"itemgetter.*on record 7"):
        harness.push([-1, 7])


def test_a_predicate_that_yields_is_refused() -> None:
    def yields(number: int) -> Iterator[int]:
        yield number

    with pytest.raises(OperatorError, match=r"split function yields .*which yields: use flat_map"):
        OperatorHarness(SplitOperator({"even": is_even, "odd": yields})).close()


@pytest.mark.parametrize("in_columns", [False, True])
def test_expressions_split_rows_and_batches_alike_and_null_is_not_true(in_columns: bool) -> None:
    operator = SplitExpressionsOperator({"large": pc.field("v") > 6, "some": pc.field("v") > 1})
    with OperatorHarness(operator) as harness:
        if in_columns:
            harness.push_batch(ArrowBatch(pa.RecordBatch.from_pylist(ROWS), pa.array(range(5))))
        else:
            harness.push(ROWS, list(range(5)))
        rest: list[dict[str, Any]] = [row for batch in harness.batches for row in as_rows(batch)]
        assert [row.get("v") for row in rest] == [1, None, None]
        assert [harness.side_output(tag) for tag in ("large", "some")] == [[{"v": 9}], [{"v": 5}]]


def as_rows(batch: Any) -> list[Any]:
    return batch.batch.to_pylist() if isinstance(batch, ArrowBatch) else list(batch.rows)


def test_an_expression_that_is_neither_true_nor_false_is_refused() -> None:
    operator = SplitExpressionsOperator({"large": pc.field("v") + 1})
    with (
        OperatorHarness(operator) as harness,
        pytest.raises(OperatorError, match="int64; split needs"),
    ):
        harness.push([{"v": 1}])


def test_the_names_of_a_split_are_in_normal_form_and_found_by_the_given_name() -> None:
    with OperatorHarness.of(lambda n: n.split({"e\u0301ven": is_even})["e\u0301ven"]) as harness:
        harness.push([1, 2])
        assert harness.side_output("\u00e9ven") == [2]
