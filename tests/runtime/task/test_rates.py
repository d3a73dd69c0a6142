"""Rates between two reports of a subtask, and over the last seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors import SourceLag, SplitLag
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.task.statistics import (
    WINDOW,
    OperatorRates,
    RateWindow,
    SubtaskRates,
    SubtaskStatistics,
    rates_between,
)

COUNTS = st.integers(0, 10**12)
#: Clocks count no less than nanoseconds.
TIMES = st.integers(0, 10**15).map(lambda nanoseconds: nanoseconds / 10**9)


@st.composite
def reports(draw: st.DrawFn) -> SubtaskStatistics:
    """Any report; times may not add up, as another thread counts while they are read."""
    return SubtaskStatistics(
        draw(COUNTS), draw(COUNTS), draw(COUNTS), 0, draw(TIMES), draw(TIMES), 0, 0, at=draw(TIMES)
    )


def at(seconds: float, records: int = 0, busy: float = 0.0, blocked: float = 0.0) -> SubtaskStatistics:
    operators = {"map": OperatorStatistics(records, 2 * records)}
    return SubtaskStatistics(
        records, 2 * records, 8 * records, 0, busy, blocked, 0, 0, operators, bytes_in=4 * records, at=seconds
    )


def test_rates_are_differences_by_the_time_between_two_reports() -> None:
    assert rates_between(at(10.0, 100, 1.0, 0.5), at(12.0, 300, 2.0, 1.5)) == SubtaskRates(
        2.0, 0.5, 0.5, 0.0, 100.0, 200.0, 400.0, 800.0, {"map": OperatorRates(100.0, 200.0)}
    )


@given(earlier=reports(), later=reports())
def test_shares_always_add_up_to_one_and_no_rate_is_negative(
    earlier: SubtaskStatistics, later: SubtaskStatistics
) -> None:
    rates = rates_between(earlier, later)
    if rates is None:
        assert later.at <= earlier.at or any(
            getattr(later, name) < getattr(earlier, name)
            for name in ("records_in", "records_out", "bytes_out")
        )
        return
    shares = rates.busy, rates.backpressured, rates.idle
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert sum(shares) == pytest.approx(1.0)
    assert min(rates.records_in, rates.records_out, rates.bytes_in, rates.bytes_out) >= 0.0
    assert rates.records_in * rates.seconds == pytest.approx(later.records_in - earlier.records_in)


def test_reports_of_one_moment_and_of_another_attempt_have_no_rates() -> None:
    assert rates_between(at(10.0, 5), at(10.0, 9)) is None
    assert rates_between(at(10.0, 5), at(12.0, 4)) is None
    assert rates_between(at(10.0, 5), at(9.0, 9)) is None


def test_an_operator_that_has_just_begun_to_count_counts_from_zero() -> None:
    rates = rates_between(replace(at(0.0), operators={}), at(2.0, 10))
    assert rates is not None
    assert rates.operators == {"map": OperatorRates(5.0, 10.0)}


def test_a_window_has_no_rates_before_its_second_report() -> None:
    window = RateWindow()
    assert window.rates is None
    window.add(at(5.0, 10))
    assert window.rates is None
    window.add(at(7.0, 30))
    assert window.rates is not None
    assert window.rates.records_in == 10.0


def test_the_same_report_again_changes_nothing() -> None:
    window = RateWindow()
    for report in (at(5.0, 10), at(7.0, 30), at(7.0, 30)):
        window.add(report)
    assert window.rates is not None
    assert window.rates.seconds == 2.0


def test_a_window_begins_anew_with_another_attempt() -> None:
    window = RateWindow()
    for report in (at(5.0, 10), at(7.0, 30), at(8.0, 3)):
        window.add(report)
    assert window.rates is None
    window.add(at(9.0, 4))
    assert window.rates is not None
    assert (window.rates.seconds, window.rates.records_in) == (1.0, 1.0)


@given(pauses=st.lists(st.floats(0.01, 30.0), min_size=2, max_size=200))
def test_a_window_measures_the_last_seconds_and_keeps_few_reports(pauses: list[float]) -> None:
    window = RateWindow()
    moments = [sum(pauses[:count]) for count in range(1, len(pauses) + 1)]
    for moment in moments:
        window.add(at(moment))
    rates = window.rates
    assert rates is not None
    known = moments[-1] - moments[0]
    if known <= WINDOW:
        assert rates.seconds == pytest.approx(known)
    else:
        assert WINDOW - 1e-6 <= rates.seconds <= WINDOW + max(pauses) + 1.0
    assert window.reports <= WINDOW + 3


def behind(seconds: float, lag: SourceLag | None) -> SubtaskStatistics:
    return replace(at(seconds), operators={"read": OperatorStatistics(lag=lag)})


def test_the_trend_of_a_lag_is_its_growth_in_all_and_by_split() -> None:
    def lag(first: int, second: int) -> SourceLag:
        return SourceLag.of([SplitLag("a", first, 10 * first), SplitLag("b", None, second)])

    rates = rates_between(behind(10.0, lag(100, 40)), behind(12.0, lag(60, 50)))
    assert rates is not None
    assert rates.operators["read"] == OperatorRates(0.0, 0.0, None, -195.0, {"a": -20.0, "b": 5.0})


def test_a_lag_or_a_split_that_was_not_known_before_has_no_trend() -> None:
    one = SourceLag.of([SplitLag("a", 1)])
    two = SourceLag.of([SplitLag("a", 5), SplitLag("new", 3)])
    rates = rates_between(behind(10.0, one), behind(12.0, two))
    assert rates is not None
    assert rates.operators["read"] == OperatorRates(0.0, 0.0, 3.5, None, {"a": 2.0})
    unknown = rates_between(behind(10.0, None), behind(12.0, two))
    assert unknown is not None
    assert unknown.operators["read"] == OperatorRates(0.0, 0.0)
