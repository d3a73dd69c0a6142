"""`Target`: the simulated run into which faults are injected, with its plan and its user.

`User` requests another parallelism of the running job, or its end with a savepoint. A request waits while the
job starts or restarts, as with the real handles. If the JobMaster dies before it has answered a stop, the
user requests the stop again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointSucceeded
from penstock.runtime.job.job_state import JobState, RescaleAnswer, RescaleStarted, StopRequest
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.master import Master
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.world.agenda import Draws, Happening
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind, PlannedFault
from penstock.runtime.testing.simulation.world.world import World


@dataclass(frozen=True, slots=True)
class Plan:
    """The failures and requests of one run.

    Attributes:
        faults: Planned faults; each strikes if its moment comes.
        uploading: Vertices whose snapshots are written as files; faults of uploads prefer them.
        rescale_to: The requested parallelism by vertex; drawn during the run when `None`.
        insists: Whether the user repeats a stop whose savepoint has failed.
        strike_external: Makes a named fault of the external world happen.
        stop_when: Returns whether the user may stop a job that has no end; `None` for a job with one.
        drain: Whether event time then advances to its end before the stop.
    """

    faults: tuple[PlannedFault, ...] = ()
    uploading: frozenset[str] = frozenset()
    rescalable: tuple[str, ...] = ()
    rescale_to: Mapping[str, int] | None = None
    insists: bool = False
    strike_external: Callable[[str], None] | None = None
    stop_when: Callable[[], bool] | None = None
    drain: bool = False


#: Seconds between two checks of a job that starts, and of a request without an answer.
_POLL: Final = 0.1

#: Number of checks after which the wait ends.
_MOST_CHECKS: Final = 600

#: Folder of savepoints that are taken outside the job's folder.
SAVEPOINTS: Final = "savepoints"

#: The largest parallelism that is drawn for a rescaled operator.
MOST_PARALLELISM: Final = 5


class User:
    def __init__(self, world: World, control: ControlPlane, plan: Plan) -> None:
        self._world = world
        self._control = control
        self._plan = plan

    def rescale(self) -> None:
        self._when_settled(self._rescale)

    def stop(self, *, drain: bool) -> None:
        root = self._world.storage.url
        target = f"{root}/{SAVEPOINTS}" if self._world.draws.chance(0.5) else None
        self._when_settled(lambda master: self._stop(master, StopRequest(drain, target)))

    def stop_when_read(self) -> None:
        """Stop a job without an end as soon as the plan allows it; does nothing for any other job."""
        may_stop = self._plan.stop_when
        if may_stop is None:
            return

        def look() -> None:
            newest = self._control.masters.answering
            if newest is not None and newest.scheduler.state is JobState.RUNNING and may_stop():
                self.stop(drain=self._plan.drain)
            else:
                self._later(look, "the user waits for the end of the input")

        self._later(look, "the user waits for the end of the input")

    def _rescale(self, master: Master) -> None:
        given = self._plan.rescale_to
        wanted = self._draw_parallelism(master) if given is None else given

        def answered(answer: RescaleAnswer) -> None:
            self._world.trace.note("** the answer to the user:", answer)
            self._world.counts.happened(FaultKind.RESCALED, int(isinstance(answer, RescaleStarted)))

        self._world.trace.note("** the user wants", wanted)
        if wanted:
            master.scheduler.rescale(wanted, answered)

    def _draw_parallelism(self, master: Master) -> dict[str, int]:
        draws, now = self._world.draws, {v.id: v.parallelism for v in master.scheduler.graph.vertices}
        # A job that continues at another parallelism may have an operator in the chain of another vertex.
        left = [operator for operator in self._plan.rescalable if operator in now]
        wanted: dict[str, int] = {}
        for _ in range(min(len(left), draws.between(1, 2))):
            operator = left.pop(draws.below(len(left)))
            wanted[operator] = draws.pick([n for n in range(1, MOST_PARALLELISM + 1) if n != now[operator]])
        return wanted

    def _stop(self, master: Master, request: StopRequest) -> None:
        if master.scheduler.state in (JobState.STOPPING, JobState.CANCELLING):
            return
        answers: list[CheckpointAnswer] = []

        def answered(answer: CheckpointAnswer) -> None:
            answers.append(answer)
            self._world.trace.note("** the answer to the user:", type(answer).__name__)
            kind = FaultKind.DRAINED if request.drain else FaultKind.STOPPED
            has_stopped = isinstance(answer, CheckpointSucceeded)
            self._world.counts.happened(kind, int(has_stopped))
            if self._plan.insists and not has_stopped:
                self._later(lambda: self._when_settled(lambda other: self._stop(other, request)), "once more")

        def check() -> None:
            if not answers and not master.is_alive:
                self._when_settled(lambda other: self._stop(other, request))
            elif not answers:
                self._later(check, "the user waits")

        self._world.trace.note("** the user asks", request)
        master.scheduler.stop_with_savepoint(request, answered)
        check()

    def _when_settled(self, ask: Callable[[Master], None], checks: int = 0) -> None:
        """Make a request of the newest JobMaster once the job has settled, unless the job has ended."""
        if self._control.end is not None or checks > _MOST_CHECKS:
            return
        newest = self._control.masters.answering
        if newest is not None and not newest.scheduler.state.is_coming_up:
            if not newest.scheduler.state.is_terminal:
                ask(newest)
            return
        self._later(lambda: self._when_settled(ask, checks + 1), "the user looks at the job")

    def _later(self, check: Callable[[], None], what: str) -> None:
        def act() -> None:
            if self._control.end is None:
                check()

        at = self._world.clock.monotonic() + _POLL
        self._world.agenda.add(Happening.OPERATION, act, what, at=at)


@dataclass(slots=True)
class Target:
    world: World
    control: ControlPlane
    plan: Plan
    user: User

    @property
    def draws(self) -> Draws:
        return self.world.draws

    @property
    def counts(self) -> FaultCounts:
        return self.world.counts

    def victim(self, *, uploads: bool = False) -> SimulatedProcess | None:
        """Choose a process whose death matters; with `uploads`, if possible, one that writes files."""
        alive = [process for process in self.control.processes.values() if process.may_die]
        running = [process for process in alive if process.runs] or alive
        if uploads:
            running = [p for p in running if _vertex(p) in self.plan.uploading] or running
        return self.draws.pick(running) if running else None


def _vertex(process: SimulatedProcess) -> str:
    return "" if process.role is None else process.role.subtask.vertex


#: Makes a fault happen now, or at the event that it waits for.
Strike: TypeAlias = Callable[[Target], None]
