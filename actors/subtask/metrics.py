"""Publishes counters of subtasks and users' metrics to Prometheus, through Ray's metrics agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from ray.util.metrics import Counter, Gauge

from penstock.actors.shared.telemetry import metric_tags
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.metrics import BUILT_IN_GAUGES, HistogramStatistics, OperatorStatistics
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics

_INTERVAL: Final = 2.0
_TAGS: Final = ("job", "job_name", "operator", "subtask")

#: Names of users' metrics; the metric's own name replaces `NAME`.
_COUNTER: Final = "penstock_counter_NAME_total"
_GAUGE: Final = "penstock_gauge_NAME"
_HISTOGRAM: Final = "penstock_histogram_NAME"
_BUCKET: Final = "penstock_histogram_NAME_bucket"
_COUNT: Final = "penstock_histogram_NAME_count"
_SUM: Final = "penstock_histogram_NAME_sum"

#: Gauges of what a source has not read yet: records, bytes and splits; and records of one split.
PENDING: Final = "penstock_pending_records", "penstock_pending_bytes", "penstock_pending_splits"
SPLIT_LAG: Final = "penstock_split_lag_records"

#: Quantiles of a histogram that are published for each subtask.
_QUANTILES: Final = (0.5, 0.9, 0.99)


class _RayMetrics:
    """Ray's counters and gauges of one subtask by name, each made when it is first needed."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._seen: dict[tuple[str, str], int] = {}

    def begin(self) -> None:
        """Begin a new attempt, with counters at 0."""
        self._seen = {}

    def advance(self, operator: str, name: str, value: int, tags: dict[str, str]) -> None:
        """Advance a counter to its value in this attempt."""
        grown = value - self._seen.get((operator, name), 0)
        if grown > 0:
            counter = self._counters.get(name)
            if counter is None:
                counter = self._counters[name] = Counter(name, description=self._description, tag_keys=_TAGS)
            counter.inc(grown, tags)
            self._seen[operator, name] = value

    def set(self, name: str, value: float, tags: dict[str, str], **more: str) -> None:
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = Gauge(name, description=self._description, tag_keys=(*_TAGS, *more))
        gauge.set(value, {**tags, **metric_tags(**more)})


class OwnMetrics:
    """Publishes metrics of users and connectors, each with the tags of its subtask and its operator.

    The kind is part of the name, so a counter of one operator never collides with a gauge of another. A
    histogram becomes gauges: quantiles (tag `quantile`), a count, a sum and buckets (tag `le`), which
    Prometheus adds up. Ray's own histograms take one value at a time, which is too slow here.
    """

    def __init__(self) -> None:
        self._metrics = _RayMetrics("A metric that the program or a connector defines")

    def begin(self) -> None:
        self._metrics.begin()

    def publish(self, operators: Mapping[str, OperatorStatistics], tags: Mapping[str, str]) -> None:
        for operator, statistics in operators.items():
            own = metric_tags(**{**tags, "operator": operator})
            for name, value in statistics.counters.items():
                self._metrics.advance(operator, _COUNTER.replace("NAME", name), value, own)
            for name, gauge in statistics.gauges.items():
                if name not in BUILT_IN_GAUGES:
                    self._metrics.set(_GAUGE.replace("NAME", name), gauge.total, own)
            for name, histogram in statistics.histograms.items():
                self._publish_histogram(name, histogram, own)

    def _publish_histogram(self, name: str, histogram: HistogramStatistics, tags: dict[str, str]) -> None:
        if not histogram.buckets:
            return
        whole, bucket, count, total = (
            pattern.replace("NAME", name) for pattern in (_HISTOGRAM, _BUCKET, _COUNT, _SUM)
        )
        for quantile in _QUANTILES:
            self._metrics.set(whole, histogram.quantile(quantile), tags, quantile=str(quantile))
        for bound, below in histogram.cumulative():
            self._metrics.set(bucket, below, tags, le=str(bound))
        self._metrics.set(bucket, histogram.count, tags, le="+Inf")
        self._metrics.set(count, histogram.count, tags)
        self._metrics.set(total, histogram.total, tags)


