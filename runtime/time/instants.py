"""Moments and spans of event time: what users write, and the whole microseconds that records carry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.runtime.errors import ConfigurationError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

#: Moments this far from the epoch (some 146,000 years) leave room for spans beside them in 64 bits.
_FARTHEST: Final = 1 << 62


def micros_of(moment: object) -> int:
    """A moment in microseconds since the epoch.

    Args:
        moment: A `datetime` with a time zone, or microseconds since the epoch as an `int`.

    Raises:
        ConfigurationError: Another value, or a `datetime` without a zone: it is ambiguous across machines.

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
    raise ConfigurationError(msg)


def is_near(micros: int) -> bool:
    """Whether a moment in microseconds is near enough to the epoch to be meant as one."""
    return -_FARTHEST < micros < _FARTHEST


def micros_in(what: str, span: object, *, least: int = 1) -> int:
    """A span in microseconds.

    Args:
        span: A `timedelta`, or seconds as a number.
        least: Smallest valid span, in microseconds.

    Raises:
        ConfigurationError: The span has another type, or is too short.

    Example:
        >>> micros_in("size", timedelta(minutes=1)), micros_in("size", 0.5)
        (60000000, 500000)
    """
    if isinstance(span, bool) or not isinstance(span, timedelta | int | float):
        msg = f"{what} is a timedelta or seconds, not {span!r:.80} of type {type(span).__name__}"
        raise ConfigurationError(msg)
    try:
        micros = (span if isinstance(span, timedelta) else timedelta(seconds=span)) // _MICROSECOND
    except (OverflowError, ValueError) as error:
        msg = f"{what} can't be {span!r} seconds: {error}"
        raise ConfigurationError(msg) from error
    if not least <= micros < _FARTHEST:
        msg = f"{what} must be between {timedelta(microseconds=least)} and 146,000 years, not {span!r}"
        raise ConfigurationError(msg)
    return micros
