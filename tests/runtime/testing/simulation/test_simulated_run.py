"""Time for which a run waits for the end of its job."""

from __future__ import annotations

import pytest
from simulated_jobs.rules import let_processes_end

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.source_coordinator import OnRequest
from penstock.runtime.testing.simulation.cluster.master import SimulatedJob
from penstock.runtime.testing.simulation.run.simulated_run import SimulatedRun, StandstillError
from penstock.runtime.testing.simulation.world.agenda import Conditions, Happening
from penstock.runtime.testing.simulation.world.world import World

#: All reports come very late, until the world calms down.
STRAGGLERS = Conditions(
    weights=dict.fromkeys(Happening, 4),
    disorder=0.0,
    tick=0.00001,
    latency=0.0,
    repeats=0.0,
    stragglers=1.0,
    slow_channels=0.0,
    slowness=0.0,
    seconds_per_record=0.0,
    lasts=60,
)

#: Fewer than the job makes before the last report arrives.
MOST_MOVES = 500


def a_run(world: World) -> SimulatedRun:
    env = StreamEnvironment("numbers")
    env.from_source("numbers", OnRequest(GeneratorSource(lambda n: n, count=5))).sink("out", DiscardSink())
    config = JobConfig(checkpointing=Checkpointing(every=0.001))
    job = SimulatedJob("held-up", build_execution_graph(env.build()), config)
    return SimulatedRun(world, job, most_moves=MOST_MOVES)


def test_a_job_that_waits_for_what_was_held_up_has_not_come_to_a_standstill() -> None:
    world = World(2, STRAGGLERS, None)
    state, cause = a_run(world).run_to_end()
    assert state is JobState.FINISHED, cause
    assert world.trace.moves > STRAGGLERS.lasts + MOST_MOVES, "it took longer, and that was right"


def test_processes_that_never_leave_are_named_although_time_hardly_passes() -> None:
    world = World(2, STRAGGLERS, None)
    run = a_run(world)
    run.run_to_end()
    for process in run.control.alive:
        process.freeze(1000.0)

    def spin() -> None:
        world.agenda.add(Happening.STEP, spin, "something steps for ever")

    spin()
    with pytest.raises(StandstillError, match=r"50\d moves after the end of their job: process 1"):
        let_processes_end(run, MOST_MOVES)
