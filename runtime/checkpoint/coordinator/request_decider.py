"""Which waiting checkpoint request may start now (Flink's `CheckpointRequestDecider`).

Requests wait while a checkpoint is being started, while too many run, or during the minimum pause after the
last one. The queue has a total order: savepoints, forced requests, other requests, periodic requests. Among
equals the older one is first.

Three rules keep it fair. A forced request ignores limit and pause. A periodic request that comes too early is
refused, and the periodic timer moves to the end of the pause. When the queue is full, the request
at its end is refused if it is periodic; otherwise the new one is.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Final

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason

#: Shorter remainders of a pause (seconds) count as over, so that rounding never sets a timer twice.
PAUSE_RESOLUTION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A request for a checkpoint.

    Attributes:
        number: Unique; requests are numbered as they come.
        kind: Checkpoint or savepoint.
        periodic: The periodic timer asks.
        forced: Ignores the limit of concurrent checkpoints and the pause.
        urgent: Ignores the pause but not the limit.
        timestamp: Time of the request, in the unit of the decider's clock.
        aligned: No barrier may overtake data, whatever the job's setting is.
        full: All state is written anew: it names no file of an earlier checkpoint.
        drain: With a synchronous savepoint: event time is advanced to its end first.
        target: URL of the folder in which a savepoint gets its own; `None` for the job's checkpoint storage.
        tried: The checkpoint that was begun for it and aborted, of the last try; subtasks may know of it.
    """

    number: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    periodic: bool = False
    forced: bool = False
    urgent: bool = False
    timestamp: float = 0.0
    aligned: bool = False
    full: bool = False
    drain: bool = False
    target: str | None = None
    tried: int | None = None

    def rank(self) -> tuple[bool, bool, bool, bool, float, int]:
        """Its place in the queue; smaller goes first."""
        return (
            not self.kind.is_savepoint,
            not self.forced,
            self.periodic,
            not self.urgent,
            self.timestamp,
            self.number,
        )


@dataclass(frozen=True, slots=True)
class Situation:
    """What the decider must know about the present; all times in one unit.

    Attributes:
        is_triggering: A checkpoint is being started.
        pending: Number of checkpoints that run.
        now: The time.
        last_completion: Time when the last checkpoint completed.
    """

    is_triggering: bool
    pending: int
    now: float
    last_completion: float = float("-inf")


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """A request that will not be served, and why."""

    request: CheckpointRequest
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    Attributes:
        execute: The request to start.
        refused: Requests to refuse.
        next_periodic_in: Time after which the periodic timer is to fire; `None` leaves it alone.
        ask_again_in: Time after which to poll, because a request waits for the end of the pause.
    """

    execute: CheckpointRequest | None = None
    refused: tuple[RefusedRequest, ...] = ()
    next_periodic_in: float | None = None
    ask_again_in: float | None = None


class CheckpointRequestDecider:
    """Queues requests and says which one may start.

    Args:
        max_concurrent: Number of checkpoints that may run at a time.
        min_pause: Least time between the end of a checkpoint and the start of the next.
        max_queued: Number of requests that may wait.

    Example:
        >>> decider = CheckpointRequestDecider(max_concurrent=1)
        >>> decider.submit(CheckpointRequest(1), Situation(False, pending=0, now=9.0)).execute.number
        1
    """

    def __init__(self, *, max_concurrent: int = 1, min_pause: float = 0.0, max_queued: int = 1000) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause = min_pause
        self._max_queued = max_queued
        self._queue: list[CheckpointRequest] = []

    @property
    def queued(self) -> tuple[CheckpointRequest, ...]:
        """The waiting requests, next one first."""
        return tuple(self._queue)

    def submit(self, request: CheckpointRequest, situation: Situation) -> Decision:
        """A new request has come."""
        if len(self._queue) >= self._max_queued and not self._queue[-1].periodic:
            return Decision(refused=(RefusedRequest(request, Reason.TOO_MANY_CHECKPOINT_REQUESTS),))
        insort(self._queue, request, key=CheckpointRequest.rank)
        refused: tuple[RefusedRequest, ...] = ()
        if len(self._queue) > self._max_queued:
            refused = (RefusedRequest(self._queue.pop(), Reason.TOO_MANY_CHECKPOINT_REQUESTS),)
        decision = self.poll(situation)
        return Decision(
            decision.execute,
            refused + decision.refused,
            decision.next_periodic_in,
            decision.ask_again_in,
        )

    def poll(self, situation: Situation) -> Decision:
        """Something has changed: may a waiting request start?"""
        if situation.is_triggering or not self._queue:
            return Decision()
        first = self._queue[0]
        if first.forced:
            return Decision(execute=self._queue.pop(0))
        if situation.pending >= self._max_concurrent:
            return Decision()
        pause_over = situation.last_completion - situation.now + self._min_pause
        wait = 0.0 if first.urgent else pause_over
        if wait <= PAUSE_RESOLUTION:
            return Decision(execute=self._queue.pop(0))
        if not first.periodic:
            return Decision(ask_again_in=wait)
        too_early = RefusedRequest(self._queue.pop(0), Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)
        return Decision(refused=(too_early,), next_periodic_in=wait)

    def abort_all(self, reason: Reason) -> tuple[RefusedRequest, ...]:
        """Refuse every waiting request."""
        refused = tuple(RefusedRequest(request, reason) for request in self._queue)
        self._queue.clear()
        return refused
