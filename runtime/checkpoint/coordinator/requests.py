"""Requests for checkpoints: their queue, their start, and their answers.

`CheckpointRequests` joins the decider to three timers: for periodic requests, for the end of a pause, and for
retries. It answers each request exactly once. It writes notes to the job's log: which request waits, why, and
for how long at most.

`CheckpointRequestDecider` (Flink's class) selects the waiting request that may start now. Requests wait while
a checkpoint is being started, while too many run, or during the minimum pause after the last one. The order
of the queue is: savepoints, forced requests, other requests, periodic requests; among equals, urgent requests
first, then the oldest.

A forced request ignores the limit and the pause. An `urgent` request ignores only the pause: a retry, or a
request of the job itself, such as the one before a rescale. A periodic request during the pause is refused,
and the periodic timer moves to the end of the pause. If the queue is full, its last request is refused if
that is periodic. Otherwise the new request is refused.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sized
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.ports import Cancellable, Clock, TimerService
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.time.durations import as_seconds

#: Shorter remainders of a pause (seconds) count as over, so that rounding never sets a timer twice.
PAUSE_RESOLUTION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A request for a checkpoint.

    Attributes:
        number: Unique; in the order of arrival.
        forced: Ignores the limit of concurrent checkpoints and the pause.
        urgent: Ignores the pause but not the limit.
        timestamp: Time of the request, in the unit of the decider's clock.
        aligned: Lets no barrier overtake data, whatever the job's setting is.
        full: Writes all state again; names no earlier checkpoint's files, except for finished subtasks.
        drain: Advances event time to its end before a synchronous savepoint (Flink's
            `advanceToEndOfEventTime`).
        target: URL of the savepoint's parent folder; `None` for the job's checkpoint storage.
        tried: Id of the request's last checkpoint, which was aborted; subtasks may have received its barrier.
    """

    number: int = 0
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
        """Sort key in the queue."""
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
    """Input of the decider; all times in one unit."""

    is_triggering: bool
    pending: int
    now: float
    last_completion: float = float("-inf")


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    request: CheckpointRequest
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """The decider's answer, with the delays until the next periodic request and the next poll."""

    execute: CheckpointRequest | None = None
    refused: tuple[RefusedRequest, ...] = ()
    next_periodic_in: float | None = None
    ask_again_in: float | None = None


class CheckpointRequestDecider:
    """Queues requests and selects the one that may start.

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
        return tuple(self._queue)

    def submit(self, request: CheckpointRequest, situation: Situation) -> Decision:
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
        refused = tuple(RefusedRequest(request, reason) for request in self._queue)
        self._queue.clear()
        return refused


#: Seconds before the retry of a checkpoint that the end of a subtask has aborted. More subtasks may finish
#: meanwhile.
RETRY_DELAY: Final = 0.1


@dataclass(frozen=True, slots=True)
class CheckpointSucceeded:
    """The answer to a request whose checkpoint completed.

    Attributes:
        duration: Seconds from the trigger until the record was written.
        still_needed: Reason why the job may still restart from this savepoint; else empty.
    """

    checkpoint: CompletedCheckpoint
    duration: float = 0.0
    still_needed: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The answer to a refused or failed request; `checkpoint_id` is `None` if no checkpoint began."""

    reason: Reason
    detail: str = ""
    checkpoint_id: int | None = None

    @property
    def why(self) -> str:
        """The detail and the reason, or the reason alone."""
        return f"{self.detail} ({self.reason.value})" if self.detail else self.reason.value


@dataclass(frozen=True, slots=True)
class RequestNote:
    """A line for the job's log.

    Attributes:
        is_warning: Whether a request was dropped: a periodic one has no caller who learns of it.
        is_routine: Whether a periodic request waits or starts. With a short interval, most of them wait.
    """

    text: str
    is_warning: bool = False
    is_routine: bool = False


CheckpointAnswer: TypeAlias = CheckpointSucceeded | CheckpointFailed

OnAnswer: TypeAlias = Callable[[CheckpointAnswer], None]


def _named(request: CheckpointRequest) -> str:
    kind = "periodic checkpoint" if request.periodic else request.kind.value.replace("_", " ")
    return f"request {request.number} for a {kind}"


