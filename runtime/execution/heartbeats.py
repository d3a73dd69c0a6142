"""The JobMaster's watch of its processes: renews leases, and ends processes that hang.

`Watch` renews the leases of a job's subtasks at least every two seconds, reads their counters, and notes
silent subtasks. Each answer is a sign of life. `Heartbeats` judges the silence of each process with a
`Heartbeat`. While all processes answer, even a job with a thousand subtasks needs no calls beyond those for
its leases. It makes a thousand comparisons a second, or two thousand while a process is suspect.

Processor times are requested by node, with one open request per node. So a node that has lost its connection
does not delay the others. Without an answer, `overdue_after` applies to the node's processes; Ray detects a
dead node before that.

A process is identified by the token of its role (`Role.token`), not by its subtask. A replacement, or a
process that now serves another job, counts as new. The fleet kills processes: the open `run` call then fails,
and the scheduler learns of the death as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.heartbeat import Heartbeat, HeartbeatLimits, Pulse, Silence, choose_guards
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Counters,
    Died,
    Place,
    Processes,
    Replies,
    Reply,
    Stale,
)
from penstock.runtime.ports import Cancellable, Clock, TimerService
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.time.durations import as_seconds


class HeartbeatListener(Protocol):
    def fell_silent(self, member: Member, silence: Silence) -> None:
        """Report that a process has not answered for a while; called once per silence."""
        ...

    def answers_again(self, member: Member) -> None: ...


@dataclass(slots=True, eq=False)
class _Beat:
    """The heartbeat of one member; `is_reported` once this silence was reported."""

    member: Member
    heartbeat: Heartbeat
    is_reported: bool = False


class Heartbeats:
    def __init__(
        self,
        fleet: Fleet,
        processes: Processes,
        clock: Clock,
        timers: TimerService,
        limits: HeartbeatLimits,
        listener: HeartbeatListener,
    ) -> None:
        self._fleet = fleet
        self._processes = processes
        self._clock = clock
        self._timers = timers
        self._limits = limits
        self._listener = listener
        self._beats: dict[str, _Beat] = {}
        self._asked_nodes: set[str] = set()
        self._pause = limits.calm_interval
        self._timer: Cancellable | None = None
        self._has_ended = False

    def begin(self) -> None:
        """Check now and periodically until `end`; more often while a process is suspect."""
        if not self._has_ended:
            self._look()
            has_suspects = any(beat.heartbeat.is_suspect for beat in self._beats.values())
            self._pause = self._limits.interval if has_suspects else self._limits.calm_interval
            self._timer = self._timers.call_later(self._pause, self.begin)

    def end(self) -> None:
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()

    def heard(self, member: Member) -> None:
        beat = self._beats.get(member.role.token)
        if beat is None:
            return
        beat.heartbeat.heard(self._clock.monotonic())
        if beat.is_reported:
            beat.is_reported = False
            self._listener.answers_again(member)

    def is_suspect(self, member: Member) -> bool:
        beat = self._beats.get(member.role.token)
        return beat is not None and beat.heartbeat.is_suspect

    @property
    def silent(self) -> Mapping[SubtaskId, Silence]:
        """The subtasks whose processes were reported as silent."""
        named = [beat for beat in self._beats.values() if beat.is_reported]
        return {beat.member.role.subtask: beat.heartbeat.silence for beat in named}

    def _look(self) -> None:
        """Check all processes: report silent ones, end hanging ones."""
        now = self._clock.monotonic()
        self._follow(now)
        suspects: dict[str, list[_Beat]] = {}
        for beat in list(self._beats.values()):
            pulse = beat.heartbeat.look(now, self._pause)
            if pulse.is_over:
                self._end(beat, pulse)
                continue
            if pulse is Pulse.SILENT and not beat.is_reported:
                beat.is_reported = True
                self._listener.fell_silent(beat.member, beat.heartbeat.silence)
            if beat.heartbeat.wants_reading:
                suspects.setdefault(beat.member.place.node_id, []).append(beat)
        for node_id, beats in suspects.items():
            if node_id not in self._asked_nodes:
                self._ask(node_id, beats)

    def _follow(self, now: float) -> None:
        """Watch the current members only."""
        members = {member.role.token: member for member in self._fleet.members.values()}
        for token in [token for token in self._beats if token not in members]:
            del self._beats[token]
        for token, member in members.items():
            if token not in self._beats:
                self._beats[token] = _Beat(member, Heartbeat(self._limits, now))

    def _end(self, beat: _Beat, pulse: Pulse) -> None:
        del self._beats[beat.member.role.token]
        place, hung = beat.member.place, "it hangs" if pulse is Pulse.HUNG else "it does not answer"
        where = f"pid {place.pid} on node {place.node_id[:8]}"
        self._fleet.lose_member(
            beat.member, f"{hung}: {beat.member.role.subtask} ({where}), {beat.heartbeat.silence}"
        )

    def _ask(self, node_id: str, beats: Sequence[_Beat]) -> None:
        self._asked_nodes.add(node_id)
        for beat in beats:
            beat.heartbeat.ask()

        def answered(times: Mapping[Place, float] | CallFailure) -> None:
            self._asked_nodes.discard(node_id)
            for beat in beats:
                used = times.get(beat.member.place) if isinstance(times, Mapping) else None
                beat.heartbeat.read(used)

        self._processes.processor_times(node_id, [beat.member.place for beat in beats], answered)


#: Maximum seconds between the starts of two rounds.
INTERVAL: Final = 2.0
#: Seconds within which a subtask must report its counters; a busy subtask reports them in the next round.
PATIENCE: Final = 1.0


class Watch:
    """Watches the processes of one job; see the module's docstring.

    A process that no longer holds its role (`Stale`) is useless to this job. The fleet forgets it, and the
    end of its open `run` call informs the scheduler.
    """

    def __init__(
        self,
        fleet: Fleet,
        processes: Processes,
        clock: Clock,
        timers: TimerService,
        config: JobConfig,
        counted: Callable[[SubtaskId, Counters], None],
        listener: HeartbeatListener,
    ) -> None:
        self._fleet = fleet
        self._processes = processes
        self._clock = clock
        self._timers = timers
        self._counted = counted
        lease = as_seconds(config.advanced.lease_timeout)
        heartbeat = as_seconds(config.advanced.heartbeat_timeout)
        self._interval = min(INTERVAL, lease / 4, heartbeat / 4)
        limits = HeartbeatLimits.of(heartbeat, lease)
        self._heartbeats = Heartbeats(fleet, processes, clock, timers, limits, listener)
        self._has_ended = False

    @property
    def silent(self) -> Mapping[SubtaskId, Silence]:
        """The subtasks whose processes have not answered for a while."""
        return self._heartbeats.silent

    def begin(self, after_look: Callable[[], None]) -> None:
        """Start rounds, the first one now, until the watch ends; call `after_look` after each round."""
        self._heartbeats.begin()
        self._round(after_look)

    def end(self) -> None:
        self._has_ended = True
        self._heartbeats.end()

    def look(self, then: Callable[[], None]) -> None:
        """Renew all leases and read the counters, then call `then`.

        Waits only briefly for a silent process, and not at all for a suspect process. The counters of these
        processes are read when they answer again.
        """
        members = {} if self._has_ended else dict(self._fleet.members)

        def answered(answers: Mapping[SubtaskId, Counters | Stale | CallFailure]) -> None:
            for subtask, answer in answers.items():
                match answer:
                    case Counters():
                        self._counted(subtask, answer)
                    case Stale():
                        self._fleet.forget(members[subtask])
            then()

        patience = min(PATIENCE, self._interval / 2)
        awaited = [s for s, member in members.items() if not self._heartbeats.is_suspect(member)]
        gathering: Replies[SubtaskId, Counters | Stale] = Replies(awaited, self._timers, patience, answered)
        guards = choose_guards(members.values())
        for subtask, member in members.items():
            reply = self._hearing(member, gathering.reply(subtask))
            self._processes.renew(member.process, member.role, subtask in guards, reply)

    def _round(self, after_look: Callable[[], None]) -> None:
        begun = self._clock.monotonic()

        def looked() -> None:
            if not self._has_ended:
                after_look()
                # A silent process lengthens the round, and must not make the others look silent.
                left = begun + self._interval - self._clock.monotonic()
                self._timers.call_later(max(0.0, left), lambda: self._round(after_look))

        if not self._has_ended:
            self._fleet.look_after_spares()
            self.look(looked)

    def _hearing(self, member: Member, reply: Reply[Counters | Stale]) -> Reply[Counters | Stale]:
        """Count an answer as a sign of life, even if it is too late for the round."""

        def answered(answer: Counters | Stale | CallFailure) -> None:
            if not isinstance(answer, Died | Away):
                self._heartbeats.heard(member)
            reply(answer)

        return answered
