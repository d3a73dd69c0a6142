"""Time series of a job: the last 300 samples, at most one per second, and one per ten seconds for an hour.

The lag of event time is a sawtooth, because counters arrive every two seconds. Its trend is a least-squares
line through the samples of the last minute. The slope is the growth of the lag in seconds per second.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from math import isnan, nan
from statistics import linear_regression
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.actors.shared.job_report import JobReport
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.plain_values import to_plain

#: Seconds between two samples of the fine and the coarse ring, and the capacity of each.
_FINE: Final = 1.0

_COARSE: Final = 10.0

_FINE_KEPT: Final = 300

_COARSE_KEPT: Final = 360
#: Seconds by which a sample may be early: polls are not exact to the millisecond.
_EARLY: Final = 0.2


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of a job at one time; `None` if unknown.

    Attributes:
        at: Wall-clock seconds.
        records_in: Records per second that the sources read.
        records_out: Records per second that the sinks take.
        lag: Seconds by which the lowest watermark is behind the wall clock.
        state_bytes: Subtasks' state in the newest completed checkpoint, without vertices rescaled since then.
        checkpoint_bytes: All state in the newest completed checkpoint.
        checkpoint_seconds: Duration of the newest completed checkpoint.
    """

    at: float
    records_in: float | None = None
    records_out: float | None = None
    lag: float | None = None
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    checkpoint_seconds: float | None = None


def sample_of(report: JobReport, at: float) -> Sample:
    sources = {operator.id for operator in report.operators if operator.is_source}
    sinks = {operator.id for operator in report.operators if operator.is_sink}
    rates = [subtask.rates.operators for subtask in report.subtasks if subtask.rates is not None]
    read = [operators[id].records_out for operators in rates for id in sources & operators.keys()]
    written = [operators[id].records_in for operators in rates for id in sinks & operators.keys()]
    reached = [
        vertex.watermark
        for vertex in report.vertices
        if vertex.watermark is not None and vertex.watermark != END_OF_TIME
    ]
    sizes = [vertex.state_bytes for vertex in report.vertices if vertex.state_bytes is not None]
    checkpoints = report.checkpoints
    return Sample(
        at,
        sum(read) if read else None,
        sum(written) if written else None,
        max(0.0, at - min(reached) / 1_000_000) if reached else None,
        sum(sizes) if sizes else None,
        None if checkpoints is None else checkpoints.latest_size,
        None if checkpoints is None else checkpoints.latest_duration,
    )


@dataclass(frozen=True, slots=True)
class OperatorSample:
    """Figures of an operator at one time; `None` if unknown.

    Attributes:
        records_in: Records per second that it receives.
        records_out: Records per second that it emits.
    """

    records_in: float | None = None
    records_out: float | None = None


@dataclass(frozen=True, slots=True)
class VertexSample:
    """Figures of a vertex at one time; `None` if unknown.

    Attributes:
        at: Wall-clock seconds.
        records_in: Records per second from the source or from channels.
        records_out: Records per second to channels.
        busy: Average share of the time at work.
        backpressured: Average share of the time in which an output had no credit.
        lag: Seconds by which the vertex's watermark is behind the wall clock.
        operators: The operators of the chain, by id, in the order of the chain.
    """

    at: float
    records_in: float | None = None
    records_out: float | None = None
    busy: float | None = None
    backpressured: float | None = None
    lag: float | None = None
    operators: Mapping[str, OperatorSample] = field(default_factory=dict, kw_only=True)


#: Figures of a vertex in a `VerticesSample`, without those of its operators.
_OF_VERTEX: Final = 5


class VerticesSample:
    """Figures of all vertices at one time, in 40 bytes for each vertex and 16 for each operator."""

    __slots__ = ("_chains", "_figures", "at")

    def __init__(self, report: JobReport, at: float) -> None:
        self.at = at
        chains = ((vertex.id, tuple(o.id for o in vertex.operators)) for vertex in report.graph.vertices)
        self._chains = _shared(tuple(chains))
        self._figures = array("d")
        rates = _operator_rates(report)
        for (_, chain), summary in zip(self._chains, report.vertices, strict=True):
            shares = summary.records_in, summary.records_out, summary.busy, summary.backpressured
            self._add(*shares, _lag(summary.watermark, at))
            for operator in chain:
                self._add(*rates.get(operator, (None, None)))

    def _add(self, *figures: float | None) -> None:
        self._figures.extend(nan if figure is None else figure for figure in figures)

    def of(self, vertex: str) -> VertexSample | None:
        """The figures of a vertex; `None` if the job did not have it."""
        figures = (None if isnan(figure) else figure for figure in self._figures)
        for id, chain in self._chains:
            of_vertex = list(islice(figures, _OF_VERTEX))
            operators = {operator: OperatorSample(next(figures), next(figures)) for operator in chain}
            if id == vertex:
                return VertexSample(self.at, *of_vertex, operators=operators)
        return None


