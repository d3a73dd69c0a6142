"""Units of timestamps that are plain numbers, and the check that a unit is the right one.

Seconds, milliseconds and nanoseconds are all common, and a number does not show its unit. A wrong unit often
raises no error: event time merely runs a thousand or a million times too slowly or too fast. But it moves
today's moments into 1970, or far beyond 2200. So timestamps there are suspicious.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, isfinite
from typing import Final, Literal, TypeAlias, get_args

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.time.durations import is_near, micros_of

#: A unit of timestamps: seconds, milliseconds, microseconds or nanoseconds.
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]

#: Microseconds in a unit, for the units of at least one microsecond.
MICROS_PER: Final[dict[TimeUnit, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}

#: Nanoseconds in a microsecond.
NANOS_PER_MICRO: Final = 1_000

#: Units whose timestamps may be floats; smaller ones would lose digits.
FLOAT_UNITS: Final[tuple[TimeUnit, ...]] = ("s", "ms")

_NAMES: Final[dict[TimeUnit, str]] = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}

_YEAR_1971: Final = micros_of(datetime(1971, 1, 1, tzinfo=UTC))
_YEAR_2200: Final = micros_of(datetime(2200, 1, 1, tzinfo=UTC))


def checked_unit(call: str, unit: object) -> TimeUnit:
    for known in get_args(TimeUnit):
        if unit == known:
            return known  # type: ignore[no-any-return]
    msg = f"{call}: unit is 's', 'ms', 'us' or 'ns', not {unit!r:.80}"
    raise ConfigurationError(msg)


def micros_of_number(moment: object, unit: TimeUnit) -> int:
    """Convert a moment to microseconds since the epoch, rounded down; a number is in `unit`.

    Example:
        >>> micros_of_number(1.5, "s"), micros_of_number(-1, "ns")
        (1500000, -1)
    """
    if type(moment) is int:
        micros = moment // NANOS_PER_MICRO if unit == "ns" else moment * MICROS_PER[unit]
        if is_near(micros):
            return micros
    elif type(moment) is float and unit in FLOAT_UNITS:
        scaled = moment * MICROS_PER[unit]
        if isfinite(scaled) and is_near(floor(scaled)):
            return floor(scaled)
    else:
        return micros_of(moment)
    msg = f'the timestamp {moment} is too far from the epoch for unit="{unit}"; is it in another unit?'
    raise ConfigurationError(msg)


def doubt_about(oldest: int, newest: int, unit: TimeUnit) -> str | None:
    """Return a warning if timestamps in microseconds are likely in another unit; `None` if they are not.

    Example:
        >>> doubt_about(1_700_000_000, 1_700_000_000, "us").partition(". ")[2]
        'It seems to be in seconds: give unit="s"'
        >>> doubt_about(1_700_000_000_000_000, 1_700_000_000_000_000, "us") is None
        True
    """
    if oldest >= _YEAR_1971 and newest < _YEAR_2200:
        return None
    if newest >= _YEAR_2200:
        micros, where = newest, "lies beyond the year 2200"
    else:
        micros = oldest if oldest >= 0 else newest
        if not 0 <= micros < _YEAR_1971:
            return None
        where = f"lies in 1970: {datetime.fromtimestamp(micros // MICROS_PER['s'], UTC).isoformat()}"
    number = micros * NANOS_PER_MICRO if unit == "ns" else micros // MICROS_PER[unit]
    likely = _likely_unit(number)
    advice = (
        f"Numbers are read as {_NAMES[unit]}: give unit= if they are in another unit"
        if likely is None
        else f'It seems to be in {_NAMES[likely]}: give unit="{likely}"'
    )
    return f"the timestamp {number} {where}. {advice}"


def _likely_unit(number: int) -> TimeUnit | None:
    """Return the unit in which a number is a moment from 1971 to 2199; `None` if there is none."""
    for unit in get_args(TimeUnit):
        micros = number // NANOS_PER_MICRO if unit == "ns" else number * MICROS_PER[unit]
        if _YEAR_1971 <= micros < _YEAR_2200:
            return unit  # type: ignore[no-any-return]
    return None
