"""The processes of a job, as its JobMaster sees them.

`Processes` is the port. `Replies` waits a limited time for the answers of several calls.

Each call is answered once, later, by its `reply`: with the process's answer or with a `CallFailure`. Failures
are values with three cases that every caller distinguishes: the process has died, it can't be reached, or the
call raised.

`Deliveries` answers the `deliver` calls of senders. A `deliver` call sends a frame of one channel. Its answer
returns the sender's credit, so the call waits until the subtask has consumed all elements up to the end of
the frame. Calls arrive in any order, and more than once if a connection broke. Consumed elements never reach
the subtask again. When the attempt ends, all calls get the same answer. A finished attempt needs no further
elements, so it answers `CONSUMED`. Any other attempt answers `STALE`. `RoleHolder` has already refused calls
for another role or an older attempt.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.runtime.errors import OperatorLocation, UserLocation
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import ExecutionSubtask
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.ports import TimerService
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.task.statistics import SubtaskStatistics


@dataclass(frozen=True, slots=True)
class SubtaskFinished:
    statistics: SubtaskStatistics | None


@dataclass(frozen=True, slots=True)
class SubtaskStopped: ...


@dataclass(frozen=True, slots=True)
class SubtaskFailed:
    """A subtask has failed.

    Attributes:
        error: A paragraph for users: the failure, its place, and what to do.
        recoverable: Whether another attempt may succeed.
        is_damage: Whether the state to restore is damaged.
        is_bad_input: Whether a source can't read its input; a restart would repeat the failure.
    """

    error: str
    traceback: str
    location: OperatorLocation | None = None
    recoverable: bool = True
    is_damage: bool = False
    raised_at: UserLocation | None = None
    is_bad_input: bool = False

    def cause(self, subtask: SubtaskId) -> FailureCause:
        kind = FailureKind.STATE if self.is_damage else FailureKind.OTHER
        where = self.location
        return FailureCause(
            self.error,
            subtask,
            self.traceback,
            self.recoverable,
            self.is_damage,
            kind if where is None else FailureKind.OPERATOR,
            None if where is None else where.operator,
            None if where is None else where.defined_at,
            self.raised_at,
            self.is_bad_input,
        )


SubtaskOutcome: TypeAlias = SubtaskFinished | SubtaskStopped | SubtaskFailed


T = TypeVar("T")

#: Minimum number of inputs that a process has room for.
_ROOM_FOR_INPUTS: Final = 64

#: Name of a process, independent of its role.
ProcessId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Died:
    """The process has died; this is final."""

    detail: str


@dataclass(frozen=True, slots=True)
class Away:
    """The process could not be reached; it may still have executed the call."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised an exception."""

    cause: FailureCause


CallFailure: TypeAlias = Died | Away | Raised

Reply: TypeAlias = Callable[[T | CallFailure], None]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Resources of a process, fixed when it starts; `inputs` is its maximum number of input channels."""

    num_cpus: float
    num_gpus: float
    inputs: int
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, subtask: ExecutionSubtask) -> ProcessSpec:
        """The spec for a subtask, with room for extra inputs.

        So the process can also serve the subtask after a rescale, or a subtask of another job.
        """
        inputs = max(len(subtask.inputs), _ROOM_FOR_INPUTS)
        vertex = subtask.vertex
        return cls(vertex.num_cpus, vertex.num_gpus, inputs, vertex.resources)

    @property
    def amounts(self) -> dict[str, float]:
        """Occupied resources by Ray's names, CPUs and GPUs first."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}

    @property
    def occupies_resources(self) -> bool:
        return any(self.amounts.values())

    def fit(self, wanted: ProcessSpec) -> bool:
        """Whether a process that was started with this spec can serve a subtask that needs `wanted`.

        Example:
            >>> [ProcessSpec(cpus, 0, 64).fit(ProcessSpec(0, 0, 2)) for cpus in (0, 1)]
            [True, False]
        """
        return self.amounts == wanted.amounts and self.inputs >= wanted.inputs


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process.

    Attributes:
        started: Start time in clock ticks since the node's boot; 0 if unknown. Distinguishes the process from
            a later process with the same pid.
    """

    pid: int
    node_id: str
    started: int = 0


@dataclass(frozen=True, slots=True)
class CurrentRole:
    """The answer of a process to `ask`; the role is `None` while the process is free.

    Attributes:
        is_prepared: Whether the process has loaded the code of the job whose role it may take.
    """

    role: Role | None
    spec: ProcessSpec
    place: Place
    is_prepared: bool = False


@dataclass(frozen=True, slots=True)
class LongCall:
    """A call of a user's function that has not returned for a while.

    Attributes:
        what: Name and place of the function: `map function parse (job.py:12)`.
    """

    what: str
    seconds: float

    def __str__(self) -> str:
        return f"in {self.what} for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of a subtask; attempt 0, without statistics, means that no attempt was deployed."""

    attempt: int
    statistics: SubtaskStatistics | None
    long_call: LongCall | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """The process does not hold the role that the call carried."""


