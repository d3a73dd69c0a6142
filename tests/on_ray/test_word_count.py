"""The word count on a real cluster, and what it promises in each mode."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from jobs.backpressure import past_the_barrier
from jobs.driving import (
    PATIENCE,
    assert_no_subtasks,
    eventually,
    finish,
    kill_subtask,
    penstock_actors,
    submit,
    subtask_statistics,
    wait_until,
    when_records_flow,
)
from jobs.faults import DeadlySink
from jobs.held_records import HeldAtEachRecord
from jobs.oracle import (
    assert_exactly_once,
    committed_rows,
    committed_updates,
    expected_updates,
    hidden_files,
)
from jobs.words import NEVER, counted, environment, lines, paced_lines, word_count

from penstock import CheckpointingMode, FileSink, FileSource, GeneratorSource, JobFailedError, JobStatus
from penstock.runtime.errors import RescaleError, SavepointError
from penstock.runtime.snapshot.ids import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_every_word_is_counted_exactly_once_and_nothing_of_the_finished_job_is_left(tmp_path: Path) -> None:
    text = lines(5_000)
    for part in range(3):
        file = tmp_path / "in" / f"{part}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(text[part::3]) + "\n", encoding="utf-8")
    source = FileSource.text(str(tmp_path / "in" / "*.txt"), split_size=8 * 1024)

    job = submit(word_count(tmp_path, source, parallelism=3))
    result = finish(job)

    assert_exactly_once(tmp_path / "out", text)
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 0
    assert result.statistics.completed_checkpoints >= 1
    assert result.statistics.operators["lines"].records_out == 5_000
    assert result.statistics.operators["updates"].records_in == 15_000
    eventually("the JobMaster leaves", lambda: penstock_actors() == [], patience=60.0)
    report = job.report()
    assert (report.status, report.processes) == (JobStatus.FINISHED, ())
    assert report.statistics.operators["updates"].records_in == 15_000


@pytest.mark.long
def test_a_job_without_checkpoints_has_no_savepoints_commits_at_its_end_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = paced_lines(3_000, 3_000.0, attempt=NEVER, release=tmp_path / "go")
    with caplog.at_level(logging.WARNING, logger="penstock"):
        job = submit(word_count(tmp_path, source, every=None, parallelism=2))
    assert "the job takes no checkpoints" in caplog.text
    when_records_flow(job, "updates", 100)
    with pytest.raises(SavepointError, match="takes no checkpoints"):
        job.savepoint()
    with pytest.raises(SavepointError, match="takes no checkpoints"):
        job.stop()
    with pytest.raises(RescaleError, match="takes no checkpoints"):
        job.rescale(count=1)
    assert committed_rows(tmp_path / "out") == []
    (tmp_path / "go").touch()

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert (result.statistics.completed_checkpoints, result.statistics.restarts) == (0, 0)
    assert any("the job takes no checkpoints" in warning for warning in job.report().warnings)


@pytest.mark.long
def test_a_job_without_checkpoints_fails_with_its_first_process(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(100_000, 3_000.0), every=None))
    when_records_flow(job, "updates", 100)
    killed = kill_subtask(job, "count")

    with pytest.raises(JobFailedError, match=rf"count\[0\]: its process died \(pid {killed} on node"):
        job.wait(PATIENCE)

    assert job.status() is JobStatus.FAILED
    assert committed_rows(tmp_path / "out") == []
    assert_no_subtasks(job)


def test_at_least_once_blocks_no_channel_and_counts_again_what_flowed_past_the_barrier(
    tmp_path: Path,
) -> None:
    """Two sources meet, and one of them is held: its barrier comes long after the other one's.

    Exactly once would hold the first channel back meanwhile, so this waits for what would never happen then.
    The process of the count dies when it hears that this checkpoint is complete: it is restored from there.
    No alignment is reported, although the last barrier has come so late.
    """
    fast, slow = lines(6_000), [f"slow s{i}" for i in range(4)]
    armed, opened, go = tmp_path / "armed", tmp_path / "open", tmp_path / "go"
    env = environment(tmp_path, every=0.5, mode=CheckpointingMode.AT_LEAST_ONCE)
    held = env.from_source("slow", GeneratorSource(slow.__getitem__, count=len(slow), rate=1.0))
    held = held.map(HeldAtEachRecord(str(opened)))
    read = env.from_source("lines", paced_lines(len(fast), 3_000.0, attempt=NEVER, release=go))
    killed = tmp_path / "killed"
    sink = DeadlySink(FileSink.json(tmp_path / "out"), "before commit", str(killed), str(armed))
    counted(read.union(held), sink)
    job = submit(env)

    overtaken = past_the_barrier(job, SubtaskId("lines", 0), "count", fan_out=3)
    counters = [each.barriers for each in subtask_statistics(job).values()]
    armed.touch()
    opened.touch()
    wait_until(job, "the attempt after the kill", lambda report: report.statistics.attempt == 2)
    measured = next(each.subtasks for each in job.checkpoints() if each.record.checkpoint_id == overtaken)
    go.touch()
    result = finish(job)

    assert killed.exists()
    waiting = [barriers for barriers in counters if barriers is not None and barriers.pending]
    assert [barriers.blocked for barriers in waiting] == [0], "a checkpoint waits, and no channel does"
    assert {each.alignment_duration for each in measured.values()} == {0.0}
    expected, committed = expected_updates(fast + slow), committed_updates(tmp_path / "out")
    assert not expected - committed, "lost"
    assert (committed - expected).total() > 0, "nothing was counted again: was the mode ignored?"
    assert result.statistics.restarts == 1
