"""The process of JobMasters: which job runs here, how one begins and ends, and when the process ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.errors import JobIdTakenError, StorageError, StorageTimeoutError
from penstock.runtime.execution import master_process
from penstock.runtime.execution.fleet import Fleet
from penstock.runtime.execution.job_lifecycle import JobLifecycle, JobLookup, StartedJob, StartFailure, Then
from penstock.runtime.execution.master_process import FAREWELL, WARM, MasterRunner
from penstock.runtime.job.job_state import JobState
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers


@dataclass
class Job:
    job_id: str
    #: What the process calls when clients may learn of the end.
    ends: list[str] = field(default_factory=list)

    def over(self, runner: MasterRunner[str, Job], *, stays: bool) -> None:
        runner.job_over(stays, lambda: self.ends.append("answered"))


class Answer(Protocol):
    def __call__(self, answer: Any, /) -> None: ...


class Cluster:
    """The `MasterHost`: answers with what the test has set, at once or later."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.is_accepted: bool | None = True
        self.is_registered: bool | None = True
        self.is_free: bool | None = True
        self.is_noted: bool | None = True
        self.waiting: int | None = 0
        self.changed: str | None = None
        self.left_behind: str | None = None
        self.begun: list[tuple[str, bool]] = []
        self.done: list[str] = []
        self.notes: list[str] = []
        #: Answers that wait; `None` answers at once.
        self.later: list[Callable[[], None]] | None = None

    def runner(self, *, is_restart: bool = False) -> MasterRunner[str, Job]:
        return MasterRunner(self, self.timers, is_restart=is_restart)

    def _answer(self, answer: Answer, what: Any) -> None:
        if self.later is None:
            answer(what)
        else:
            self.later.append(lambda: answer(what))

    def begin(self, job: str, *, is_restart: bool) -> Job:
        self.begun.append((job, is_restart))
        return Job(job)

    def accept(self, job: str, answer: Callable[[bool | None], None]) -> None:
        self._answer(answer, self.is_accepted)

    def forget(self, job_id: str, within: float, answer: Callable[[bool | None], None]) -> None:
        self.done.append(f"forgets {job_id}")
        self._answer(answer, self.is_noted)

    def is_master(self, job_id: str, answer: Callable[[bool | None], None]) -> None:
        self._answer(answer, self.is_registered)

    def count_waiting(self, answer: Callable[[int | None], None]) -> None:
        self._answer(answer, self.waiting)

    def offer(self, then: Then) -> None:
        self.done.append("is offered")
        self._answer(lambda _: then(), None)

    def withdraw_offer(self, answer: Callable[[bool | None], None]) -> None:
        self._answer(answer, self.is_free)

    def waits(self, run: Job) -> None:
        self.done.append("waits")

    def refuses(self) -> str | None:
        return self.changed

    def residue(self) -> str | None:
        return self.left_behind

    def note(self, what: str) -> None:
        self.notes.append(what)

    def leave(self) -> None:
        self.done.append("leaves")

    def die(self, why: str) -> None:
        self.done.append("dies")


def take(runner: MasterRunner[str, Job], job: str) -> list[bool]:
    answers: list[bool] = []
    runner.take(job, answers.append)
    return answers


def waiting_runner(cluster: Cluster) -> MasterRunner[str, Job]:
    runner = cluster.runner()
    runner.begin("words-1")
    runner.running("words-1").over(runner, stays=True)
    return runner


def pass_time(cluster: Cluster, seconds: float) -> None:
    cluster.clock.advance(seconds)
    while (due := cluster.timers.next_due) is not None and due <= cluster.clock.monotonic():
        cluster.timers.fire_next()


def test_a_process_that_has_a_job_takes_no_other_one() -> None:
    cluster = Cluster()
    runner = cluster.runner()
    runner.begin("words-1")
    running = runner.running("words-1")
    assert take(runner, "words-2") == [False]
    assert runner.running("words-1") is running
    with pytest.raises(ValueError, match="this process is not the JobMaster of words-2"):
        runner.running("words-2")


def test_a_process_whose_job_ended_well_is_offered_and_runs_the_next_job() -> None:
    cluster = Cluster()
    runner = waiting_runner(cluster)
    assert cluster.done == ["forgets words-1", "waits", "is offered"]
    with pytest.raises(ValueError, match="not the JobMaster of words-1"):
        runner.running("words-1")
    assert take(runner, "words-2") == [True]
    assert cluster.begun == [("words-1", False), ("words-2", False)]
    pass_time(cluster, 2 * WARM)
    assert runner.running("words-2")
    assert "leaves" not in cluster.done


