"""An upgrade never lets two jobs write what follows one savepoint, whatever has failed before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray import exceptions
from ray.job_submission import JobDetails, JobType
from ray.job_submission import JobStatus as ProgramStatus

from penstock import JobStatus
from penstock.actors.client import submissions, upgrade
from penstock.actors.client.jobs import KnownJob
from penstock.actors.client.master_calls import Deadline
from penstock.actors.client.submissions import Program, Submissions
from penstock.actors.client.upgrade import Upgrade, back_id
from penstock.actors.shared import registry
from penstock.actors.shared.archive import may_have_jobs
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import DeploymentError, JobFailedError, JobTimeoutError, PenstockError
from penstock.runtime.graph.executor import JobStatistics

SAVEPOINT = "/saved/savepoint-a-1-3-1"
NEW = Program("python new.py", Path("/project"))
KEPT = {"checkpointing.keep_after": "KeepAfter.FAILURE", "restore_from": SAVEPOINT}


def report(job_id: str, status: JobStatus, *, checkpoints: int = 0, **values: Any) -> JobReport:
    """A job of the program `raysubmit_1` that started from the savepoint."""
    last = 4 if checkpoints else None
    counted = JobStatistics(status, completed_checkpoints=checkpoints, last_checkpoint_id=last)
    given = {"settings": KEPT, "ray_submission": "raysubmit_1", "storage": "/checkpoints", **values}
    return JobReport(job_id, "a", status, 1.0, 1.0, counted, **given)


@dataclass
class World:
    """A cluster with these jobs; Ray's Jobs API, the JobMasters and the keeper are played by it."""

    jobs: list[JobReport] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    keys: dict[str, bytes] = field(default_factory=dict)
    refuses: bool = False

    def upgrade(self) -> Upgrade:
        return Upgrade(cast(Any, Handle(self, "a-1")), cast(Submissions, self), lambda text: None)

    def start(self) -> str:
        return self.upgrade().start(NEW, SAVEPOINT, allow_non_restored_state=False)

    # -- Submissions ----------------------------------------------------------------------------------------

    def with_metadata(self, name: str, value: str) -> list[JobDetails]:
        return [
            JobDetails(
                type=JobType.SUBMISSION,
                submission_id=each,
                status=ProgramStatus.SUCCEEDED,
                entrypoint=NEW.entrypoint,
            )
            for each in self.programs
        ]

    def stop(self, submission_id: str, deadline: Deadline) -> None:
        assert not may_have_jobs(submission_id), "no job may begin after the jobs were listed"
        self.steps.append(f"stop {submission_id}")

    def submit(self, program: Program, environment: Any, metadata: Any, submission_id: str) -> str:
        if self.refuses:
            raise DeploymentError
        self.steps.append("submit")
        return submission_id

    def wait_for_job(self, submission_id: str, deadline: Deadline) -> JobReport:
        return next(job for job in self.jobs if job.ray_submission == submission_id)

    # -- the cluster ----------------------------------------------------------------------------------------

    def known(self) -> list[KnownJob]:
        silent = [KnownJob.unreadable(each, "silent", has_master=True) for each in self.hidden]
        return [*(KnownJob(job, has_master=True) for job in self.jobs), *silent]

    def report(self, job_id: str) -> JobReport | None:
        return next((job for job in self.jobs if job.job_id == job_id), None)

    def end(self, job_id: str, status: JobStatus) -> None:
        ended = (replace(job, status=status) if job.job_id == job_id else job for job in self.jobs)
        self.jobs = list(ended)

    def start_old(self, job_id: str, snapshot: str) -> None:
        self.steps.append(f"start the old program from {snapshot}")
        self.jobs.append(report(job_id, JobStatus.RUNNING, ray_submission=None))


