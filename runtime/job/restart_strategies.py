"""The strategies that carry out a restart configuration."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import xxhash

from penstock.runtime.config.checks import seconds
from penstock.runtime.config.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartAfter,
    RestartConfig,
    RestartDecision,
    RestartStatistics,
    RestartStrategy,
)

_HASH_RANGE: Final = float(1 << 64)


class FixedDelayStrategy:
    """A number of restarts in a job's life; with 0 of them it is `NoRestart`.

    Args:
        config: How many restarts, and the delay before each.

    Example:
        >>> strategy = FixedDelayStrategy(FixedDelay(attempts=1, delay=5))
        >>> strategy.failed(now=1), strategy.failed(now=7)
        (RestartAfter(delay=5.0), GiveUp(reason='it has used its 1 restart'))
    """

    def __init__(self, config: FixedDelay) -> None:
        self._attempts = config.attempts
        self._delay = seconds("delay", config.delay)
        self._used = 0

    def recovered(self, attempt: int, begun_at: Sequence[float]) -> RestartDecision:
        """Attempt `n` is restart number `n - 1`, whoever asked for it."""
        self._used = max(self._used, attempt - 1)
        return self._give_up() if self._used > self._attempts else RestartAfter(0.0)

    def attempt_begun(self, now: float) -> None:
        """Time does not matter here."""

    def failed(self, now: float) -> RestartDecision:
        """Another try while some are left."""
        if self._used >= self._attempts:
            return self._give_up()
        self._used += 1
        return RestartAfter(self._delay)

    def statistics(self) -> RestartStatistics:
        """Counters so far."""
        return RestartStatistics(self._used, self._attempts)

    def _give_up(self) -> GiveUp:
        if self._attempts == 0:
            return GiveUp("it may not restart")
        plural = "" if self._attempts == 1 else "s"
        return GiveUp(f"it has used its {self._attempts} restart{plural}")


class ExponentialBackoffStrategy:
    """Delays that grow until the job has run well for a while.

    The jitter is taken from a hash of the job and its failures: different between jobs, repeatable in tests.

    Args:
        config: The delays.
        seed: Tells jobs apart, for example the job's id.

    Example:
        >>> strategy = ExponentialBackoffStrategy(ExponentialBackoff(1, 3, jitter=0), seed="job")
        >>> [strategy.failed(now=0).delay for _ in range(4)]
        [1.0, 2.0, 3.0, 3.0]
    """

    def __init__(self, config: ExponentialBackoff, seed: str) -> None:
        self._config = config
        self._initial = seconds("initial", config.initial)
        self._maximum = seconds("maximum", config.maximum)
        self._reset_after = seconds("reset_after", config.reset_after)
        self._seed = seed
        self._failures = 0
        self._begun_at: float | None = None

    def recovered(self, attempt: int, begun_at: Sequence[float]) -> RestartDecision:
        """Go on with the row of short attempts that the log shows; the first death costs no delay."""
        long = self._reset_after + self._maximum
        self._failures = 0
        for earlier, later in pairwise(begun_at):
            self._failures = 0 if later - earlier >= long else self._failures + 1
        if self._config.attempts is not None and self._failures > self._config.attempts:
            return self._give_up()
        return RestartAfter(self._delay_of(self._failures - 2) if self._failures > 1 else 0.0)

    def attempt_begun(self, now: float) -> None:
        """Remember when: an attempt that runs long enough restarts the count."""
        self._begun_at = now

    def failed(self, now: float) -> RestartDecision:
        """A longer delay, or the first one when the job has run well."""
        if self._begun_at is not None and now - self._begun_at >= self._reset_after:
            self._failures = 0
        self._begun_at = None
        if self._config.attempts is not None and self._failures >= self._config.attempts:
            return self._give_up()
        delay = self._delay_of(self._failures)
        self._failures += 1
        return RestartAfter(delay)

    def statistics(self) -> RestartStatistics:
        """Counters so far."""
        return RestartStatistics(self._failures, self._config.attempts)

    def _delay_of(self, failures: int) -> float:
        delay = self._initial
        for _ in range(failures):
            delay *= self._config.multiplier
            if delay >= self._maximum or self._config.multiplier == 1.0:
                break
        drawn = xxhash.xxh3_64_intdigest(f"{self._seed}:{failures}".encode()) / _HASH_RANGE
        varied = min(delay, self._maximum) * (1 + self._config.jitter * (2 * drawn - 1))
        return min(varied, self._maximum)

    def _give_up(self) -> GiveUp:
        return GiveUp(
            f"it has restarted {self._failures} times in a row, never running for {self._reset_after:g} s"
        )


class FailureRateStrategy:
    """Gives up when failures come too fast (Flink's `FailureRateRestartBackoffTimeStrategy`).

    Args:
        config: How many failures in which interval, and the delay before each restart.

    Example:
        >>> strategy = FailureRateStrategy(FailureRate(failures=1, interval=10, delay=0))
        >>> strategy.failed(now=0), strategy.failed(now=11), strategy.failed(now=12)
        (RestartAfter(delay=0.0), RestartAfter(delay=0.0), GiveUp(reason='it has failed 2 times within 10 s'))
    """

    def __init__(self, config: FailureRate) -> None:
        self._borne = config.failures
        self._interval = seconds("interval", config.interval)
        self._delay = seconds("delay", config.delay)
        self._failed_at: deque[float] = deque(maxlen=config.failures + 1)
        self._begun_at = 0.0

    def recovered(self, attempt: int, begun_at: Sequence[float]) -> RestartDecision:
        """Every attempt that the log shows, but for the first, began because of a failure."""
        now, age = self._begun_at, begun_at[-1]
        followed = begun_at if len(begun_at) < attempt else begun_at[1:]
        self._failed_at.clear()
        self._failed_at.extend(now - (age - at) for at in followed)
        return self._give_up() if self._comes_too_fast(now) else RestartAfter(0.0)

    def attempt_begun(self, now: float) -> None:
        """Remember when, to set the log's times in relation to it."""
        self._begun_at = now

    def failed(self, now: float) -> RestartDecision:
        """Another try, unless that was one failure too many within the interval."""
        self._failed_at.append(now)
        return self._give_up() if self._comes_too_fast(now) else RestartAfter(self._delay)

    def statistics(self) -> RestartStatistics:
        """Counters so far."""
        return RestartStatistics(len(self._failed_at), self._borne)

    def _comes_too_fast(self, now: float) -> bool:
        return len(self._failed_at) > self._borne and now - self._failed_at[0] <= self._interval

    def _give_up(self) -> GiveUp:
        return GiveUp(f"it has failed {len(self._failed_at)} times within {self._interval:g} s")


def restart_strategy(config: RestartConfig, job_id: str) -> RestartStrategy:
    """The strategy that carries out `config` for one job."""
    match config:
        case NoRestart():
            return FixedDelayStrategy(FixedDelay(attempts=0, delay=0))
        case FixedDelay():
            return FixedDelayStrategy(config)
        case ExponentialBackoff():
            return ExponentialBackoffStrategy(config, job_id)
        case FailureRate():
            return FailureRateStrategy(config)
