"""`Heartbeats`: follows the answers of a job's processes, in its JobMaster, and ends those that hang.

The leases that `Watch` renews every two seconds are the heartbeats: each answer is a sign of life. What a
silence means says `Heartbeat`, process by process. So a job with a thousand subtasks makes no call more than
for its leases. It makes a thousand comparisons a second, or twice a second while one is a suspect.

Processor times are asked for by node, one question a node at a time. A node that has lost its connection
holds up none of the others. An answer that never comes leaves the processes of its node to `overdue_after`;
Ray says before that whether the node is dead.

A process is known here by its taking of a role (`Role.token`), not by its subtask. One that is replaced, or
that serves another job, is a new one. Killing is the fleet's: the open `run` call of the process then fails,
and the scheduler learns of the death in the usual way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.heartbeat import Heartbeat, HeartbeatLimits, Pulse, Silence
from penstock.runtime.execution.processes import CallFailure, Place, Processes
from penstock.runtime.ports import Cancellable, Clock, TimerService
from penstock.runtime.snapshot.subtask_id import SubtaskId


class HeartbeatListener(Protocol):
    """Is told of silent processes, for people."""

    def fell_silent(self, member: Member, silence: Silence) -> None:
        """A process has not answered for a while; told once in a silence."""
        ...

    def answers_again(self, member: Member) -> None:
        """A process that was said to be silent has answered."""
        ...


@dataclass(slots=True, eq=False)
class _Beat:
    """What is known of one member.

    Attributes:
        heartbeat: Its silence.
        is_named: Whether people were told of this silence.
    """

    member: Member
    heartbeat: Heartbeat
    is_named: bool = False


class Heartbeats:
    """Follows the processes of one job; see the module's text.

    Args:
        fleet: The processes.
        processes: Read processor times.
        clock: Says how much time has passed between two looks.
        timers: Say when to look.
        listener: Is told of silences.
    """

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
        """Look now, and again and again until `end`; more often while a process is a suspect."""
        if not self._has_ended:
            self._look()
            has_suspects = any(beat.heartbeat.is_suspect for beat in self._beats.values())
            self._pause = self._limits.interval if has_suspects else self._limits.calm_interval
            self._timer = self._timers.call_later(self._pause, self.begin)

    def end(self) -> None:
        """Look no more."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()

    def heard(self, member: Member) -> None:
        """A process has answered."""
        beat = self._beats.get(member.role.token)
        if beat is None:
            return
        beat.heartbeat.heard(self._clock.monotonic())
        if beat.is_named:
            beat.is_named = False
            self._listener.answers_again(member)

    def is_suspect(self, member: Member) -> bool:
        """Whether a process has been silent for some time."""
        beat = self._beats.get(member.role.token)
        return beat is not None and beat.heartbeat.is_suspect

    @property
    def silent(self) -> Mapping[SubtaskId, Silence]:
        """The subtasks whose processes were said to be silent."""
        named = [beat for beat in self._beats.values() if beat.is_named]
        return {beat.member.role.subtask: beat.heartbeat.silence for beat in named}

    def _look(self) -> None:
        """Look at all processes: name those that are silent, end those that hang."""
        now = self._clock.monotonic()
        self._follow(now)
        suspects: dict[str, list[_Beat]] = {}
        for beat in list(self._beats.values()):
            pulse = beat.heartbeat.look(now, self._pause)
            if pulse.is_over:
                self._end(beat, pulse)
                continue
            if pulse is Pulse.SILENT and not beat.is_named:
                beat.is_named = True
                self._listener.fell_silent(beat.member, beat.heartbeat.silence)
            if beat.heartbeat.wants_reading:
                suspects.setdefault(beat.member.place.node_id, []).append(beat)
        for node_id, beats in suspects.items():
            if node_id not in self._asked_nodes:
                self._ask(node_id, beats)

    def _follow(self, now: float) -> None:
        """Know the members of now, and no others."""
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