@dataclass
class Handle:
    world: World
    job_id: str
    name: str = "a"

    def report(self) -> JobReport:
        found = self.world.report(self.job_id)
        assert found is not None
        return found

    def cancel(self) -> None:
        self.world.steps.append(f"cancel {self.job_id}")
        self.world.end(self.job_id, JobStatus.CANCELLED)

    def wait(self, timeout: float) -> None:
        assert self.report().status.is_terminal

    def stop(self, folder: str | None, timeout: float | None) -> str:
        raise JobTimeoutError


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    keeper = SimpleNamespace(start=SimpleNamespace(remote=made.start_old))
    monkeypatch.setattr(submissions, "cluster_jobs", made.known)
    monkeypatch.setattr(upgrade, "load_from_cluster", made.report)
    monkeypatch.setattr(upgrade, "has_master", lambda job_id: False)
    monkeypatch.setattr(upgrade, "find_keeper", lambda job_id: keeper)
    monkeypatch.setattr(upgrade, "forget", lambda job_id: made.steps.append("forget"))
    monkeypatch.setattr(upgrade, "RayJobHandle", lambda job_id, name: Handle(made, job_id, name))
    monkeypatch.setattr(upgrade, "MasterCalls", lambda job_id: SimpleNamespace(quick=lambda *_, **__: None))
    monkeypatch.setattr(
        upgrade, "ray", SimpleNamespace(get=lambda answer, timeout: answer, exceptions=exceptions)
    )
    monkeypatch.setattr(upgrade, "_PATIENCE", 0.0)
    monkeypatch.setattr(registry, "get", made.keys.get)
    monkeypatch.setattr(registry, "put", made.keys.__setitem__)
    monkeypatch.setattr(registry, "delete", lambda key: made.keys.pop(key, None) is not None)
    return made


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELLED])
@pytest.mark.parametrize("submission", ["raysubmit_1", None])
def test_a_savepoint_whose_output_is_committed_starts_no_second_job(
    world: World, status: JobStatus, submission: str | None
) -> None:
    """Neither after an upgrade nor after a `penstock restore` by hand."""
    world.programs = ["raysubmit_1"] if submission else []
    world.jobs = [report("b-1", status, checkpoints=500, ray_submission=submission)]
    with pytest.raises(PenstockError, match=r"job b-1 has already started .* would write its output again"):
        world.start()
    assert world.steps == []


def test_the_refusal_names_the_snapshot_to_continue_from(world: World) -> None:
    world.jobs = [report("b-1", JobStatus.FAILED, checkpoints=500)]
    with pytest.raises(PenstockError, match=r"penstock restore /checkpoints/b-1 python PROGRAM"):
        world.start()


def test_a_savepoint_from_which_a_job_runs_starts_no_second_one(world: World) -> None:
    world.jobs = [report("b-1", JobStatus.RUNNING, ray_submission=None)]
    with pytest.raises(PenstockError, match=r"may run.*penstock upgrade b-1 PROGRAM"):
        world.start()


def test_a_job_that_failed_before_its_first_checkpoint_is_submitted_again(world: World) -> None:
    world.programs, world.jobs = ["raysubmit_1"], [report("b-1", JobStatus.FAILED)]
    world.start()
    assert world.steps == ["submit"]


def test_a_program_with_a_job_that_runs_is_not_submitted_again(world: World) -> None:
    world.programs = ["raysubmit_1"]
    world.jobs = [report("b-1", JobStatus.RUNNING), report("b-2", JobStatus.FAILED)]
    assert world.start() == "raysubmit_1"
    assert world.steps == []


def test_all_jobs_of_the_new_program_end_before_the_old_one_starts(world: World) -> None:
    world.programs = ["raysubmit_1"]
    world.jobs = [report("b-1", JobStatus.RUNNING), report("b-2", JobStatus.RUNNING)]
    world.upgrade().go_back(SAVEPOINT)
    assert world.steps[:3] == ["stop raysubmit_1", "cancel b-1", "cancel b-2"]
    assert world.steps[3].startswith("start the old program")


@pytest.mark.parametrize("step", ["start", "go_back"])
def test_nothing_starts_while_a_job_master_hides_its_job(world: World, step: str) -> None:
    world.hidden = ["b-1"]
    with pytest.raises(PenstockError, match="JobMaster of job b-1 does not answer"):
        world.start() if step == "start" else world.upgrade().go_back(SAVEPOINT)
    assert world.steps == []
    assert world.upgrade().is_going_back == (step == "go_back"), "a repetition continues with the same step"


