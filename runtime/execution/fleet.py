"""The processes of a job: their roles, and the spares.

`Fleet`: starting a process takes about a second, so a restart keeps the living processes. Each process keeps
its role, and runs the role's next attempt. A free role goes to one of the job's spares. If the job has none,
the fleet claims a warm process, which has served an earlier job of the program, or starts a new one. It ends
processes that are dead, useless or surplus. At the end of the job each process gives its role back. Processes
that may serve again are offered to other jobs; all other processes end. Only the fleet offers processes. So a
process that it ends for a late answer can't serve another job.

A warm process may have died unnoticed, hang, or refuse the role. Then a new process replaces it. So a warm
process may cause a short delay, but never a failed deployment.

The fleet never infers a role from a process's name. After a crash, the new JobMaster asks every remaining
process for its role. It takes over processes that hold a role of this job.

Invariant: two processes with one role are never both used. If two processes hold the same subtask, because
two JobMasters were active, the process with the newer attempt stays.

`StandbyPool`: the spares of a job, processes without a role that replace processes that die. When the state
is small, most of a restart after a death is the wait for the new process. So a job may keep spares
(`JobConfig.standby`). The pool is filled only while every subtask has a process. Otherwise its starts would
take processor time from the processes that a deployment starts.

A spare has loaded the job's code (`prepare`), so it imports no modules when it takes a role. Each round of
the watch pings it, which renews its lease. A dead or silent spare is replaced. If a spare dies when it is
needed, the fleet starts a new process, as it does for a warm process that dies.

Invariant: no spare outlives its job or is offered to another job. A spare holds no role, so another job could
not tell which modules it has loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import NoRestart
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    CurrentRole,
    Died,
    Place,
    Processes,
    ProcessId,
    ProcessSpec,
    Raised,
    Replies,
    Stale,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.ports import Cancellable, TimerService
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.time.durations import as_seconds

#: Rounds without an answer after which a spare is replaced.
_PATIENCE: Final = 5


@dataclass(slots=True)
class _Spare:
    spec: ProcessSpec
    is_ready: bool = False
    unanswered: int = 0


class StandbyPool:
    def __init__(self, wanted: int, processes: Processes) -> None:
        self._wanted = wanted
        self._processes = processes
        self._spares: dict[ProcessId, _Spare] = {}

    @property
    def are_wanted(self) -> bool:
        return self._wanted > 0

    @property
    def ready(self) -> int:
        return sum(spare.is_ready for spare in self._spares.values())

    def look(self, spec: ProcessSpec | None) -> None:
        """Renew leases of spares, replace useless ones, and fill the pool; without a `spec`, start none."""
        for process, spare in list(self._spares.items()):
            if spare.unanswered >= _PATIENCE:
                self._lose(process, "it waits for a role and does not answer")
                continue
            spare.unanswered += 1
            self._processes.ask(process, partial(self._answered, process))
        while spec is not None and len(self._spares) < self._wanted:
            self._add(spec)

    def take(self, spec: ProcessSpec) -> ProcessId | None:
        """Remove a matching spare from the pool and return it; `None` if none is ready."""
        for process, spare in self._spares.items():
            if spare.is_ready and spare.spec.fit(spec):
                del self._spares[process]
                return process
        return None

    def end(self) -> None:
        for process in list(self._spares):
            self._lose(process)

    def _add(self, spec: ProcessSpec) -> None:
        process = self._processes.claim(spec) or self._processes.start(spec)
        self._spares[process] = _Spare(spec)
        self._processes.prepare(process, partial(self._prepared, process))

    def _prepared(self, process: ProcessId, answer: CallFailure | None) -> None:
        spare = self._spares.get(process)
        if spare is None:
            return
        if answer is None:
            spare.is_ready, spare.unanswered = True, 0
        else:
            self._lose(process)

    def _answered(self, process: ProcessId, answer: CurrentRole | CallFailure) -> None:
        spare = self._spares.get(process)
        if spare is None:
            return
        if isinstance(answer, CurrentRole) and answer.role is None:
            spare.unanswered = 0
        else:
            self._lose(process)

    def _lose(self, process: ProcessId, why: str = "") -> None:
        del self._spares[process]
        self._processes.end(process, why)


#: Seconds within which a remaining process must report its role, or `heartbeat_timeout` if that is shorter. A
#: busy process is killed, too: the new attempt repeats its work in any case.
TAKE_OVER_TIMEOUT: Final = 10.0
#: Seconds within which processes must give their roles back.
LEAVE_TIMEOUT: Final = 10.0
#: Seconds within which a warm process must take its role; otherwise a new process is started.
WARM_TIMEOUT: Final = 2.0


@dataclass(frozen=True, slots=True)
class Member:
    """A process that holds a role. `role.attempt` may be old; each call passes the current attempt."""

    process: ProcessId
    role: Role
    spec: ProcessSpec
    place: Place


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Processes that were chosen for roles and have not taken them yet."""

    processes: Processes
    chosen: dict[SubtaskId, Member]
    replies: Replies[SubtaskId, Place | Stale]

    def cancel(self) -> None:
        self.replies.cancel()
        for member in self.chosen.values():
            self.processes.end(member.process)
        self.chosen.clear()


