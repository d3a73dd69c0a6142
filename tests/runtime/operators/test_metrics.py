"""Metrics of the user's own: names, kinds, quantiles against sorted values, and their sums over subtasks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FunctionContext, KeyedProcessFunction, ProcessFunction, RuntimeContext
from penstock.connectors import SinkContext
from penstock.operators import GaugeStatistics, Operator, OperatorContext, RowBatch
from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.operators.functions.async_map import IN_FLIGHT, RETRIES, TIMEOUTS
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.functions.process import TIMERS
from penstock.runtime.operators.functions.time_order import WAITING_RECORDS
from penstock.runtime.operators.metrics import (
    BUILT_IN,
    LATE_OF_SIDE,
    LOOKUP_CALLS,
    MOST_METRICS,
    RECORDS_OF_INPUT,
    ROWS_OF_SIDE,
    UNRANKED_RECORDS,
    Counter,
    Gauge,
    Histogram,
    Metrics,
    OperatorStatistics,
)
from penstock.runtime.operators.windows.triggered_window import OPEN_WINDOWS
from penstock.runtime.snapshot.plain_values import from_plain, to_plain
from penstock.testing import OperatorHarness

NUMBERS = st.floats(-1e14, 1e14, allow_nan=False) | st.integers(-1000, 1000).map(float)


def counted(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.update(value)
    return histogram


@given(st.lists(NUMBERS, min_size=1, max_size=200), st.floats(0, 1))
def test_quantile_is_within_five_percent_of_the_sorted_values(values: list[float], q: float) -> None:
    ordered = sorted(values)
    exact = ordered[max(0, math.ceil(q * len(ordered)) - 1)]
    found = counted(values).statistics().quantile(q)
    assert math.isclose(found, exact, rel_tol=0.05, abs_tol=1e-14)


@given(st.lists(NUMBERS, max_size=50), st.lists(NUMBERS, max_size=50))
def test_histograms_of_two_subtasks_are_as_one_that_has_seen_everything(
    one: list[float], other: list[float]
) -> None:
    both = counted(one).statistics().plus(counted(other).statistics())
    alone = counted([*one, *other]).statistics()
    assert (both.buckets, both.least, both.greatest) == (alone.buckets, alone.least, alone.greatest)
    assert both.count == len(one) + len(other)
    assert math.isclose(both.total, alone.total, rel_tol=1e-9, abs_tol=1e-3)


@given(st.lists(NUMBERS, min_size=1, max_size=50))
def test_cumulative_counts_are_those_of_the_values_at_most_as_large(values: list[float]) -> None:
    for bound, count in counted(values).statistics().cumulative():
        near = 1e-12 * abs(bound)
        assert sum(value <= bound - near for value in values) <= count
        assert count <= sum(value <= bound + near + 2.0**-49 for value in values)


def test_memory_of_a_histogram_is_bounded() -> None:
    histogram = counted([sign * 1.05**power for power in range(-3_000, 3_000) for sign in (1, -1)])
    seen = histogram.statistics()
    assert seen.count == 12_000
    assert len(seen.buckets) <= 1_601


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (math.nan, ValueError, "finite numbers, not nan"),
        (math.inf, ValueError, "finite numbers, not inf"),
        ("x", TypeError, "a histogram takes numbers, not 'x' of type str"),
        ("3", TypeError, "a histogram takes numbers, not '3' of type str"),
        (b"3", TypeError, "not b'3' of type bytes"),
        (None, TypeError, "not None of type NoneType"),
    ],
)
def test_histogram_takes_finite_numbers(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Histogram().update(value)


def test_gauge_takes_numbers() -> None:
    with pytest.raises(TypeError, match=r"a gauge takes numbers, not \[\] of type list"):
        Gauge().set([])  # type: ignore[arg-type]


def test_quantile_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, not 99"):
        counted([1]).statistics().quantile(99)


# -- from every context ------------------------------------------------------------------------------------


def use(ctx: Any, value: int) -> None:
    ctx.counter("seen").increment()
    ctx.gauge("newest").set(value)
    ctx.histogram("sizes").update(value)


class InProcess(ProcessFunction[int, int]):
    def process(self, value: int, ctx: FunctionContext) -> None:
        use(ctx, value)


class InKeyedProcess(KeyedProcessFunction[int, int, int]):
    def process(self, value: int, ctx: RuntimeContext) -> None:
        use(ctx, value)


class InOperator(Operator):
    def open(self, context: OperatorContext) -> None:
        self.context = context

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        for value in batch.rows:
            use(self.context, value)
        yield batch


class InMap:
    def open(self, ctx: FunctionContext) -> None:
        self.ctx = ctx

    def __call__(self, value: int) -> int:
        use(self.ctx, value)
        return value


class Writer:
    def __init__(self, context: SinkContext) -> None:
        self.context = context

    def write(self, batch: Any) -> None:
        for value in batch.rows:
            use(self.context, value)

    def close(self) -> None:
        """Nothing is open."""


class InSink:
    def writer(self, context: SinkContext) -> Any:
        return Writer(context)


@pytest.mark.parametrize(
    "build",
    [
        lambda n: n.process("own", InProcess()),
        lambda n: n.key_by(lambda _: 0).process("own", InKeyedProcess()),
        lambda n: n.transform("own", InOperator()),
        lambda n: n.map(InMap),
        lambda n: n.sink("own", InSink()),
    ],
)
def test_every_function_has_metrics_which_are_summed_over_subtasks(build: Callable[[Any], Any]) -> None:
    with OperatorHarness.of(build) as one, OperatorHarness.of(build) as other:
        one.push([1, 2, 3])
        other.push([100])
        statistics = one.statistics().plus(other.statistics())
        assert statistics.counters == {"seen": 4}
        gauge, histogram = statistics.gauges["newest"], statistics.histograms["sizes"]
        assert (gauge.least, gauge.greatest, gauge.total) == (3, 100, 103)
        assert (histogram.count, histogram.least, histogram.greatest, histogram.total) == (4, 1, 100, 106)
        assert from_plain(OperatorStatistics, json.loads(json.dumps(to_plain(statistics)))) == statistics


def test_gauge_that_was_never_set_and_statistics_of_an_older_version_show_nothing() -> None:
    metrics = Metrics()
    metrics.ask(Gauge, "waiting")
    assert metrics.statistics() == {}
    assert from_plain(OperatorStatistics, {"records_in": 3, "extra": {"late": 1}}).extra == {"late": 1}


# -- names and kinds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("late orders", r"counter\('late orders'\): a metric's name has .*; for example 'late_orders'"),
        ("2nd", "for example '_2nd'"),
        ("", "a metric's name has"),
        ("x" * 101, "up to 100"),
        (3, "a metric's name has"),
        *((name, f"Penstock itself counts '{name}'") for name in sorted(BUILT_IN)),
    ],
)
def test_names_are_those_that_prometheus_takes(name: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Metrics().ask(Counter, name)


def test_numbers_of_penstock_s_own_operators_are_no_metrics_of_the_user() -> None:
    of_inputs = {*LATE_OF_SIDE, *RECORDS_OF_INPUT}
    of_operators = {*of_inputs, LATE_RECORDS, OPEN_WINDOWS, TIMERS, UNRANKED_RECORDS, WAITING_RECORDS}
    of_calls = {IN_FLIGHT, RETRIES, TIMEOUTS}
    of_joins = {LOOKUP_CALLS, *ROWS_OF_SIDE}
    assert {*of_operators, *of_calls, *of_joins, "committed", "uncommitted"} == BUILT_IN
    statistics = OperatorStatistics(extra={"late_records": 1, "odd": 2})
    assert statistics.counters == {"odd": 2}


def test_metric_that_is_of_another_kind_in_another_subtask_keeps_the_first_kind() -> None:
    gauge = GaugeStatistics(1.0, 2.0, 3.0)
    one, other = OperatorStatistics(extra={"size": gauge}), OperatorStatistics(extra={"size": 7, "odd": 1})
    assert one.plus(other).extra == {"size": gauge, "odd": 1}


def test_metric_of_another_kind_is_refused_with_operator_and_line() -> None:
    class Clashes(ProcessFunction[int, int]):
        def process(self, value: int, ctx: FunctionContext) -> None:
            assert ctx.counter("size") is ctx.counter("size")
            ctx.histogram("size")

    message = (
        r"operator 'own'.*histogram\('size'\): 'size' is a counter of this operator already.*, "
        r"at .*test_metrics.py:\d+"
    )
    with (
        OperatorHarness.of(lambda n: n.process("own", Clashes())) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.push([1])


def test_metric_for_each_key_is_refused() -> None:
    metrics = Metrics()
    for key in range(MOST_METRICS):
        metrics.ask(Counter, f"seen_{key}")
    with pytest.raises(ConfigurationError, match=r"has 1,000 metrics already.*state for values of a key"):
        metrics.ask(Counter, "one_more")


def test_metrics_may_be_read_while_the_operator_makes_another_one() -> None:
    """Stands for the task's thread: each look at the value finds a new counter made."""
    metrics = Metrics()

    class Meddling(Counter):
        @property
        def value(self) -> int:  # type: ignore[override]
            metrics.ask(Counter, f"more_{len(made)}")
            made.append(1)
            return 7

        @value.setter
        def value(self, value: int) -> None:
            pass

    made: list[int] = []
    metrics.ask(Meddling, "first")  # type: ignore[type-var]
    metrics.ask(Counter, "second")
    assert metrics.statistics() == {"first": 7, "second": 0}
    assert metrics.statistics() == {"first": 7, "second": 0, "more_0": 0}