@dataclass(frozen=True, slots=True)
class Room:
    """Total and free resources of the cluster, by Ray's names."""

    total: Mapping[str, float]
    free: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Peer:
    process: ProcessId
    role: Role


class Processes(Protocol):
    """The processes of one job. No reply comes before its call has returned.

    `claim`, `room` and `leave` may wait briefly for the cluster; no other method blocks.
    """

    def left_behind(self) -> Sequence[ProcessId]:
        """Processes that an earlier JobMaster of this job has started or claimed."""
        ...

    def claim(self, spec: ProcessSpec) -> ProcessId | None:
        """Claim a warm process that fits; `None` if there is no such process.

        The process has served this program before and holds no role. It may be dead, or may refuse the role.
        """
        ...

    def start(self, spec: ProcessSpec) -> ProcessId:
        """Start a process; calls to it wait until it has started."""
        ...

    def end(self, process: ProcessId, why: str = "") -> None:
        """End a process at once, even while a call runs; answer its open calls with `Died`.

        `why`, if given, is logged as a warning and becomes the detail of `Died`.
        """
        ...

    def forget(self, process: ProcessId) -> None:
        """Remove a process from this job; the process continues."""
        ...

    def offer(self, process: ProcessId) -> None:
        """Remove a process without a role from this job, so that another job may claim it."""
        ...

    def room(self) -> Room:
        """The cluster's resources, for a message; empty when the cluster does not answer."""
        ...

    def ask(self, process: ProcessId, reply: Reply[CurrentRole]) -> None:
        """Ask a process which role it holds; this renews the lease of a process without a role."""
        ...

    def prepare(self, process: ProcessId, reply: Reply[None]) -> None:
        """Let a process without a role load the code of this job, and renew its lease."""
        ...

    def take(self, process: ProcessId, role: Role, reply: Reply[Place | Stale]) -> None:
        """Let a process take a role; `Stale` if it holds another role, or refuses this one."""
        ...

    def deploy(
        self, process: ProcessId, role: Role, descriptor: TaskDescriptor, reply: Reply[SubtaskFailed | None]
    ) -> None:
        """Build and restore the subtask of an attempt; `None` on success."""
        ...

    def run(
        self,
        process: ProcessId,
        role: Role,
        peers: Mapping[SubtaskId, Peer],
        reply: Reply[SubtaskOutcome],
    ) -> None:
        """Run a deployed attempt; the call stays open until the attempt ends."""
        ...

    def control(self, process: ProcessId, role: Role, message: SubtaskControl, reply: Reply[bool]) -> None:
        """Send a message to an attempt; `False` when it does not run there."""
        ...

    def stop(self, process: ProcessId, role: Role, reply: Reply[None]) -> None:
        """Stop this attempt and older attempts; answered when all of them have ended."""
        ...

    def renew(self, process: ProcessId, role: Role, guards: bool, reply: Reply[Counters | Stale]) -> None:
        """Renew a lease and request counters.

        With `guards`, the process guards the JobMaster until the next renewal.
        """
        ...

    def processor_times(
        self, node_id: str, places: Sequence[Place], reply: Reply[Mapping[Place, float]]
    ) -> None:
        """Read the processor time of living processes of a node, in seconds.

        The processes take no part in this call, so it also works when they hang.
        """
        ...

    def leave(self, process: ProcessId, role: Role, reply: Reply[bool]) -> None:
        """Let a process stop its work and give its role back; `False` when it does not hold this role.

        The process then waits for another role, but no job can claim it before `offer`. A process that must
        not serve another role ends instead.
        """
        ...


