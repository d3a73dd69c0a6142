"""Expressions of columns: on Arrow batches, and with the same results on dict rows."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.expression_operators import (
    FilterExpressionOperator,
    SelectOperator,
)
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.operator import Operator
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness

ROWS = [{"k": "a", "v": 1}, {"k": None, "v": 5}, {"k": "b", "v": None}, {"k": "c", "v": 7}]
STAMPS = [10, 20, 30, 40]
K, V = pc.field("k"), pc.field("v")


def columns(rows: list[dict[str, Any]] = ROWS, stamps: list[int] | None = None) -> ArrowBatch:
    return ArrowBatch(pa.RecordBatch.from_pylist(rows), None if stamps is None else pa.array(stamps))


def through(operator: Operator, batch: Batch) -> tuple[Batch, ...]:
    with OperatorHarness(operator) as harness:
        harness.push_batch(batch)
        return harness.batches


def both(operator: Operator, stamps: list[int] | None = None) -> RowBatch | None:
    """The output as rows, after a look that it is the same for rows and for columns."""
    of_rows = through(operator, RowBatch(ROWS, stamps))
    of_columns = through(operator, columns(stamps=stamps))
    assert all(isinstance(batch, ArrowBatch) for batch in of_columns)
    assert tuple(map(rows_of, of_columns)) == of_rows
    assert len(of_rows) < 2
    return rows_of(of_rows[0]) if of_rows else None


@pytest.mark.parametrize("stamps", [None, STAMPS], ids=["without", "with timestamps"])
def test_a_filter_keeps_rows_for_which_it_is_true_with_their_timestamps(stamps: list[int] | None) -> None:
    kept = both(FilterExpressionOperator(V > 1), stamps)
    assert kept == RowBatch([ROWS[1], ROWS[3]], stamps and [20, 40])


def test_null_is_not_true_and_nothing_left_emits_nothing() -> None:
    assert both(FilterExpressionOperator(V > 100)) is None
    assert both(FilterExpressionOperator(pc.scalar(None))) is None
    assert both(FilterExpressionOperator(pc.is_null(V))) == RowBatch([ROWS[2]])


def test_a_batch_that_stays_whole_is_not_copied() -> None:
    batch = columns(stamps=STAMPS)
    assert through(FilterExpressionOperator(pc.scalar(True)), batch) == (batch,)


def test_select_keeps_the_named_columns_and_adds_computed_ones() -> None:
    made = both(SelectOperator(["k"], {"double": V * 2, "one": pc.scalar(1)}), STAMPS)
    assert made is not None
    assert made.rows[0] == {"k": "a", "double": 2, "one": 1}
    assert [row["double"] for row in made.rows] == [2, 10, None, 14]
    assert list(made.rows[0]) == ["k", "double", "one"]
    assert made.timestamps == STAMPS


def test_select_without_expressions_keeps_names_in_their_order() -> None:
    made = both(SelectOperator(["v", "k"], {}))
    assert made is not None
    assert list(map(list, made.rows)) == [["v", "k"]] * 4


def test_with_columns_replaces_in_place_and_every_expression_sees_the_columns_as_they_were() -> None:
    made = both(SelectOperator(None, {"k": pc.is_valid(K), "v": V + 1, "sum": V + V}))
    assert made is not None
    assert made.rows[0] == {"k": True, "v": 2, "sum": 2}
    assert list(made.rows[0]) == ["k", "v", "sum"]


def test_rows_keep_values_that_no_expression_names_whatever_they_are() -> None:
    thing = {1, 2}
    rows = [{"v": 1, "thing": thing, 5: "number"}, {"v": 3, "thing": None}]
    assert through(FilterExpressionOperator(V < 2), RowBatch(rows)) == (RowBatch([rows[0]]),)
    (made,) = through(SelectOperator(None, {"w": V * 2}), RowBatch(rows))
    assert rows_of(made).rows == [{**rows[0], "w": 2}, {**rows[1], "w": 6}]


def test_a_name_that_a_dict_does_not_have_is_null_in_every_batch() -> None:
    for rows in ([{"k": 1}, {"v": 2}], [{"k": 1}]):
        with OperatorHarness(FilterExpressionOperator(pc.is_null(V))) as harness:
            assert harness.push(rows) == [{"k": 1}]
    with OperatorHarness(FilterExpressionOperator(V > 1)) as harness:
        assert harness.push([{"v": 2}]) == [{"v": 2}]
        assert harness.push([{"k": 1}]) == []
    with OperatorHarness(FilterExpressionOperator(pc.is_null(pc.field("x")) & pc.is_null(V))) as harness:
        assert harness.push([{"k": 1}]) == [{"k": 1}]


def test_nested_fields_and_fields_by_place_are_found() -> None:
    rows = [{"a": {"b": 1}, "c": 5}, {"a": {"b": 3}, "c": 6}]
    for operator in (
        FilterExpressionOperator(pc.field("a", "b") > 1),
        FilterExpressionOperator(pc.field(1) > 5),
    ):
        assert through(operator, RowBatch(rows)) == (RowBatch([rows[1]]),)
        assert rows_of(through(operator, columns(rows))[0]).rows == [rows[1]]


def test_times_are_compared_with_times() -> None:
    rows = [{"at": datetime(2024, 1, day, tzinfo=UTC)} for day in (1, 2, 3)]
    later = FilterExpressionOperator(pc.field("at") > datetime(2024, 1, 2, tzinfo=UTC))
    assert through(later, RowBatch(rows)) == (RowBatch([rows[2]]),)
    assert rows_of(through(later, columns(rows))[0]).rows == [rows[2]]


@pytest.mark.parametrize("column", [pa.array(["a", "b"], pa.string_view()), pa.array([[1], [2]])], ids=str)
def test_columns_that_are_not_computed_stay_as_they_are(column: pa.Array) -> None:
    batch = ArrowBatch(pa.record_batch({"v": [1, 2], "c": column}))
    (kept,) = through(FilterExpressionOperator(V > 1), batch)
    assert isinstance(kept, ArrowBatch)
    assert kept.batch.schema == batch.batch.schema
    assert kept.batch["c"].to_pylist() == column.to_pylist()[1:]


def test_metadata_of_columns_that_are_kept_stays() -> None:
    field = pa.field("k", pa.string(), nullable=False, metadata={"unit": "name"})
    batch = ArrowBatch(pa.record_batch([pa.array(["a"])], pa.schema([field], {"from": "here"})))
    (made,) = through(SelectOperator(None, {"n": pc.scalar(1)}), batch)
    assert isinstance(made, ArrowBatch)
    assert made.batch.schema.field("k").equals(field, check_metadata=True)
    assert made.batch.schema.metadata == {b"from": b"here"}


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (FilterExpressionOperator(pc.field("x") > 1), r"filter \(x > 1\) failed: .*names the column 'x'"),
        (FilterExpressionOperator(pc.field("x") > 1), r"which a batch does not have: it has 'k', 'v'"),
        (FilterExpressionOperator(V + 1), r"the expression is of type int64; filter needs a Boolean"),
        (FilterExpressionOperator(K > 1), r"computed: .*no kernel .*columns are k: string, v: int64"),
        (SelectOperator(["x"], {}), r"select .*failed: .*no column 'x': it has 'k', 'v'"),
        (SelectOperator(None, {"w": V / 0}), r"with_columns divide_checked\(v, 0\) failed: .*divide by zero"),
        (SelectOperator(None, {"w": V * (1 << 62)}), "overflow"),
    ],
    ids=["column", "columns", "no boolean", "types", "no name", "division", "overflow"],
)  # fmt: skip
def test_an_expression_that_fails_is_an_error_with_the_expression_and_the_columns(
    operator: Operator, message: str
) -> None:
    with pytest.raises(OperatorError, match=message):
        through(operator, columns())


@pytest.mark.parametrize(
    ("operator", "rows", "message"),
    [
        (FilterExpressionOperator(V > 1), [(1, 2)], r"rows that are dicts, but got \(1, 2\) of type tuple"),
        (SelectOperator(["k"], {}), [5], "rows that are dicts, but got 5 of type int"),
        (SelectOperator(None, {"n": pc.scalar(1)}), ["text"], "rows that are dicts, but got 'text'"),
        (FilterExpressionOperator(V > 1), [{"v": 1}, {"v": {2}}], r"field 'v': \{2\} \(set\).*record is"),
        (SelectOperator(None, {"w": V / 0}), [{"v": 1}], "divide by zero"),
    ],
    ids=["tuple", "int", "text", "set", "division"],
)
def test_rows_that_expressions_can_not_be_computed_on_are_refused(
    operator: Operator, rows: list[Any], message: str
) -> None:
    with pytest.raises(OperatorError, match=message):
        through(operator, RowBatch(rows))


def test_empty_batches_emit_nothing_and_records_are_counted() -> None:
    with OperatorHarness(FilterExpressionOperator(V > 1)) as harness:
        harness.push_batch(columns().slice(0, 0))
        harness.push_batch(columns())
        assert len(harness.batches) == 1
        assert (harness.statistics().records_in, harness.statistics().records_out) == (4, 2)


def test_operators_of_expressions_can_be_pickled() -> None:
    operator = pickle.loads(pickle.dumps(FilterExpressionOperator(V > 1)))
    assert both(operator) == RowBatch([ROWS[1], ROWS[3]])
