"""Sources of an alignment group and the JobMaster: it answers reports, and forgets who is gone."""

from __future__ import annotations

from typing import Any

from operators_setup import Run

from penstock import CollectionSource, WatermarkStrategy
from penstock.runtime.graph.job_graph import JobVertex, OperatorSpec
from penstock.runtime.operators.source_watermarks import WatermarkReported, WatermarksAligned
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.ids import SubtaskId

A, B, C = SubtaskId("a", 0), SubtaskId("b", 0), SubtaskId("c", 0)
SECOND = 1_000_000


def strategy(group: str, drift: float) -> WatermarkStrategy[Any]:
    return WatermarkStrategy.for_monotonous_timestamps().with_alignment(group, drift)


def begun() -> Run:
    """Two sources of a group with drifts of their own, and one of another group; each is a region."""
    settings = {"a": strategy("all", 5), "b": strategy("all", 20), "c": strategy("alone", 1)}
    vertices = [
        JobVertex(name, (OperatorSpec(name, name, None, CollectionSource([1]), watermarks=watermarks),), 1)
        for name, watermarks in settings.items()
    ]
    run = Run(vertices=vertices).begin()
    run.cluster.take()
    return run


def report(
    run: Run, subtask: SubtaskId, number: int, seconds: int | None, *, counts: bool = True
) -> list[Any]:
    """The answers to a report."""
    reached = None if seconds is None else seconds * SECOND
    attempt = run.scheduler.attempt_of(subtask)
    event = WatermarkReported(number, reached, counts)
    run.scheduler.on_operator_event(attempt, subtask, subtask.vertex, event)
    return run.events()


def allowed(run: Run, subtask: SubtaskId, number: int, seconds: int | None, **more: Any) -> int | None:
    """The event time up to which the answer lets a subtask read, in seconds."""
    ((_, to, answer),) = report(run, subtask, number, seconds, **more)
    assert (to, answer.number) == (subtask, number)
    return answer.allowed if answer.allowed in (None, END_OF_TIME) else answer.allowed // SECOND


def test_a_source_may_be_ahead_of_the_slowest_of_its_group_by_its_own_drift() -> None:
    run = begun()
    assert allowed(run, A, 1, 100) == 105
    assert allowed(run, B, 1, 30) == 50
    assert allowed(run, A, 2, 100) == 35
    assert allowed(run, C, 1, 7) == 8, "of another group"
    assert allowed(run, B, 2, 90) == 110
    assert allowed(run, A, 3, 100) == 95


def test_nobody_reads_on_while_one_has_no_watermark() -> None:
    run = begun()
    assert allowed(run, A, 1, 100) == 105
    assert allowed(run, B, 1, None) is None
    assert allowed(run, A, 2, 100) is None


def test_a_source_that_is_idle_or_has_ended_is_not_waited_for() -> None:
    run = begun()
    allowed(run, B, 1, 30)
    assert allowed(run, A, 1, 100) == 35
    allowed(run, B, 2, 30, counts=False)
    assert allowed(run, A, 2, 100) == 105
    assert allowed(run, A, 3, 100, counts=False) == END_OF_TIME


def test_an_older_report_that_comes_late_changes_nothing() -> None:
    run = begun()
    allowed(run, B, 2, 90)
    assert allowed(run, B, 1, 30) == 110
    assert allowed(run, A, 1, 100) == 95


def test_a_region_that_has_failed_is_waited_for_again_when_it_has_reported_again() -> None:
    run = begun()
    run.checkpoint()
    allowed(run, B, 9, 30)
    assert allowed(run, A, 1, 100) == 35
    run.fail(B)
    run.cluster.take()
    assert allowed(run, A, 2, 100) == 105
    run.run_attempt()
    assert run.scheduler.attempt_of(B) > run.scheduler.attempt_of(A)
    assert allowed(run, B, 1, 25) == 45, "numbers begin again with the attempt"
    assert allowed(run, A, 3, 100) == 30


def test_an_answer_that_does_not_arrive_fails_nobody() -> None:
    run = begun()
    run.cluster.loses_events = True
    assert report(run, A, 1, 100) == [(1, A, WatermarksAligned(1, 105 * SECOND))]
    assert run.scheduler.attempt == 1
    assert report(run, A, 2, 100) == [(1, A, WatermarksAligned(2, 105 * SECOND))]


def test_a_report_of_an_older_attempt_is_not_answered() -> None:
    run = begun()
    event = WatermarkReported(1, 100, counts=True)
    run.scheduler.on_operator_event(0, A, "a", event)
    assert run.events() == []
