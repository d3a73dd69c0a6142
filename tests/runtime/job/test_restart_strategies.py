"""Restart strategies: what they allow, and that no crash loop is without bounds."""

from penstock.runtime.config.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartAfter,
    RestartMemory,
    restart_from_mapping,
)
from penstock.runtime.job.failover import restart_strategy


def delays(strategy, count, runs_for=0.0):
    """The delays of this many failures, each attempt having run for the same time."""
    found, now = [], 0.0
    for _ in range(count):
        strategy.attempt_begun(now)
        now += runs_for
        decision = strategy.failed(now)
        found.append(decision.delay if isinstance(decision, RestartAfter) else None)
    return found


def test_no_restart_gives_up_at_once():
    assert restart_strategy(NoRestart(), "job").failed(0) == GiveUp("its settings allow no restart")


def test_fixed_delay_allows_its_number_of_restarts_in_the_jobs_life():
    strategy = restart_strategy(FixedDelay(attempts=2, delay=7), "job")
    assert delays(strategy, 4, runs_for=1e6) == [7.0, 7.0, None, None]
    assert strategy.memory() == RestartMemory(2)


def test_fixed_delay_counts_the_deaths_of_the_job_master():
    strategy, memory = restart_strategy(FixedDelay(attempts=2, delay=7), "job"), RestartMemory()
    for _ in range(2):
        memory = strategy.after_death(memory, 0.0)
        assert strategy.recovered(memory, 0.0) == RestartAfter(0.0)
    assert isinstance(strategy.failed(0), GiveUp)
    memory = strategy.after_death(strategy.memory(), 0.0)
    assert isinstance(strategy.recovered(memory, 0.0), GiveUp)


def test_delays_grow_up_to_the_longest():
    strategy = restart_strategy(ExponentialBackoff(1, 10, jitter=0), "job")
    assert delays(strategy, 6) == [1, 2, 4, 8, 10, 10]


def test_a_job_that_ran_well_begins_with_the_first_delay_again():
    config = ExponentialBackoff(1, 10, jitter=0, reset_after=100)
    strategy = restart_strategy(config, "job")
    assert delays(strategy, 3, runs_for=99) == [1, 2, 4]
    assert delays(strategy, 2, runs_for=100) == [1, 1]


def test_a_limited_backoff_gives_up_after_so_many_in_a_row():
    config = ExponentialBackoff(1, 10, jitter=0, attempts=2, reset_after=100)
    strategy = restart_strategy(config, "job")
    assert delays(strategy, 3) == [1, 2, None]
    assert delays(restart_strategy(config, "job"), 9, runs_for=100) == [1] * 9


def test_jitter_stays_within_its_share_differs_between_jobs_and_can_be_repeated():
    config = ExponentialBackoff(8, 1000, jitter=0.25, multiplier=1.0)
    of_a = delays(restart_strategy(config, "a"), 50)
    assert all(6 <= delay <= 10 for delay in of_a)
    assert len(set(of_a)) > 10
    assert of_a == delays(restart_strategy(config, "a"), 50)
    assert of_a != delays(restart_strategy(config, "b"), 50)


def test_very_many_failures_do_not_overflow():
    strategy = restart_strategy(ExponentialBackoff(1, 60, multiplier=10.0, jitter=0), "job")
    assert delays(strategy, 2000)[-1] == 60


def test_a_job_master_that_dies_in_a_loop_is_slowed_down_and_bounded():
    config = ExponentialBackoff(1, 60, jitter=0, attempts=4, reset_after=100)
    seen, memory = [], RestartMemory()
    for death in range(1, 7):
        strategy = restart_strategy(config, "job")
        memory = strategy.after_death(memory, 2.0 * death)
        decision = strategy.recovered(memory, 2.0 * death)
        seen.append(decision.delay if isinstance(decision, RestartAfter) else None)
    assert seen == [0, 1, 2, 4, None, None]
    assert memory.restarts == 6


def test_a_job_master_that_dies_after_a_long_time_costs_no_delay():
    config = ExponentialBackoff(1, 60, jitter=0, attempts=4, reset_after=100)
    strategy, memory = restart_strategy(config, "job"), RestartMemory()
    for age in (1.0, 2.0, 3.0, 4.0, 5.0, 500.0, 1000.0):
        memory = strategy.after_death(memory, age)
    assert strategy.recovered(memory, 1000.0) == RestartAfter(0.0)
    assert strategy.failed(1000.0) == RestartAfter(1.0)


def test_a_failure_rate_bears_so_many_failures_within_its_interval():
    strategy = restart_strategy(FailureRate(failures=3, interval=10, delay=2), "job")
    decisions = [strategy.failed(now) for now in (0, 1, 2, 10)]
    assert decisions[:3] == [RestartAfter(2.0)] * 3
    assert decisions[3] == GiveUp("it has failed 4 times within 10 s")


def test_a_failure_rate_bears_any_number_of_rare_failures():
    strategy = restart_strategy(FailureRate(failures=2, interval=10, delay=0), "job")
    assert delays(strategy, 100, runs_for=5.1) == [0.0] * 100
    assert delays(restart_strategy(FailureRate(2, 10, 0), "job"), 3, runs_for=5) == [0.0, 0.0, None]


def test_a_failure_rate_counts_the_deaths_of_the_job_master():
    strategy = restart_strategy(FailureRate(failures=2, interval=10, delay=0), "job")
    memory = strategy.after_death(strategy.after_death(RestartMemory(), 1001.0), 1002.0)
    assert strategy.recovered(memory, 1002.0) == RestartAfter(0.0)
    assert isinstance(strategy.failed(1003.0), GiveUp), "the third within two seconds"
    later = restart_strategy(FailureRate(failures=2, interval=10, delay=0), "job")
    later.recovered(memory, 1002.0)
    assert later.failed(1012.0) == RestartAfter(0.0), "the first is eleven seconds ago"


def test_a_failure_rate_bounds_a_job_master_that_dies_in_a_loop():
    seen, memory = [], RestartMemory()
    for age in (1.0, 2.0, 3.0, 4.0):
        strategy = restart_strategy(FailureRate(failures=2, interval=10, delay=0), "job")
        memory = strategy.after_death(memory, age)
        seen.append(strategy.recovered(memory, age))
    assert [isinstance(decision, GiveUp) for decision in seen] == [False, False, True, True]


def test_a_backoff_with_many_attempts_counts_them_all_over_the_deaths_of_job_masters():
    config = ExponentialBackoff(1, 60, jitter=0, attempts=50, reset_after=100)
    memory, decisions = RestartMemory(), []
    for _ in range(51):
        strategy = restart_strategy(config, "job")
        memory = strategy.after_death(memory, 0.0)
        decisions.append(strategy.recovered(memory, 0.0))
    assert [isinstance(decision, GiveUp) for decision in decisions] == [False] * 50 + [True]


def test_a_failure_rate_can_be_written_in_a_file():
    assert restart_from_mapping({"kind": "failure_rate", "failures": 5}) == FailureRate(failures=5)
