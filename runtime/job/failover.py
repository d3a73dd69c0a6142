"""Failover of a job: causes of failures, restart strategies and regions.

A restart strategy decides whether and when a failed job restarts. A region is a set of subtasks that restart
together (Flink's `RestartPipelinedRegionFailoverStrategy`).

Subtasks that are connected by channels restart together: a failed subtask loses elements that others have
sent or wait for. Every channel is pipelined, so a region is a connected component of the graph. All subtasks
of a vertex belong to one region, even if no channel connects them. They share the splits of one source, their
union list state, and the clean-up of one sink. So the restart of a region affects nothing that another region
uses.

Flink's regions are smaller where all edges are pointwise: a region is then one pipeline of connected
subtasks. Flink's sources and committers have coordinators that can restore one subtask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

import xxhash

from penstock.runtime.config.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    RestartAfter,
    RestartConfig,
    RestartDecision,
    RestartMemory,
    RestartStrategy,
)
from penstock.runtime.error_text import LONGEST_MESSAGE, LONGEST_TRACEBACK, fit_text
from penstock.runtime.errors import OperatorError, UserLocation
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.time.durations import as_seconds

_HASH_RANGE: Final = float(1 << 64)


class FixedDelayStrategy:
    """Allows a fixed number of restarts in a job's life.

    Example:
        >>> strategy = FixedDelayStrategy(FixedDelay(attempts=1, delay=5))
        >>> strategy.failed(age=1), strategy.failed(age=7)
        (RestartAfter(delay=5.0), GiveUp(reason='it has used its 1 restart'))
    """

    def __init__(self, config: FixedDelay) -> None:
        self._attempts = config.attempts
        self._delay = as_seconds(config.delay)
        self._used = 0

    def after_death(self, memory: RestartMemory, age: float) -> RestartMemory:
        return RestartMemory(memory.restarts + 1)

    def recovered(self, memory: RestartMemory, age: float) -> RestartDecision:
        self._used = memory.restarts
        return self._give_up() if self._used > self._attempts else RestartAfter(0.0)

    def attempt_begun(self, age: float) -> None: ...

    def failed(self, age: float) -> RestartDecision:
        if self._used >= self._attempts:
            return self._give_up()
        self._used += 1
        return RestartAfter(self._delay)

    def memory(self) -> RestartMemory:
        return RestartMemory(self._used)

    def _give_up(self) -> GiveUp:
        if self._attempts == 0:
            return GiveUp("its settings allow no restart")
        plural = "" if self._attempts == 1 else "s"
        return GiveUp(f"it has used its {self._attempts} restart{plural}")


class ExponentialBackoffStrategy:
    """Delays each restart longer than the last, up to a maximum.

    The delays start over when the job has run for `reset_after` without a failure. The jitter comes from a
    hash of the job and its failures: different between jobs, repeatable in tests.
    """

    def __init__(self, config: ExponentialBackoff, seed: str) -> None:
        self._config = config
        self._initial = as_seconds(config.initial)
        self._maximum = as_seconds(config.maximum)
        self._reset_after = as_seconds(config.reset_after)
        self._seed = seed
        self._restarts = 0
        self._failures = 0
        self._begun_at: float | None = None

    def after_death(self, memory: RestartMemory, age: float) -> RestartMemory:
        """Count one more failure in a row, or begin again at 0 if the attempt ran long enough."""
        begun = memory.times[-1] if memory.times else 0.0
        ran_well = age - begun >= self._reset_after + self._maximum
        return RestartMemory(memory.restarts + 1, 0 if ran_well else memory.in_a_row + 1, (age,))

    def recovered(self, memory: RestartMemory, age: float) -> RestartDecision:
        """Continue the count of failures in a row; the first death causes no delay."""
        self._restarts, self._failures = memory.restarts, memory.in_a_row
        if self._config.attempts is not None and self._failures > self._config.attempts:
            return self._give_up()
        return RestartAfter(self._delay_of(self._failures - 2) if self._failures > 1 else 0.0)

    def attempt_begun(self, age: float) -> None:
        self._begun_at = age

    def failed(self, age: float) -> RestartDecision:
        if self._begun_at is not None and age - self._begun_at >= self._reset_after:
            self._failures = 0
        if self._config.attempts is not None and self._failures >= self._config.attempts:
            return self._give_up()
        delay = self._delay_of(self._failures)
        self._begun_at = age + delay
        self._restarts += 1
        self._failures += 1
        return RestartAfter(delay)

    def memory(self) -> RestartMemory:
        times = () if self._begun_at is None else (self._begun_at,)
        return RestartMemory(self._restarts, self._failures, times)

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
        times = "once" if self._failures == 1 else f"{self._failures} times in a row"
        return GiveUp(f"it has restarted {times}, never running for {self._reset_after:g} s")


class FailureRateStrategy:
    """Gives up when the failure rate is too high (Flink's `FailureRateRestartBackoffTimeStrategy`)."""

    def __init__(self, config: FailureRate) -> None:
        self._allowed = config.failures
        self._interval = as_seconds(config.interval)
        self._delay = as_seconds(config.delay)
        self._memory = RestartMemory()

    def after_death(self, memory: RestartMemory, age: float) -> RestartMemory:
        return RestartMemory(memory.restarts + 1, times=(*memory.times, age)[-self._allowed - 1 :])

    def recovered(self, memory: RestartMemory, age: float) -> RestartDecision:
        self._memory = memory
        return self._give_up() if self._is_too_high(age) else RestartAfter(0.0)

    def attempt_begun(self, age: float) -> None: ...

    def failed(self, age: float) -> RestartDecision:
        self._memory = self.after_death(self._memory, age)
        return self._give_up() if self._is_too_high(age) else RestartAfter(self._delay)

    def memory(self) -> RestartMemory:
        return self._memory

    def _is_too_high(self, age: float) -> bool:
        times = self._memory.times
        return len(times) > self._allowed and age - times[0] <= self._interval

    def _give_up(self) -> GiveUp:
        return GiveUp(f"it has failed {len(self._memory.times)} times within {self._interval:g} s")


def restart_strategy(config: RestartConfig, job_id: str) -> RestartStrategy:
    match config:
        case NoRestart():
            return FixedDelayStrategy(FixedDelay(attempts=0, delay=0))
        case FixedDelay():
            return FixedDelayStrategy(config)
        case ExponentialBackoff():
            return ExponentialBackoffStrategy(config, job_id)
        case FailureRate():
            return FailureRateStrategy(config)


Region: TypeAlias = frozenset[SubtaskId]


def regions_of(graph: ExecutionGraph) -> Mapping[SubtaskId, Region]:
    leaders = {vertex.id: vertex.id for vertex in graph.job.vertices}

    def leader(vertex: str) -> str:
        while leaders[vertex] != vertex:
            vertex = leaders[vertex]
        return vertex

    for edge in graph.job.edges:
        leaders[leader(edge.target_vertex)] = leader(edge.source_vertex)
    members: dict[str, list[SubtaskId]] = {}
    for subtask in graph.subtasks:
        members.setdefault(leader(subtask.id.vertex), []).append(subtask.id)
    regions = {name: frozenset(subtasks) for name, subtasks in members.items()}
    return {subtask.id: regions[leader(subtask.id.vertex)] for subtask in graph.subtasks}


_FAILS_FAST: Final = (
    "The job has failed twice at this line and has completed no checkpoint, so it does not restart again. "
    "With a `restart=` of your own it would."
)

#: Maximum number of secondary failures that are kept for one attempt.
MAX_SECONDARY: Final = 16


class FailureKind(Enum):
    """The failed part: an operator, a process, damaged state in the restored checkpoint, or another part.

    `SNAPSHOT`: the snapshot that the user named can't be opened.
    """

    OPERATOR = "operator"
    PROCESS = "process"
    STATE = "state"
    SNAPSHOT = "snapshot"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FailureCause:
    """A failure in an attempt.

    Attributes:
        message: Description of the failure and where it happened, in a few lines, shortened by `fit_text`.
        subtask: The subtask that failed; `None` for a failure outside of subtasks.
        traceback: The user's traceback, shortened by `fit_text`.
        recoverable: Whether another attempt may succeed. `False` fails the job without a restart, unless
            `is_damage` allows one from an older checkpoint.
        is_damage: Whether the restored checkpoint is damaged; an older one may be intact.
        operator: The operator that failed; `None` if no operator failed, or it is unknown.
        defined_at: The user's line that put the operator into the graph.
        is_bad_input: Whether a source can't read its stored data. `FailureHistory.known` defines when that is
            final.
    """

    message: str
    subtask: SubtaskId | None = None
    traceback: str = ""
    recoverable: bool = True
    is_damage: bool = False
    kind: FailureKind = FailureKind.OTHER
    operator: str | None = None
    defined_at: UserLocation | None = None
    raised_at: UserLocation | None = None
    is_bad_input: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", fit_text(self.message, LONGEST_MESSAGE))
        object.__setattr__(self, "traceback", fit_text(self.traceback, LONGEST_TRACEBACK))

    @classmethod
    def of_operator(cls, error: OperatorError, traceback: str, *, recoverable: bool = True) -> FailureCause:
        """Return the cause for a failure of an operator in the JobMaster, without a subtask."""
        where = error.location
        return cls(
            str(error),
            None,
            traceback,
            recoverable,
            kind=FailureKind.OPERATOR,
            operator=where.operator,
            defined_at=where.defined_at,
            raised_at=error.raised_at,
        )

    def __str__(self) -> str:
        return self.message if self.subtask is None else f"{self.subtask}: {self.message}"


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """The failure of one attempt.

    Attributes:
        attempt: Number of the attempt.
        at: Time in wall-clock seconds.
        root: The first failure, the cause of the others.
        secondary: Later failures, in order.
    """

    attempt: int
    at: float
    root: FailureCause
    secondary: tuple[FailureCause, ...] = ()


class FailureHistory:
    def __init__(self, capacity: int = 16) -> None:
        self._records: deque[FailureRecord] = deque(maxlen=capacity)

    def attempt_failed(self, attempt: int, at: float, root: FailureCause) -> None:
        self._records.append(FailureRecord(attempt, at, root))

    def also_failed(self, cause: FailureCause) -> None:
        last = self._records[-1]
        if len(last.secondary) < MAX_SECONDARY:
            self._records[-1] = replace(last, secondary=(*last.secondary, cause))

    def known(self, attempt: int, cause: FailureCause, *, fails_fast: bool = False) -> FailureCause:
        """Return the cause, made not recoverable if an earlier attempt has failed in the same way.

        Two failures on the same bad input count as the same, because the data at the position in the message
        does not change. With `fails_fast`, so do two failures at one line of the user's code: it has a bug.
        """
        earlier = (record for record in self._records if record.attempt < attempt)
        known = [failure for record in earlier for failure in (record.root, *record.secondary)]
        if cause.is_bad_input and any(each.is_bad_input and each.message == cause.message for each in known):
            return replace(cause, recoverable=False)
        place = cause.operator, cause.raised_at
        if fails_fast and None not in place and place in ((each.operator, each.raised_at) for each in known):
            return replace(cause, message=f"{cause.message}\n{_FAILS_FAST}", recoverable=False)
        return cause

    def records(self) -> tuple[FailureRecord, ...]:
        return tuple(self._records)
