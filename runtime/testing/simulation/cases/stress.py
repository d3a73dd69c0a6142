"""Flink's stress test of unaligned checkpoints (`UnalignedCheckpointITCase`), in the simulation.

A job under back pressure: slow user code, few credits, small buffers, every exchange all to all. Five
failures are placed by the number of completed checkpoints. First, user code fails, and a process dies in the
recovery from that. Then two processes die between steps, and one in the middle of a step. Nothing may be
lost, duplicated or reordered, and all five failures must have happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.cases.back_pressure import pressing_config, pressing_weather
from penstock.runtime.testing.simulation.jobs.scenario import HandlerMode, Scenario
from penstock.runtime.testing.simulation.jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape
from penstock.runtime.testing.simulation.simulation import SimulationResult
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: How many failures there are.
FAILURES: Final = 5


def stress_scenario(seed: int, parallelism: int, mode: HandlerMode = HandlerMode.UNALIGNED) -> Scenario:
    """The stress test.

    Args:
        seed: Decides the order of what happens.
        parallelism: Of every vertex.
        mode: How barriers are dealt with; unaligned, aligned with a timeout, or aligned and stored.
    """
    every = 0.02
    config = pressing_config(
        every=every,
        unaligned=mode is not HandlerMode.STORED,
        aligned_timeout=every / 10 if mode is HandlerMode.ALIGNED_TIMEOUT else None,
        stored_in_memory=1_000 if mode is HandlerMode.STORED else None,
    )
    weather = pressing_weather(parallelism, tick=0.0001, slow_channels=0.1, slowness=0.003)
    return Scenario(seed, mode, stress_shape(parallelism), config, weather, _faults(parallelism))


def happened_failures(result: SimulationResult) -> int:
    """How many of the five have happened."""
    kinds = (FaultKind.USER_ERROR, FaultKind.CRASH, FaultKind.CRASH_IN_STEP)
    return sum(result.happened.get(kind, 0) for kind in kinds)


def _faults(parallelism: int) -> tuple[PlannedFault, ...]:
    """The failures, by the checkpoints that were completed before; the second one in the recovery."""
    # Late enough that every process has its role: one that dies before is replaced in the same attempt.
    halfway = 8 * parallelism
    return (
        PlannedFault(FaultKind.USER_ERROR, Moment.COMPLETED, 1),
        PlannedFault(FaultKind.CRASH, Moment.DEPLOYING, 2, delay=halfway),
        PlannedFault(FaultKind.CRASH, Moment.COMPLETED, 2, delay=3),
        PlannedFault(FaultKind.CRASH_IN_STEP, Moment.COMPLETED, 3),
        PlannedFault(FaultKind.CRASH, Moment.COMPLETED, 4, delay=7),
    )


def stress_shape(parallelism: int) -> Shape:
    """A source, three exchanges from all to all, and a sink.

    Args:
        parallelism: Of every vertex.
    """
    source = OperatorShape(0, OperatorKind.SOURCE)
    step = OperatorShape(1, OperatorKind.STEP)
    keyed = OperatorShape(2, OperatorKind.KEYED, keys=3 * parallelism)
    after = OperatorShape(3, OperatorKind.STEP)
    sink = OperatorShape(4, OperatorKind.SINK)
    chains = ((step,), (keyed,), (after, sink))
    exchanges = (Partitioning.REBALANCE, Partitioning.KEY_GROUP, Partitioning.REBALANCE)
    vertices = [VertexShape((source,), parallelism, counts=(60,) * parallelism, chunk=2, pause=0.004)]
    for position, (chain, how) in enumerate(zip(chains, exchanges, strict=True)):
        vertices.append(replace(vertices[0], operators=chain, inputs=((position, how),), counts=()))
    return Shape(tuple(vertices), key_groups=128)
