"""The metrics of a subtask: each amount once, also over attempts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from serving.acting import acting_job

from penstock.actors.subtask import metrics
from penstock.actors.subtask.metrics import SubtaskMetrics
from penstock.connectors import SourceLag, SplitLag
from penstock.runtime.operators import metrics as metrics_of_users
from penstock.runtime.operators.metrics import Metrics, OperatorStatistics
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics

SUBTASK = SubtaskId("count", 0)


class Published:
    """Ray's metrics agent: the totals of counters and the values of gauges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.totals: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.by_split: dict[str, float] = {}
        monkeypatch.setattr(metrics, "Counter", lambda name, **_: _Metric(self, name))
        monkeypatch.setattr(metrics, "Gauge", lambda name, **_: _Metric(self, name))


class _Metric:
    def __init__(self, published: Published, name: str) -> None:
        self._published, self._name = published, name

    def inc(self, amount: float, tags: Any) -> None:
        assert amount > 0, "Ray refuses other amounts"
        self._published.totals[self._name] += amount  # type: ignore[assignment]

    def set(self, value: float, tags: Any) -> None:
        self._published.gauges[self._name] = value
        if "split" in tags:
            self._published.by_split[tags["split"]] = value


def seen(**fields: Any) -> SubtaskStatistics:
    """Statistics of a subtask."""
    [some] = [s.statistics for s in acting_job().current.subtasks if s.subtask == SUBTASK]
    assert some is not None
    own_metrics = Metrics()
    own_metrics.ask(metrics_of_users.Counter, "large").increment(fields.pop("large", 0))
    own = OperatorStatistics(0, 0).with_metrics(own_metrics.statistics())
    return replace(some, **{"operators": {"count": own}, **fields})


def test_an_amount_is_added_once_however_often_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    published = Published(monkeypatch)
    subject, now = SubtaskMetrics(), [seen(records_in=5, large=2)]
    subject._thread = metrics.threading.current_thread()  # the test looks by itself
    for attempt in (1, 2):
        subject.begin("words-1", "words", SUBTASK, lambda: now[0])
        for records, large in ((5, 2), (5, 2), (8, 3)):
            now[0] = seen(records_in=records, large=large)
            subject._publish()
        assert published.totals["penstock_records_in_total"] == 8 * attempt
        assert published.totals["penstock_counter_large_total"] == 3 * attempt
        assert published.totals["penstock_attempts_total"] == attempt


def test_lag_is_shown_while_there_is_something_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    published, subject = Published(monkeypatch), SubtaskMetrics()
    subject._thread = metrics.threading.current_thread()
    monkeypatch.setattr(metrics.time, "time", lambda: 1_000.0)
    now = [seen(current_watermark=990_000_000, is_idle=False)]
    subject.begin("words-1", "words", SUBTASK, lambda: now[0])
    subject._publish()
    assert published.gauges["penstock_current_watermark_seconds"] == 990.0
    assert published.gauges["penstock_watermark_lag_seconds"] == 10.0
    for waits in ({"is_idle": True}, {"current_watermark": metrics.END_OF_TIME}):
        now[0] = seen(**{"current_watermark": 990_000_000, "is_idle": False, **waits})
        subject._publish()
        assert published.gauges["penstock_watermark_lag_seconds"] == 0.0


def test_numbers_of_operators_and_the_lag_of_sources_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    published, subject = Published(monkeypatch), SubtaskMetrics()
    subject._thread = metrics.threading.current_thread()
    lag = SourceLag.of([SplitLag("orders[0]", 3), SplitLag("orders[1]", 4)])
    extra: dict[str, Any] = {"committed": 2, "uncommitted": 5}
    counted = OperatorStatistics(records_skipped=7, dead_letters=1, extra=extra, lag=lag)
    now = [seen(operators={"count": counted})]
    subject.begin("words-1", "words", SUBTASK, lambda: now[0])
    for _ in range(2):
        subject._publish()
    totals = {name: published.totals[f"penstock_{name}_total"] for name in ("records_skipped", "committed")}
    assert totals == {"records_skipped": 7, "committed": 2}
    assert published.totals["penstock_dead_letters_total"] == 1
    assert published.gauges["penstock_uncommitted"] == 5
    assert published.gauges["penstock_pending_records"] == 7
    assert published.gauges["penstock_pending_splits"] == 2
    assert "penstock_pending_bytes" not in published.gauges
    assert published.by_split == {"orders[0]": 3, "orders[1]": 4}
    now[0] = seen(operators={"count": OperatorStatistics(lag=SourceLag.of([SplitLag("orders[1]", 1)]))})
    subject._publish()
    assert published.by_split == {"orders[0]": 0, "orders[1]": 1}, "a split that is gone has no lag"
    subject._operators.end(subject._tags)
    assert published.by_split == {"orders[0]": 0, "orders[1]": 0}
    assert published.gauges["penstock_pending_records"] == 0
