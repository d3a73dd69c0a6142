"""The command line without a cluster: its tables and messages."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from penstock import JobStatus
from penstock.actors.client.jobs import KnownJob
from penstock.actors.command_line.views import (
    checkpoints_view,
    jobs_table,
    lag_table,
    operators_table,
    snapshot_view,
    status_view,
    watermarks_table,
)
from penstock.actors.shared.job_report import JobReport, SubtaskInfo, SubtaskStatus, Takeover
from penstock.connectors import LastCommit, SourceLag, SplitLag, VersionLag
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, RescaleRecord, Transition
from penstock.runtime.operators.metrics import GaugeStatistics, Histogram, OperatorStatistics
from penstock.runtime.record.elements import END_OF_TIME, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.state_processor.inspection import SnapshotSummary
from penstock.runtime.task.statistics import OperatorRates, SubtaskRates, SubtaskStatistics

PENSTOCK = [sys.executable, "-m", "penstock.actors.command_line"]


def text(parts: Iterable[RenderableType], width: int = 160) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=width, markup=False, emoji=False)
    for part in parts:
        console.print(part)
    return screen.getvalue()


GRAPH = GraphInfo(
    "words",
    (
        VertexInfo(
            "lines",
            2,
            128,
            (
                OperatorInfo("lines", "source(FileSource)", "lines", 2, is_source=True),
                OperatorInfo("pick", "map(lambda [bold])", "lines", 2),
            ),
        ),
        VertexInfo("out", 2, 128, (OperatorInfo("out", "sink(FileSink)", "out", 2, is_sink=True),)),
    ),
)
FAILURE = FailureRecord(
    2, 14_401.0, FailureCause("operator 'out' (subtask 1 of 2) broke", SubtaskId("out", 0), "Traceback ...")
)


def report(status: JobStatus = JobStatus.FAILED) -> JobReport:
    return JobReport(
        "words-1",
        "words",
        status,
        0.0,
        3_725.0,
        JobStatistics(
            status,
            3,
            2,
            5,
            1,
            7,
            {"lines": OperatorStatistics(0, 1_234_567, 2, 1), "out": OperatorStatistics(1_000)},
        ),
        graph=GRAPH,
        failure=FAILURE,
        history=(
            Transition(JobState.CREATED, JobState.DEPLOYING, 14_400.0),
            Takeover(14_400.5),
            Transition(JobState.RUNNING, JobState.FAILING, 14_401.0, "out[0]: broke"),
        ),
        failures=(FAILURE,),
        rescales=(
            RescaleRecord(14_402.0, 1, {"out": 1}, {"out": 2}, 14_403.5, 4),
            RescaleRecord(14_404.0, 2, {"out": 2}, {"out": 3}, 14_405.0, None, "its checkpoint failed"),
        ),
        storage="/checkpoints",
        warnings=("take care",),
        checkpoint_history=(
            CheckpointRecord(7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 1.0, 4, 4, 0.25, 999),
            CheckpointRecord(
                8,
                2,
                SnapshotKind.CHECKPOINT,
                CheckpointStatus.FAILED,
                2.0,
                failure=CheckpointFailureReason.CHECKPOINT_EXPIRED,
                detail="after 600 s",
            ),
        ),
    )


def test_the_list_has_one_line_for_each_job() -> None:
    lost = KnownJob(report(JobStatus.RUNNING), has_master=False)
    table = text([jobs_table([KnownJob(report(), has_master=False), lost])])
    first, second, third = table.splitlines()
    assert " ".join(first.split()) == "job name state submitted duration attempt restarts in out"
    assert second.split()[:3] == ["words-1", "words", "failed"]
    assert second.split()[-5:] == ["1:02:05", "3", "2", "1,234,567", "1,000"]
    assert third.split()[2] == "lost"


def test_the_status_shows_state_cause_history_operators_and_checkpoints() -> None:
    shown = text(status_view(report()))
    for expected in (
        "words-1",
        "3 (restarts: 2)",
        "1,234,567 in, 1,000 out",
        "warning: take care",
        "failed because of\n  operator 'out' (subtask 1 of 2) broke\n  Traceback ...",
        "history (UTC)\n  04:00:00.000 created -> deploying",
        "04:00:00.500 the JobMaster died; another process took over",
        "04:00:01.000 running -> failing: out[0]: broke",
        "04:00:02.000 out 1 -> 2: redeployed after 1.5 s",
        "04:00:04.000 out 2 -> 3: not done, its checkpoint failed",
        "5 completed, 1 failed, last completed: 7",
        "in /checkpoints",
        "0.25 s",
        CheckpointFailureReason.CHECKPOINT_EXPIRED.value + " after 600 s",
    ):
        assert expected in shown


def test_an_operator_without_counters_shows_dashes_instead_of_zeros() -> None:
    lines = text([operators_table(report())]).splitlines()
    assert lines[2].split()[-4:] == ["-"] * 4
    assert "map(lambda [bold])" in lines[2], "no markup in the users' names"


def test_a_job_without_checkpoints_says_so() -> None:
    bare = JobReport("j", "j", JobStatus.RUNNING, 0.0, 1.0, JobStatistics(JobStatus.RUNNING))
    assert "the job takes no checkpoints" in text(status_view(bare))


def timed(vertex: str, index: int, watermark: int | None, *, idle: bool = False) -> SubtaskInfo:
    counted = SubtaskStatistics(1, 1, 1, 1, 0, 0, 0, 0, current_watermark=watermark, is_idle=idle)
    return SubtaskInfo(SubtaskId(vertex, index), 3, SubtaskStatus.RUNNING, statistics=counted)


def test_the_status_shows_the_watermark_of_every_subtask() -> None:
    noon = 1_700_049_600_000_000
    subtasks = (
        timed("lines", 0, noon + 1_500),
        timed("lines", 1, None, idle=True),
        timed("out", 0, END_OF_TIME),
        timed("out", 1, 1 << 62),
        timed("out", 2, None),
    )
    shown = [
        " ".join(line.split())
        for line in text(status_view(replace(report(), subtasks=subtasks))).splitlines()
    ]
    assert shown[shown.index("event time (UTC)") + 1 :][:6] == [
        "subtask current watermark waits",
        "lines[0] 2023-11-15 12:00:00.001",
        "lines[1] none yet idle",
        "out[0] end of time",
        "out[1] 4,611,686,018,427,387,904 microseconds",
        "",
    ]
    assert "event time" not in text(status_view(replace(report(), subtasks=subtasks[-1:])))


def test_the_status_shows_the_metrics_of_the_users_own() -> None:
    histogram = Histogram()
    for value in range(1, 1_001):
        histogram.update(value)
    counted = OperatorStatistics(
        extra={
            "late": 1_234,
            "waiting": GaugeStatistics(1, 2.5, 3.5),
            "open": GaugeStatistics(2, 2, 2),
            "sizes": histogram.statistics(),
        }
    )
    given = report()
    statistics = replace(given.statistics, operators={given.operators[0].id: counted})
    shown = [
        " ".join(line.split())
        for line in text(status_view(replace(given, statistics=statistics))).splitlines()
    ]
    begin = shown.index("the program's own metrics (this attempt, all subtasks)")
    first = given.operators[0].id
    assert shown[begin + 2 : begin + 6] == [
        f"{first} late counter 1,234",
        f"{first} open gauge 2",
        f"{first} waiting gauge 3.5 (1 to 2.5)",
        f"{first} sizes histogram values: 1,000, median 490, 99 % up to 981, maximum 1,000",
    ]
    assert "metrics of the program" not in text(status_view(given))


def test_of_many_subtasks_the_slowest_of_each_vertex_is_shown() -> None:
    many = [timed(vertex, index, 100 - index) for vertex in ("lines", "out") for index in range(40)]
    lines = text([watermarks_table(many)]).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["lines[39]", "out[39]"]


def test_a_snapshot_tells_how_long_each_subtask_took_for_it() -> None:
    measured = {SubtaskId("count", 1): CheckpointMetrics(0.001, 0.25, 0.002, 0.5, 1_000, 2_000)}
    known = SnapshotSummary("/s", "checkpoint", 7, 1, 1.0, 3.0, 2_000, 1, (), measured)
    row = text(snapshot_view(known)).splitlines()[-1]
    assert " ".join(row.split()) == "count[1] 1.0 ms 250.0 ms 2.0 ms 500.0 ms 1,000 B 2,000 B"
    unknown = SnapshotSummary("/s", "checkpoint", 7, 1, 1.0, 3.0, 2_000, 1, ())
    assert "by subtask" not in text(snapshot_view(unknown))


def test_bytes_that_alignments_stored_are_shown_by_subtask_when_there_are_any() -> None:
    measured = {
        SubtaskId("join", 0): CheckpointMetrics(stored_bytes=5_000, spilled_bytes=4_000),
        SubtaskId("sink", 0): CheckpointMetrics(),
    }
    record = CheckpointRecord(7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 1.0, size=1)
    *_, heading, join, sink = text(checkpoints_view([CheckpointDetails(record, measured)])).splitlines()
    assert heading.split()[-2:] == ["stored", "spilled"]
    assert " ".join(join.split()).endswith("0 B 0 B 5,000 B 4,000 B")
    assert " ".join(sink.split()).endswith("0 B 0 B 0 B 0 B")
    held = {SubtaskId("join", 0): CheckpointMetrics()}
    assert "stored" not in text(checkpoints_view([CheckpointDetails(record, held)]))


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return subprocess.run(
        [*PENSTOCK, *arguments],
        env={**env, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_missing_cluster_is_an_error_of_one_line(tmp_path: Path, by: str) -> None:
    address = f"127.0.0.1:{closed_port()}"
    done = (
        run(tmp_path, "list", "--address", address)
        if by == "option"
        else run(tmp_path, "list", RAY_ADDRESS=address)
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"no Ray cluster answers at '{address}'" in line


def test_an_invalid_address_is_an_error_of_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "status", "words", "--address", "not an address")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_help_names_every_command(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    for command in ("list", "status", "cancel", "logs"):
        assert command in done.stdout


def test_an_unknown_command_is_a_usage_error(tmp_path: Path) -> None:
    assert run(tmp_path, "frobnicate").returncode == 2


def test_the_status_shows_how_busy_each_chain_is_and_what_the_job_waits_for() -> None:
    given = report()
    lines, *_ = given.graph.vertices

    def rated(vertex: str, busy: float, blocked: float) -> SubtaskInfo:
        rates = SubtaskRates(10.0, busy, blocked, 1 - busy - blocked, 1_500.0, 1_400.0, 0.0, 9_000.0)
        return replace(timed(vertex, 0, None), rates=rates, state_bytes=2_048)

    subtasks = (rated(lines.id, 0.25, 0.5),)
    shown = [
        " ".join(line.split()) for line in text(status_view(replace(given, subtasks=subtasks))).splitlines()
    ]
    begin = shown.index("work (the last 10 s)")
    assert shown[begin + 1 : begin + 3] == [
        "chain busy back-pressured in/s out/s bytes out/s state",
        f"{lines.id} 25 % 50 % 1,500 1,400 9,000 2,048 B",
    ]
    first, last = given.graph.vertices[0].id, given.graph.vertices[-1].id
    joined = replace(given.graph, edges=(EdgeInfo(first, last, "rebalance"),))
    busy = (rated(first, 0.25, 0.5), rated(last, 0.97, 0.0))
    waiting = text(status_view(replace(given, graph=joined, subtasks=busy)))
    assert f"`{last}` is busy 97 % of the time; `{first}` waits for it." in waiting


def test_the_status_shows_what_a_source_has_left_and_how_that_grows() -> None:
    lag = SourceLag.of([SplitLag("orders[0]", 1_200), SplitLag("orders[1]", 34)])
    counted = {"lines": OperatorStatistics(lag=lag), "count": OperatorStatistics()}
    rates = SubtaskRates(2.0, 0, 0, 1, 0, 0, 0, 0, {"lines": OperatorRates(0.0, 0.0, -30.0)})
    subtasks = tuple(
        SubtaskInfo(SubtaskId("lines", index), 1, SubtaskStatus.RUNNING, rates=rates) for index in (0, 1)
    )
    before = report()
    behind = replace(before, statistics=replace(before.statistics, operators=counted), subtasks=subtasks)
    (head, row) = text([lag_table(behind)]).splitlines()
    assert head.split() == ["source", "records", "bytes", "splits", "growth/s"]
    assert row.split() == ["lines", "1,234", "-", "2", "-60"]
    assert "left to read" in text(status_view(behind))
    assert "versions that are read" not in text(status_view(behind))
    assert "left to read" not in text(status_view(before))


def test_the_status_shows_the_version_of_a_source_and_the_last_commit_of_a_sink() -> None:
    read = VersionLag("7", "9", 2, committed_at=3_600.0)
    counted = {
        "lines": OperatorStatistics(lag=SourceLag.of((), read)),
        "out": OperatorStatistics(last_commit=LastCommit("12", 1_500, 3, checkpoint_id=40, at=7_200.0)),
    }
    before = report()
    given = replace(before, statistics=replace(before.statistics, operators=counted))
    lines = text(status_view(given)).splitlines()
    versions = next(at for at, line in enumerate(lines) if line.startswith("versions that are read"))
    assert [line.split() for line in lines[versions + 1 : versions + 3]] == [
        ["source", "version", "newest", "behind", "committed"],
        ["lines", "7", "9", "2", "01:00:00.000"],
    ]
    commits = next(at for at, line in enumerate(lines) if line.startswith("last commits"))
    assert [line.split() for line in lines[commits + 1 : commits + 3]] == [
        ["sink", "version", "rows", "files", "checkpoint", "committed"],
        ["out", "12", "1,500", "3", "40", "02:00:00.000"],
    ]
    assert "last commits" not in text(status_view(before))
