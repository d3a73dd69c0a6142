"""Aggregate functions over columns give what Python gives over lists, whatever the batches are."""

from __future__ import annotations

import math
import re
import statistics
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.errors import ConfigurationError, PenstockError, StateMismatchError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.column_aggregate import ColumnAggregate
from penstock.runtime.operators.aggregation.functions import Count, First, Last, Max, Mean, Min, StdDev
from penstock.runtime.operators.aggregation.sums import Sum
from penstock.runtime.state.column_table import ColumnTable

ALL: dict[str, ColumnAggregate] = {
    "sum": Sum("v"),
    "rows": Count(),
    "values": Count("v"),
    "mean": Mean("v"),
    "min": Min("v"),
    "max": Max("v"),
    "first": First("v"),
    "last": Last("v"),
    "dev": StdDev("v"),
}


class Aggregated:
    """One aggregation by `k` of `v`, fed batch by batch; some batches pass a combiner's table first."""

    def __init__(self, functions: dict[str, ColumnAggregate]) -> None:
        self._aggregation = Aggregation(["k"], functions)
        self._table = ColumnTable("t", 128)

    def add(self, keys: list[Any], values: pa.Array, *, combined: bool = False) -> None:
        reduced = self._aggregation.partials({"k": pa.array(keys, pa.string())}, {"v": values})
        if combined:
            table = ColumnTable("combined", 1)
            reduced = self._aggregation.partials_of(table, self._aggregation.merge(table, reduced))
        self._aggregation.merge(self._table, reduced)

    @property
    def results(self) -> dict[Any, dict[str, Any]]:
        slots = self._table.all_slots
        keys = self._table.keys(slots).column(0).to_pylist()
        columns = {name: c.to_pylist() for name, c in self._aggregation.results(self._table, slots).items()}
        return {key: {name: c[at] for name, c in columns.items()} for at, key in enumerate(keys)}

    def kind(self, name: str) -> pa.DataType:
        return self._aggregation.results(self._table, self._table.all_slots)[name].type


def of(function: ColumnAggregate, *batches: pa.Array) -> Any:
    """The result of a function for one key after these batches."""
    aggregated = Aggregated({"result": function})
    for batch in batches:
        aggregated.add(["a"] * len(batch), batch)
    return aggregated.results["a"]["result"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.float64(), pa.decimal128(25, 3)], ids=str)
def test_all_functions_agree_with_python_whatever_the_batches_are(kind: pa.DataType) -> None:
    for seed in range(25):
        draws, aggregated, seen = Random(seed), Aggregated(ALL), dict[Any, list[Any]]()
        for _ in range(6):
            keys = [draws.choice([None, "a", "b", "long key"]) for _ in range(draws.randrange(1, 40))]
            numbers = [draws.choice([None, draws.randrange(-100, 100)]) for _ in keys]
            values = pa.array(numbers, pa.int64()).cast(kind)
            for key, value in zip(keys, values.to_pylist(), strict=True):
                seen.setdefault(key, []).append(value)
            aggregated.add(keys, values, combined=draws.random() < 0.5)
        results = aggregated.results
        assert results.keys() == seen.keys()
        for key, values in seen.items():
            _check(results[key], values)


def _check(got: dict[str, Any], all_values: list[Any]) -> None:
    values = [value for value in all_values if value is not None]
    assert (got["rows"], got["values"]) == (len(all_values), len(values))
    if not values:
        assert {name for name, value in got.items() if value is not None} == {"rows", "values"}
        return
    assert got["sum"] == sum(values)
    assert math.isclose(got["mean"], sum(map(Fraction, values)) / len(values), rel_tol=1e-12, abs_tol=1e-12)
    assert (got["min"], got["max"]) == (min(values), max(values))
    assert (got["first"], got["last"]) == (values[0], values[-1])
    if len(values) == 1:
        assert got["dev"] is None
    else:
        assert math.isclose(got["dev"], float(statistics.stdev(values)), rel_tol=1e-9, abs_tol=1e-9)


