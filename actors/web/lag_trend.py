"""Whether a job catches up: what the last minute of its lag says about the next ones.

The lag of event time is a sawtooth, as counters come every two seconds. So a line is laid through all samples
of the last minute (least squares). Its slope says how many seconds the lag grows in each second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.actors.web.samples import Sample

#: Seconds of samples that count, and the least that they must span to say anything.
_WINDOW: Final = 60.0
_LEAST: Final = 10.0
_FEWEST: Final = 4
#: Seconds a second from which a lag counts as changing: less is noise.
_SLOPE: Final = 0.02
#: A lag of so many seconds is none: a watermark is behind in any job.
_NO_LAG: Final = 5.0


@dataclass(frozen=True, slots=True)
class LagTrend:
    """How the lag of a job's event time changes.

    Attributes:
        lag: Seconds that the lowest watermark is behind the time now, smoothed.
        slope: Seconds by which it grows in each second; less than 0 when the job catches up.
        direction: `grows`, `shrinks` or `stays`.
        gone_in: Seconds until there is none at this pace; `None` unless it shrinks.

    Example:
        >>> str(LagTrend(120.0, -0.5, "shrinks", 240.0))
        'is gone in about 4 min'
    """

    lag: float
    slope: float
    direction: str
    gone_in: float | None = None

    def __str__(self) -> str:
        if self.gone_in is None:
            return self.direction
        return f"is gone in about {_about(self.gone_in)}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
        return {**asdict(self), "text": str(self)}


def lag_trend(samples: Sequence[Sample]) -> LagTrend | None:
    """The trend over the last minute; `None` before ten seconds of it are known, or without event time.

    Args:
        samples: Oldest first.

    Example:
        >>> behind = [Sample(at=float(second), lag=100.0 - second) for second in range(30)]
        >>> lag_trend(behind).gone_in
        71.0
    """
    if not samples or samples[-1].lag is None:
        return None
    now = samples[-1].at
    known = [
        (each.at - now, each.lag) for each in samples if each.lag is not None and each.at >= now - _WINDOW
    ]
    if len(known) < _FEWEST or -known[0][0] < _LEAST:
        return None
    middle = sum(at for at, _ in known) / len(known)
    average = sum(lag for _, lag in known) / len(known)
    spread = sum((at - middle) ** 2 for at, _ in known)
    slope = sum((at - middle) * (lag - average) for at, lag in known) / spread
    lag = max(0.0, average - slope * middle)
    if abs(slope) < _SLOPE or (lag < _NO_LAG and slope < 0):
        return LagTrend(lag, slope, "stays")
    if slope > 0:
        return LagTrend(lag, slope, "grows")
    return LagTrend(lag, slope, "shrinks", lag / -slope)


def _about(seconds: float) -> str:
    """A duration with one unit, rounded: nobody knows it better.

    Example:
        >>> _about(42), _about(100), _about(5_000), _about(400_000)
        ('42 s', '2 min', '1 h', '5 d')
    """
    for unit, size, most in (("s", 1, 90), ("min", 60, 3_600), ("h", 3_600, 172_800)):
        if seconds < most:
            return f"{max(1, round(seconds / size))} {unit}"
    return f"{round(seconds / 86_400)} d"
