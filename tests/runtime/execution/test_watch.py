"""Leases are renewed, counters are read, and no caller waits for a silent process."""

from __future__ import annotations

from typing import Any

from scripted_processes import JOB, ScriptedProcesses, timers
from small_graphs import read_and_count

from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.heartbeats import INTERVAL, PATIENCE, Watch
from penstock.runtime.execution.processes import Counters, Died, Stale
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualTimers

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)


class Watched:
    def __init__(self, lease_timeout: float = 60.0) -> None:
        self.time: ManualTimers
        clock, self.time = timers()
        self.processes = ScriptedProcesses()
        tokens = iter("abcdef")
        graph = read_and_count(reads=1)
        self.fleet = Fleet(
            JOB, CurrentGraph(graph), JobConfig(), self.processes, self.time, lambda: next(tokens)
        )
        self.fleet.ensure([READ, COUNT], lambda problem: None)
        self.counted: list[tuple[SubtaskId, int, Any]] = []
        config = JobConfig(advanced=AdvancedConfig(lease_timeout=lease_timeout))
        self.watch = Watch(self.fleet, self.processes, clock, self.time, config, self.count, self)
        self.looks = 0

    def count(self, subtask: SubtaskId, counters: Counters) -> None:
        self.counted.append((subtask, counters.attempt, counters.statistics))

    def fell_silent(self, member: Member, silence: Silence) -> None:
        pass

    def answers_again(self, member: Member) -> None:
        pass

    def looked(self) -> None:
        self.looks += 1


def test_every_process_has_its_lease_renewed_again_and_again_until_the_watch_ends() -> None:
    watched = Watched()
    watched.processes.answers["renew"] = lambda call: Counters(1, None)
    watched.watch.begin(watched.looked)
    watched.time.advance(2 * INTERVAL)
    renewed = [call.role.subtask for call in watched.processes.called("renew")]
    assert renewed == [READ, COUNT] * 3
    assert watched.looks == 3
    assert watched.counted[:2] == [(READ, 1, None), (COUNT, 1, None)]
    watched.watch.end()
    watched.time.advance(100)
    assert watched.looks == 3


def test_a_short_lease_is_renewed_four_times_in_its_time() -> None:
    watched = Watched(lease_timeout=2.0)
    watched.processes.answers["renew"] = lambda call: Counters(1, None)
    watched.watch.begin(watched.looked)
    watched.time.advance(1.9)
    assert watched.looks == 4


def test_a_silent_process_delays_a_look_and_not_more() -> None:
    watched = Watched()
    watched.watch.begin(watched.looked)
    watched.processes.answer("renew", Counters(3, None), "new-1")
    watched.time.advance(PATIENCE)
    assert (watched.looks, watched.counted) == (1, [(READ, 3, None)])
    assert len(watched.fleet.members) == 2, "it may only be busy"


def test_a_process_that_stays_silent_delays_no_further_look() -> None:
    watched = Watched()
    watched.watch.begin(watched.looked)
    watched.time.advance(2 * INTERVAL + PATIENCE)
    before = watched.looks
    watched.watch.look(watched.looked)
    watched.time.advance(PATIENCE / 100)
    assert watched.looks == before + 1
    watched.processes.answer("renew", Counters(3, None), "new-1")
    watched.processes.answers["renew"] = lambda call: Counters(4, None)
    watched.watch.look(watched.looked)
    watched.time.advance(INTERVAL)
    assert (READ, 4, None) in watched.counted, "it has answered, so it is waited for again"


def test_a_dead_process_is_left_to_the_end_of_its_run() -> None:
    watched = Watched()
    watched.processes.answers["renew"] = lambda call: Died("killed")
    watched.watch.look(watched.looked)
    assert watched.looks == 1
    assert len(watched.fleet.members) == 2


def test_a_process_that_holds_another_role_is_forgotten_and_not_ended() -> None:
    watched = Watched()
    watched.processes.answers["renew"] = lambda call: (
        Stale() if call.role.subtask == READ else Counters(1, None)
    )
    watched.watch.look(watched.looked)
    assert list(watched.fleet.members) == [COUNT]
    assert watched.processes.ended == []