@pytest.mark.parametrize("answer", [True, None])
def test_a_process_that_no_program_claims_leaves(answer: bool | None) -> None:
    cluster = Cluster()
    cluster.is_free = answer
    waiting_runner(cluster)
    pass_time(cluster, WARM - 1)
    assert "leaves" not in cluster.done
    pass_time(cluster, 1)
    assert cluster.done[-1] == "leaves"


def test_a_process_that_is_claimed_at_the_last_moment_waits_once_more() -> None:
    cluster = Cluster()
    cluster.is_free = False
    runner = waiting_runner(cluster)
    pass_time(cluster, WARM)
    assert "leaves" not in cluster.done
    pass_time(cluster, WARM)
    assert cluster.done[-1] == "leaves"
    assert take(runner, "words-2") == [False]


def test_a_job_that_arrives_while_the_offer_is_withdrawn_runs() -> None:
    cluster = Cluster()
    runner = waiting_runner(cluster)
    cluster.later = []
    pass_time(cluster, WARM)
    withdrawn = cluster.later.pop()
    answers = take(runner, "words-2")
    withdrawn()
    cluster.later.pop()()
    assert answers == [True]
    assert "leaves" not in cluster.done


def test_a_late_answer_about_an_offer_does_not_end_the_next_offer() -> None:
    cluster = Cluster()
    runner = waiting_runner(cluster)
    cluster.later = []
    pass_time(cluster, WARM)
    withdrawn, cluster.later = cluster.later.pop(), None
    assert take(runner, "words-2") == [True]
    runner.running("words-2").over(runner, stays=True)
    withdrawn()
    assert "leaves" not in cluster.done
    assert take(runner, "words-3") == [True]


def _many_jobs(cluster: Cluster) -> MasterRunner[str, Job]:
    runner = waiting_runner(cluster)
    for number in range(2, master_process._MOST_JOBS + 1):
        take(runner, f"words-{number}")
        if number < master_process._MOST_JOBS:
            runner.running(f"words-{number}").over(runner, stays=True)
    return runner


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"left_behind": "a thread is left"}, "a thread is left"),
        ({"waiting": master_process._MOST_WARM}, "16 other processes wait"),
        ({"waiting": None}, "it can't count the waiting processes"),
        ({"is_noted": None}, "it can't unregister from its job"),
    ],
)
def test_a_process_that_must_not_wait_answers_for_a_while_and_leaves(change: Any, why: str) -> None:
    cluster = Cluster()
    vars(cluster).update(change)
    runner = waiting_runner(cluster)
    assert cluster.notes == [f"this process takes no other job: {why}"]
    assert runner.running("words-1").ends == ["answered"]
    pass_time(cluster, FAREWELL)
    assert cluster.done[-2:] == ["forgets words-1", "leaves"]
    assert "is offered" not in cluster.done


def test_a_process_runs_a_bounded_number_of_jobs() -> None:
    cluster = Cluster()
    runner = _many_jobs(cluster)
    runner.running("words-50").over(runner, stays=True)
    assert cluster.notes == ["this process takes no other job: it has run 50 jobs"]


def test_a_restarted_process_runs_only_the_job_that_it_had() -> None:
    cluster = Cluster()
    runner = cluster.runner(is_restart=True)
    runner.begin("words-1")
    assert cluster.begun == [("words-1", True)]
    runner.running("words-1").over(runner, stays=True)
    assert cluster.notes == ["this process takes no other job: the cluster has restarted it"]


def test_a_restarted_process_without_a_job_leaves() -> None:
    cluster = Cluster()
    cluster.runner(is_restart=True).begin(None)
    assert cluster.done == ["leaves"]


@pytest.mark.parametrize(("answer", "end"), [(False, "leaves"), (None, "dies")])
def test_a_process_that_can_not_accept_its_job_ends(answer: bool | None, end: str) -> None:
    """Another process may run a job that was taken back."""
    cluster = Cluster()
    runner = waiting_runner(cluster)
    cluster.is_accepted = answer
    assert take(runner, "words-2") == [False]
    assert cluster.begun == [("words-1", False)]
    assert cluster.done[-1] == end


def test_a_process_whose_modules_have_changed_takes_no_job() -> None:
    cluster = Cluster()
    runner = waiting_runner(cluster)
    cluster.changed = "words.py has changed"
    assert take(runner, "words-2") == [False]
    assert cluster.done[-1] == "leaves"


@pytest.mark.parametrize(("answer", "end"), [(True, "dies"), (None, "dies"), (False, "leaves")])
def test_a_fenced_process_dies_unless_another_one_is_registered(answer: bool | None, end: str) -> None:
    """The cluster may end the process that fenced it, and restarts only a process that dies."""
    cluster = Cluster()
    cluster.is_registered = answer
    runner = cluster.runner()
    runner.begin("words-1")
    runner.fenced("words-1")
    assert cluster.done == [end]