ORDERED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["b", "a", "ä"]),
    (pa.binary(), [b"b", b"", b"\xff"]),
    (pa.bool_(), [True, False, True]),
    (pa.date32(), [date(2020, 1, 2), date(1999, 1, 1), date(2020, 1, 1)]),
    (pa.timestamp("us", "UTC"), [datetime(2020, 1, day, tzinfo=UTC) for day in (2, 1, 3)]),
    (pa.duration("us"), [timedelta(1), timedelta(-1), timedelta(0)]),
    (pa.decimal128(30, 2), [Decimal("1.00"), Decimal("-3.50"), Decimal("99999999999999999999.00")]),
    (pa.uint64(), [2**64 - 1, 0, 2**63]),
]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=lambda value: str(value)[:16])
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_extremes_and_ends_work_on_every_type_that_has_an_order(
    kind: pa.DataType, values: list[Any], cut: int
) -> None:
    batches = [pa.array([None, *values[:cut]], kind), pa.array([*values[cut:], None], kind)]
    assert of(Min("v"), *batches) == min(values)
    assert of(Max("v"), *batches) == max(values)
    assert of(First("v"), *batches) == values[0]
    assert of(Last("v"), *batches) == values[-1]


def test_nan_counts_in_sums_and_is_passed_over_by_extremes() -> None:
    nan, one = pa.array([float("nan")]), pa.array([1.0])
    assert math.isnan(of(Sum("v"), one, nan))
    assert math.isnan(of(Mean("v"), nan, one))
    for batches in ((nan, one), (one, nan)):
        assert of(Min("v"), *batches) == of(Max("v"), *batches) == 1.0
    assert math.isnan(of(Min("v"), nan, nan))


def test_a_sum_of_whole_numbers_that_does_not_fit_fails_and_names_the_key() -> None:
    half = pa.array([2**62])
    assert of(Sum("v"), half, pa.array([2**62 - 1])) == 2**63 - 1
    assert of(Sum("v"), pa.array([-(2**62)]), pa.array([-(2**62)])) == -(2**63)
    two_batches, one_batch = Aggregated({"s": Sum("v")}), Aggregated({"s": Sum("v")})
    two_batches.add(["a", "too much"], pa.array([1, 2**62]))
    two_batches.add(["too much"], half)
    one_batch.add(["a", "too much", "too much"], pa.array([1, 2**62, 2**62]))
    for aggregated in (two_batches, one_batch):
        too_much = r"'too much': Sum\('v'\) is 9223372036854775808, which does not"
        with pytest.raises(PenstockError, match=too_much):
            assert aggregated.results


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_large_numbers_that_cancel_out_do_not_overflow_in_any_cut_into_batches(length: int) -> None:
    values = [2**62, 2**62, -(2**62), -(2**62), 5]
    assert of(Sum("v"), *[pa.array(values[at : at + length]) for at in range(0, 5, length)]) == 5


LARGE = 6 * 10**37


@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 6])
@pytest.mark.parametrize("scale", [0, 2])
def test_large_decimals_that_cancel_out_do_so_in_any_cut_into_batches(
    length: int, scale: int, combined: bool
) -> None:
    def scaled(number: int) -> Decimal:
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))

    values = [scaled(number) for number in (LARGE, LARGE, -LARGE, -LARGE, 5, LARGE)]
    aggregated = Aggregated({"s": Sum("v")})
    for at in range(0, 6, length):
        part = pa.array(values[at : at + length], pa.decimal128(38, scale))
        aggregated.add(["a"] * len(part), part, combined=combined)
        aggregated.add(["b"], pa.array([None], pa.decimal128(38, scale)))
    results = aggregated.results
    assert results["a"]["s"] == scaled(LARGE + 5)
    assert results["b"]["s"] is None
    aggregated.add(["a"], pa.array([values[0]], pa.decimal128(38, scale)))
    with pytest.raises(PenstockError, match=r"at key 'a': Sum\('v'\) is .*more than the 38 digits"):
        assert aggregated.results


