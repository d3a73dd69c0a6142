"""A source whose data carries the marks of checkpoints, on a real cluster.

The system outside is a database file. A master hook writes the mark of each checkpoint behind all data of
both parts. A second hook may hold the request back, or give the checkpoint up when the marks are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jobs.driving import eventually, finish, kill_master, kill_subtask, submit, wait_until
from jobs.oracle import committed_rows, hidden_files
from jobs.outside import BEFORE, HANG, PARTS, Decisions, Hooked, Journal, Outside
from jobs.words import environment

from penstock import FileSink, FixedDelay, GeneratorSource, JobConfig
from penstock.actors.shared.job_report import JobReport
from penstock.cluster import RayJobHandle
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.io.storage import open_storage
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.metadata import decode_atoms, read_metadata, read_state

pytestmark = pytest.mark.usefixtures("ray_cluster")

MODES: dict[str, dict[str, Any]] = {"aligned": {}, "unaligned": {"unaligned": True}}


def journal_job(tmp_path: Path, **checkpointing: Any) -> RayJobHandle:
    """Copies the journal into files; another source has the second hook and one record."""
    env = environment(
        tmp_path,
        every=0.25,
        retain=1_000,
        keep_after="always",
        tolerable_failures=1_000,
        buffer_timeout=0.1,
        restart=FixedDelay(attempts=100, delay=0.1),
        config=JobConfig(failover="full"),
        **checkpointing,
    )
    database = str(tmp_path / "outside.db")
    numbers = env.from_source("numbers", Journal(database), parallelism=PARTS)
    numbers.sink("out", FileSink.json(tmp_path / "out"), parallelism=1)
    other = env.from_source("other", Hooked(GeneratorSource(str, count=1), "gate", database), parallelism=1)
    other.sink("nothing", FileSink.json(tmp_path / "nothing"), parallelism=1)
    return submit(env)


def newest_mark(outside: Outside) -> int:
    return int(outside.rows("SELECT coalesce(max(checkpoint_id), 0) FROM marks")[0][0])


def kill_between_the_marks(job: RayJobHandle, outside: Outside, victim: str, held: int) -> int:
    """Kill when the reader of one part has met the mark and that of the other is held; the checkpoint."""
    attempt = job.report().statistics.attempt
    outside.hold(held)
    outside.write(11, 11)
    # While one reader is held, no checkpoint completes, so the newest marks stay the newest.
    eventually(
        "one reader at its mark and the other one in front of it",
        lambda: outside.parts_that_met(newest_mark(outside)) == {1 - held},
    )
    checkpoint_id = newest_mark(outside)
    if victim == "JobMaster":
        kill_master(job)
    else:
        kill_subtask(job, "numbers", int(victim[-1]))
    wait_until(job, "the next attempt", lambda r: r.statistics.attempt > attempt)
    outside.hold(None)
    completes_again(job)
    return checkpoint_id


def when_the_other_source_has_left(job: RayJobHandle) -> None:
    """A subtask that leaves declines the checkpoint that runs, and that is taken again under another id."""

    def has_left(report: JobReport) -> bool:
        others = {each.status for each in report.subtasks if each.subtask.vertex == "other"}
        return others == {SubtaskStatus.FINISHED}

    wait_until(job, "the end of the other source", has_left)
    completes_again(job)


def completes_again(job: RayJobHandle) -> None:
    before = job.report().statistics.completed_checkpoints
    wait_until(job, "another checkpoint", lambda r: r.statistics.completed_checkpoints > before)


def meet_before_the_request(job: RayJobHandle, outside: Outside, *, aborts: bool) -> int:
    """Both readers meet the mark of a checkpoint that the sources were not asked for yet; its id."""
    outside.write(9, 5)
    order = outside.order(HANG, "gate", BEFORE)
    eventually("a hook that holds the request back", lambda: outside.done(order) is not None)
    checkpoint_id = outside.done(order)
    assert checkpoint_id is not None
    eventually("its marks", lambda: newest_mark(outside) == checkpoint_id)  # perhaps written before the order
    eventually("both at their marks", lambda: len(outside.parts_that_met(checkpoint_id)) == PARTS)
    records = {r.checkpoint_id: r for r in job.report().checkpoint_history}
    assert records[checkpoint_id].acknowledged == 0
    outside.release(order, fails=aborts)
    completes_again(job)
    return checkpoint_id


def assert_every_checkpoint_is_at_its_marks(tmp_path: Path, job: RayJobHandle, outside: Outside) -> set[int]:
    """The readers of each complete checkpoint, and its hook, agree with the marks; ids of the checkpoints."""
    storage = open_storage(str(tmp_path / "checkpoints"), create=False)
    decisions = Decisions.of(tmp_path / "checkpoints", job.job_id)
    for record in decisions.completed.values():
        checkpoint = read_metadata(storage, record.metadata)
        cut = dict(
            outside.rows("SELECT part, position FROM marks WHERE checkpoint_id = ?", record.checkpoint_id)
        )
        positions = {}
        for subtask in checkpoint.operators["numbers"].subtasks.values():
            for handle in subtask.operator:
                for atom in decode_atoms(read_state(storage, handle.state), "splits"):
                    part, position, _ = ValueCodec().loads(atom)
                    positions[part] = position
        # A reader that has come to the end of its data has no position any more.
        assert positions.items() <= cut.items(), f"checkpoint {record.checkpoint_id} is not at its marks"
    asked = outside.rows("SELECT checkpoint_id FROM asked WHERE hook = 'journal' ORDER BY n")
    assert [checkpoint_id for (checkpoint_id,) in asked] == decisions.restored
    return set(decisions.completed)


def end(tmp_path: Path, job: RayJobHandle, outside: Outside) -> int:
    """End the data; everything was put out once. The number of restarts."""
    outside.raise_flag("ended")
    result = finish(job)
    lengths = dict(outside.rows("SELECT part, length FROM parts"))
    expected = Counter((part, n) for part, length in lengths.items() for n in range(length))
    assert Counter((row["part"], row["n"]) for row in committed_rows(tmp_path / "out")) == expected
    assert hidden_files(tmp_path / "out") == []
    return result.statistics.restarts


def test_checkpoints_begin_at_their_marks_also_at_those_that_are_met_too_early_or_of_aborted_ones(
    tmp_path: Path,
) -> None:
    outside = Outside.created(tmp_path / "outside.db")
    outside.write(20, 5)
    job = journal_job(tmp_path)
    when_the_other_source_has_left(job)

    early = meet_before_the_request(job, outside, aborts=False)
    aborted = meet_before_the_request(job, outside, aborts=True)
    killed = kill_between_the_marks(job, outside, "JobMaster", held=1)

    assert end(tmp_path, job, outside) == 1
    completed = assert_every_checkpoint_is_at_its_marks(tmp_path, job, outside)
    assert early in completed
    assert not {aborted, killed} & completed, "their marks are passed over"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_begin_at_their_marks_after_many_kills(
    tmp_path: Path, mode: str, record_property: Callable[[str, object], None]
) -> None:
    draws, counts = Random(mode), Counter[str]()
    outside = Outside.created(tmp_path / "outside.db")
    job = journal_job(tmp_path, **MODES[mode])
    when_the_other_source_has_left(job)
    victims = ["reader 0", "reader 1", "JobMaster"] * 6 + ["JobMaster"] * 2
    draws.shuffle(victims)
    for victim in victims:
        held = draws.randrange(PARTS)
        kill_between_the_marks(job, outside, victim, held)
        counts[f"{victim}, part {held} held"] += 1
        meet_before_the_request(job, outside, aborts=draws.random() < 0.5)
    assert end(tmp_path, job, outside) == len(victims)
    assert_every_checkpoint_is_at_its_marks(tmp_path, job, outside)
    record_property("shown", f"{mode}: {counts.total()} kills between the marks: {dict(counts)}")
