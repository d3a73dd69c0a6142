"""Metrics and traces of a job: Prometheus through Ray's own metrics agent, and OpenTelemetry.

**Latency.** Flink sends markers along with the records, and each operator measures their delay. Here the
barriers of checkpoints are the markers. They leave the sources between two records and wait in the same
queues. The time from the trigger to the first barrier at a sink's subtask counts as the latency of a record.
This gives one value per checkpoint and subtask of a sink, at no cost. Subtasks with in-flight data are left
out, because their barriers overtook records. As with Flink's markers, the time that operators such as windows
hold records back is not included.

**Traces** need `penstock[otel]`. They are on if OpenTelemetry's own variables name a collector in the
JobMaster's environment (`OTEL_EXPORTER_OTLP_ENDPOINT`, or its counterpart for traces). Set them for Ray's
nodes, or in `env_vars` of the job's runtime environment. A thread of OpenTelemetry sends the spans. They wait
in a bounded queue, so a collector that does not answer costs the job only its traces.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ray.util.metrics import Counter, Gauge, Histogram

from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.telemetry import TraceSpan, checkpoint_span, episodes, metric_tags
from penstock.runtime.graph.executor import JobStatus
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointStatus

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider


_TAGS: Final = ("job", "job_name")
#: Buckets of durations, in seconds.
_SECONDS: Final = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0]

#: Registers a counter before its first count: Ray refuses 0, and this amount changes no sum.
_NOTHING: Final = 5e-324

_OF_CHECKPOINTS: Final = ("completed_checkpoints", "failed_checkpoints")


class JobMetrics:
    """Publishes metrics of a job with the tags `job` (its id) and `job_name`; see docs/monitoring.md."""

    def __init__(self, job_id: str, name: str) -> None:
        self._tags = metric_tags(job=job_id, job_name=name)
        self._counters = {
            "completed_checkpoints": _counter("checkpoints_completed", "Checkpoints completed"),
            "failed_checkpoints": _counter("checkpoints_failed", "Checkpoints failed or aborted"),
            "restarts": _counter("restarts", "Restarts of the job"),
        }
        self._failures = _counter("failures", "Failures of attempts", "cause", "operator")
        self._duration = _histogram("checkpoint_duration_seconds", "Time from the trigger to the end")
        self._alignment = _histogram("checkpoint_alignment_seconds", "Longest alignment of a subtask")
        self._latency = _histogram("latency_seconds", "Time from the sources to a sink", "operator")
        self._size = _gauge("checkpoint_size_bytes", "Size of all state in the newest checkpoint")
        self._written = _gauge("checkpoint_written_bytes", "Bytes that the newest checkpoint has written")
        self._state = _gauge("state_bytes", "State in the newest checkpoint", "operator", "subtask")
        self._running = _gauge("running", "1 while the job runs")
        self._seen: dict[str, int] = {}
        #: Measurements from before this time are left to earlier JobMasters.
        self._since = time.time()
        self._newest_id = -1
        self._failed_attempt = 0

    def publish(self, report: JobReport, checkpoints: Callable[[], Sequence[CheckpointDetails]]) -> None:
        """Publish the measurements since the last call; `checkpoints` returns the last ones, oldest first."""
        statistics = report.statistics
        self._running.set(float(report.status is JobStatus.RUNNING), self._tags)
        for name, counter in self._counters.items():
            if report.checkpoints is None and name in _OF_CHECKPOINTS:
                continue  # a job without checkpoints has no counters of them
            value, seen = int(getattr(statistics, name)), self._seen.get(name)
            if seen is None or value > seen:
                counter.inc(value - (seen or 0) or _NOTHING, self._tags)
                self._seen[name] = value
        for failure in report.failures:
            if failure.attempt > self._failed_attempt and failure.at >= self._since:
                self._failed_attempt = failure.attempt
                cause, subtask = failure.root, failure.root.subtask
                operator = cause.operator or ("" if subtask is None else subtask.vertex)
                self._failures.inc(
                    1, {**self._tags, **metric_tags(cause=cause.kind.value, operator=operator)}
                )
        newest = -1 if report.checkpoints is None else report.checkpoints.latest_completed_id
        if newest > self._newest_id:
            sinks = {operator.vertex for operator in report.operators if operator.is_sink}
            for checkpoint in checkpoints():
                self._observe(checkpoint, sinks)
            self._newest_id = newest
            for info in report.subtasks:
                if info.state_bytes is not None:
                    tags = metric_tags(operator=info.subtask.vertex, subtask=str(info.subtask))
                    self._state.set(info.state_bytes, {**self._tags, **tags})

    def _observe(self, checkpoint: CheckpointDetails, sinks: set[str]) -> None:
        record = checkpoint.record
        is_new = record.checkpoint_id > self._newest_id and record.triggered_at >= self._since
        if record.status is not CheckpointStatus.COMPLETED or not is_new:
            return
        if record.duration is not None:
            self._duration.observe(record.duration, self._tags)
        if record.size is not None:
            self._size.set(record.size, self._tags)
        self._written.set(record.written_bytes, self._tags)
        if checkpoint.subtasks:
            longest = max(measured.alignment_duration for measured in checkpoint.subtasks.values())
            self._alignment.observe(longest, self._tags)
        for subtask, measured in checkpoint.subtasks.items():
            if subtask.vertex in sinks and not measured.in_flight_bytes:
                self._latency.observe(
                    measured.start_delay, {**self._tags, **metric_tags(operator=subtask.vertex)}
                )


def _counter(name: str, text: str, *tags: str) -> Counter:
    return Counter(f"penstock_job_{name}_total", description=text, tag_keys=(*_TAGS, *tags))


def _gauge(name: str, text: str, *tags: str) -> Gauge:
    return Gauge(f"penstock_job_{name}", description=text, tag_keys=(*_TAGS, *tags))


def _histogram(name: str, text: str, *tags: str) -> Histogram:
    return Histogram(f"penstock_job_{name}", description=text, boundaries=_SECONDS, tag_keys=(*_TAGS, *tags))


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Milliseconds to wait until the last spans of a job are sent.
_LAST: Final = 5_000


class JobTraces:
    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock")
        #: Checkpoints that began, and episodes that ended, before this time are left to earlier JobMasters.
        self._since = self._sent_to = time.time()
        self._sent: set[tuple[int, int]] = set()

    def publish(self, report: JobReport, checkpoints: Callable[[], Sequence[CheckpointDetails]]) -> None:
        """Send the spans since the last call; `checkpoints` returns the last ones, oldest first."""
        for episode in episodes(report.transitions):
            if episode.ended > self._sent_to:
                self._sent_to = episode.ended
                self._send(episode)
        known = checkpoints()
        for checkpoint in known:
            key = checkpoint.record.checkpoint_id, checkpoint.record.attempt
            span = checkpoint_span(checkpoint)
            if span is not None and key not in self._sent and span.begun >= self._since:
                self._sent.add(key)
                self._send(span)
        self._sent &= {(checkpoint.record.checkpoint_id, checkpoint.record.attempt) for checkpoint in known}

    def close(self) -> None:
        """Send waiting spans, for a few seconds at most."""
        self._provider.force_flush(_LAST)
        self._provider.shutdown()

    def _send(self, span: TraceSpan, parent: Context | None = None) -> None:
        from opentelemetry.trace import StatusCode, set_span_in_context

        sent = self._tracer.start_span(
            span.name, parent, attributes=dict(span.attributes), start_time=_nanoseconds(span.begun)
        )
        if span.failure:
            sent.set_status(StatusCode.ERROR, span.failure)
        context = set_span_in_context(sent)
        for part in span.parts:
            self._send(part, context)
        sent.end(_nanoseconds(span.ended))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def traces_of(
    job_id: str, name: str, warn: Callable[[str], None], environment: Mapping[str, str] = os.environ
) -> JobTraces | None:
    """The traces of a job; `None` if no collector is named, or the extra is not installed.

    `warn` is called when a collector is named, but the extra is not installed.
    """
    named = next((variable for variable in _ENDPOINTS if environment.get(variable)), None)
    if named is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        warn(f"{named} is set, but no traces can be sent ({error}): pip install 'penstock[otel]'")
        return None
    about: dict[str, Any] = {
        "service.name": environment.get("OTEL_SERVICE_NAME", "penstock"),
        "penstock.job.id": job_id,
        "penstock.job.name": name,
    }
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return JobTraces(provider)
