"""Checkpoints by hand in whole jobs with failures: requests are answered once, and full ones stand alone.

A user asks at moments that the seed decides, often when something dies. So requests meet starts, aborts,
restarts, rescales, stops and ends of jobs. The oracle judges the jobs, which restore from these checkpoints.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Final

import pytest
from deep import DEEP
from simulated_jobs.scenario import Scenario, draw_scenario
from simulated_jobs.simulation import Simulation, Summary

from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointSucceeded
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.testing.simulation.cluster.master import Master
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import Moment

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]

#: The first seeds from here on whose jobs have state that is too large for a checkpoint's metadata.
FIRST: Final = 2_000
RUNS: Final = 30 * DEEP

#: Most requests of a run, and how readily one is made at a moment.
MOST: Final = 12
CHANCE: Final = {
    Moment.DEPLOYING: 0.5,
    Moment.STARTED: 0.5,
    Moment.TRIGGERED: 0.15,
    Moment.ACKNOWLEDGED: 0.05,
    Moment.COMPLETED: 0.15,
    Moment.END_OF_DATA: 0.2,
    Moment.FINISHED: 0.2,
}


class User:
    """Asks for checkpoints of one run, and looks at the answers.

    Attributes:
        answers: The answers, by the number of the request; JobMasters that die answer nothing.
        asked: The JobMasters that were asked, in the order of the requests.
    """

    def __init__(self, simulation: Simulation, chance: random.Random, counts: Counter[str]) -> None:
        self.answers: dict[int, CheckpointAnswer] = {}
        self.asked: list[Master] = []
        self._simulation = simulation
        self._chance = chance
        self._counts = counts
        world, inject = simulation.world, simulation.world.on_moment

        def on_moment(moment: Moment) -> None:
            inject(moment)
            if len(self.asked) < MOST and chance.random() < CHANCE.get(moment, 0.0):
                world.agenda.add(Happening.MESSAGE, self._ask, "a user asks for a checkpoint")

        world.on_moment = on_moment

    def _ask(self) -> None:
        control = self._simulation.control
        master = control.masters.newest
        if master is None or len(self.asked) >= MOST:
            return
        number, full = len(self.asked), self._chance.random() < 0.5
        self.asked.append(master)

        def answered(answer: CheckpointAnswer) -> None:
            assert number not in self.answers, "a request was answered twice"
            self.answers[number] = answer
            if isinstance(answer, CheckpointSucceeded):
                self._look_at(answer.checkpoint, control.job.id, full=full)
            else:
                self._counts[f"{answer.reason.value}"] += 1

        master.scheduler.trigger_checkpoint(on_answer=answered, full=full)

    def _look_at(self, checkpoint: CompletedCheckpoint, job: str, *, full: bool) -> None:
        """A full checkpoint names no file of another one, but for subtasks that had finished before."""
        paths, own = SnapshotPaths(job), checkpoint.checkpoint_id
        others = {
            paths.checkpoint_of(handle.path)
            for operator in checkpoint.operators.values()
            for index, state in operator.subtasks.items()
            if index not in operator.finished
            for handle in state.handles()
            if isinstance(handle, FileHandle)
        } - {own}
        assert not (full and others), f"the full checkpoint {own} builds on {others}"
        self._counts["full" if full else "shares files" if others else "shares nothing"] += 1


def writes_files(scenario: Scenario) -> bool:
    """Whether checkpoints are taken, and some state is written into files."""
    return scenario.config.checkpointing is not None and bool(scenario.plan.uploading)


def test_requests_are_answered_once_whatever_dies_and_full_checkpoints_stand_alone(
    record_property: Callable[[str, object], None],
) -> None:
    counts, total, unanswered = Counter[str](), Summary(), 0
    for scenario in islice(filter(writes_files, map(draw_scenario, itertools.count(FIRST))), RUNS):
        seed, simulation = scenario.seed, Simulation(scenario)
        user = User(simulation, random.Random(seed), counts)
        result = simulation.run()
        assert result.problems == (), seed
        total.add(result)
        silent = [master for number, master in enumerate(user.asked) if number not in user.answers]
        assert simulation.control.masters.last not in silent, f"seed {seed}: it lived, and did not answer"
        unanswered += len(silent)
        counts["requests"] += len(user.asked)
    record_property("shown", "\n".join([*total.lines(), f"{dict(counts)}, unanswered {unanswered}"]))
    assert counts["full"] > 10
    assert counts["shares files"] > 0
    assert counts["not_all_required_tasks_running"] > 10
    assert unanswered < counts["requests"] / 4
    assert total.kills.total() >= 10, total.kills
