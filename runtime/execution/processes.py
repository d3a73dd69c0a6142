"""The processes of a job, as its JobMaster reaches them.

`Processes` is the port. `Replies` waits for the answers of several calls, and only so long.

A call is answered once, later, by its reply: with the process's answer, or with a `CallFailure`. Failures are
values with three cases that every caller distinguishes. The process has died, it can't be reached, or the
call raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.runtime.execution.messages import SubtaskFailed, SubtaskOutcome
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import ExecutionSubtask
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.ports import TimerService
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.task.statistics import SubtaskStatistics

T = TypeVar("T")

#: Inputs that every process has room for.
_ROOM_FOR_INPUTS: Final = 64

#: Names a process; says nothing about its role.
ProcessId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Died:
    """The process is gone for good."""

    detail: str


@dataclass(frozen=True, slots=True)
class Away:
    """The process could not be reached; the call may have been carried out all the same."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The call itself failed."""

    cause: FailureCause


CallFailure: TypeAlias = Died | Away | Raised

Reply: TypeAlias = Callable[[T | CallFailure], None]


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of a process, fixed when it starts.

    Attributes:
        inputs: Channels that may deliver to it at a time.
        resources: Other resources that it occupies, by name.
    """

    num_cpus: float
    num_gpus: float
    inputs: int
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, subtask: ExecutionSubtask) -> Needs:
        """The needs of a subtask, with room for more inputs than it has.

        So its process also serves the subtask after a rescale, or a subtask of another job.
        """
        inputs = max(len(subtask.inputs), _ROOM_FOR_INPUTS)
        vertex = subtask.vertex
        return cls(vertex.num_cpus, vertex.num_gpus, inputs, vertex.resources)

    @property
    def amounts(self) -> dict[str, float]:
        """The resources that it occupies by Ray's names, CPUs and GPUs first.

        Example:
            >>> Needs(1, 0, 64, {"host1": 2}).amounts
            {'CPU': 1, 'GPU': 0, 'host1': 2}
        """
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}

    @property
    def occupies_resources(self) -> bool:
        return any(self.amounts.values())

    def fit(self, wanted: Needs) -> bool:
        """Whether a process that was started with these serves a subtask that needs `wanted`.

        Example:
            >>> Needs(0, 0, 64).fit(Needs(0, 0, 2)), Needs(1, 0, 64).fit(Needs(0, 0, 2))
            (True, False)
        """
        return self.amounts == wanted.amounts and self.inputs >= wanted.inputs


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process.

    Attributes:
        started: When it started, as the kernel of its node counts; distinguishes it from a later process with
            the same id. 0 when it is not known.
    """

    pid: int
    node_id: str
    started: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A process's answer about itself.

    Attributes:
        role: Its role, in the attempt that was deployed last; `None` when it is free.
        is_prepared: Whether it has loaded the code of the job whose role it may take.
    """

    role: Role | None
    needs: Needs
    place: Place
    is_prepared: bool = False


@dataclass(frozen=True, slots=True)
class LongCall:
    """A call of a user's function that has not returned for a while.

    Attributes:
        what: What is called, and where it stands: `map function parse (job.py:12)`.

    Example:
        >>> str(LongCall("map function parse (job.py:12)", 40.3))
        'in map function parse (job.py:12) for 40 s'
    """

    what: str
    seconds: float

    def __str__(self) -> str:
        return f"in {self.what} for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of a subtask.

    Attributes:
        attempt: The attempt that counted; 0 for none.
        statistics: The counters; `None` before the attempt is built.
        long_call: The call of a user's function that it is in, if that takes long.
    """

    attempt: int
    statistics: SubtaskStatistics | None
    long_call: LongCall | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """The process does not hold the role that the call carried."""


@dataclass(frozen=True, slots=True)
class Room:
    """The cluster's resources by Ray's names, and those that are free."""

    total: Mapping[str, float]
    free: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Peer:
    process: ProcessId
    role: Role


class Processes(Protocol):
    """The processes of one job. No method blocks, and no reply comes before its call has returned."""

    def left_behind(self) -> Sequence[ProcessId]:
        """Processes that an earlier JobMaster of this job has started or claimed."""
        ...

    def claim(self, needs: Needs) -> ProcessId | None:
        """Claim a warm process that fits; `None` when there is none.

        A warm process has served this program before and holds no role. No other job can claim it then, but
        it may have died, and it may refuse the role.
        """
        ...

    def start(self, needs: Needs) -> ProcessId:
        """Start a process; calls wait until it is there."""
        ...

    def end(self, process: ProcessId, why: str = "") -> None:
        """End a process at once, whatever it does; `why` is a warning for the log, if it is worth one.

        Its open calls are answered with `Died`, and `why` if it was given.
        """
        ...

    def forget(self, process: ProcessId) -> None:
        """This process is not of this job any more; it lives on."""
        ...

    def offer(self, process: ProcessId) -> None:
        """This process has given its role back and is not of this job any more: another job may claim it."""
        ...

    def room(self) -> Room:
        """The cluster's resources, for a message; none when the cluster does not answer."""
        ...

    def ask(self, process: ProcessId, reply: Reply[Held]) -> None:
        """Ask a process what it holds. That renews the lease of one that holds no role."""
        ...

    def prepare(self, process: ProcessId, reply: Reply[None]) -> None:
        """Let a process without a role load the code of this job, and renew its lease."""
        ...

    def take(self, process: ProcessId, role: Role, reply: Reply[Place | Stale]) -> None:
        """Let a process take a role; `Stale` when it holds another one."""
        ...

    def deploy(
        self, process: ProcessId, role: Role, descriptor: TaskDescriptor, reply: Reply[SubtaskFailed | None]
    ) -> None:
        """Build and restore the subtask of an attempt; `None` when that went well."""
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
        """Stop this attempt and older ones; answered when nothing of them runs any more."""
        ...

    def renew(self, process: ProcessId, role: Role, guards: bool, reply: Reply[Counters | Stale]) -> None:
        """Renew the lease of a process, and request its counters.

        Args:
            guards: Whether the process guards the JobMaster until the next renewal.
        """
        ...

    def processor_times(
        self, node_id: str, places: Sequence[Place], reply: Reply[Mapping[Place, float]]
    ) -> None:
        """Read on a node the processor time of some of its processes, in seconds.

        The answer leaves out a process that is gone. None of the processes takes part in this, so that it
        works when they hang.
        """
        ...

    def leave(self, process: ProcessId, role: Role, reply: Reply[bool]) -> None:
        """Let a process stop its work and give its role back.

        The answer is `True` when the process waits for another role, and `False` when it does not hold this
        one. A process that may not serve again ends. No job can claim it before it is offered.
        """
        ...


K = TypeVar("K", bound=Hashable)


class Replies(Generic[K, T]):
    """Collects one answer for each key; calls `done` once, when all are there or the time is over.

    Args:
        timeout: Seconds to wait at most.
        done: Called with the answers; a key that is missing has not answered in time.
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
        # Without a key there is nothing to wait for, and `done` is called all the same: later, never at once.
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
