"""`penstock metrics grafana | rules`: a dashboard for Grafana, and alert rules for Prometheus.

Both use the metrics that `docs/monitoring.md` lists. Ray prefixes each name with `ray_`. The counters of a
new process start at 0, so most queries of counters sum the rates or increases of all processes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import typer

metrics = typer.Typer(
    help="Print a dashboard for Grafana, and alert rules for Prometheus.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: Selects the jobs of a panel by the dashboard's variable.
_JOBS: Final = '{job_name=~"$job_name"}'
_OF_JOB: Final = "sum by (job_name) "
_OF_OPERATOR: Final = "sum by (job_name, operator) "
#: Panels in a row of the dashboard, and a panel's width and height in Grafana's units.
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    may_be_negative: bool = False


def _rate(counter: str) -> str:
    return f"rate(ray_penstock_{counter}{_JOBS}[$__rate_interval])"


def _quantile(share: float, histogram: str, *by: str) -> str:
    labels = ", ".join(("le", "job_name", *by))
    return f"histogram_quantile({share}, sum by ({labels}) ({_rate(f'job_{histogram}_bucket')}))"


def _sum(counter: str, legend: str = "{{operator}}") -> tuple[str, str]:
    return f"{_OF_OPERATOR}({_rate(counter)})", legend


def _largest(gauge: str, by: str, legend: str) -> tuple[str, str]:
    return f"max by ({by}) (ray_penstock_{gauge}{_JOBS})", legend


def _total(gauge: str) -> tuple[str, str]:
    return f"{_OF_OPERATOR}(ray_penstock_{gauge}{_JOBS})", "{{operator}}"


def _growth(gauge: str) -> tuple[str, str]:
    return f"{_OF_OPERATOR}(deriv(ray_penstock_{gauge}{_JOBS}[5m]))", "{{operator}}"


def _share(counter: str) -> tuple[str, str]:
    by_subtask = f"sum by (job_name, operator, subtask) ({_rate(counter)})"
    return f"max by (job_name, operator) ({by_subtask})", "{{operator}}"


PANELS: Final = (
    Panel("Records in per second, by operator", "short", (_sum("records_in_total"),)),
    Panel("Records out per second, by operator", "short", (_sum("records_out_total"),)),
    Panel("Busy, busiest subtask", "percentunit", (_share("busy_seconds_total"),)),
    Panel("Back-pressured, worst subtask", "percentunit", (_share("backpressured_seconds_total"),)),
    Panel("Idle, idlest subtask", "percentunit", (_share("idle_seconds_total"),)),
    Panel(
        "Bytes between operators",
        "Bps",
        (_sum("bytes_out_total", "{{operator}} out"), _sum("bytes_in_total", "{{operator}} in")),
    ),
    Panel(
        "Event time behind the clock",
        "s",
        (_largest("watermark_lag_seconds", "job_name, operator", "{{operator}}"),),
    ),
    Panel("Left to read, by source", "short", (_total("pending_records"),)),
    Panel("Left to read, growth in records per second", "short", (_growth("pending_records"),), True),
    Panel(
        "Latency from the sources to a sink",
        "s",
        (
            (_quantile(0.5, "latency_seconds", "operator"), "{{operator}} median"),
            (_quantile(0.99, "latency_seconds", "operator"), "{{operator}} 99 %"),
        ),
    ),
    Panel(
        "Duration of checkpoints",
        "s",
        (
            (_quantile(0.5, "checkpoint_duration_seconds"), "median"),
            (_quantile(0.99, "checkpoint_duration_seconds"), "99 %"),
            (_quantile(0.99, "checkpoint_alignment_seconds"), "alignment, 99 %"),
        ),
    ),
    Panel(
        "Size of checkpoints",
        "bytes",
        (
            _largest("job_checkpoint_size_bytes", "job_name", "all state"),
            _largest("job_checkpoint_written_bytes", "job_name", "written"),
        ),
    ),
    Panel(
        "State, by operator",
        "bytes",
        ((f"{_OF_OPERATOR}(ray_penstock_job_state_bytes{_JOBS})", "{{operator}}"),),
    ),
    Panel(
        "Checkpoints and failures",
        "short",
        (
            (
                f"{_OF_JOB}(increase(ray_penstock_job_checkpoints_completed_total{_JOBS}[$__rate_interval]))",
                "completed",
            ),
            (
                "sum by (job_name, cause) "
                f"(increase(ray_penstock_job_failures_total{_JOBS}[$__rate_interval]))",
                "failures: {{cause}}",
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A Prometheus alert rule.

    Attributes:
        limit: The comparison that raises the alert.
        lasting: Duration for which the comparison must hold, in Prometheus's notation.
        summary: Sentence for the person on call; `$labels` and `$value` are filled in.
    """

    name: str
    measured: str
    limit: str
    lasting: str
    summary: str


