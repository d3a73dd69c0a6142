"""The destination of a job's traces; without one nothing is sent."""

from __future__ import annotations

import sys

import pytest

from penstock.actors.master.job_telemetry import traces_of
from penstock.actors.shared.telemetry import TraceSpan, metric_tags


def test_without_a_collector_there_are_no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert traces_of("words-1", "words", warnings.append, {}) is None
    assert warnings == []


def test_a_collector_without_the_extra_is_a_warning_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    assert traces_of("words-1", "words", warnings.append, named) is None
    (warning,) = warnings
    assert warning.startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, but no traces can be sent")
    assert warning.endswith("pip install 'penstock[otel]'")


def test_traces_and_tags_of_metrics_have_no_secrets() -> None:
    text = "s3://me:wJalrXUtnFEMI@bucket has no answer"
    assert TraceSpan("checkpoint", 1.0, 2.0, failure=text).failure == "s3://***@bucket has no answer"
    assert metric_tags(place=text)["place"].encode("ascii") == b"s3://***@bucket has no answer"
