"""The server's history of checkpoints: requested once, then extended from reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from serving.acting import JOB, ActingJob, acting_job, taken
from serving.client import PATIENCE, Client
from serving.in_thread import served
from serving.reports import TOKEN
from serving.scripted import ScriptedDirectory

from penstock.actors.shared.job_report import CHECKPOINTS_SHOWN
from penstock.actors.web.job_watcher import KnownCheckpoints
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointRecord, CheckpointStatus

FAILED = CheckpointStatus.FAILED


class RememberingJob(ActingJob):
    """A job with more checkpoints than its report has; `questions` counts the requests for them."""

    def __init__(self, job: ActingJob) -> None:
        super().__init__(job.current)
        self.remembered: list[CheckpointRecord] = []
        self.questions = 0

    def take(self, records: Iterable[CheckpointRecord]) -> None:
        self.remembered.extend(records)
        shown = tuple(self.remembered[-CHECKPOINTS_SHOWN:])
        self.current = replace(self.current, checkpoint_history=shown)

    def checkpoints(self) -> tuple[CheckpointDetails, ...]:
        self.questions += 1
        return tuple(CheckpointDetails(each, {}) for each in self.remembered)

    def checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        return None


@pytest.fixture
def job() -> RememberingJob:
    return RememberingJob(acting_job())


@pytest.fixture
def client(job: RememberingJob) -> Iterator[Client]:
    with served(ScriptedDirectory(job), token=TOKEN) as server:
        yield Client(server.address, TOKEN)


def ids(records: Iterable[CheckpointRecord]) -> list[int]:
    return [each.checkpoint_id for each in records]


def made(first: int, last: int) -> list[CheckpointRecord]:
    return [taken(number, duration=number / 1_000) for number in range(first, last + 1)]


def test_rest_shows_what_the_job_master_remembers_and_asks_it_once(
    client: Client, job: RememberingJob
) -> None:
    job.take([taken(1, status=FAILED, detail="count[3] has not acknowledged")])
    job.take([taken(2, kind=SnapshotKind.SAVEPOINT), *made(501, 1_500)])
    for _ in range(3):
        seen = client.look(f"/v1/jobs/{JOB}/checkpoints")
    assert [each["checkpoint_id"] for each in seen["history"]] == [*range(1_500, 500, -1), 2, 1]
    assert seen["latest"]["failed"]["detail"] == "count[3] has not acknowledged"
    assert seen["latest"]["savepoint"]["checkpoint_id"] == 2
    assert seen["summarized"] == 1_001
    duration = seen["summary"]["end_to_end_duration"]
    assert (duration["p50"], duration["p99"], duration["max"]) == (1.0, 1.49, 1.5)
    assert client.look(f"/v1/jobs/{JOB}/checkpoints/details/1")["status"] == "failed"
    assert job.questions == 1


def test_new_checkpoints_join_and_a_gap_is_asked_for(client: Client, job: RememberingJob) -> None:
    def newest() -> list[int]:
        return [each["checkpoint_id"] for each in client.look(f"/v1/jobs/{JOB}/checkpoints")["history"]]

    job.take(made(1, 30))
    assert newest() == [*range(30, 0, -1)]
    job.take(made(31, 35))
    wait_for(newest, [*range(35, 0, -1)])
    assert job.questions == 1
    job.take(made(36, 90))
    wait_for(newest, [*range(90, 0, -1)])
    assert job.questions == 2


def wait_for(ask: Callable[[], list[int]], expected: list[int]) -> None:
    """Ask until the answer is as expected; the server may use a report that is 0.2 s old."""
    deadline = time.monotonic() + PATIENCE
    while ask() != expected:
        assert time.monotonic() < deadline, ask()
        time.sleep(0.05)


def test_few_checkpoints_are_all_in_the_report(client: Client, job: RememberingJob) -> None:
    job.take(made(1, 3))
    assert len(client.look(f"/v1/jobs/{JOB}/checkpoints")["history"]) == 3
    assert job.questions == 0


def test_what_ran_goes_on_and_what_has_ended_stays() -> None:
    history = KnownCheckpoints()
    running = taken(31, status=CheckpointStatus.IN_PROGRESS, duration=None, acknowledged=1)
    history.take([*made(1, 30), running])
    on = replace(running, acknowledged=5)
    history.merge([*made(12, 30), on])
    assert history.is_complete
    assert history.records()[-1] == on
    ended = replace(running, status=FAILED, detail="why")
    history.merge([*made(12, 30), ended])
    history.take([*made(2, 30), running])
    assert history.records()[-1] == ended
    assert ids(history.records()) == list(range(1, 32))


def test_one_that_ran_when_the_job_master_died_and_is_not_known_any_more_is_gone() -> None:
    history = KnownCheckpoints()
    running = taken(31, status=CheckpointStatus.IN_PROGRESS, duration=None)
    history.take([*made(1, 30), running])
    later = [replace(each, attempt=3) for each in made(31, 32)]
    history.merge([*made(13, 30), *later])
    assert ids(history.records()) == [*range(1, 31), 31, 32]
    assert {each.attempt for each in history.records()[-2:]} == {3}


def test_it_forgets_what_the_job_master_does_not_remember_for_ever() -> None:
    history = KnownCheckpoints()
    history.take(made(1, 30))
    for last in range(31, 3_000):
        history.merge(made(last - CHECKPOINTS_SHOWN + 1, last))
    known = ids(history.records())
    assert 1_000 <= len(known) <= 1_200
    assert known == list(range(known[0], 3_000))


def test_of_two_with_one_id_the_newer_one_is_shown(client: Client, job: RememberingJob) -> None:
    refused = taken(9, status=FAILED, detail="no place")
    job.take([refused, replace(taken(9), triggered_at=refused.triggered_at + 1)])
    assert client.look(f"/v1/jobs/{JOB}/checkpoints/details/9")["status"] == "completed"
    assert len(client.look(f"/v1/jobs/{JOB}/checkpoints")["history"]) == 2
