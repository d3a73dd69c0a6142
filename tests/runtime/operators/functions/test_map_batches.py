from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.operators.functions.record_functions import MapBatchesOperator
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.testing.harness import OperatorHarness


def arrow(**columns):
    return pa.RecordBatch.from_pydict(columns)


def test_a_list_goes_in_and_a_list_comes_out():
    with OperatorHarness(MapBatchesOperator(lambda rows: [sum(rows)])) as harness:
        assert harness.push([1, 2, 3]) == [6]


def test_timestamps_stay_only_when_the_length_stays():
    with OperatorHarness(MapBatchesOperator(lambda rows: [r * 2 for r in rows if r < 3])) as harness:
        harness.push([1, 2], [10, 20])
        harness.push([2, 3], [30, 40])
    assert harness.batches == (RowBatch([2, 4], [10, 20]), RowBatch([4], None))


def test_the_function_may_change_its_list():
    rows = [3, 1, 2]

    def sort(batch):
        batch.sort()
        return batch

    with OperatorHarness(MapBatchesOperator(sort)) as harness:
        assert harness.push(rows) == [1, 2, 3]
    assert rows == [3, 1, 2]


def test_lists_may_be_yielded_and_nothing_may_be_returned():
    def halves(rows):
        yield rows[:1]
        yield []
        yield rows[1:]

    with OperatorHarness(MapBatchesOperator(halves)) as harness:
        assert harness.push([1, 2, 3]) == [1, 2, 3]
        assert [len(batch) for batch in harness.batches] == [1, 2]
    with OperatorHarness(MapBatchesOperator(lambda rows: None)) as harness:
        assert harness.push([1]) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: 5, "it returned 5 of type int; return a list of records, or yield them"),
        (lambda rows: "ab", "it returned 'ab' of type str"),
        (lambda rows: iter(["ab"]), "it yielded 'ab' of type str; yield lists of records"),
        (lambda rows: 1 // 0, "on a batch of length 2, failed: ZeroDivisionError"),
    ],
)
def test_wrong_results_are_located_errors(function, message):
    with (
        OperatorHarness(MapBatchesOperator(function)) as harness,
        pytest.raises(OperatorError, match=rf"'operator'.*{message}"),
    ):
        harness.push([1, 2])


def test_arrow_batches_go_through_an_arrow_function():
    def double(batch):
        return pa.RecordBatch.from_pydict({"n": pc.multiply(batch["n"], 2)})

    with OperatorHarness(MapBatchesOperator(double, "arrow")) as harness:
        harness.push_batch(ArrowBatch(arrow(n=[1, 2])))
    (batch,) = harness.batches
    assert isinstance(batch, ArrowBatch)
    assert batch.batch.to_pydict() == {"n": [2, 4]}


def test_rows_become_columns_without_losing_keys_that_the_first_row_lacks():
    rows = [{"a": 1}, {"b": "x", "a": 2}]
    with OperatorHarness(MapBatchesOperator(lambda batch: batch, "arrow")) as harness:
        assert harness.push(rows) == rows


def test_rows_with_timestamps_keep_them_through_arrow():
    with OperatorHarness(MapBatchesOperator(lambda batch: batch, "arrow")) as harness:
        harness.push([{"a": 1}, {"a": 2}], [10, 20])
    assert harness.batches == (ArrowBatch(arrow(a=[1, 2]), pa.array([10, 20])),)


def test_arrow_batches_keep_their_timestamps_through_functions_that_keep_their_length():
    def table(batch):
        return pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)])

    with OperatorHarness(MapBatchesOperator(table, "arrow")) as harness:
        harness.push_batch(ArrowBatch(arrow(a=[1, 2, 3]), pa.array([10, 20, 30])))
    assert [batch.timestamps.to_pylist() for batch in harness.batches] == [[10], [20, 30]]


def test_arrow_batches_lose_their_timestamps_where_the_function_changes_their_length():
    with OperatorHarness(MapBatchesOperator(lambda batch: batch.slice(1), "arrow")) as harness:
        harness.push_batch(ArrowBatch(arrow(a=[1, 2, 3]), pa.array([10, 20, 30])))
    assert harness.batches == (ArrowBatch(arrow(a=[2, 3])),)


def test_a_function_of_rows_gets_the_rows_of_an_arrow_batch_and_keeps_their_timestamps():
    with OperatorHarness(MapBatchesOperator(lambda rows: [row["a"] for row in rows])) as harness:
        harness.push_batch(ArrowBatch(arrow(a=[1, 2]), pa.array([10, 20])))
    assert harness.batches == (RowBatch([1, 2], [10, 20]),)