@given(st.lists(st.sampled_from(["take", "over", "over for good", "answer", "first answer", "time"])))
def test_a_process_runs_one_job_at_a_time_and_none_after_it_has_left(moves: list[str]) -> None:
    cluster = Cluster()
    cluster.later = []
    runner = cluster.runner()
    runner.begin("job-0")
    over: set[str] = set()
    accepted = ["job-0"]

    def taken(job: str, is_taken: bool) -> None:
        if is_taken:
            assert set(accepted) <= over, "the last job is over"
            assert "leaves" not in cluster.done
            accepted.append(job)

    for number, move in enumerate(moves, start=1):
        current = runner.current
        if move == "take":
            runner.take(f"job-{number}", lambda is_taken, job=f"job-{number}": taken(job, is_taken))
        elif move.startswith("over") and current is not None and current.job_id not in over:
            over.add(current.job_id)
            current.over(runner, stays=move == "over")
        elif move.endswith("answer") and cluster.later:
            cluster.later.pop(0 if move == "first answer" else -1)()
        elif move == "time":
            pass_time(cluster, WARM)
    assert [job for job, _ in cluster.begun] == accepted


# -- one job -------------------------------------------------------------------------------------------------


class Steps:
    """The `JobHost`: its steps have the outcomes that the test has set."""

    def __init__(self, *, is_restart: bool, has_log: bool = True) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.known = JobLookup(has_log, has_ended=False, reuses_processes=True)
        #: Whether the cluster remembers a cancellation.
        self.is_cancelled = False
        self.failure: StartFailure | None = None
        self.storage: Fenced | StartFailure | None = None
        self.scheduler_fails: StartFailure | None = None
        self.state = JobState.RUNNING
        self.done: list[str] = []
        self.life = JobLifecycle(
            self, self.timers, is_restart=is_restart, on_over=self._over, on_fenced=self._fenced
        )

    def _over(self, stays: bool, then: Then) -> None:
        self.done.append(f"over, {'stays' if stays else 'leaves'}")
        then()

    def _fenced(self) -> None:
        self.done.append("fenced")

    def run(self) -> list[str]:
        """Fire all timers that are due."""
        while (due := self.timers.next_due) is not None and due <= self.clock.monotonic():
            self.timers.fire_next()
        return self.done

    def start(self) -> list[str]:
        self.life.start()
        return self.run()

    def look_up(self, answer: Callable[[JobLookup | StartFailure], None]) -> None:
        self.done.append("looks up")
        if self.is_cancelled:
            self.life.cancel()
        answer(self.known if self.failure is None else self.failure)

    def open_storage(self, answer: Callable[[Fenced | StartFailure | None], None]) -> None:
        self.done.append("opens")
        answer(self.storage)

    def adopt(self, answer: Callable[[Fleet | StartFailure], None]) -> None:
        self.done.append("adopts")

        def leave(then: Then) -> None:
            self.done.append("processes leave")
            then()

        answer(cast("Fleet", SimpleNamespace(leave=leave)))

    def start_scheduler(self, *, is_restart: bool) -> StartedJob | StartFailure:
        if self.scheduler_fails is not None:
            return self.scheduler_fails

        def cancel() -> None:
            self.state = JobState.CANCELLED
            self.done.append("scheduler cancels")
            self.life.job_ended()

        class Scheduler:
            @property
            def state(_) -> JobState:
                return self.state

            def cancel(_) -> None:
                cancel()

            def statistics(_) -> Any:
                return SimpleNamespace(is_fenced=False)

        watch = SimpleNamespace(look=lambda then: then(), end=lambda: self.done.append("watch ends"))
        return StartedJob(cast("Any", Scheduler()), cast("Any", watch))

    def note(self, what: str, error: BaseException) -> None:
        self.done.append(what)

    def not_started(self, error: BaseException, *, is_cancelled: bool) -> None:
        self.done.append(f"{'cancelled' if is_cancelled else 'failed'}: {str(error)[:40]}")

    def started(self) -> None:
        self.done.append("started")

    def keep_last_report(self, then: Then) -> None:
        self.done.append("keeps the report again")
        then()

    def close(self, *, in_storage: bool, stays: bool, then: Callable[[bool], None]) -> None:
        self.done.append("keeps the report" + (" in storage" if in_storage else ""))
        then(stays)

    def ended(self) -> None:
        self.done.append("clients hear of the end")


AWAY = StartFailure(StorageError("it is away"), may_pass=True)
LAST = ["clients hear of the end"]


def test_a_job_that_ends_well_lets_another_one_follow() -> None:
    steps = Steps(is_restart=False)
    assert steps.start() == ["looks up", "opens", "adopts", "started"]
    steps.state = JobState.FINISHED
    steps.life.job_ended()
    assert steps.run()[4:] == [
        "watch ends", "processes leave", "keeps the report in storage", "over, stays", *LAST,
    ]  # fmt: skip
    assert not steps.life.may_run
    steps.life.fenced()
    assert "fenced" not in steps.done, "a job that is over can't be fenced"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.FINISHED])
