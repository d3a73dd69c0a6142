"""Moments and spans as users write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.time.durations import Duration, as_seconds, micros_in, micros_of, seconds_in

ZONES = st.integers(-14 * 60 + 1, 14 * 60 - 1).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def test_a_moment_is_the_same_in_every_time_zone() -> None:
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert micros_of(noon) == micros_of(noon.astimezone(timezone(timedelta(hours=9))))
    assert micros_of(noon) == 1_709_208_000_000_000


@given(st.datetimes(timezones=ZONES))
def test_moments_keep_every_microsecond_and_their_order(moment: datetime) -> None:
    micros = micros_of(moment)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros) == moment
    assert micros_of(micros) == micros


def test_a_moment_before_the_epoch_is_negative() -> None:
    assert micros_of(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (datetime(2024, 1, 1), r"2024-01-01T00:00:00 has no time zone; use one with tzinfo"),  # noqa: DTZ001
        (1 << 62, r"too far from the epoch.*nanoseconds\?"),
        (-(1 << 62), r"too far from the epoch"),
        (1.5, r"not 1\.5 of type float"),
        (True, r"not True of type bool"),
        (None, r"not None of type NoneType"),
        ("2024-01-01T00:00:00Z", r"not '2024-01-01T00:00:00Z' of type str"),
    ],
)
def test_what_is_no_moment_is_refused_with_what_it_is(moment: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        micros_of(moment)


@pytest.mark.parametrize(
    ("span", "micros"),
    [(timedelta(hours=1), 3_600_000_000), (2, 2_000_000), (0.000001, 1), (0.1, 100_000)],
)
def test_a_span_is_a_timedelta_or_seconds(span: Duration, micros: int) -> None:
    assert micros_in("size", span) == micros


def test_a_duration_may_be_nothing_or_negative_where_that_makes_sense() -> None:
    assert micros_in("lateness", 0, at_least=0) == 0
    assert micros_in("offset", -1, at_least=-1_000_000) == -1_000_000
    assert seconds_in("timeout", 0) == 0.0


@pytest.mark.parametrize(
    ("duration", "message"),
    [
        (0, "size=0: give a finite duration longer than 0 s"),
        (timedelta(-1), r"size=datetime.timedelta\(days=-1\): give a finite duration longer than 0 s"),
        (1e-9, "size=1e-09: give a finite duration longer than 0 s"),
        (1e300, r"size=1e\+300: give a finite duration of at most 146,000 years"),
        (1e13, "size=1.*: give a finite duration of at most 146,000 years"),
        (10**400, "size=1000.*: give a finite duration"),
        (float("nan"), "size=nan: give a finite duration"),
        (float("inf"), "size=inf: give a finite duration"),
        (True, "size=True: give a timedelta, or seconds as int or float"),
        (None, "size=None: give a timedelta, or seconds as int or float"),
        ("1h", "size='1h': give a timedelta, or seconds as int or float"),
    ],
)
def test_what_is_no_duration_is_refused_with_its_name(duration: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        micros_in("size", duration)
    if "years" not in message:
        with pytest.raises(ConfigurationError, match=message.replace("longer than 0 s", "")):
            seconds_in("size", duration, above=1e-6)


@given(st.timedeltas(timedelta(0), timedelta(days=40_000)))
def test_a_timedelta_and_its_seconds_are_one_duration(duration: timedelta) -> None:
    number = duration.total_seconds()
    assert (
        seconds_in("gap", duration) == seconds_in("gap", number) == as_seconds(duration) == as_seconds(number)
    )
    assert micros_in("gap", duration, at_least=0) == micros_in("gap", number, at_least=0)