RULES: Final = (
    AlertRule(
        "PenstockNoCheckpoint",
        f"{_OF_JOB}(increase(ray_penstock_job_checkpoints_completed_total[5m])) "
        "* on (job_name) (max by (job_name) (ray_penstock_job_running) == 1)",
        "== 0",
        "15m",
        "Job {{ $labels.job_name }} has completed no checkpoint for 15 minutes: "
        "look at `penstock checkpoints`.",
    ),
    AlertRule(
        "PenstockCheckpointsFail",
        f"{_OF_JOB}(increase(ray_penstock_job_checkpoints_failed_total[15m]))",
        "> 3",
        "0m",
        "{{ $value }} checkpoints of job {{ $labels.job_name }} failed within 15 minutes: "
        "`penstock checkpoints` says why.",
    ),
    AlertRule(
        "PenstockRestarts",
        "sum by (job_name, cause) (increase(ray_penstock_job_failures_total[15m]))",
        "> 3",
        "0m",
        "Job {{ $labels.job_name }} failed {{ $value }} times within 15 minutes ({{ $labels.cause }}): "
        "`penstock status` names the cause.",
    ),
    AlertRule(
        "PenstockBackPressure",
        "max by (job_name, operator) (rate(ray_penstock_backpressured_seconds_total[5m]))",
        "> 0.5",
        "15m",
        "A subtask of `{{ $labels.operator }}` in job {{ $labels.job_name }} waits for its receivers "
        "more than half of the time: `penstock status` names the bottleneck.",
    ),
    AlertRule(
        "PenstockEventTimeLags",
        "max by (job_name, operator) (ray_penstock_watermark_lag_seconds)",
        "> 300",
        "5m",
        "Event time of `{{ $labels.operator }}` in job {{ $labels.job_name }} is {{ $value }} s behind "
        "the clock.",
    ),
    AlertRule(
        "PenstockSourceFallsBehind",
        "sum by (job_name, operator) (deriv(ray_penstock_pending_records[5m]))",
        "> 1",
        "15m",
        "Source `{{ $labels.operator }}` of job {{ $labels.job_name }} has fallen further behind for "
        "15 minutes: `penstock status` names the bottleneck.",
    ),
)


@metrics.command()
def grafana() -> None:
    """Print a dashboard as JSON. In Grafana, choose "New", "Import" and the Prometheus data source."""
    print(json.dumps(dashboard(), indent=2))


@metrics.command("rules")
def print_rules() -> None:
    """Print alert rules as YAML, for `rule_files` of Prometheus."""
    print(alert_rules(), end="")


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's import format, with variables for the data source and the jobs."""
    source = {"type": "prometheus", "uid": "${source}"}
    names = "label_values(ray_penstock_attempts_total, job_name)"
    variables = [
        {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job_name",
            "label": "Job",
            "type": "query",
            "datasource": source,
            "query": {"query": names, "refId": "jobs"},
            "definition": names,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    return {
        "title": "Penstock",
        "uid": "penstock",
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(number, panel, source) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **({} if panel.may_be_negative else {"min": 0})},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


def alert_rules() -> str:
    """The rules as YAML; strings are quoted as in JSON, which YAML also accepts.

    Example:
        >>> alert_rules().splitlines()[:4]
        ['groups:', '  - name: "penstock"', '    rules:', '      - alert: "PenstockNoCheckpoint"']
    """
    lines = ["groups:", '  - name: "penstock"', "    rules:"]
    for rule in RULES:
        lines += [
            f"      - alert: {json.dumps(rule.name)}",
            f"        expr: {json.dumps(f'{rule.measured} {rule.limit}')}",
            f"        for: {json.dumps(rule.lasting)}",
            "        annotations:",
            f"          summary: {json.dumps(rule.summary)}",
        ]
    return "\n".join(lines) + "\n"
