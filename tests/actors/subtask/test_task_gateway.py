"""A subtask's messages to its JobMaster become a report; others go to its channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.actors.subtask.gateway import MasterLink
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.job.job_state import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    ReachedEndOfData,
    SubtaskReport,
    Warned,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId

COUNT = SubtaskId("count", 1)
CHANNEL = OutputChannelSpec(SubtaskId("sink", 0), 0)


class Said(list[Any]):
    """Keeps its messages."""

    def send(self, *frame: Any) -> None:
        self.append(frame)


class Reports(MasterLink):
    """Keeps its reports."""

    def __init__(self, consumed: Callable[[int, int], None] = lambda channel, number: None) -> None:
        super().__init__(cast("Any", None), cast("Any", None), Role("job", COUNT, 1, "token"), consumed)
        self.reports: list[SubtaskReport] = []

    def report(self, report: SubtaskReport) -> None:
        self.reports.append(report)


def test_each_message_is_one_report_of_this_subtask() -> None:
    consumed = Said()
    gateway = Reports(lambda *at: consumed.append(at))
    snapshot, metrics = SubtaskSnapshot({}), CheckpointMetrics(sync_duration=0.5)
    gateway.acknowledge(3, snapshot, metrics)
    gateway.decline(4, Reason.CHECKPOINT_DECLINED_TASK_CLOSING, "it closes")
    gateway.operator_event("limited", {"n": 1})
    gateway.end_of_data()
    gateway.warn("limited", "take care")
    gateway.consumed(2, 17)
    assert gateway.reports == [
        Acknowledged(COUNT, 3, snapshot, metrics),
        Declined(COUNT, 4, Reason.CHECKPOINT_DECLINED_TASK_CLOSING, "it closes"),
        EventForCoordinator(COUNT, "limited", {"n": 1}),
        ReachedEndOfData(COUNT),
        Warned(COUNT, "limited", "take care"),
    ]
    assert consumed == [(2, 17)]


def test_frames_go_to_the_channels_of_the_attempt_when_it_has_begun() -> None:
    gateway = Reports()
    with pytest.raises(RuntimeError, match=r"count\[1\] sent a frame before its attempt was started"):
        gateway.send(CHANNEL, 0, [b"row"])
    gateway.channels = cast("Any", channels := Said())
    gateway.send(CHANNEL, 5, [b"row"])
    assert channels == [(CHANNEL, 5, [b"row"])]


@pytest.mark.parametrize(
    ("reason", "is_told"),
    [(Reason.CHECKPOINT_DECLINED, True), (Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER, False)],
)
def test_the_log_of_a_subtask_tells_of_checkpoints_that_fail_by_its_own_doing(
    reason: Reason, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Reports().decline(9, reason, "no disk")
    assert ("declines checkpoint 9: no disk" in caplog.text) is is_told
