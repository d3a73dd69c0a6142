"""Records of the log of each kind, and the report of an ended job, as a version writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock import JobStatus
from penstock.actors.shared.job_report import JobReport, SubtaskInfo, Takeover
from penstock.cluster import JobStatistics
from penstock.operators import OperatorStatistics
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    CheckpointCompleted,
    CheckpointsDropped,
    JobEnded,
    LogCompacted,
    LogEntry,
    LogView,
)
from penstock.runtime.config.restart import RestartMemory
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, RescaleRecord, Transition
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.plain_values import to_plain

_RESTARTS: Final = RestartMemory(3, 2, (1.5, 2.5))
_COMPLETED: Final = CheckpointCompleted(
    7, 2, SnapshotKind.CHECKPOINT, FileHandle("j/chk-7-2/metadata", 300, "0f" * 16), 20.5, (5, 6), 12.5, False
)
#: A compaction keeps no ages.
_KEPT: Final = (replace(_COMPLETED, age=0.0),)
_CAUSE: Final = FailureCause("operator 'out' broke", SubtaskId("out", 1), "Traceback ...")

#: What slots of the log hold, by what they are.
ENTRIES: Final[dict[str, LogEntry]] = {
    "first attempt": LogEntry(AttemptBegun(1, None, 10.5)),
    "later attempt": LogEntry(AttemptBegun(2, 7, 11.5, (("counted", 3),), 4.5, _RESTARTS, "w", "s")),
    "completed": LogEntry(_COMPLETED),
    "dropped": LogEntry(CheckpointsDropped((5, 6), 2, 21.5)),
    "ended": LogEntry(JobEnded("finished", None, 2, 30.5, "/saved/savepoint-8-2", True)),
    "failed": LogEntry(JobEnded("failed", "it broke", 2, 30.5, failure=to_plain(_CAUSE))),
    "compacted": LogEntry(
        LogCompacted(
            LogView(
                last_attempt=2,
                completed=_KEPT,
                highest_checkpoint_id=9,
                begun_slots=(0, 4),
                compacted_at=3,
                parallelism=(("counted", 3),),
                age=12.5,
                restarts=_RESTARTS,
                passed_slots=(2,),
                submission="s",
            ),
            31.5,
        )
    ),
    "passing": LogEntry(AttemptBegun(3, 7, 12.5), (5, 6)),
}

_FAILURE: Final = FailureRecord(1, 12.5, _CAUSE)

REPORT: Final = JobReport(
    "words-1",
    "words",
    JobStatus.FAILED,
    10.25,
    12.5,
    JobStatistics(JobStatus.FAILED, 2, 1, 3, 1, 7, {"out": OperatorStatistics(9)}),
    GraphInfo(
        "words",
        (
            VertexInfo("in", 2, 128, (OperatorInfo("in", "source", "in", 2, is_source=True),)),
            VertexInfo("out", 2, 128, (OperatorInfo("out", "sink", "out", 2, is_sink=True),)),
        ),
        (EdgeInfo("in", "out", "key_group", "word", "in"),),
    ),
    _FAILURE,
    history=(Transition(JobState.RUNNING, JobState.FAILING, 12.5, "out[1]: broke"), Takeover(13.5)),
    failures=(_FAILURE,),
    rescales=(RescaleRecord(11.5, 1, {"out": 1}, {"out": 2}, 12.5, 4),),
    subtasks=(SubtaskInfo(SubtaskId("in", 0), 2, SubtaskStatus.CREATED),),
    storage="/checkpoints",
    warnings=("take care",),
    checkpoints=CoordinatorStatistics(triggered=4, completed=3, latest_completed_id=7),
    checkpoint_history=(
        CheckpointRecord(7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 11.5, 2, 2, 0.5, 5),
        CheckpointRecord(
            8,
            2,
            SnapshotKind.CHECKPOINT,
            CheckpointStatus.FAILED,
            12.5,
            failure=CheckpointFailureReason.CHECKPOINT_EXPIRED,
            detail="why",
        ),
    ),
    savepoint="/checkpoints/words-1/savepoint-9",
)
