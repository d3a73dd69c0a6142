"""A JobMaster that is frozen before its first attempt, and wakes up when another one has the job."""

from __future__ import annotations

import pytest

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.job.job_state import JobState
from penstock.runtime.testing.simulation.cluster.control_plane import Replaced
from penstock.runtime.testing.simulation.cluster.master import SimulatedJob
from penstock.runtime.testing.simulation.run.simulated_run import SimulatedRun
from penstock.runtime.testing.simulation.world.agenda import Draws, draw_conditions
from penstock.runtime.testing.simulation.world.world import World


def a_run(world: World) -> SimulatedRun:
    env = StreamEnvironment("numbers")
    env.from_source("numbers", GeneratorSource(lambda n: n, count=50)).sink("out", DiscardSink())
    config = JobConfig(checkpointing=Checkpointing(every=0.001))
    job = SimulatedJob("replaced", build_execution_graph(env.build()), config)
    return SimulatedRun(world, job)


@pytest.mark.parametrize("replaced", [Replaced.WAKES_EARLY, Replaced.WAKES_LATE])
def test_it_leaves_and_its_successor_says_how_the_job_ends(replaced: Replaced) -> None:
    world = World(3, draw_conditions(Draws(3)), None)
    run = a_run(world)
    run.control.begin()
    sleeper = run.control.masters.newest
    assert sleeper is not None
    run.control.freeze_master(20.0, 0.0, replaced)
    while run.control.end is None or sleeper.is_alive:
        run.step()
    assert run.control.end == (JobState.FINISHED, "")
    assert sleeper.scheduler.statistics().is_fenced
    assert [status.attempt for status in run.control.masters.statuses()] == [0, 1]