@pytest.mark.parametrize("name", ["sizes_bucket", "sizes_count", "sizes_sum"])
def test_a_histogram_is_not_named_as_a_part_of_another_one(name: str) -> None:
    metrics = Metrics()
    with pytest.raises(ConfigurationError, match="a part of the histogram 'sizes'"):
        metrics.ask(Histogram, name)
    metrics.ask(Counter, name).increment()


class Flag:
    def __index__(self) -> int:
        return 4


def test_a_counter_holds_an_int_whatever_whole_number_is_added() -> None:
    counter = Counter()
    for by in (1, True, np.int64(2), np.uint8(3), Flag()):
        counter.increment(by)  # type: ignore[arg-type]
    assert (counter.value, type(counter.value)) == (11, int)


@pytest.mark.parametrize("by", [0.5, 2.0, np.float32(1), "1", None])
def test_a_counter_refuses_a_number_that_is_not_whole_and_keeps_its_value(by: Any) -> None:
    counter = Counter()
    counter.increment(3)
    with pytest.raises(TypeError, match=r"a counter counts in whole numbers, not .*a gauge or a histogram"):
        counter.increment(by)
    assert counter.value == 3


def test_a_reader_that_comes_in_the_middle_of_an_update_finds_finite_bounds() -> None:
    seen = list[tuple[float, float]]()

    class Watched(dict[int, int]):
        def __setitem__(self, bucket: int, count: int) -> None:
            super().__setitem__(bucket, count)
            statistics = histogram.statistics()
            seen.append((statistics.least, statistics.greatest))

    histogram = Histogram()
    histogram._buckets = Watched()
    histogram.update(3)
    histogram.update(5)
    assert seen == [(3.0, 3.0), (3.0, 5.0)]
