"""Reads job reports of version 0.1 of Penstock.

It kept texts: lines of history without their day, failures as one text each, the graph as a picture. They
become records as far as that goes. The number of a failed attempt and the edges of the graph are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.actors.shared.job_report import (
    HistoryEntry,
    JobReport,
    Takeover,
    statistics_from_dict,
)
from penstock.runtime.graph.executor import JobStatus
from penstock.runtime.graph.graph_info import GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.job.failure import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, Transition
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CoordinatorStatistics

_LINE: Final = re.compile(r"(\d\d):(\d\d):(\d\d\.\d+) (\w+) -> (\w+)(?:: (.*))?", re.DOTALL)
_TRACEBACK: Final = "\nTraceback (most recent call last)"
_DAY: Final = 86_400.0
#: Seconds by which the clocks of two JobMasters' nodes may differ.
_SKEW: Final = 3_600.0
#: Number of key groups where nothing else was said.
_MAX_PARALLELISM: Final = 128


def report_of_0_1(data: Mapping[str, Any]) -> JobReport:
    """The report that a record of version 0.1 holds."""
    submitted_at = float(data["submitted_at"])
    history = _history(data.get("history", ()), submitted_at)
    failures = _failures(data.get("failures", ()), history, submitted_at)
    checkpoints = data.get("checkpoints")
    return JobReport(
        job_id=data["job_id"],
        name=data["name"],
        status=JobStatus(data["status"]),
        submitted_at=submitted_at,
        duration=data["duration"],
        statistics=statistics_from_dict(data["statistics"]),
        graph=_graph(data["name"], data.get("operators", ())),
        failure=_current(data.get("failure"), failures, submitted_at),
        history=history,
        failures=failures,
        storage=data.get("storage"),
        warnings=tuple(data.get("warnings", ())),
        checkpoints=None if checkpoints is None else CoordinatorStatistics(**checkpoints),
        checkpoint_history=tuple(map(CheckpointRecord.from_dict, data.get("checkpoint_history", ()))),
        savepoint=data.get("savepoint"),
    )


def _history(lines: Iterable[str], submitted_at: float) -> tuple[HistoryEntry, ...]:
    entries: list[HistoryEntry] = []
    now = submitted_at
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            entries.append(Takeover(now))
            continue
        hours, minutes, seconds, source, target, cause = match.groups()
        now = _next_time(int(hours) * 3_600 + int(minutes) * 60 + float(seconds), now)
        entries.append(Transition(JobState(source), JobState(target), now, cause or ""))
    return tuple(entries)


def _next_time(time_of_day: float, after: float) -> float:
    """The first moment with this time of day (UTC) that is not before another one."""
    moment = after - after % _DAY + time_of_day
    return moment + _DAY if moment < after - _SKEW else moment


def _failures(
    texts: Sequence[str], history: Iterable[HistoryEntry], submitted_at: float
) -> tuple[FailureRecord, ...]:
    times = [
        entry.at for entry in history if isinstance(entry, Transition) and entry.target is JobState.FAILING
    ]
    times = times[-len(texts) :] if len(times) >= len(texts) else [submitted_at] * len(texts)
    return tuple(FailureRecord(0, at, _cause(text)) for at, text in zip(times, texts, strict=False))


def _current(
    text: str | None, failures: Sequence[FailureRecord], submitted_at: float
) -> FailureRecord | None:
    if text is None:
        return None
    if failures and failures[-1].root == _cause(text):
        return failures[-1]
    return FailureRecord(0, submitted_at, _cause(text))


def _cause(text: str) -> FailureCause:
    message, mark, rest = text.partition(_TRACEBACK)
    return FailureCause(message, None, f"{mark}{rest}".lstrip("\n"))


def _graph(name: str, operators: Iterable[Mapping[str, Any]]) -> GraphInfo:
    chains: dict[str, list[OperatorInfo]] = {}
    for each in operators:
        operator = OperatorInfo(**each)
        chains.setdefault(operator.vertex, []).append(operator)
    vertices = (
        VertexInfo(vertex, chain[0].parallelism, _MAX_PARALLELISM, tuple(chain))
        for vertex, chain in chains.items()
    )
    return GraphInfo(name, tuple(vertices))
