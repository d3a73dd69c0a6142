"""User metrics (counters, gauges, histograms) and statistics of one operator in one subtask.

A histogram has bounded memory, and histograms of several subtasks are merged with correct quantiles. So it
counts values in fixed exponential buckets, as OpenTelemetry's and Prometheus' exponential histograms do.
There are eight buckets per doubling: the bounds are powers of the eighth root of two, the same in every
process. Merging adds counts. A quantile is the middle of its bucket, which is at most 4.5 % away from the
value. Absolute values under 2**-50 count as zero, and those over 2**50 as 2**50. So there are at most 1,603
buckets, and only non-empty ones are kept.

The task changes metrics and another thread reads them. A reader copies a dict in one step of the interpreter,
and works on the copy.
"""

from __future__ import annotations

import operator
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log2
from typing import Final, TypeAlias, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.last_commit import LastCommit

#: Number of buckets per doubling of the value.
PER_DOUBLING: Final = 8

#: Largest index of a bucket before `_SHIFT` is added; the smallest is its negative.
_LAST: Final = 50 * PER_DOUBLING

#: Added to every index, so that it is positive; negative values have the negated index, and zero has 0.
_SHIFT: Final = _LAST + 1

#: Maximum number of metrics of one operator: more are a mistake, such as a metric for each key.
MOST_METRICS: Final = 1_000

#: Counter of records without a rank.
UNRANKED_RECORDS: Final = "unranked_records"

#: Counters of the late records of each side of a join.
LATE_OF_SIDE: Final = "late_records_left", "late_records_right"

#: Counters of the records of each input of an operator with two inputs.
RECORDS_OF_INPUT: Final = "records_in_1", "records_in_2"

#: Counter of a lookup: calls of the user's function; over rows also keys that were looked up in a table.
LOOKUP_CALLS: Final = "lookup_calls"

#: Records of each side that a join holds.
ROWS_OF_SIDE: Final = "rows_left", "rows_right"

#: Values of Penstock's own operators that grow.
BUILT_IN_COUNTERS: Final = frozenset(
    {
        "async_retries",
        "async_timeouts",
        "committed",
        "late_records",
        *LATE_OF_SIDE,
        LOOKUP_CALLS,
        *RECORDS_OF_INPUT,
        UNRANKED_RECORDS,
    }
)

#: Values of Penstock's own operators that go up and down.
BUILT_IN_GAUGES: Final = frozenset(
    {"async_in_flight", *ROWS_OF_SIDE, "timers", "uncommitted", "waiting_records", "windows"}
)

#: Values of Penstock's own operators.
BUILT_IN: Final = BUILT_IN_COUNTERS | BUILT_IN_GAUGES

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

#: Suffixes of the names of a histogram's parts in Prometheus.
_PARTS_OF_HISTOGRAM: Final = ("_bucket", "_count", "_sum")


class Counter:
    """A number that grows, shown in the operator's statistics.

    Example:
        >>> counter = Counter()
        >>> counter.increment()
        >>> counter.increment(2)
        >>> counter.value
        3
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def increment(self, by: int = 1) -> None:
        """Add an integer; raises `TypeError` for any other value."""
        self.value += by if type(by) is int else _whole(by)


class Gauge:
    """A number that goes up and down, such as the length of a queue.

    Example:
        >>> gauge = Gauge()
        >>> gauge.set(3)
        >>> gauge.value
        3.0
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def set(self, value: float) -> None:
        """Replace the number; raises `TypeError` for a value that is not a number."""
        self.value = _number("a gauge", value)