def test_a_decimal_sum_is_exact_to_the_last_digit() -> None:
    values = [Decimal("12345678901234567890123456789.01"), Decimal("0.01"), Decimal("-0.02")]
    batches = [pa.array([value], pa.decimal128(38, 2)) for value in values]
    assert of(Sum("v"), *batches) == Decimal("12345678901234567890123456789.00")
    with pytest.raises(PenstockError, match="more than the 38 digits"):
        of(Sum("v"), *[pa.array([Decimal(9) * 10**35], pa.decimal128(38, 2))] * 2)


def test_decimals_that_do_not_fit_38_digits_within_a_batch_fail_and_name_the_key() -> None:
    kind = pa.decimal128(38, 0)
    half = Decimal(5 * 10**37)
    one_batch = Aggregated({"s": Sum("v")})
    one_batch.add(["a", "too much", "too much"], pa.array([Decimal(1), half, half], kind))
    with pytest.raises(
        PenstockError, match=r"'too much': Sum\('v'\) is 1\D*0+\D*, which has more than the 38"
    ):
        assert one_batch.results
    most = [half, Decimal(5 * 10**37 - 1), Decimal(-7), Decimal(7)]
    assert of(Sum("v"), pa.array(most, kind)) == Decimal(10**38 - 1)
    assert of(Sum("v"), pa.array([half, half, -half], kind)) == half


def test_a_function_that_an_older_state_does_not_have_begins_with_nothing() -> None:
    table = ColumnTable("t", 128)
    before = Aggregation(["k"], {"n": Count()})
    after = Aggregation(["k"], {"n": Count(), "there": Count("v"), "total": Sum("v")})
    keys = {"k": pa.array(["a"])}
    slots = before.merge(table, before.partials(keys, {}))
    found = {name: column.to_pylist() for name, column in after.results(table, slots).items()}
    assert found == {"n": [1], "there": [0], "total": [None]}
    after.merge(table, after.partials(keys, {"v": pa.array([5])}))
    found = {name: column.to_pylist() for name, column in after.results(table, slots).items()}
    assert found == {"n": [2], "there": [1], "total": [5]}


def test_variance_of_far_away_numbers_keeps_its_digits() -> None:
    batches = [pa.array([1e9 + number]) for number in (4.0, 7.0, 13.0, 16.0)]
    assert math.isclose(of(StdDev("v"), *batches), math.sqrt(30), rel_tol=1e-12)
    assert math.isclose(of(StdDev("v", ddof=0), *batches), math.sqrt(22.5), rel_tol=1e-12)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (Sum("v"), pa.string()),
        (Mean("v"), pa.date32()),
        (StdDev("v"), pa.binary()),
        (Min("v"), pa.list_(pa.int64())),
        (Sum("v"), pa.duration("s")),
    ],
    ids=str,
)
def test_a_column_that_a_function_can_not_work_on_is_refused_by_name(
    function: ColumnAggregate, kind: pa.DataType
) -> None:
    with pytest.raises(
        PenstockError, match=rf"{type(function).__name__}\('v'\) needs .*{re.escape(str(kind))}"
    ):
        of(function, pa.nulls(1, kind))


def test_a_column_that_changes_its_type_is_refused_by_name() -> None:
    with pytest.raises(StateMismatchError, match="'result:max' is of type int32 here and of type int64"):
        of(Max("v"), pa.array([1]), pa.array([2], pa.int32()))


def test_nulls_of_no_type_change_nothing() -> None:
    for function in ALL.values():
        alone = of(function, pa.array([1.0, 3.0]))
        with_nulls = of(function, pa.nulls(0), pa.array([1.0, 3.0]))
        assert with_nulls == alone
        assert of(function, pa.nulls(2), pa.array([1.0, 3.0])) == (4 if function == Count() else alone)


