"""Restart strategies: whether and when a failed job restarts (Flink's `RestartBackoffTimeStrategy`).

Users give a frozen description. The job has a strategy object, which counts restarts. A failure of the job
counts as one restart, and so does the death of its JobMaster. A rescale does not count.

Every `AttemptBegun` in the decision log holds the strategy's memory at that time (`RestartMemory`). A
restarted JobMaster takes the newest memory and adds the death of its predecessor. The record with which it
takes over the job holds the sum. So no crash loop is longer than the description allows.

Wall clocks are not used: they may be adjusted, and two hosts may disagree. Strategies count in the *age* of
the job: the sum of the seconds on the monotonic clocks of its JobMasters. Records of attempts and of
completed checkpoints hold the age at which they were written. A successor continues from the highest recorded
age, as if no time had passed since. So the age never runs ahead of real time: failures look closer together
than they were, and no take-over allows more restarts. A job whose JobMasters die without a checkpoint in
between has made no progress, so it counts as looping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from penstock.runtime.config.checks import (
    Settings,
    of_kind,
    real_number,
    whole_number,
)
from penstock.runtime.time.durations import Duration, seconds_in


@dataclass(frozen=True, slots=True)
class NoRestart(Settings):
    """The first failure fails the job."""


@dataclass(frozen=True, slots=True)
class FixedDelay(Settings):
    """A number of restarts, each after the same delay.

    Attributes:
        attempts: Maximum number of restarts in the job's life.
        delay: Time before each restart.

    Example:
        >>> FixedDelay(attempts=3, delay=10)
        FixedDelay(attempts=3, delay=10.0)
    """

    attempts: int = 3
    delay: Duration = 1.0

    def __post_init__(self) -> None:
        whole_number("FixedDelay.attempts", self.attempts, at_least=0)
        object.__setattr__(self, "delay", seconds_in("FixedDelay.delay", self.delay))


@dataclass(frozen=True, slots=True)
class ExponentialBackoff(Settings):
    """Up to `attempts` restarts in a row, with growing delays; a long run without a failure resets the delay.

    Attributes:
        initial: The first delay.
        maximum: The longest delay.
        multiplier: Factor from one delay to the next.
        jitter: Fraction by which a delay may vary, so that jobs do not restart at the same time.
        reset_after: Time without a failure after which the delay is `initial` again.
        attempts: Maximum number of restarts in a row, less than `reset_after` apart; `None` for any number.

    Example:
        >>> ExponentialBackoff(initial=1, maximum=60).maximum
        60.0
    """

    initial: Duration = 1.0
    maximum: Duration = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after: Duration = 600.0
    attempts: int | None = None

    def __post_init__(self) -> None:
        initial = seconds_in("ExponentialBackoff.initial", self.initial, above=0.0)
        object.__setattr__(self, "initial", initial)
        maximum = seconds_in("ExponentialBackoff.maximum", self.maximum, at_least=initial)
        object.__setattr__(self, "maximum", maximum)
        real_number("ExponentialBackoff.multiplier", self.multiplier, at_least=1.0)
        real_number("ExponentialBackoff.jitter", self.jitter, at_least=0.0, at_most=1.0)
        reset = seconds_in("ExponentialBackoff.reset_after", self.reset_after, above=0.0)
        object.__setattr__(self, "reset_after", reset)
        if self.attempts is not None:
            whole_number("ExponentialBackoff.attempts", self.attempts, at_least=1)


@dataclass(frozen=True, slots=True)
class FailureRate(Settings):
    """Any number of restarts, as long as failures are rare enough.

    Attributes:
        failures: Maximum number of failures within `interval`; one more fails the job.
        interval: Time for which a failure counts.
        delay: Time before each restart.

    Example:
        >>> FailureRate(failures=3, interval=300)
        FailureRate(failures=3, interval=300.0, delay=1.0)
    """

    failures: int = 3
    interval: Duration = 600.0
    delay: Duration = 1.0

    def __post_init__(self) -> None:
        whole_number("FailureRate.failures", self.failures, at_least=1)
        object.__setattr__(self, "interval", seconds_in("FailureRate.interval", self.interval, above=0.0))
        object.__setattr__(self, "delay", seconds_in("FailureRate.delay", self.delay))


RestartConfig: TypeAlias = NoRestart | FixedDelay | ExponentialBackoff | FailureRate

_KINDS: Final[dict[str, type[NoRestart | FixedDelay | ExponentialBackoff | FailureRate]]] = {
    "none": NoRestart,
    "fixed_delay": FixedDelay,
    "exponential_backoff": ExponentialBackoff,
    "failure_rate": FailureRate,
}


def restart_from_mapping(given: Mapping[str, Any]) -> RestartConfig:
    return of_kind("restart", _KINDS, given)


@dataclass(frozen=True, slots=True)
class RestartAfter:
    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str


RestartDecision: TypeAlias = RestartAfter | GiveUp


@dataclass(frozen=True, slots=True)
class RestartMemory:
    """A job's restarts, recorded with every attempt in the decision log.

    Attributes:
        restarts: Restarts of the job's life: failures and deaths of its JobMaster, never rescales.
        in_a_row: Restarts since the job last ran well; only `ExponentialBackoff` uses it.
        times: Ages of the job that the strategy needs, oldest first: the beginning of the last attempt, or
            the failures that still count.
    """

    restarts: int = 0
    in_a_row: int = 0
    times: tuple[float, ...] = ()


#: The memory of a job that has never restarted.
NO_RESTARTS: Final = RestartMemory()


class RestartStrategy(Protocol):
    """Counts failures and decides on the next attempt; all times are ages of the job in seconds."""

    def after_death(self, memory: RestartMemory, age: float) -> RestartMemory:
        """Return the memory with one more restart, for the death of the JobMaster; pure, so thread-safe."""
        ...

    def recovered(self, memory: RestartMemory, age: float) -> RestartDecision:
        """Continue from a memory that `after_death` returned, and decide on the new attempt."""
        ...

    def attempt_begun(self, age: float) -> None:
        """Note that the job begins, or begins again after a failure; not called for a rescale."""
        ...

    def failed(self, age: float) -> RestartDecision: ...

    def memory(self) -> RestartMemory: ...
