"""How long a run waits for the end of its job."""

from __future__ import annotations

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.discard_sink import DiscardSink
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.on_request import OnRequest
from penstock.runtime.testing.simulation.cluster.job import SimulatedJob
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger
from penstock.runtime.testing.simulation.injection.plan import Plan
from penstock.runtime.testing.simulation.simulated_run import SimulatedRun
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.weather import Weather
from penstock.runtime.testing.simulation.world.world import World

#: All reports come very late, until the world calms down.
STRAGGLERS = Weather(
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


def test_a_job_that_waits_for_what_was_held_up_has_not_come_to_a_standstill() -> None:
    env = StreamEnvironment("numbers")
    env.from_source("numbers", OnRequest(GeneratorSource(lambda n: n, count=5))).sink("out", DiscardSink())
    config = JobConfig(checkpointing=Checkpointing(every=0.001))
    world = World(2, STRAGGLERS, None)
    job = SimulatedJob("held-up", build_execution_graph(env.build()), config)
    run = SimulatedRun(world, job, Plan(), HookLedger(world), most_moves=MOST_MOVES)
    state, cause = run.run_to_end()
    assert state is JobState.FINISHED, cause
    assert world.trace.moves > STRAGGLERS.lasts + MOST_MOVES, "it took longer, and that was right"
