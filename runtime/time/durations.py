"""Durations and moments given by users, and their conversion to the runtime's units.

Users write every duration as a `timedelta` or in seconds. The runtime waits in seconds, and represents event
time in whole microseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from typing import Final, TypeAlias

from penstock.runtime.errors import ConfigurationError

#: A user's duration: a `timedelta`, or seconds.
Duration: TypeAlias = timedelta | float

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

#: Bound of moments and durations (some 146,000 years); the sum of two such numbers fits into 64 bits.
_FARTHEST: Final = 1 << 62


def micros_of(moment: object) -> int:
    """Convert a moment to microseconds since the epoch; an `int` is already in microseconds.

    A `datetime` without a time zone is refused, because machines may be in different zones.

    Example:
        >>> micros_of(datetime(1970, 1, 1, 0, 1, tzinfo=UTC)), micros_of(60_000_000)
        (60000000, 60000000)
    """
    if type(moment) is int:
        if not is_near(moment):
            msg = f"the timestamp {moment} is too far from the epoch for microseconds; is it in nanoseconds?"
            raise ConfigurationError(msg)
        return moment
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            msg = f"the timestamp {moment.isoformat()} has no time zone; use one with tzinfo, for example UTC"
            raise ConfigurationError(msg)
        return (moment - _EPOCH) // _MICROSECOND
    msg = (
        "a timestamp is a datetime with a time zone or an int of microseconds since the epoch, "
        f"not {moment!r:.80} of type {type(moment).__name__}"
    )
    if isinstance(moment, float):
        msg += '; a timestamp assigner may return float seconds with unit="s"'
    raise ConfigurationError(msg)


def is_near(micros: int) -> bool:
    """Whether a moment in microseconds is close enough to the epoch to be valid."""
    return -_FARTHEST < micros < _FARTHEST


def seconds_in(name: str, duration: object, *, at_least: float = 0.0, above: float | None = None) -> float:
    """Check a user's duration and convert it to seconds; `above` replaces `at_least`.

    Example:
        >>> seconds_in("timeout", timedelta(minutes=1))
        60.0
    """
    number = _seconds(name, duration)
    if number <= above if above is not None else number < at_least:
        allowed = f"longer than {above:g} s" if above is not None else f"of at least {at_least:g} s"
        raise _not_allowed(name, duration, allowed)
    return number


def micros_in(name: str, duration: object, *, at_least: int = 1) -> int:
    """Check a user's duration and convert it to whole microseconds; `at_least` is in microseconds.

    Example:
        >>> micros_in("size", timedelta(minutes=1)), micros_in("size", 0.5)
        (60000000, 500000)
    """
    number = _seconds(name, duration)
    try:
        span = duration if isinstance(duration, timedelta) else timedelta(seconds=number)
        micros = span // _MICROSECOND
    except OverflowError:
        micros = _FARTHEST
    if micros < at_least:
        allowed = "longer than 0 s" if at_least == 1 else f"of at least {at_least / 1e6:g} s"
        raise _not_allowed(name, duration, allowed)
    if micros >= _FARTHEST:
        raise _not_allowed(name, duration, "of at most 146,000 years")
    return micros


def as_seconds(duration: Duration) -> float:
    """Convert a checked duration to seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _seconds(name: str, duration: object) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if not isinstance(duration, int | float) or isinstance(duration, bool):
        msg = f"{name}={duration!r:.80}: give a timedelta, or seconds as int or float"
        raise ConfigurationError(msg)
    try:
        number = float(duration)
    except OverflowError:
        number = inf
    if not isfinite(number):
        msg = f"{name}={duration!r:.80}: give a finite duration"
        raise ConfigurationError(msg)
    return number


def _not_allowed(name: str, duration: object, allowed: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={duration!r:.80}: give a finite duration {allowed}")
