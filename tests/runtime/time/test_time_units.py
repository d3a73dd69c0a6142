"""Units of timestamps that are numbers, and the doubt about a unit."""

from __future__ import annotations

import re

import pytest

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.time.time_units import TimeUnit, doubt_about, micros_of_number
from penstock.runtime.time.watermarks import WatermarkStrategy

SECONDS = 1_700_000_000


@pytest.mark.parametrize(
    ("moment", "unit"),
    [
        (SECONDS, "s"),
        (float(SECONDS), "s"),
        (SECONDS * 10**3, "ms"),
        (SECONDS * 10**6, "us"),
        (SECONDS * 10**9 + 999, "ns"),
    ],
)
def test_a_number_is_read_in_its_unit(moment: float, unit: TimeUnit) -> None:
    assert micros_of_number(moment, unit) == SECONDS * 10**6


@pytest.mark.parametrize("moment", [10**16, 1e16, float("nan"), float("inf")])
def test_a_number_too_large_for_its_unit_is_refused(moment: float) -> None:
    with pytest.raises(ConfigurationError, match=r'too far from the epoch for unit="s"; is it in another'):
        micros_of_number(moment, "s")


def test_float_microseconds_are_refused_with_the_unit_that_takes_floats() -> None:
    with pytest.raises(ConfigurationError, match=r'not 1.5 of type float; .* float seconds with unit="s"'):
        micros_of_number(1.5, "us")


@pytest.mark.parametrize(
    ("number", "lies", "likely"),
    [
        (SECONDS, r"lies in 1970: 1970-01-01T00:28:20\+00:00", "s"),
        (SECONDS * 10**3, r"lies in 1970: 1970-01-20T16:13:20\+00:00", "ms"),
        (SECONDS * 10**9, "lies beyond the year 2200", "ns"),
    ],
)
def test_a_number_in_another_unit_is_doubted_and_its_unit_is_named(
    number: int, lies: str, likely: str
) -> None:
    doubt = doubt_about(number, number, "us")
    assert doubt is not None
    assert re.fullmatch(rf'the timestamp {number} {lies}. It seems to be in \w+: give unit="{likely}"', doubt)


def test_the_doubt_shows_the_number_as_the_user_gave_it() -> None:
    micros = micros_of_number(SECONDS * 10**3, "s")
    doubt = doubt_about(micros, micros, "s")
    assert doubt is not None
    assert doubt.startswith(f"the timestamp {SECONDS * 10**3} lies beyond the year 2200")


def test_one_timestamp_of_a_batch_is_enough_for_a_doubt() -> None:
    now = SECONDS * 10**6
    assert "the timestamp 0 lies in 1970" in (doubt_about(0, now, "us") or "")
    assert "the timestamp 7 lies in 1970" in (doubt_about(-(10**15), 7, "us") or "")


def test_timestamps_of_our_time_and_before_1970_are_not_doubted() -> None:
    now = SECONDS * 10**6
    assert doubt_about(now, now, "us") is None
    assert doubt_about(-now, now, "us") is None


def test_an_unknown_unit_is_refused() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(ConfigurationError, match="unit is 's', 'ms', 'us' or 'ns', not 'seconds'"):
        plain.with_timestamp_column("at", unit="seconds")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="unit is 's', 'ms', 'us' or 'ns', not 1"):
        plain.with_timestamp_assigner(abs, unit=1)  # type: ignore[arg-type]
