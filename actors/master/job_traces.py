"""Sends traces of a job to an OpenTelemetry collector; needs `penstock[otel]`.

It is on where OpenTelemetry's own variables name a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`, or the one of
traces) in the environment of the JobMaster. That is the environment of Ray's nodes, or `env_vars` of the
job's runtime environment. Without them nothing is imported.

A thread of OpenTelemetry sends the spans. A collector that does not answer costs the job nothing but its
traces: they wait in a bounded queue, and what does not fit is dropped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.trace_spans import TraceSpan, checkpoint_span, episodes
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Milliseconds for the last spans of a job to leave.
_LAST: Final = 5_000


class JobTraces:
    """Traces of one job; made by `traces_of`.

    Args:
        provider: Sends the spans.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock")
        #: What began before was sent by earlier JobMasters, or is too old.
        self._since = self._sent_to = time.time()
        self._sent: set[tuple[int, int]] = set()

    def publish(self, report: JobReport, checkpoints: Callable[[], Sequence[CheckpointDetails]]) -> None:
        """Send what has ended since the last time.

        Args:
            checkpoints: Gives the last checkpoints, oldest first.
        """
        for episode in episodes(report.transitions):
            if episode.ended > self._sent_to:
                self._sent_to = episode.ended
                self._send(episode)
        known = checkpoints()
        for each in known:
            key = each.record.checkpoint_id, each.record.attempt
            span = checkpoint_span(each)
            if span is not None and key not in self._sent and span.begun >= self._since:
                self._sent.add(key)
                self._send(span)
        self._sent &= {(each.record.checkpoint_id, each.record.attempt) for each in known}

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
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
    """Where the traces of a job go; `None` when no collector is named, or the extra is not installed.

    Args:
        warn: Told when traces are wanted and the extra is not installed.
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
        warn(f"{named} is set, but its traces can't be sent ({error}): pip install 'penstock[otel]'")
        return None
    about: dict[str, Any] = {
        "service.name": environment.get("OTEL_SERVICE_NAME", "penstock"),
        "penstock.job.id": job_id,
        "penstock.job.name": name,
    }
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return JobTraces(provider)