class OperatorMetrics:
    """Publishes Penstock's own numbers of each operator, with the tags of its subtask and its operator."""

    def __init__(self) -> None:
        self._metrics = _RayMetrics("A number of an operator; docs/monitoring.md lists them")
        #: Splits whose lag was published, by operator.
        self._splits: dict[str, set[str]] = {}

    def begin(self) -> None:
        self._metrics.begin()

    def publish(self, operators: Mapping[str, OperatorStatistics], tags: Mapping[str, str]) -> None:
        for operator, statistics in operators.items():
            own = metric_tags(**{**tags, "operator": operator})
            self._metrics.advance(operator, "penstock_records_skipped_total", statistics.records_skipped, own)
            self._metrics.advance(operator, "penstock_dead_letters_total", statistics.dead_letters, own)
            for name, value in statistics.built_in.items():
                if name in BUILT_IN_GAUGES:
                    self._metrics.set(f"penstock_{name}", value, own)
                else:
                    self._metrics.advance(operator, f"penstock_{name}_total", value, own)
            for name, gauge in statistics.gauges.items():
                if name in BUILT_IN_GAUGES:
                    self._metrics.set(f"penstock_{name}", gauge.total, own)
            if statistics.lag is not None:
                self._publish_lag(operator, statistics.lag, own)

    def end(self, tags: Mapping[str, str]) -> None:
        """Set each lag to 0: the gauges of a process that has ended would keep their last value."""
        for operator in list(self._splits):
            self._publish_lag(operator, SourceLag.of(()), metric_tags(**{**tags, "operator": operator}))
        self._splits = {}

    def _publish_lag(self, operator: str, lag: SourceLag, tags: dict[str, str]) -> None:
        for name, total in zip(PENDING, (lag.records, lag.bytes, lag.splits), strict=True):
            if total is not None:
                self._metrics.set(name, total, tags)
        records = {split.split: split.records for split in lag.by_split if split.records is not None}
        left = dict.fromkeys(self._splits.get(operator, ()), 0)  # Ray would keep showing their last values
        for split, count in {**left, **records}.items():
            self._metrics.set(SPLIT_LAG, count, tags, split=split)
        self._splits[operator] = set(records)


class SubtaskMetrics:
    """Publishes the statistics of the running attempt every two seconds; docs/monitoring.md lists names."""

    def __init__(self) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"penstock_{name}_total", description=text, tag_keys=_TAGS)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"penstock_{name}", description=text, tag_keys=_TAGS)

        self._counters: dict[str, Counter] = {
            "records_in": counter("records_in", "Records taken from the source or from channels"),
            "records_out": counter("records_out", "Records handed to channels"),
            "bytes_in": counter("bytes_in", "Encoded bytes received"),
            "bytes_out": counter("bytes_out", "Encoded bytes sent"),
            "busy_seconds": counter("busy_seconds", "Seconds spent working"),
            "backpressured_seconds": counter("backpressured_seconds", "Seconds without a credit"),
        }
        self._checkpoints = counter("checkpoints", "Checkpoints acknowledged")
        self._declined = counter("checkpoints_declined", "Checkpoints declined")
        self._attempts = counter("attempts", "Attempts begun")
        self._running = gauge("checkpoints_running", "Checkpoints in their asynchronous part")
        self._watermark = gauge("current_watermark_seconds", "Event time since the epoch")
        self._lag = gauge("watermark_lag_seconds", "Current time minus the watermark")
        self._idle = gauge("idle", "1 while watermarks do not wait for the subtask")
        self._idle_seconds = counter("idle_seconds", "Seconds with nothing to do")
        self._operators = OperatorMetrics()
        self._own = OwnMetrics()
        self._source: Callable[[], SubtaskStatistics | None] | None = None
        self._tags: dict[str, str] = {}
        self._seen: dict[str, float] = {}
        #: Start of the attempt by its clock, assuming no idle time before the first publication.
        self._counting_since: float | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(
        self, job_id: str, job_name: str, subtask: SubtaskId, source: Callable[[], SubtaskStatistics | None]
    ) -> None:
        """Start to publish from `source`; counters of a new attempt continue from the old ones."""
        self._tags = metric_tags(job=job_id, job_name=job_name, operator=subtask.vertex, subtask=str(subtask))
        self._counting_since = None
        self._source = source
        self._seen = {}
        self._operators.begin()
        self._own.begin()
        self._attempts.inc(1, self._tags)
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._publish_forever, name="metrics", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Publish once more, then stop until the next `begin`."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._thread = None
        self._source = None  # it refers to the attempt, with all its state
        for gauge in (self._running, self._lag):  # they would keep their last value
            gauge.set(0, self._tags)
        self._operators.end(self._tags)

    def _publish_forever(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self._publish()
        self._publish()

    def _publish(self) -> None:
        statistics = None if self._source is None else self._source()
        if statistics is None:
            return
        for name, counter in self._counters.items():
            self._advance(name, counter, getattr(statistics, name))
        if statistics.checkpoints is not None:
            self._advance("acknowledged", self._checkpoints, statistics.checkpoints.acknowledged)
            self._advance("declined", self._declined, statistics.checkpoints.declined)
            self._running.set(statistics.checkpoints.running, self._tags)
        reached = statistics.current_watermark
        if reached is not None and reached != END_OF_TIME:  # a graph can't show the end of time
            self._watermark.set(reached / 1_000_000, self._tags)
            self._lag.set(0.0 if statistics.is_idle else time.time() - reached / 1_000_000, self._tags)
        elif reached is not None:
            self._lag.set(0.0, self._tags)
        self._idle.set(float(statistics.is_idle), self._tags)
        if self._counting_since is None:
            self._counting_since = statistics.at - statistics.busy_seconds - statistics.backpressured_seconds
        used = statistics.busy_seconds + statistics.backpressured_seconds
        self._advance("idle_seconds", self._idle_seconds, statistics.at - self._counting_since - used)
        self._operators.publish(statistics.operators, self._tags)
        self._own.publish(statistics.operators, self._tags)

    def _advance(self, name: str, counter: Counter, value: float) -> None:
        grown = value - self._seen.get(name, 0.0)
        if grown > 0:
            counter.inc(grown, self._tags)
            self._seen[name] = value