K = TypeVar("K", bound=Hashable)


class Replies(Generic[K, T]):
    """Collects one answer for each key; calls `done` once, when all have arrived or after `timeout` seconds.

    A key without an entry in the answers has not answered in time.
    """

    def __init__(
        self,
        keys: Collection[K],
        timers: TimerService,
        timeout: float,
        done: Callable[[Mapping[K, T | CallFailure]], None],
    ) -> None:
        self._open = set(keys)
        self._done = done
        self._answers: dict[K, T | CallFailure] = {}
        self._is_over = False
        # Without keys, `done` is called as well, but never before this constructor returns.
        self._timer = timers.call_later(timeout if keys else 0.0, self._end)

    def reply(self, key: K) -> Reply[T]:
        def answered(answer: T | CallFailure) -> None:
            if self._is_over or key not in self._open:
                return
            self._open.discard(key)
            self._answers[key] = answer
            if not self._open:
                self._end()

        return answered

    def cancel(self) -> None:
        """Drop the answers; `done` is not called."""
        self._is_over = True
        self._timer.cancel()

    def _end(self) -> None:
        if not self._is_over:
            self.cancel()
            self._done(self._answers)


class DeliveryAnswer(Enum):
    """The receiver's answer to a `deliver` call; its value is sent, because Ray would pickle a member.

    Attributes:
        CONSUMED: Everything was consumed: take the credits back.
        STALE: The receiver does not hold the role, has begun a newer attempt, or has ended this one
            unfinished: stop sending.
        NOT_YET: The receiver has not been deployed for this attempt: send again a little later.
    """

    CONSUMED = 0
    STALE = 1
    NOT_YET = 2


class SenderStep(Enum):
    """The sender's step after a `deliver` call.

    Attributes:
        SEND_AGAIN: Send the elements again a little later, with the same sequence numbers. The receiver drops
            duplicates.
        END_CHANNEL: Send nothing more, and do not wait for this receiver at the end. The receiver has
            finished, or the JobMaster notices its death.
    """

    TAKE_CREDIT = "take the credit"
    SEND_AGAIN = "send again"
    END_CHANNEL = "end the channel"


def step_after(answer: DeliveryAnswer | Died | Away) -> SenderStep:
    match answer:
        case DeliveryAnswer.CONSUMED:
            return SenderStep.TAKE_CREDIT
        case DeliveryAnswer.NOT_YET | Away():
            return SenderStep.SEND_AGAIN
        case DeliveryAnswer.STALE | Died():
            return SenderStep.END_CHANNEL


class Deliveries:
    """Waiting `deliver` calls of one attempt, by channel; single-threaded."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, int, Callable[[DeliveryAnswer], None]]]] = {}
        self._consumed: dict[int, int] = {}
        self._order = count()
        self._closed_with: DeliveryAnswer | None = None

    def wait(self, channel: int, next_sequence_number: int, answer: Callable[[DeliveryAnswer], None]) -> bool:
        """Call `answer` once everything below this number is consumed; return whether the call waits."""
        if self._closed_with is not None:
            answer(self._closed_with)
        elif self._consumed.get(channel, 0) >= next_sequence_number:
            answer(DeliveryAnswer.CONSUMED)
        else:
            entry = (next_sequence_number, next(self._order), answer)
            heapq.heappush(self._waiting.setdefault(channel, []), entry)
            return True
        return False

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        if next_sequence_number <= self._consumed.get(channel, 0):
            return
        self._consumed[channel] = next_sequence_number
        waiting = self._waiting.get(channel)
        while waiting and waiting[0][0] <= next_sequence_number:
            heapq.heappop(waiting)[2](DeliveryAnswer.CONSUMED)

    def close(self, answer: DeliveryAnswer) -> None:
        """Give this answer to all waiting and all later calls."""
        self._closed_with = answer
        waiting, self._waiting = self._waiting, {}
        for calls in waiting.values():
            for _, _, reply in calls:
                reply(answer)
