"""The report of a job as plain values."""

from __future__ import annotations

import json

import pytest

from penstock import JobStatus
from penstock.actors.shared.job_report import (
    JobMasterProcess,
    JobReport,
    SubtaskInfo,
    SubtaskProcess,
    Takeover,
)
from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import SubtaskCheckpointStatistics
from penstock.runtime.errors import ConfigurationError, UserLocation
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.job.failover import FailureCause, FailureKind, FailureRecord
from penstock.runtime.job.job_state import JobState, RescaleRecord, Transition
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import OperatorRates, OutputFill, SubtaskRates, SubtaskStatistics

OUT = SubtaskId("out", 1)
COUNTED = SubtaskCheckpointStatistics(1, 1, 0, 0, 0)
LINE = UserLocation("words.py", 12, "main program")
WRITE = OperatorInfo("out", "sink", "out", 2, is_sink=True, defined_at=LINE)
RATES = SubtaskRates(10.0, 0.5, 0.1, 0.4, 9.0, 0.0, 90.0, 0.0, {"out": OperatorRates(9.0, 0.0)})
FAILURE = FailureRecord(
    2,
    1_700_000_011.0,
    FailureCause(
        "operator 'out' broke",
        OUT,
        "Traceback ...",
        kind=FailureKind.OPERATOR,
        operator="out",
        defined_at=LINE,
        raised_at=UserLocation("words.py", 7, "write"),
    ),
    (FailureCause("its process died", SubtaskId("in", 0), kind=FailureKind.PROCESS),),
)


def full_report() -> JobReport:
    return JobReport(
        "words-1",
        "words",
        JobStatus.FAILED,
        1_700_000_000.25,
        12.5,
        JobStatistics(
            JobStatus.FAILED,
            2,
            1,
            3,
            1,
            7,
            {"in": OperatorStatistics(0, 10, 1, 2, {"files": 3}), "out": OperatorStatistics(9)},
        ),
        GraphInfo(
            "words",
            (
                VertexInfo("in", 2, 128, (OperatorInfo("in", "source", "in", 2, is_source=True),), 1.0),
                VertexInfo(
                    "out", 2, 128, (OperatorInfo("out", "sink", "out", 2, is_sink=True, defined_at=LINE),)
                ),
            ),
            (EdgeInfo("in", "out", "key_group", "word", "in"),),
        ),
        FAILURE,
        history=(
            Transition(JobState.CREATED, JobState.DEPLOYING, 1_700_000_001.0),
            Takeover(1_700_000_005.0, JobMasterProcess(7, "node")),
            Transition(JobState.RUNNING, JobState.FAILING, 1_700_000_011.0, "out[1]: broke"),
        ),
        failures=(FAILURE,),
        rescales=(RescaleRecord(1_700_000_002.0, 1, {"out": 1}, {"out": 2}, 1_700_000_003.0, 4),),
        subtasks=(
            SubtaskInfo(SubtaskId("in", 0), 2, SubtaskStatus.CREATED),
            SubtaskInfo(
                OUT,
                2,
                SubtaskStatus.RUNNING,
                SubtaskProcess(OUT, 12, "node"),
                SubtaskStatistics(
                    9,
                    0,
                    0,
                    0,
                    0.5,
                    0.1,
                    0,
                    0,
                    {"out": OperatorStatistics(9)},
                    SubtaskCheckpointStatistics(1, 1, 0, 0, 0),
                    barriers=BarrierHandlerStatistics(7, 5, 1, 0, 1, 0.5, 0.25, 2, 1),
                    bytes_in=90,
                    at=12.5,
                    outputs=(OutputFill("late", "out", "side", 0, 0, 8, 1, (4,), (0,)),),
                ),
                rates=SubtaskRates(
                    10.0, 0.5, 0.1, 0.4, 9.0, 0.0, 90.0, 0.0, {"out": OperatorRates(9.0, 0.0)}
                ),
                counted_at=1_700_000_012.0,
                state_bytes=1_000,
            ),
        ),
        storage="/checkpoints",
        master=JobMasterProcess(8, "node"),
        warnings=("take care",),
        checkpoints=CoordinatorStatistics(triggered=4, completed=3, latest_completed_id=7),
        checkpoint_history=(
            CheckpointRecord(7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 1.0, 2, 2, 0.1, 5),
            CheckpointRecord(
                8,
                2,
                SnapshotKind.CHECKPOINT,
                CheckpointStatus.FAILED,
                2.0,
                failure=next(iter(CheckpointFailureReason)),
                detail="why",
            ),
        ),
        savepoint="/checkpoints/words-1/savepoint-9",
    )


def test_a_report_comes_back_whole_from_json() -> None:
    report = full_report()
    assert JobReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_a_report_without_what_is_new_is_still_read() -> None:
    report = full_report().to_dict()
    for derived in ("vertices", "edges", "bottleneck"):
        del report[derived]
    for subtask in report["subtasks"]:
        for name in ("rates", "counted_at", "state_bytes"):
            del subtask[name]
    for name in ("bytes_in", "at", "outputs"):
        del report["subtasks"][1]["statistics"][name]
    for name in ("kind", "operator", "defined_at", "raised_at"):
        del report["failures"][0]["root"][name]
    for vertex in report["graph"]["vertices"]:
        for operator in vertex["operators"]:
            del operator["defined_at"]
    read = JobReport.from_dict(json.loads(json.dumps(report)))
    assert read.subtasks[1].rates is None
    assert read.subtasks[1].statistics is not None
    assert read.subtasks[1].statistics.outputs == ()
    assert read.failures[0].root.kind is FailureKind.OTHER
    assert read.failures[0].root.raised_at is None
    assert [operator.defined_at for operator in read.operators] == [None, None]


def test_what_is_made_of_other_values_is_in_the_json() -> None:
    shown = full_report().to_dict()
    assert [(vertex["id"], vertex["busy"]) for vertex in shown["vertices"]] == [("in", None), ("out", 0.5)]
    assert [(edge["source"], edge["target"]) for edge in shown["edges"]] == [("in", "out")]
    assert shown["bottleneck"] is None
    assert shown["failures"][0]["root"]["raised_at"] == {"file": "words.py", "line": 7, "function": "write"}


def test_every_field_of_a_report_is_in_its_json() -> None:
    fields = set(JobReport.__slots__)
    assert fields <= set(full_report().to_dict())


def test_records_come_in_at_sources_and_go_out_at_sinks() -> None:
    report = full_report()
    assert (report.records_in, report.records_out) == (10, 9)


def test_the_processes_are_those_of_the_subtasks_that_have_one() -> None:
    assert full_report().processes == (SubtaskProcess(OUT, 12, "node"),)


def test_the_transitions_leave_out_changes_of_the_job_master() -> None:
    assert [step.target for step in full_report().transitions] == [JobState.DEPLOYING, JobState.FAILING]


def test_a_misspelt_operator_is_answered_with_the_nearest() -> None:
    assert full_report().vertex_of("out") == "out"
    with pytest.raises(
        ConfigurationError, match=r"no operator 'otu'; it has: in, out, .*; did you mean 'out'\?"
    ):
        full_report().vertex_of("otu")