class Histogram:
    """The distribution of numbers, such as sizes and durations; its memory is bounded.

    Example:
        >>> histogram = Histogram()
        >>> for milliseconds in range(1, 101):
        ...     histogram.update(milliseconds)
        >>> seen = histogram.statistics()
        >>> seen.count, seen.least, seen.greatest, round(seen.quantile(0.5)), round(seen.quantile(0.99))
        (100, 1.0, 100.0, 52, 100)
    """

    __slots__ = ("_buckets", "_greatest", "_least", "_total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._total = 0.0
        self._least, self._greatest = inf, -inf

    def update(self, value: float) -> None:
        """Count a value.

        Raises:
            TypeError: The value is not a number.
            ValueError: The value is infinite, or NaN.
        """
        number = _number("a histogram", value)
        if not isfinite(number):
            msg = f"a histogram counts finite numbers, not {value!r}"
            raise ValueError(msg)
        bucket = _bucket_of(number)
        self._total += number
        self._least = min(self._least, number)
        self._greatest = max(self._greatest, number)
        # The bucket comes last: another thread that finds it must also find the bounds of its values.
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def statistics(self) -> HistogramStatistics:
        """Return the counts so far."""
        buckets = tuple(sorted(self._buckets.copy().items()))
        return HistogramStatistics(self._least, self._greatest, self._total, buckets) if buckets else NOTHING


@dataclass(frozen=True, slots=True)
class HistogramStatistics:
    """Counts of a histogram, of one subtask or of several.

    Attributes:
        least: The smallest value; 0 for none.
        greatest: The largest value; 0 for none.
        total: Sum of all values.
        buckets: Index and count of each non-empty bucket, in ascending order.
    """

    least: float = 0.0
    greatest: float = 0.0
    total: float = 0.0
    buckets: tuple[tuple[int, int], ...] = ()

    @property
    def count(self) -> int:
        """Number of counted values."""
        return sum(count for _, count in self.buckets)

    def quantile(self, q: float) -> float:
        """Return the value that a share `q` of all values does not exceed, within 4.5 %; 0 without values.

        Args:
            q: Share from 0 to 1; 0.5 is the median, 0 and 1 are the exact minimum and maximum.

        Example:
            >>> HistogramStatistics().quantile(0.5)
            0.0
        """
        if not 0 <= q <= 1:
            msg = f"a quantile is between 0 and 1, not {q!r}"
            raise ValueError(msg)
        if q in (0, 1):
            return self.least if q == 0 else self.greatest
        rank, below = q * self.count, 0
        for bucket, count in self.buckets:
            below += count
            if below >= rank:
                return min(max(_middle_of(bucket), self.least), self.greatest)
        return self.greatest

    def plus(self, other: HistogramStatistics) -> HistogramStatistics:
        """Return the statistics of both histograms together.

        Example:
            >>> one, other = Histogram(), Histogram()
            >>> one.update(1)
            >>> other.update(4)
            >>> both = one.statistics().plus(other.statistics())
            >>> both.count, both.least, both.greatest, both.total
            (2, 1.0, 4.0, 5.0)
        """
        if not self.buckets or not other.buckets:
            return self if self.buckets else other
        counts = dict(self.buckets)
        for bucket, count in other.buckets:
            counts[bucket] = counts.get(bucket, 0) + count
        return HistogramStatistics(
            min(self.least, other.least),
            max(self.greatest, other.greatest),
            self.total + other.total,
            tuple(sorted(counts.items())),
        )

    def cumulative(self) -> list[tuple[float, int]]:
        """Return the number of values up to each power of two, from around the minimum to around the maximum.

        Example:
            >>> histogram = Histogram()
            >>> for value in (0.9, 3, 4, 5):
            ...     histogram.update(value)
            >>> histogram.statistics().cumulative()
            [(1.0, 1), (2.0, 1), (4.0, 3), (8.0, 4)]
        """
        found: list[tuple[float, int]] = []
        below = 0
        for bucket, count in self.buckets:
            bound = _power_above(bucket)
            while found and 0 < found[-1][0] * 2 < bound:
                found.append((found[-1][0] * 2, below))
            below += count
            if found and found[-1][0] == bound:
                found[-1] = bound, below
            else:
                found.append((bound, below))
        return found


#: Statistics of a histogram without values.
NOTHING: Final = HistogramStatistics()


@dataclass(frozen=True, slots=True)
class GaugeStatistics:
    """Value of a gauge, in one subtask or in several.

    Attributes:
        least: Minimum over all subtasks.
        greatest: Maximum over all subtasks.
        total: Sum over all subtasks.
    """

    least: float
    greatest: float
    total: float

    def plus(self, other: GaugeStatistics) -> GaugeStatistics:
        """Return the statistics of both gauges together."""
        return GaugeStatistics(
            min(self.least, other.least), max(self.greatest, other.greatest), self.total + other.total
        )


#: Value of one metric; the value of a counter is a number.
MetricValue: TypeAlias = int | GaugeStatistics | HistogramStatistics

Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one operator in one subtask; each attempt starts without metrics.

    Example:
        >>> metrics = Metrics()
        >>> metrics.ask(Counter, "late").increment()
        >>> metrics.statistics()
        {'late': 1}
        >>> metrics.ask(Gauge, "late")
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: gauge('late'): 'late' is a counter of this operator \
already; give one of them another name
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def built_in(self, kind: type[M], name: str) -> M:
        """Make a metric of a built-in operator; its name is in `BUILT_IN`, so no user can ask for it."""
        assert name in BUILT_IN, f"reserve {name}"
        made = self._metrics[name] = kind()
        return made

    def ask(self, kind: type[M], name: str) -> M:
        """The metric of this name; always the same object."""
        known = self._metrics.get(name) if isinstance(name, str) else None
        if known is None:
            self._check_new(kind, name)
            known = self._metrics[name] = kind()
        if not isinstance(known, kind):
            msg = (
                f"{kind.__name__.lower()}({name!r}): {name!r} is a {type(known).__name__.lower()} of this "
                "operator already; give one of them another name"
            )
            raise ConfigurationError(msg)
        return known

    def statistics(self) -> dict[str, MetricValue]:
        """Return the metrics' values, without gauges that were never set; callable from any thread."""
        found = ((name, _value_of(metric)) for name, metric in self._metrics.copy().items())
        return {name: value for name, value in found if value is not None}

    def _check_new(self, kind: type[Metric], name: object) -> None:
        call = f"{kind.__name__.lower()}({name!r:.120})"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            msg = (
                f"{call}: a metric's name has up to 100 letters, digits and '_', and does not begin with a "
                "digit, as Prometheus requires"
            )
            if isinstance(name, str) and name:
                fitting = re.sub(r"^(?=[0-9])|[^A-Za-z0-9_]", "_", name)[:100]
                msg += f"; for example {fitting!r}"
            raise ConfigurationError(msg)
        if kind is Histogram and name.endswith(_PARTS_OF_HISTOGRAM):
            msg = (
                f"{call}: Prometheus would read it as a part of the histogram {name.rpartition('_')[0]!r}; "
                f"a histogram's name does not end in {', '.join(_PARTS_OF_HISTOGRAM)}"
            )
            raise ConfigurationError(msg)
        if name in BUILT_IN:
            msg = f"{call}: Penstock itself counts {name!r}; give your metric another name"
            raise ConfigurationError(msg)
        if len(self._metrics) >= MOST_METRICS:
            msg = (
                f"{call}: the operator has {MOST_METRICS:,} metrics already. Use metrics for names that the "
                "program knows in advance, and state for values of a key"
            )
            raise ConfigurationError(msg)


class AsksForMetrics:
    """Methods of a context that return metrics by name."""

    __slots__ = ()

    @property
    @abstractmethod
    def _metrics(self) -> Metrics:
        """The metrics of the operator."""

    def counter(self, name: str) -> Counter:
        """A counter of this subtask, which starts from 0 in each attempt.

        The statistics and Prometheus show it.

        Raises:
            ConfigurationError: The name is not made of up to 100 letters, digits and `_`, or is taken, or the
                operator already has 1,000 metrics.
        """
        return self._metrics.ask(Counter, name)

    def gauge(self, name: str) -> Gauge:
        """A gauge of this subtask: a number that is set. See `counter` for names."""
        return self._metrics.ask(Gauge, name)

    def histogram(self, name: str) -> Histogram:
        """A histogram of this subtask: a distribution with quantiles. See `counter` for names."""
        return self._metrics.ask(Histogram, name)


def sum_by_name(a: Mapping[str, MetricValue], b: Mapping[str, MetricValue]) -> dict[str, MetricValue]:
    """The sums of two mappings; a name with two kinds of metrics keeps the value of `a`.

    Example:
        >>> sum_by_name({"late": 1, "odd": 2}, {"late": 3, "odd": GaugeStatistics(1.0, 1.0, 1.0)})
        {'late': 4, 'odd': 2}
    """
    return {**b, **a, **{name: _sum(a[name], b[name]) for name in a if name in b}}


def _lag_of_both(a: SourceLag | None, b: SourceLag | None) -> SourceLag | None:
    return a.plus(b) if a is not None and b is not None else None


def _commit_of_both(a: LastCommit | None, b: LastCommit | None) -> LastCommit | None:
    return a.plus(b) if a is not None and b is not None else a or b


def _value_of(metric: Metric) -> MetricValue | None:
    if isinstance(metric, Counter):
        return metric.value
    if isinstance(metric, Histogram):
        return metric.statistics()
    value = metric.value
    return None if value is None else GaugeStatistics(value, value, value)


def _sum(a: MetricValue, b: MetricValue) -> MetricValue:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, GaugeStatistics) and isinstance(b, GaugeStatistics):
        return a.plus(b)
    if isinstance(a, HistogramStatistics) and isinstance(b, HistogramStatistics):
        return a.plus(b)
    return a