def test_all_jobs_are_ended_even_if_one_of_them_has_committed_output(world: World) -> None:
    world.programs = ["raysubmit_1"]
    world.jobs = [report("b-1", JobStatus.RUNNING, checkpoints=1), report("b-2", JobStatus.RUNNING)]
    with pytest.raises(PenstockError, match="job b-1 completed a checkpoint before it ended"):
        world.upgrade().go_back(SAVEPOINT)
    assert world.steps == ["stop raysubmit_1", "cancel b-1", "cancel b-2", "forget"]


def test_a_submission_that_seems_to_have_failed_has_no_job_later(world: World) -> None:
    world.refuses = True
    steps = world.upgrade()
    with pytest.raises(DeploymentError):
        steps.start(NEW, SAVEPOINT, allow_non_restored_state=False)
    steps.go_back(SAVEPOINT)
    (forbidden,) = [key for key in world.keys if key.startswith("ended-program:raysubmit_")]
    assert not may_have_jobs(forbidden.removeprefix("ended-program:"))


def test_an_old_program_that_failed_again_is_explained_each_time(world: World) -> None:
    back = back_id("a-1", SAVEPOINT)
    world.jobs = [report(back, JobStatus.FAILED, ray_submission=None)]
    for _ in range(2):
        with pytest.raises(JobFailedError, match=f"penstock restore {SAVEPOINT} python OLD_PROGRAM"):
            world.upgrade().go_back(SAVEPOINT)


def test_an_old_program_that_ends_at_once_has_gone_back(world: World) -> None:
    back = back_id("a-1", SAVEPOINT)
    world.jobs = [report(back, JobStatus.FINISHED, ray_submission=None)]
    assert world.upgrade().go_back(SAVEPOINT).status is JobStatus.FINISHED
    assert not world.upgrade().is_going_back


@pytest.mark.parametrize("when", [JobStatus.RUNNING, JobStatus.FINISHED])
def test_a_savepoint_that_reports_would_hide_is_refused_before_the_job_stops(
    world: World, when: JobStatus
) -> None:
    saved = None if when is JobStatus.RUNNING else "/data/token=prod/savepoint-a-1-3-1"
    world.jobs = [report("a-1", when, storage="/data/token=prod/words", savepoint=saved)]
    with pytest.raises(PenstockError, match=r"/data/token=\*\*\* does not suit an upgrade"):
        world.upgrade().stop(None, None)
    assert world.steps == []


@pytest.mark.parametrize(
    ("status", "steps"), [(JobStatus.RUNNING, ["forget"]), (JobStatus.STOPPING, [])], ids=["runs", "stops"]
)
def test_the_old_program_is_kept_after_an_error_only_if_the_job_may_stop(
    world: World, status: JobStatus, steps: list[str]
) -> None:
    world.jobs = [report("a-1", status)]
    with pytest.raises(JobTimeoutError):
        world.upgrade().stop(None, None)
    assert world.steps == steps


def test_a_keeper_that_does_not_answer_is_not_awaited_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(answer: object, timeout: float) -> object:
        raise exceptions.GetTimeoutError

    monkeypatch.setattr(upgrade.ray, "get", late)
    steps = Upgrade(cast("Any", Handle(world, "a-1")), cast("Any", world), world.steps.append)
    with pytest.raises(PenstockError, match="old program was not started within 0 s: repeat the command"):
        steps.go_back(SAVEPOINT)
    assert steps.is_going_back


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, r"but without a snapshot, because PENSTOCK_RESTORE_FROM was not set in its program"),
        ({"restore_from": "/other"}, r"but from /other, which its program names"),
    ],
    ids=["without a snapshot", "from another snapshot"],
)
def test_a_new_job_that_does_not_start_from_the_savepoint_is_explained(
    world: World, settings: dict[str, str], text: str
) -> None:
    world.jobs = [report("b-1", JobStatus.RUNNING, settings=settings)]
    with pytest.raises(JobFailedError, match=rf"job b-1 did not start from the savepoint {text}"):
        world.upgrade().first_checkpoint("raysubmit_1", SAVEPOINT, Deadline(0.0, "late", "wait"))