def _cancel(timer: Cancellable | None) -> None:
    if timer is not None:
        timer.cancel()


class CheckpointRequests:
    """Takes requests and starts them when the decider allows it.

    `start` must lead to a call of `start_ended`. `given_up` gets a request whose checkpoint was aborted and
    is not retried.
    """

    def __init__(
        self,
        config: Checkpointing,
        clock: Clock,
        timers: TimerService,
        start: Callable[[CheckpointRequest], None],
        pending: Sized,
        *,
        semantics: Semantics = Semantics.current(),
        given_up: Callable[[CheckpointRequest, CheckpointFailed], None] | None = None,
        note: Callable[[RequestNote], None] = lambda _: None,
    ) -> None:
        self._given_up = given_up
        self._note = note
        self._config = config
        self._interval = as_seconds(config.every)
        self._decider = CheckpointRequestDecider(
            max_concurrent=config.max_concurrent, min_pause=as_seconds(config.min_pause)
        )
        self._clock = clock
        self._timers = timers
        self._start = start
        self._pending = pending
        self._answers: dict[int, OnAnswer] = {}
        self._numbers = 0
        self._semantics = semantics
        self._starting: CheckpointRequest | None = None
        self._is_in_start = False
        self._last_completion = float("-inf")
        self._periodic: Cancellable | None = None
        self._ask_again: Cancellable | None = None
        self._retry: Cancellable | None = None
        self._retrying: list[CheckpointRequest] = []
        self.refused = 0

    @property
    def queued(self) -> int:
        return len(self._decider.queued)

    @property
    def starting(self) -> CheckpointRequest | None:
        """The request whose checkpoint is being started; at most one."""
        return self._starting

    @property
    def is_periodic(self) -> bool:
        return self._periodic is not None

    def submit(
        self, request: CheckpointRequest = CheckpointRequest(), on_answer: OnAnswer | None = None
    ) -> None:
        """Take a request and set its number and time."""
        self._numbers += 1
        request = replace(request, number=self._numbers, timestamp=self._clock.monotonic())
        if on_answer is not None:
            self._answers[request.number] = on_answer
        if request.periodic and not self.is_periodic:
            self.refuse(request, CheckpointFailed(Reason.PERIODIC_SCHEDULER_SHUTDOWN))
        else:
            self._enter(request)

    def retry_later(self, request: CheckpointRequest, checkpoint_id: int) -> None:
        """Serve a request again later, because a subtask finished before it took the checkpoint."""
        self._retrying.append(replace(request, tried=checkpoint_id))
        if self._retry is None:
            self._retry = self._timers.call_later(RETRY_DELAY, self._serve_again)

    def will_retry(self, request: CheckpointRequest) -> bool:
        return any(retried.number == request.number for retried in self._retrying)

    def poll(self) -> None:
        self._follow(self._decider.poll(self._situation()))

    def start_ended(self) -> None:
        """Serve the next request, after a start has succeeded or failed."""
        self._starting = None
        if not self._is_in_start:
            self.poll()

    def begin_pause(self) -> None:
        self._last_completion = self._clock.monotonic()

    def answer(self, request: CheckpointRequest, answer: CheckpointAnswer) -> None:
        if self.will_retry(request):
            return
        on_answer = self._answers.pop(request.number, None)
        if on_answer is not None:
            on_answer(answer)

    def refuse(self, request: CheckpointRequest, answer: CheckpointFailed) -> None:
        """Refuse a request that waits for its start or a retry, or whose start made no checkpoint."""
        self.refused += 1
        if request.tried is None:
            self.answer(request, answer)
            return
        self.answer(request, replace(answer, checkpoint_id=request.tried))
        if self._given_up is not None:
            self._given_up(request, answer)

    def start_periodic(self) -> None:
        """Start the periodic timer; the first checkpoint comes after one interval."""
        self._set_periodic(self._interval)

    def stop_periodic(self) -> None:
        _cancel(self._periodic)
        self._periodic = None

    def abort_waiting(self, reason: Reason, detail: str = "") -> None:
        _cancel(self._ask_again)
        self._ask_again = None
        _cancel(self._retry)
        self._retry = None
        queued = [refused.request for refused in self._decider.abort_all(reason)]
        if queued:
            why = f"{reason.value}: {detail}" if detail else reason.value
            self._note(RequestNote(f"waiting checkpoint requests were refused ({len(queued)}): {why}"))
        waiting = queued + self._retrying
        self._retrying = []
        for request in waiting:
            self.refuse(request, CheckpointFailed(reason, detail))

    def _tick(self) -> None:
        self._set_periodic(self._interval)
        waits = any(request.periodic for request in self._decider.queued)
        if not (waits and self._semantics.coalesces_periodic_requests):
            self.submit(CheckpointRequest(periodic=True))

    def _serve_again(self) -> None:
        self._retry = None
        retrying, self._retrying = self._retrying, []
        for request in retrying:
            self._numbers += 1
            now = self._clock.monotonic()
            again = replace(request, number=self._numbers, periodic=False, urgent=True, timestamp=now)
            if (on_answer := self._answers.pop(request.number, None)) is not None:
                self._answers[again.number] = on_answer
            self._enter(again)

    def _enter(self, request: CheckpointRequest) -> None:
        self._follow(self._decider.submit(request, self._situation()), request)
        numbers = [queued.number for queued in self._decider.queued]
        if request.number in numbers:
            why = self._why_it_waits(request, numbers.index(request.number))
            self._note(RequestNote(why, is_routine=request.periodic))

    def _why_it_waits(self, request: CheckpointRequest, ahead: int) -> str:
        now, timeout, pause = (
            self._situation(),
            as_seconds(self._config.timeout),
            as_seconds(self._config.min_pause),
        )
        if now.is_triggering:
            # The other checkpoint may use the timeout twice: to prepare its location, and to complete.
            why, at_most = "another checkpoint is being started", 2 * timeout + pause
        elif now.pending >= self._config.max_concurrent:
            limit = self._config.max_concurrent
            why, at_most = f"running checkpoints: {now.pending} (max_concurrent={limit})", timeout + pause
        else:
            why, at_most = self._rest_of_pause()
        if ahead:
            why, at_most = f"{why}; requests ahead: {ahead}", at_most + ahead * (2 * timeout + pause)
        at_most = round(at_most, 2)
        return f"{_named(request)} waits: {why}. It waits for at most {at_most} s, unless others overtake it"

    def _rest_of_pause(self) -> tuple[str, float]:
        pause = as_seconds(self._config.min_pause)
        rest = self._last_completion + pause - self._clock.monotonic()
        return f"the pause after the last checkpoint (min_pause={pause:g} s) is not over", rest

    def _situation(self) -> Situation:
        now = self._clock.monotonic()
        return Situation(self._starting is not None, len(self._pending), now, self._last_completion)

    def _follow(self, decision: Decision, entering: CheckpointRequest | None = None) -> None:
        while True:
            self._apply(decision)
            if decision.execute is None:
                return
            self._starting = starting = decision.execute
            if starting is not entering:
                waited = round(self._clock.monotonic() - starting.timestamp, 2)
                text = f"{_named(starting)} starts; it has waited for {waited} s"
                self._note(RequestNote(text, is_routine=starting.periodic))
            self._is_in_start = True
            self._start(starting)
            self._is_in_start = False
            decision = self._decider.poll(self._situation())

    def _apply(self, decision: Decision) -> None:
        for refused in decision.refused:
            self._note_refused(refused)
            self.refuse(refused.request, CheckpointFailed(refused.reason))
        if decision.next_periodic_in is not None and self.is_periodic:
            self._set_periodic(decision.next_periodic_in)
        if decision.ask_again_in is not None:
            _cancel(self._ask_again)
            self._ask_again = self._timers.call_later(decision.ask_again_in, self.poll)

    def _note_refused(self, refused: RefusedRequest) -> None:
        name = _named(refused.request)
        if refused.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS:
            why = f"{self.queued} requests are waiting, which is the limit ({refused.reason.value})"
            self._note(RequestNote(f"{name} was dropped: {why}", is_warning=True))
        else:
            why, rest = self._rest_of_pause()
            text = f"{name} is postponed: {why}. The next follows in {round(rest, 2)} s"
            self._note(RequestNote(text, is_routine=True))

    def _set_periodic(self, delay: float) -> None:
        _cancel(self._periodic)
        self._periodic = self._timers.call_later(delay, self._tick)