def test_tables_and_generators_of_batches_are_taken():
    def parts(batch):
        yield batch.slice(0, 1)
        yield pa.Table.from_batches([batch.slice(1)])

    with OperatorHarness(MapBatchesOperator(parts, "arrow")) as harness:
        assert harness.push_batch(ArrowBatch(arrow(n=[1, 2, 3]))) == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    ("function", "rows", "message"),
    [
        (lambda batch: batch, [(1, 2)], r"needs Arrow batches or rows that are dicts, but got \(1, 2\)"),
        (lambda batch: [1], [{"a": 1}], r"it returned \[1\] of type list; return a pa.RecordBatch"),
        (lambda batch: iter([1]), [{"a": 1}], "it gave 1 of type int; give a pa.RecordBatch or pa.Table"),
    ],
)
def test_wrong_arrow_results_and_inputs_are_located_errors(function, rows, message):
    with (
        OperatorHarness(MapBatchesOperator(function, "arrow")) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.push(rows)


def test_an_unknown_format_is_refused():
    with pytest.raises(ConfigurationError, match=r'no batch_format .pandas.: it is "rows" or "arrow"'):
        MapBatchesOperator(list, "pandas")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        ["a", b"a", None],
        [date(2020, 1, 1), datetime(2020, 1, 1, 5, tzinfo=UTC)],
        [2**53 + 1, 0.5, True, 2**63],
        [[1], [1.5], [], [None], {}],
    ],
    ids=["text and bytes", "dates", "numbers", "nested"],
)
def test_rows_of_several_types_go_through_columns_unchanged(values):
    rows = [{"v": value} for value in values]
    with OperatorHarness(MapBatchesOperator(lambda batch: batch, "arrow")) as harness:
        back = harness.push(rows)
    assert back == rows
    assert [type(row["v"]) for row in back] == list(map(type, values))


ROWS = st.lists(
    st.dictionaries(
        st.sampled_from("ab"),
        st.one_of(
            st.none(),
            st.sampled_from([1, 2**63, True, 1.5, "a", b"a", Decimal("1.5"), Decimal("12.5"), Decimal(1)]),
            st.sampled_from([[], [1], [1, 2.5], [None], {}, {"x": 1}, {"x": None}, {"y": 1}, [{"x": 1}, {}]]),
            st.sampled_from([datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1)]),  # noqa: DTZ001
        ),
    ),
    max_size=10,
)


@pytest.mark.parametrize("schema", [None, pa.schema({"n": pa.float64(), "m": pa.string()})])
@given(rows=ROWS, cuts=st.sets(st.integers(1, 9)))
@example(rows=[{"a": 1}, {"a": None}, {"a": 2}], cuts={1})
@example(rows=[{"a": [{"x": 1}]}, {"a": [{"x": None}]}, {"a": []}], cuts={1, 2})
@example(rows=[{"a": 1, "b": 2}, {"b": 1, "a": 2}, {"a": 1}], cuts={1})
def test_a_function_sees_the_same_columns_of_a_row_whatever_the_cut(schema, rows, cuts):
    if schema is not None:
        rows = [{"n": len(row)} if "a" in row else {"m": str(row)} for row in rows]

    def seen(ends):
        shown = []

        def look(batch):
            kinds = [(field.name, str(field.type)) for field in batch.schema]
            shown.extend((kinds, row) for row in batch.to_pylist())
            return batch

        with OperatorHarness(MapBatchesOperator(look, "arrow", schema)) as harness:
            start = 0
            for end in sorted({*(min(end, len(rows)) for end in ends), len(rows)}):
                harness.push(rows[start:end], list(range(start, end)))
                start = end
            stamps = [stamp for batch in harness.batches for stamp in batch.timestamps.to_pylist()]
        assert stamps == list(range(len(rows)))
        return shown

    assert seen(cuts) == seen([])


@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        (None, {"v": 2**64}, "unchanged: column 'v': 18446744073709551616.*64 bits.*the row is {'v': 18446"),
        (None, {1: 2}, "1 is the name of a column, but names must be strings"),
        (None, {"v": [1, "x"]}, "column 'v': .*elements have no common type"),
        (pa.schema({"v": pa.int64()}), {"v": 1.5}, r"a row does not fit: column 'v'.*the row is {'v': 1\.5}"),
        (pa.schema({"v": pa.int64()}), {"w": 1}, "'w' is not among the schema's columns"),
        (pa.schema([pa.field("v", pa.int64(), nullable=False)]), {"v": None}, "'not null'"),
    ],
)
def test_the_first_row_that_has_no_columns_is_named(schema, row, message):
    with (
        OperatorHarness(MapBatchesOperator(lambda batch: batch, "arrow", schema)) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.push([{"v": 1}, row, {"v": object()}])


def test_arrow_batches_are_cast_to_a_schema_or_refused():
    schema = pa.schema({"n": pa.float64()})
    with OperatorHarness(MapBatchesOperator(lambda batch: batch, "arrow", schema)) as harness:
        harness.push_batch(ArrowBatch(arrow(n=[1, 2]), pa.array([5, 6])))
        assert harness.batches == (ArrowBatch(arrow(n=[1.0, 2.0]), pa.array([5, 6])),)
        with pytest.raises(OperatorError, match="an Arrow batch does not fit: it has columns"):
            harness.push_batch(ArrowBatch(arrow(m=[1])))