def test_no_job_follows_a_failed_one_or_one_that_does_not_allow_it(state: JobState) -> None:
    steps = Steps(is_restart=False)
    steps.known = JobLookup(True, False, reuses_processes=state is JobState.FAILED)
    steps.start()
    steps.state = state
    steps.life.job_ended()
    assert steps.run()[-2:] == ["over, leaves", *LAST]


def test_a_restarted_job_without_a_log_fails_and_ends_its_processes() -> None:
    steps = Steps(is_restart=True, has_log=False)
    assert steps.start() == [
        "looks up", "adopts", "failed: the JobMaster's process died, and the jo", "processes leave",
        "keeps the report", "over, leaves", *LAST,
    ]  # fmt: skip


def test_a_restarted_job_without_a_log_that_is_cancelled_ends_as_cancelled() -> None:
    steps = Steps(is_restart=True, has_log=False)
    steps.is_cancelled = True
    assert "scheduler cancels" in steps.start()


def test_a_new_job_whose_storage_is_away_fails() -> None:
    steps = Steps(is_restart=False)
    steps.storage = AWAY
    assert steps.start() == [
        "looks up", "opens", "failed: it is away", "keeps the report in storage", "over, leaves", *LAST,
    ]  # fmt: skip


def test_a_restarted_process_waits_ten_minutes_for_its_storage() -> None:
    steps = Steps(is_restart=True)
    steps.storage = AWAY
    steps.start()
    for _ in range(70):
        steps.clock.advance(10.0)
        steps.run()
    assert steps.done.count("opens") == 24
    assert "failed: it is away" in steps.done


def test_a_restarted_process_continues_when_its_storage_is_back() -> None:
    steps = Steps(is_restart=True)
    steps.storage = AWAY
    steps.start()
    steps.storage = None
    steps.clock.advance(1.0)
    assert steps.run() == [
        "looks up", "opens", "it can't be started yet", "looks up", "opens", "adopts", "started",
    ]  # fmt: skip


def test_a_cancellation_ends_the_wait_for_a_storage() -> None:
    steps = Steps(is_restart=True)
    steps.storage = AWAY
    steps.start()
    assert steps.life.cancel(), "the cluster must remember it"
    assert steps.done.count("opens") == 2
    for _ in range(10):
        steps.clock.advance(1.0)
        steps.run()
    assert steps.done[-6:] == [
        "cancelled: it is away", "adopts", "processes leave", "keeps the report in storage", "over, leaves",
        *LAST,
    ]  # fmt: skip
    assert steps.done.count("opens") == 4
    assert not steps.life.cancel(), "it has ended"


def test_a_cancelled_job_waits_for_a_hanging_storage_once() -> None:
    steps = Steps(is_restart=True)
    steps.is_cancelled = True
    steps.storage = StartFailure(StorageTimeoutError("it hangs"), may_pass=True)
    assert "cancelled: it hangs" in steps.start()


def test_a_cancelled_job_that_can_not_be_loaded_ends_as_cancelled() -> None:
    """The job's modules may be missing on the node where the JobMaster is restarted."""
    steps = Steps(is_restart=True)
    steps.is_cancelled, steps.failure = True, StartFailure(ModuleNotFoundError("no module 'words'"))
    assert steps.start() == [
        "looks up", "cancelled: no module 'words'", "adopts", "processes leave", "keeps the report",
        "over, leaves", *LAST,
    ]  # fmt: skip


def test_a_job_that_had_ended_is_not_run_again() -> None:
    steps = Steps(is_restart=True)
    steps.known = JobLookup(True, has_ended=True, reuses_processes=True)
    assert steps.start() == [
        "looks up", "adopts", "keeps the report again", "processes leave", "over, leaves", *LAST,
    ]  # fmt: skip


def test_a_job_that_another_job_master_has_begun_never_counts_as_started() -> None:
    steps = Steps(is_restart=True)
    steps.storage = Fenced(3)
    assert steps.start() == ["looks up", "opens", "fenced"]


def test_a_job_writes_nothing_beside_the_checkpoints_of_another_one() -> None:
    steps = Steps(is_restart=False)
    steps.storage = StartFailure(JobIdTakenError("words-1 is taken"), may_pass=True)
    assert "keeps the report" in steps.start()


def test_a_scheduler_that_can_not_be_made_fails_the_job() -> None:
    steps = Steps(is_restart=False)
    steps.scheduler_fails = StartFailure(TypeError("no hook"))
    assert steps.start()[3:] == [
        "failed: no hook", "processes leave", "keeps the report in storage", "over, leaves", *LAST,
    ]  # fmt: skip