#: Vertices, each with the operators of its chain.
_Chains: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


@lru_cache(maxsize=64)
def _shared(chains: _Chains) -> _Chains:
    """Return an equal value that was given before, so that samples of one graph share it."""
    return chains


def _operator_rates(report: JobReport) -> dict[str, tuple[float, float]]:
    """Records per second into and out of each operator, summed over its subtasks."""
    sums: dict[str, tuple[float, float]] = {}
    for subtask in report.subtasks:
        if subtask.rates is None:
            continue
        for id, rates in subtask.rates.operators.items():
            records_in, records_out = sums.get(id, (0.0, 0.0))
            sums[id] = records_in + rates.records_in, records_out + rates.records_out
    return sums


def _lag(watermark: int | None, at: float) -> float | None:
    if watermark is None or watermark == END_OF_TIME:
        return None
    return max(0.0, at - watermark / 1_000_000)


class Timed(Protocol):
    """A sample; `at` is in wall-clock seconds."""

    @property
    def at(self) -> float: ...


SampleT = TypeVar("SampleT", bound=Timed)


class Samples(Generic[SampleT]):
    """A time series, in bounded memory.

    Example:
        >>> curves = Samples[Sample]()
        >>> for second in range(700):
        ...     _ = curves.add(Sample(at=float(second)))
        >>> known = [sample.at for sample in curves.all()]
        >>> known[:3], known[-2:], len(known)
        ([0.0, 10.0, 20.0], [698.0, 699.0], 340)
    """

    def __init__(self) -> None:
        self._fine: deque[SampleT] = deque(maxlen=_FINE_KEPT)
        self._coarse: deque[SampleT] = deque(maxlen=_COARSE_KEPT)

    def add(self, sample: SampleT) -> bool:
        """Keep a sample unless it follows the last one too soon; return whether it was kept."""
        if self._fine and sample.at - self._fine[-1].at < _FINE - _EARLY:
            return False
        self._fine.append(sample)
        if not self._coarse or sample.at - self._coarse[-1].at >= _COARSE - _EARLY:
            self._coarse.append(sample)
        return True

    def all(self) -> list[SampleT]:
        """All samples, oldest first: coarse ones, then the last 300 fine ones."""
        if not self._fine:
            return []
        since = self._fine[0].at
        return [*(sample for sample in self._coarse if sample.at < since), *self._fine]


#: For a trend: seconds of samples that it uses, their minimum span in seconds, and their minimum number.
_WINDOW: Final = 60.0

_LEAST: Final = 10.0

_FEWEST: Final = 4
#: Minimum slope of a lag that counts as growing or shrinking, in seconds per second.
_SLOPE: Final = 0.02
#: Lag in seconds below which it does not count as shrinking: watermarks trail in every job.
_NO_LAG: Final = 5.0


@dataclass(frozen=True, slots=True)
class LagTrend:
    """Trend of the lag of a job's event time.

    Attributes:
        lag: Smoothed seconds by which the lowest watermark is behind the wall clock.
        slope: Growth of the lag in seconds per second; negative when the job catches up.
        direction: `grows`, `shrinks` or `stays`.
        gone_in: Seconds until the lag is zero at this rate; `None` unless it shrinks.

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
        return {**to_plain(self), "text": str(self)}


def lag_trend(samples: Sequence[Sample]) -> LagTrend | None:
    """The trend over the last minute; `None` without event time, or while there are too few samples.

    A trend needs four samples that span ten seconds.

    Example:
        >>> behind = [Sample(at=float(second), lag=100.0 - second) for second in range(30)]
        >>> lag_trend(behind).gone_in
        71.0
    """
    if not samples or samples[-1].lag is None:
        return None
    now = samples[-1].at
    known = [(s.at - now, s.lag) for s in samples if s.lag is not None and s.at >= now - _WINDOW]
    if len(known) < _FEWEST or -known[0][0] < _LEAST:
        return None
    slope, at_now = linear_regression(*zip(*known, strict=True))
    lag = max(0.0, at_now)
    if abs(slope) < _SLOPE or (lag < _NO_LAG and slope < 0):
        return LagTrend(lag, slope, "stays")
    if slope > 0:
        return LagTrend(lag, slope, "grows")
    return LagTrend(lag, slope, "shrinks", lag / -slope)


def _about(seconds: float) -> str:
    """A duration, rounded to one unit.

    Example:
        >>> _about(42), _about(100), _about(5_000), _about(400_000)
        ('42 s', '2 min', '1 h', '5 d')
    """
    for unit, size, most in (("s", 1, 90), ("min", 60, 3_600), ("h", 3_600, 172_800)):
        if seconds < most:
            return f"{max(1, round(seconds / size))} {unit}"
    return f"{round(seconds / 86_400)} d"