def test_types_of_results_do_not_depend_on_the_width_of_the_numbers() -> None:
    aggregated = Aggregated({"s": Sum("v"), "f": Sum("v"), "m": Mean("v"), "x": Max("v")})
    aggregated.add(["a"], pa.array([1], pa.int8()))
    assert (aggregated.kind("s"), aggregated.kind("m")) == (pa.int64(), pa.float64())
    assert aggregated.kind("x") == pa.int8()


def test_a_wrong_ddof_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ddof must be a whole number"):
        StdDev("v", ddof=-1)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.duration("s")], ids=str
)
@pytest.mark.parametrize("repeats", [False, True], ids=["no key twice", "keys repeat"])
def test_rows_merged_one_by_one_give_what_reduced_ones_give(kind: pa.DataType, repeats: bool) -> None:
    functions = {n: f for n, f in ALL.items() if is_numeric(kind) or n not in ("sum", "mean", "dev")}
    aggregation = Aggregation(["k"], functions)
    for seed in range(8):
        draws = Random(seed)
        tables = ColumnTable("reduced", 128), ColumnTable("each", 128)
        for _ in range(5):
            known = [None, *range(60)]
            keys = draws.choices(known, k=40) if repeats else draws.sample(known, 40)
            numbers = [draws.choice([None, draws.randrange(-5, 100)]) for _ in keys]
            values = as_kind(numbers, kind, draws)
            of_key, of_value = {"k": pa.array(keys, pa.int64())}, {"v": values}
            slots = aggregation.merge_each(tables[1], of_key, of_value)
            assert slots is not None
            assert sorted(found(aggregation, tables[1], slots)) == sorted(set(map(repr, keys)))
            aggregation.merge(tables[0], aggregation.partials(of_key, of_value))
        reduced, each = (found(aggregation, table, table.all_slots) for table in tables)
        assert reduced.keys() == each.keys()
        for key, row in reduced.items():
            for name, value in row.items():
                other = each[key][name]
                if isinstance(other, float):
                    other = pytest.approx(other, rel=1e-9, abs=1e-9, nan_ok=True)
                assert value == other, (key, name)


def found(aggregation: Aggregation, table: ColumnTable, slots: Any) -> dict[str, dict[str, Any]]:
    """The results of slots by the text of their key."""
    columns = {name: column.to_pylist() for name, column in aggregation.results(table, slots).items()}
    keys = table.keys(slots).column(0).to_pylist()
    return {repr(key): {name: c[at] for name, c in columns.items()} for at, key in enumerate(keys)}


def is_numeric(kind: pa.DataType) -> bool:
    return kind in (pa.int64(), pa.float64(), pa.bool_())


def as_kind(numbers: list[int | None], kind: pa.DataType, draws: Random) -> pa.Array:
    if kind == pa.float64():
        odd = [math.nan, math.inf, -0.0]
        return pa.array([draws.choice([*odd, n / 8]) if n == 7 else n for n in numbers], kind)
    if kind == pa.bool_():
        return pa.array([None if n is None else n > 50 for n in numbers], kind)
    return pa.array(numbers, pa.int64()).cast(kind)


def test_rows_that_only_a_group_can_tell_the_parts_of_are_not_merged_one_by_one() -> None:
    aggregation, table = Aggregation(["k"], {"n": Count(), "sum": Sum("v")}), ColumnTable("t", 128)
    decimals = pa.array([Decimal("1.5")])
    assert aggregation.merge_each(table, {"k": pa.array([1])}, {"v": decimals}) is None
    assert len(table) == 0


def test_a_sum_that_does_not_fit_names_its_key_also_where_rows_are_merged_one_by_one() -> None:
    aggregation, table = Aggregation(["k"], {"sum": Sum("v")}), ColumnTable("t", 128)
    keys, values = {"k": pa.array([1, 2, 3])}, {"v": pa.array([5, 2**63 - 1, 5])}
    aggregation.merge_each(table, keys, values)
    slots = aggregation.merge_each(table, keys, values)
    assert slots is not None
    with pytest.raises(PenstockError, match="at key 2: "):
        aggregation.results(table, slots)
