from __future__ import annotations

import json

from penstock.actors.shared.job_report import JobReport, OperatorInfo, operators_of
from penstock.runtime import DiscardSink, JobStatus, StreamEnvironment
from penstock.runtime.graph.job_handle import JobStatistics
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason


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
        "in -> out",
        "operator 'out' broke\nTraceback ...",
        ("12:00 created -> deploying",),
        "/checkpoints",
        warnings=("take care",),
        failures=("its process died", "operator 'out' broke"),
        operators=(
            OperatorInfo("in", "source", "in", 2, is_source=True),
            OperatorInfo("out", "sink", "in", 2, is_sink=True),
        ),
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
    )


def test_a_report_comes_back_whole_from_the_json_that_is_kept_of_it() -> None:
    report = full_report()
    assert JobReport.from_record(json.loads(json.dumps(report.to_record()))) == report


def test_a_record_of_before_there_were_operators_in_it_is_still_read() -> None:
    record = full_report().to_record()
    for name in ("operators", "checkpoints", "checkpoint_history"):
        del record[name]
    report = JobReport.from_record(record)
    assert (report.operators, report.records_in, report.status) == ((), 0, JobStatus.FAILED)


def test_records_come_in_at_sources_and_go_out_at_sinks() -> None:
    report = full_report()
    assert (report.records_in, report.records_out) == (10, 9)


def test_the_operators_of_a_graph_know_their_chain_and_their_ends() -> None:
    env = StreamEnvironment(parallelism=2)
    stream = env.from_collection("numbers", [1]).map(abs)
    stream.key_by(abs).reduce("sum", max).sink("out", DiscardSink())
    found = {info.id: info for info in operators_of(env.build())}
    assert [i.id for i in found.values() if i.is_source] == ["numbers"]
    assert [i.id for i in found.values() if i.is_sink] == ["out"]
    assert (found["out"].vertex, found["out"].parallelism) == ("sum", 2)