def _whole(value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        what = f"{value!r:.100} of type {type(value).__name__}"
        msg = f"a counter counts in whole numbers, not {what}; a gauge or a histogram takes any number"
        raise TypeError(msg) from error


def _number(what: str, value: object) -> float:
    try:
        if isinstance(value, str | bytes | bytearray):  # float() would parse it
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        msg = f"{what} takes numbers, not {value!r:.100} of type {type(value).__name__}"
        raise TypeError(msg) from error


def _bucket_of(number: float) -> int:
    """The bucket of a finite number; it has the sign of the number."""
    size = abs(number)
    if size < 2.0**-50:
        return 0
    index = -int(-log2(size) * PER_DOUBLING // 1)  # rounded up: a bound belongs to the bucket below it
    index = min(index, _LAST) + _SHIFT
    return index if number > 0 else -index


def _middle_of(bucket: int) -> float:
    if bucket == 0:
        return 0.0
    size: float = 2.0 ** ((abs(bucket) - _SHIFT - 0.5) / PER_DOUBLING)
    return size if bucket > 0 else -size


def _power_above(bucket: int) -> float:
    """The smallest power of two, with the sign of the bucket, that no value of the bucket exceeds."""
    if bucket == 0:
        return 0.0
    index = abs(bucket) - _SHIFT
    if bucket > 0:
        return float(2.0 ** -(-index // PER_DOUBLING))
    return float(-(2.0 ** ((index - 1) // PER_DOUBLING)))


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """Counters of one operator, in one subtask or summed over several.

    Attributes:
        records_in: Records received.
        records_out: Records emitted on the main output.
        records_skipped: Bad records that were skipped.
        dead_letters: Bad records that went to the dead-letter stream.
        extra: More values by name: Penstock's counters of this kind of operator, such as `late_records`, and
            metrics of users and connectors. `counters`, `gauges` and `histograms` select the metrics.
        lag: What a source has not read yet; `None` for other operators, and if the source does not know.
        last_commit: The newest commit of a sink; `None` for other operators and sinks that report none.
    """

    records_in: int = 0
    records_out: int = 0
    records_skipped: int = 0
    dead_letters: int = 0
    extra: Mapping[str, MetricValue] = field(default_factory=dict)
    lag: SourceLag | None = None
    last_commit: LastCommit | None = None

    @property
    def built_in(self) -> dict[str, int]:
        """Values of Penstock's own operators by name, such as `late_records`."""
        return {n: value for n, value in self.extra.items() if n in BUILT_IN and isinstance(value, int)}

    @property
    def counters(self) -> dict[str, int]:
        """The counters by name: those of the user and of connectors."""
        return {n: value for n, value in self.extra.items() if n not in BUILT_IN and isinstance(value, int)}

    @property
    def gauges(self) -> dict[str, GaugeStatistics]:
        """The gauges by name: those of the user and of connectors, and the records that a join holds."""
        return {name: value for name, value in self.extra.items() if isinstance(value, GaugeStatistics)}

    @property
    def histograms(self) -> dict[str, HistogramStatistics]:
        """The histograms by name: those of the user and of connectors."""
        return {name: value for name, value in self.extra.items() if isinstance(value, HistogramStatistics)}

    def plus(self, other: OperatorStatistics) -> OperatorStatistics:
        """Return the sums of both statistics.

        Example:
            >>> OperatorStatistics(1, 2, extra={"late": 3}).plus(OperatorStatistics(10, 20)).records_out
            22
        """
        return OperatorStatistics(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.records_skipped + other.records_skipped,
            self.dead_letters + other.dead_letters,
            sum_by_name(self.extra, other.extra),
            _lag_of_both(self.lag, other.lag),
            _commit_of_both(self.last_commit, other.last_commit),
        )

    def with_metrics(self, metrics: Mapping[str, MetricValue]) -> OperatorStatistics:
        """Return these statistics with metrics added."""
        return replace(self, extra={**self.extra, **metrics})
