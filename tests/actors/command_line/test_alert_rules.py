"""The alert rules and their limits, evaluated by Prometheus over generated series."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving.prometheus import promtool

from penstock.actors.command_line import monitoring
from penstock.actors.command_line.monitoring import RULES, alert_rules

pytestmark = pytest.mark.prometheus

COMPLETED, FAILED, FAILURES = (
    f"ray_penstock_job_{name}_total" for name in ("checkpoints_completed", "checkpoints_failed", "failures")
)
RUNNING = "ray_penstock_job_running"
PRESSED = "ray_penstock_backpressured_seconds_total"
LAG = "ray_penstock_watermark_lag_seconds"
LEFT = "ray_penstock_pending_records"

#: Series, one value a minute, in the notation of Prometheus: `0+3x40` is 0, 3, 6, ... 120.
SERIES: Mapping[str, str] = {
    # PenstockNoCheckpoint
    f'{COMPLETED}{{job_name="stuck"}}': "0+1x10 10x40",
    f'{RUNNING}{{job_name="stuck"}}': "1x50",
    f'{COMPLETED}{{job_name="never completed one"}}': "0x50",
    f'{RUNNING}{{job_name="never completed one"}}': "1x50",
    f'{COMPLETED}{{job_name="one in ten minutes"}}': "0x9 1x9 2x9 3x9 4x9",
    f'{RUNNING}{{job_name="one in ten minutes"}}': "1x50",
    f'{COMPLETED}{{job_name="ended"}}': "9x50",
    f'{RUNNING}{{job_name="ended"}}': "0x50",
    f'{RUNNING}{{job_name="takes none"}}': "1x50",
    # PenstockCheckpointsFail: once a minute; three times in all
    f'{FAILED}{{job_name="fails"}}': "0+1x50",
    f'{FAILED}{{job_name="failed before"}}': "0x29 0+1x3 3x20",
    # PenstockRestarts: four in the first three minutes; one more
    f'{FAILURES}{{job_name="loops", cause="operator", operator="parse"}}': "1+1x50",
    f'{FAILURES}{{job_name="hurt once", cause="process", operator="parse"}}': "1x29 2x20",
    # PenstockBackPressure: 40 and 20 of 60 seconds
    f'{PRESSED}{{job_name="slow", operator="parse", subtask="parse[0]"}}': "0+20x50",
    f'{PRESSED}{{job_name="slow", operator="parse", subtask="parse[1]"}}': "0+40x50",
    f'{PRESSED}{{job_name="quick", operator="parse", subtask="parse[0]"}}': "0+20x50",
    # PenstockEventTimeLags
    f'{LAG}{{job_name="late", operator="readings"}}': "10x19 400x30",
    f'{LAG}{{job_name="in time", operator="readings"}}': "290x50",
    f'{LAG}{{job_name="late for a moment", operator="readings"}}': "10x36 400x3 10x10",
    # PenstockSourceFallsBehind: ten records a second
    f'{LEFT}{{job_name="too slow", operator="orders", subtask="orders[0]"}}': "0x14 0+600x35",
    f'{LEFT}{{job_name="catches up", operator="orders", subtask="orders[0]"}}': "90000-600x50",
    f'{LEFT}{{job_name="keeps up", operator="orders", subtask="orders[0]"}}': "5x50",
}

#: The alerts of each rule at a minute, with their labels.
FOUND: Sequence[tuple[str, int, Sequence[Mapping[str, str]]]] = [
    ("PenstockNoCheckpoint", 14, []),
    ("PenstockNoCheckpoint", 17, [{"job_name": "never completed one"}]),
    ("PenstockNoCheckpoint", 28, [{"job_name": "never completed one"}]),
    ("PenstockNoCheckpoint", 32, [{"job_name": "never completed one"}, {"job_name": "stuck"}]),
    ("PenstockCheckpointsFail", 3, []),
    ("PenstockCheckpointsFail", 20, [{"job_name": "fails"}]),
    ("PenstockCheckpointsFail", 34, [{"job_name": "fails"}]),
    ("PenstockRestarts", 2, []),
    ("PenstockRestarts", 20, [{"job_name": "loops", "cause": "operator"}]),
    ("PenstockRestarts", 32, [{"job_name": "loops", "cause": "operator"}]),
    ("PenstockBackPressure", 14, []),
    ("PenstockBackPressure", 20, [{"job_name": "slow", "operator": "parse"}]),
    ("PenstockEventTimeLags", 24, []),
    ("PenstockEventTimeLags", 26, [{"job_name": "late", "operator": "readings"}]),
    ("PenstockEventTimeLags", 39, [{"job_name": "late", "operator": "readings"}]),
    ("PenstockSourceFallsBehind", 28, []),
    ("PenstockSourceFallsBehind", 36, [{"job_name": "too slow", "operator": "orders"}]),
]

#: Summaries in full: labels and values are filled in. They are rounded as Prometheus writes them.
SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "PenstockNoCheckpoint": {
        job: f"Job {job} has completed no checkpoint for 15 minutes: look at `penstock checkpoints`."
        for job in ("stuck", "never completed one")
    },
    "PenstockCheckpointsFail": {
        "fails": "15 checkpoints of job fails failed within 15 minutes: `penstock checkpoints` says why."
    },
    "PenstockRestarts": {
        "loops": "Job loops failed 15 times within 15 minutes (operator): `penstock status` names the cause."
    },
    "PenstockBackPressure": {
        "slow": "A subtask of `parse` in job slow waits for its receivers more than half of the time: "
        "`penstock status` names the bottleneck."
    },
    "PenstockEventTimeLags": {"late": "Event time of `readings` in job late is 400 s behind the clock."},
    "PenstockSourceFallsBehind": {
        "too slow": "Source `orders` of job too slow has fallen further behind for 15 minutes: "
        "`penstock status` names the bottleneck."
    },
}


def judged(folder: Path, rules: str) -> tuple[bool, str]:
    """Whether the rules raise the expected alerts, and the output of Prometheus."""
    (folder / "rules.yml").write_text(rules)
    alerts: list[dict[str, Any]] = [
        {
            "eval_time": f"{minute}m",
            "alertname": name,
            "exp_alerts": [
                {
                    "exp_labels": labels,
                    "exp_annotations": {"summary": SUMMARIES[name][labels["job_name"]]},
                }
                for labels in expected
            ],
        }
        for name, minute, expected in FOUND
    ]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": alerts}
    file = folder / "test.yml"
    file.write_text(json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]}))
    done = promtool("test", "rules", file)
    return done.returncode == 0, done.stdout


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(alert_rules())
    checked = promtool("check", "rules", rules)
    assert checked.returncode == 0, checked.stdout
    assert f"{len(RULES)} rules found" in checked.stdout


def test_each_rule_wakes_somebody_when_its_limit_is_passed_and_only_then(tmp_path: Path) -> None:
    assert {name for name, _, _ in FOUND} == {rule.name for rule in RULES}
    passed, said = judged(tmp_path, alert_rules())
    assert passed, said


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
@pytest.mark.parametrize(
    "change",
    [{"limit": "< -1"}, {"limit": ">= 0"}, {"lasting": "40m"}, {"lasting": "1m", "limit": ">= 0"}],
    ids=["never", "always", "too late", "at once"],
)
def test_a_rule_with_another_limit_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: Mapping[str, str]
) -> None:
    changed = tuple(replace(rule, **change) if rule.name == name else rule for rule in RULES)
    monkeypatch.setattr(monitoring, "RULES", changed)
    passed, said = judged(tmp_path, alert_rules())
    assert not passed
    assert name in said
