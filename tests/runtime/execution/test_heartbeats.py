"""A JobMaster names processes that are silent, ends those that hang, and leaves alone those that are busy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted_processes import JOB, ScriptedProcesses, timers
from small_graphs import read_and_count

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.heartbeats import Watch
from penstock.runtime.execution.processes import Away, Counters, Place
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.snapshot.ids import SubtaskId

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)


class Followed:
    """Two processes on two nodes; those in `hung` do not answer."""

    def __init__(self, used: Callable[[Place, float], float | None]) -> None:
        self.clock, self.time = timers()
        self.processes = ScriptedProcesses()
        self.processes.answers["take"] = lambda call: Place(7, f"node-of-{call.role.subtask.vertex}", 99)
        self.processes.answers["processor_times"] = lambda call: {
            place: seconds
            for place in call.arguments[0]
            if (seconds := used(place, self.clock.monotonic())) is not None
        }
        tokens = (f"token-{n}" for n in range(99))
        self.fleet = Fleet(
            JOB,
            CurrentGraph(read_and_count(reads=1)),
            JobConfig(),
            self.processes,
            self.time,
            lambda: next(tokens),
        )
        self.place()
        self.said: list[tuple[float, SubtaskId, str]] = []
        self.watch = Watch(
            self.fleet, self.processes, self.clock, self.time, JobConfig(), lambda *told: None, self
        )

    def place(self) -> None:
        self.fleet.ensure([READ, COUNT], lambda problem: None)

    def fell_silent(self, member: Member, silence: Silence) -> None:
        self.said.append((self.clock.monotonic(), member.role.subtask, str(silence)))

    def answers_again(self, member: Member) -> None:
        self.said.append((self.clock.monotonic(), member.role.subtask, "answers again"))

    def answer_all_but(self, hung: SubtaskId | None) -> None:
        """Answer waiting and later renewals, except those of one process."""
        while waits := [c for c in self.processes.waiting("renew") if c.role.subtask != hung]:
            self.processes.answer("renew", Counters(1, None), waits[0].process)

    def advance(self, seconds: float, hung: SubtaskId | None = None) -> None:
        for _ in range(int(seconds / 0.25)):
            self.time.advance(0.25)
            self.answer_all_but(hung)


def test_a_process_that_stands_still_is_named_and_then_killed_and_nobody_else_is() -> None:
    followed = Followed(lambda place, now: 1.0)
    followed.watch.begin(lambda: None)
    followed.advance(6.0)
    followed.advance(12.0, hung=COUNT)
    assert followed.processes.ended == ["new-2"]
    assert list(followed.fleet.members) == [READ]
    [(named_at, subtask, _)] = followed.said
    assert subtask == COUNT
    assert named_at <= 6.0 + 6.0
    assert followed.processes.warnings == [
        "it hangs: count[0] (pid 7 on node node-of-), no answer for 8 s; its processor time does not advance"
    ]
    assert followed.watch.silent == {}


@pytest.mark.parametrize("stopped_at", [6.0, 6.25, 7.0, 7.75])
def test_a_process_is_named_within_five_seconds_whenever_it_stops(stopped_at: float) -> None:
    followed = Followed(lambda place, now: 1.0)
    followed.watch.begin(lambda: None)
    followed.advance(stopped_at)
    followed.advance(6.0, hung=COUNT)
    [(named_at, subtask, _)] = followed.said
    assert subtask == COUNT
    assert named_at - stopped_at <= 4.5


def test_a_process_that_is_busy_for_25_seconds_is_named_and_lives() -> None:
    followed = Followed(lambda place, now: now)
    followed.watch.begin(lambda: None)
    followed.advance(25.0, hung=COUNT)
    assert [(subtask, str(silence)[-8:]) for subtask, silence in followed.watch.silent.items()] == [
        (COUNT, "advances")
    ]
    followed.advance(1.0)
    assert followed.processes.ended == []
    assert [what for _, _, what in followed.said][1:] == ["answers again"]
    assert followed.watch.silent == {}


def test_a_process_that_is_busy_for_longer_than_a_lease_is_killed() -> None:
    followed = Followed(lambda place, now: now)
    followed.watch.begin(lambda: None)
    followed.advance(59.0, hung=COUNT)
    assert followed.processes.ended == []
    followed.advance(2.0, hung=COUNT)
    assert followed.processes.ended == ["new-2"]


def test_processor_times_are_read_on_the_node_of_the_process_and_only_of_suspects() -> None:
    followed = Followed(lambda place, now: now)
    followed.watch.begin(lambda: None)
    followed.advance(60.0)
    assert followed.processes.called("processor_times") == []
    followed.advance(5.0, hung=COUNT)
    asked = {(call.process, *call.arguments[0]) for call in followed.processes.called("processor_times")}
    assert asked == {("node-of-count", Place(7, "node-of-count", 99))}


def test_a_node_that_does_not_answer_is_asked_once_and_its_process_lives() -> None:
    followed = Followed(lambda place, now: 1.0)
    del followed.processes.answers["processor_times"]
    followed.watch.begin(lambda: None)
    followed.advance(30.0, hung=COUNT)
    assert len(followed.processes.waiting("processor_times")) == 1
    assert followed.processes.ended == []
    followed.processes.answer("processor_times", Away())
    followed.advance(1.0, hung=COUNT)
    assert len(followed.processes.waiting("processor_times")) == 1


def test_the_successor_of_a_process_begins_with_a_silence_of_its_own() -> None:
    followed = Followed(lambda place, now: 1.0)
    followed.watch.begin(lambda: None)
    followed.advance(7.0, hung=COUNT)
    followed.fleet.lose(COUNT)
    followed.place()
    followed.advance(4.0, hung=COUNT)
    assert followed.processes.ended == ["new-2"]
    followed.advance(8.0, hung=COUNT)
    assert followed.processes.ended == ["new-2", "new-3"]


def test_nobody_is_looked_at_when_the_watch_has_ended() -> None:
    followed = Followed(lambda place, now: 1.0)
    followed.watch.begin(lambda: None)
    followed.watch.end()
    followed.advance(100.0, hung=COUNT)
    assert followed.processes.ended == []
