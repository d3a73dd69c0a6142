"""The oracle knows by itself whether a job has restarted as often as its user allows."""

from __future__ import annotations

from simulated_jobs.rules import UsedRestarts

from penstock.runtime.config.restart import ExponentialBackoff, FailureRate, FixedDelay, NoRestart
from penstock.runtime.testing.simulation.cluster.master import RestartLedger

USED_UP = "it has used its 2 restarts"
TOO_FAST = "it has failed 2 times within 1 s"


def deployed_at(*times: float, masters: int = 1) -> RestartLedger:
    """Each attempt was stopped just before the next one."""
    ledger = RestartLedger(masters)
    for time in times:
        ledger.note_stop(time)
        ledger.note_deployment(time)
    return ledger


def test_job_may_fail_when_its_restarts_are_used_up() -> None:
    used = UsedRestarts(FixedDelay(2), 0, deployed_at(0.0, 1.0, 2.0), (1.0, 2.0, 3.0))
    assert used.problems_of_the_end(USED_UP) == []
    assert used.problems() == []


def test_job_that_has_restarts_left_must_not_fail() -> None:
    left = UsedRestarts(FixedDelay(2), 0, deployed_at(0.0, 1.0), (1.0, 2.0))
    (problem,) = left.problems_of_the_end(USED_UP)
    assert problem.startswith("it has given up (it has used its 2 restarts) after 2 failures")


def test_death_of_a_jobmaster_is_a_failure() -> None:
    died_once = UsedRestarts(FixedDelay(2), 0, deployed_at(0.0, 1.0, 2.0, masters=2), (1.0, 3.0))
    assert died_once.problems_of_the_end(USED_UP) == []


def test_job_without_a_limit_never_gives_up() -> None:
    unlimited = UsedRestarts(ExponentialBackoff(), 0, deployed_at(0.0), tuple(map(float, range(9))))
    assert unlimited.problems_of_the_end("it has restarted 8 times in a row, never running for 600 s")


def test_any_other_reason_to_fail_is_a_problem() -> None:
    once = UsedRestarts(NoRestart(), 0, deployed_at(0.0), (1.0,))
    assert once.problems_of_the_end("its settings allow no restart") == []
    assert once.problems_of_the_end("it would fail again")


def test_job_must_not_restart_more_often_than_allowed() -> None:
    ledger = deployed_at(0.0, 1.0, 2.0, 3.0)
    assert UsedRestarts(FixedDelay(2), 0, ledger).problems()
    assert UsedRestarts(FixedDelay(2), 1, ledger).problems() == [], "one was a rescale"
    assert UsedRestarts(FixedDelay(3), 0, ledger).problems() == []


def test_failures_that_are_far_apart_are_borne() -> None:
    rule = FailureRate(failures=1, interval=1.0)
    slow, fast = (1.0, 5.0), (1.0, 1.5)
    assert UsedRestarts(rule, 0, deployed_at(0.0, 1.0), fast).problems_of_the_end(TOO_FAST) == []
    rare = UsedRestarts(FailureRate(2, 1.0), 0, deployed_at(0.0, 1.0, 5.0), (1.0, *slow[1:], 9.0))
    assert rare.problems_of_the_end(TOO_FAST)


def test_failures_that_come_too_fast_are_not_borne() -> None:
    rule = FailureRate(failures=1, interval=1.0)
    assert UsedRestarts(rule, 0, deployed_at(0.0, 3.0, 3.5)).problems()
    assert UsedRestarts(rule, 0, deployed_at(0.0, 3.0, 4.5)).problems() == []


def test_attempts_that_no_jobmaster_deployed_are_no_restarts() -> None:
    took_over_three_times = deployed_at(0.0, 1.0, masters=4)
    assert UsedRestarts(FixedDelay(1), 0, took_over_three_times).problems() == []
    assert UsedRestarts(NoRestart(), 0, took_over_three_times).problems()
