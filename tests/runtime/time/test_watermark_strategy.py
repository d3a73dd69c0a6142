"""Event time of records, in users' words."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.time.watermarks import WatermarkStrategy


def test_bounded_out_of_orderness_takes_seconds_or_a_timedelta() -> None:
    assert WatermarkStrategy.for_bounded_out_of_orderness(1.5).out_of_orderness == 1_500_000
    minute = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(minutes=1))
    assert minute.out_of_orderness == 60_000_000


def test_monotonous_timestamps_are_out_of_order_by_nothing() -> None:
    assert WatermarkStrategy.for_monotonous_timestamps() == WatermarkStrategy.for_bounded_out_of_orderness(0)


def test_a_strategy_with_an_assigner_is_another_one() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    assert plain.with_timestamp_assigner(abs).timestamp_assigner is abs
    assert plain.timestamp_assigner is None


def test_a_strategy_travels_to_the_subtasks() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(abs)
    assert pickle.loads(pickle.dumps(strategy)) == strategy


@pytest.mark.parametrize("span", [-1, timedelta(seconds=-1), "5s"])
def test_an_out_of_orderness_that_makes_no_sense_is_refused(span: timedelta | float) -> None:
    with pytest.raises(ConfigurationError, match=r"most=.*: give a "):
        WatermarkStrategy.for_bounded_out_of_orderness(span)


def test_an_assigner_that_is_no_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="with_timestamp_assigner needs a function, not 'at'"):
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")  # type: ignore[arg-type]
