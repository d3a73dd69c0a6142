"""A waiting client kills a JobMaster that hangs, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from serving.acting import acting_job

from penstock.actors.client import master_calls
from penstock.actors.client.master_calls import ClientGuard
from penstock.actors.shared import node_processes
from penstock.actors.shared.job_report import JobMasterProcess
from penstock.runtime.execution.processes import Place

MASTER = Place(4711, "a node", 5)


class World:
    """A silent JobMaster on this node, with a processor time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.processor_time, self.is_busy = 1_000.0, 7.0, False
        self.is_readable = True
        self.ended: list[Place] = []
        process = JobMasterProcess(MASTER.pid, MASTER.node_id, MASTER.started)
        report = replace(acting_job().current, master=process, settings={})
        monkeypatch.setattr(master_calls.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(master_calls, "load_from_cluster", lambda job_id: report)
        monkeypatch.setattr(master_calls, "find_master", lambda job_id: self)
        for module in (master_calls, node_processes):
            monkeypatch.setattr(module, "own_node", lambda: MASTER.node_id)
        monkeypatch.setattr(master_calls, "processor_times", self._processor_times)
        monkeypatch.setattr(master_calls, "end_process", self.ended.append)
        monkeypatch.setattr(master_calls, "_is_done", lambda reference: False)
        self.answers = self

    def remote(self) -> str:
        return "an answer that never comes"

    def _processor_times(self, places: Sequence[Any]) -> dict[Any, float]:
        self.processor_time += 0.5 if self.is_busy else 0.0
        return dict.fromkeys(places, self.processor_time) if self.is_readable else {}

    def wait_for(self, guard: ClientGuard, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            guard.look()
            self.now += guard.interval


def test_a_job_master_whose_processor_time_stands_still_is_killed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, guard = World(monkeypatch), ClientGuard("words-1")
    while not world.ended:
        world.wait_for(guard, 1.0)
        assert world.now < 1_600.0, "it hangs, and nobody ends it"
    assert world.ended == [MASTER]
    world.wait_for(guard, 2 * guard.interval)
    assert world.ended == [MASTER], "the next one has its time"


def test_a_job_master_that_is_busy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, guard = World(monkeypatch), ClientGuard("words-1")
    world.is_busy = True
    world.wait_for(guard, 30.0)
    assert world.ended == []


def test_a_job_master_is_killed_even_if_its_processor_time_could_not_be_read_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, guard = World(monkeypatch), ClientGuard("words-1")
    world.is_readable = False
    world.wait_for(guard, 300.0)
    assert world.ended == []
    world.is_readable = True
    world.wait_for(guard, 60.0)
    assert world.ended[0] == MASTER