class Fleet:
    """Manages the processes of one job; see the module's docstring."""

    def __init__(
        self,
        job_id: str,
        graph: CurrentGraph,
        config: JobConfig,
        processes: Processes,
        timers: TimerService,
        new_token: Callable[[], str],
    ) -> None:
        self._job_id = job_id
        self._graph = graph
        self._config = config
        self._processes = processes
        self._timers = timers
        self._new_token = new_token
        self.members: dict[SubtaskId, Member] = {}
        # A job that never restarts needs no spares.
        restarts = not isinstance(config.restart_or_default, NoRestart)
        self.spares = StandbyPool(config.standby if restarts else 0, processes)

    # -- a restarted JobMaster ------------------------------------------------------------------------------

    def adopt(self, then: Callable[[], None]) -> None:
        """Take over processes of an earlier JobMaster, end silent and surplus ones, then call `then`.

        All processes are asked at once, so several hanging processes take no longer than one.
        """
        left = self._processes.left_behind()

        def answered(answers: Mapping[ProcessId, CurrentRole | CallFailure]) -> None:
            for process in left:
                self._take_over(process, answers.get(process))
            then()

        timeout = min(TAKE_OVER_TIMEOUT, as_seconds(self._config.advanced.heartbeat_timeout))
        gathering: Replies[ProcessId, CurrentRole] = Replies(left, self._timers, timeout, answered)
        for process in left:
            self._processes.ask(process, gathering.reply(process))

    def _take_over(self, process: ProcessId, answer: CurrentRole | CallFailure | None) -> None:
        if not isinstance(answer, CurrentRole):
            is_silent = not isinstance(answer, Died)
            self._processes.end(process, "it does not report its role" if is_silent else "")
            return
        held = answer.role
        if held is None and self.spares.are_wanted:
            self._processes.end(process)  # a spare; the pool is filled again soon
            return
        if held is None or held.job_id != self._job_id:
            # The process gave its role back. It waits for another one, serves another job, or ends by its
            # lease.
            self._processes.forget(process)
            return
        known = self.members.get(held.subtask)
        if known is not None and known.role.attempt >= held.attempt:
            self._processes.end(process)
            return
        if known is not None:
            self._processes.end(known.process)
        self.members[held.subtask] = Member(process, held, answer.spec, answer.place)

    # -- spares ---------------------------------------------------------------------------------------------

    def look_after_spares(self) -> None:
        """Keep the configured number of spares; start none before every subtask has a process."""
        if not self.spares.are_wanted:
            return
        spec = None
        subtasks = self._graph.execution.subtasks
        if all(subtask.id in self.members for subtask in subtasks):
            all_specs = (ProcessSpec.of(subtask) for subtask in subtasks)
            light = [spec for spec in all_specs if not spec.occupies_resources]
            spec = max(light, key=lambda spec: spec.inputs, default=None)
        self.spares.look(spec)

    # -- a deployment ---------------------------------------------------------------------------------------

    def ensure(self, subtasks: Collection[SubtaskId], then: Callable[[str | None], None]) -> Cancellable:
        """Provide a process for each of these subtasks, and end processes of removed subtasks.

        Calls `then` with `None`, or with the reason why some subtasks could not be placed. Cancelling the
        result ends the processes that were chosen for it.
        """
        self._end_unfit()
        needed = {s: ProcessSpec.of(self._graph.subtask(s)) for s in self._graph.subtasks if s in subtasks}
        missing = {id: spec for id, spec in needed.items() if id not in self.members}
        chosen: dict[SubtaskId, Member] = {}
        replies: Replies[SubtaskId, Place | Stale] = Replies(
            missing,
            self._timers,
            as_seconds(self._config.deployment_timeout),
            lambda answers: then(self._placed(chosen, answers)),
        )
        placement = Placement(self._processes, chosen, replies)
        for subtask, spec in missing.items():
            warm = self.spares.take(spec) or self._processes.claim(spec)
            if warm is None:
                self._start(placement, subtask, spec)
            else:
                self._try(placement, subtask, spec, warm)
        return placement

    def _start(self, placement: Placement, subtask: SubtaskId, spec: ProcessSpec) -> None:
        member = placement.chosen[subtask] = self._new_member(subtask, spec, self._processes.start(spec))
        self._processes.take(member.process, member.role, placement.replies.reply(subtask))

    def _try(self, placement: Placement, subtask: SubtaskId, spec: ProcessSpec, warm: ProcessId) -> None:
        """Let a warm process take the role; start another process if it does not."""
        chosen, reply = placement.chosen, placement.replies.reply(subtask)
        member = chosen[subtask] = self._new_member(subtask, spec, warm)

        def answered(answer: Place | Stale | CallFailure) -> None:
            timer.cancel()
            if isinstance(answer, Place) and chosen.get(subtask) is member:
                reply(answer)
            else:
                replace()

        def replace() -> None:
            if chosen.get(subtask) is member:
                self._processes.end(warm)
                self._start(placement, subtask, spec)

        timer = self._timers.call_later(WARM_TIMEOUT, replace)
        self._processes.take(warm, member.role, answered)

    def _new_member(self, subtask: SubtaskId, spec: ProcessSpec, process: ProcessId) -> Member:
        return Member(process, Role(self._job_id, subtask, 0, self._new_token()), spec, Place(0, ""))

    def _placed(
        self, chosen: dict[SubtaskId, Member], answers: Mapping[SubtaskId, Place | Stale | CallFailure]
    ) -> str | None:
        """Keep the processes that have taken their roles and end the others; return the problems."""
        late: list[SubtaskId] = []
        problems: list[str] = []
        for subtask, member in chosen.items():
            match answers.get(subtask):
                case Place() as place:
                    self.members[subtask] = Member(member.process, member.role, member.spec, place)
                    continue
                case None:
                    late.append(subtask)
                case Died(detail):
                    problems.append(f"{subtask}: the process chosen for it died: {detail}")
                case Away():
                    problems.append(f"{subtask}: the process chosen for it can't be reached")
                case Raised(cause):
                    problems.append(f"{subtask}: {cause.message}")
                case Stale():
                    problems.append(f"{subtask}: the process chosen for it has another role")
            self._processes.end(member.process)
        if late:
            problems.insert(0, self._no_room(late, chosen))
        chosen.clear()
        return "; ".join(problems) or None

    def _no_room(self, late: Sequence[SubtaskId], chosen: Mapping[SubtaskId, Member]) -> str:
        needed = Counter[str]()
        for subtask in late:
            needed.update(chosen[subtask].spec.amounts)
        room = self._processes.room()
        listed = " and ".join(f"{amount:g} {name}" for name, amount in needed.items())
        has = " and ".join(
            f"{room.total.get(name, 0):g} {name} ({room.free.get(name, 0):g} free)" for name in needed
        )
        # Every cluster has some resources, so an empty total means that the cluster has not answered.
        says = f"the cluster has {has}" if room.total else "the cluster has not reported its resources"
        others = "/resources" if len(needed) > 2 else ""
        return (
            f"{', '.join(map(str, late))} could not be placed within "
            f"{as_seconds(self._config.deployment_timeout):g} s. Needed: {listed}; "
            f"{says}. Add nodes, lower num_cpus/num_gpus{others} or the parallelism, or raise "
            "deployment_timeout"
        )

    def _end_unfit(self) -> None:
        """End the processes of subtasks that a rescale has removed, or that now need another process."""
        needed = {subtask.id: ProcessSpec.of(subtask) for subtask in self._graph.execution.subtasks}
        for subtask, member in list(self.members.items()):
            wanted = needed.get(subtask)
            if wanted is None or not member.spec.fit(wanted):
                self.lose(subtask)

    def lose(self, subtask: SubtaskId, why: str = "") -> None:
        """Drop the dead or useless process of a subtask; `why` is logged as a warning."""
        member = self.members.pop(subtask, None)
        if member is not None:
            self._processes.end(member.process, why)

    def lose_member(self, member: Member, why: str = "") -> None:
        """Drop a dead or useless process, unless it has already been replaced."""
        if self.members.get(member.role.subtask) is member:
            self.lose(member.role.subtask, why)

    def forget(self, member: Member) -> None:
        """Drop a process without ending it, because it holds another role now."""
        if self.members.get(member.role.subtask) is member:
            del self.members[member.role.subtask]

    def leave(self, then: Callable[[], None]) -> None:
        """Make all processes give their roles back, end those that do not answer, then call `then`."""
        self.spares.end()
        members, self.members = list(self.members.values()), {}
        leaving = [member.process for member in members]

        def answered(answers: Mapping[ProcessId, bool | CallFailure]) -> None:
            for process in leaving:
                match answers.get(process):
                    case True:
                        self._processes.offer(process)
                    case False:  # it holds another role, so it must not be ended
                        self._processes.forget(process)
                    case _:
                        self._processes.end(process)
            then()

        gathering: Replies[ProcessId, bool] = Replies(leaving, self._timers, LEAVE_TIMEOUT, answered)
        for member in members:
            self._processes.leave(member.process, member.role, gathering.reply(member.process))
