"""Scenarios that are given, not drawn: back pressure, Flink's stress test, other parallelisms, stored input.

Users' code is slow, buffers are small and credits few, so that every channel is full most of the time.
Calls arrive out of order, some of them twice. A job restarts without limit, keeps its checkpoints, and
tolerates every failure: the scenario places the failures.

Jobs that continue at a given other parallelism, for tables of cases.

The job runs under back pressure, with slow channels, and with frames that are reordered or delivered twice.
Three processes die: one in the middle of a step before the parallelism changes, one while the job restarts,
one later. The parallelism changes while the job runs, or the job is cancelled and another one starts from its
last checkpoint. Nothing may be lost or duplicated.

Kills in the middle of stored alignments, in the simulation.

A job under back pressure with slow channels: barriers come late on them, and what comes on the other channels
meanwhile is stored. A little of it is in memory, the rest on disk. Processes die when an alignment has just
begun to store. In some seeds a limit gives checkpoints up, too.

Flink's stress test of unaligned checkpoints (`UnalignedCheckpointITCase`), in the simulation.

A job under back pressure: slow user code, few credits, small buffers, every exchange all to all. Five
failures are placed by the number of completed checkpoints. First, user code fails, and a process dies in the
recovery from that. Then two processes die between steps, and one in the middle of a step. Nothing may be
lost, duplicated or reordered, and all five failures must have happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from penstock.runtime.config.checkpointing import Alignment, Checkpointing, KeepAfter
from penstock.runtime.config.job_config import ALIGNMENT_MEMORY, AdvancedConfig, JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.world.agenda import Conditions, Draws, Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault
from simulated_jobs.handover import SecondJob, StartFrom
from simulated_jobs.scenario import HandlerMode, Scenario
from simulated_jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape
from simulated_jobs.simulation import SimulationResult


def pressing_conditions(
    parallelism: int, *, tick: float, slow_channels: float, slowness: float
) -> Conditions:
    """Conditions in which a record takes ten ticks, however many subtasks share the one clock.

    Args:
        parallelism: The largest of any vertex; the more subtasks, the shorter their moves.
        tick: Most seconds of a move at parallelism 1.
        slow_channels: Share of the channels that are slow.
        slowness: Seconds that a frame takes longer on them.
    """
    return Conditions(
        weights=dict.fromkeys(Happening, 4),
        disorder=0.3,
        tick=tick / parallelism,
        latency=0.0005,
        repeats=0.02,
        stragglers=0.0,
        slow_channels=slow_channels,
        slowness=slowness,
        seconds_per_record=10 * tick / parallelism,
        lasts=1_000_000,
    )


def pressing_config(
    *,
    every: float,
    unaligned: bool,
    aligned_timeout: float | None = None,
    stored_in_memory: int | None = None,
) -> JobConfig:
    """Settings with which little fits into a channel.

    Args:
        every: Seconds between two checkpoints.
        unaligned: Whether barriers overtake records.
        aligned_timeout: Seconds after which they begin to, if not at once.
        stored_in_memory: Bytes of a stored alignment that stay in memory; `None` for alignments that hold.
    """
    stores = stored_in_memory is not None
    return JobConfig(
        checkpointing=Checkpointing(
            every=every,
            storage="memory:",
            unaligned=unaligned,
            aligned_timeout=aligned_timeout,
            alignment=Alignment.STORE if stores else Alignment.HOLD,
            keep_after=KeepAfter.ALWAYS,
            tolerable_failures=None,
        ),
        restart=FixedDelay(attempts=100, delay=0.001),
        advanced=AdvancedConfig(
            buffer_rows=2,
            credits=2,
            gap_timeout=1000.0,
            alignment_memory=ALIGNMENT_MEMORY if stored_in_memory is None else stored_in_memory,
        ),
        buffer_timeout=0.001,
    )


#: Splits of a source, and the records of each: enough splits for the largest parallelism.
_COUNTS: Final = (8,) * 20

_KEYS: Final = 11

_KEY_GROUPS: Final = 24


class RescaledBy(Enum):
    """The way of a job to its new parallelism."""

    REQUEST = "rescaled while it runs"
    NEW_JOB = "started again from its last checkpoint"


def rescale_scenario(
    shape: str, old: int, new: int, mode: HandlerMode, by: RescaledBy, seed: int = 1
) -> Scenario:
    """A job that continues at another parallelism.

    Args:
        shape: How its records travel; a key of `SHAPES`.
        old: Parallelism at first.
        new: Parallelism from then on.
        mode: How barriers are dealt with; aligned or unaligned.
        by: How it gets there.
        seed: Decides the order of what happens.
    """
    vertices, largest = SHAPES[shape](old), max(old, new)
    wanted = {vertex.head.id: new for vertex in vertices if vertex.head is not _STEADY}
    kind = FaultKind.RESCALED if by is RescaledBy.REQUEST else FaultKind.JOB_CANCELLED
    faults = (
        PlannedFault(FaultKind.CRASH_IN_STEP, Moment.COMPLETED, 1),
        PlannedFault(kind, Moment.COMPLETED, 2, delay=10),
        PlannedFault(FaultKind.CRASH, Moment.DEPLOYING, 3, delay=new),
        PlannedFault(FaultKind.CRASH, Moment.COMPLETED, 4, delay=7),
    )
    return Scenario(
        seed,
        mode,
        Shape(tuple(vertices), _KEY_GROUPS),
        pressing_config(every=max(0.02, 0.004 * largest), unaligned=mode is HandlerMode.UNALIGNED),
        pressing_conditions(largest, tick=0.0002, slow_channels=0.3, slowness=0.01),
        faults,
        SecondJob(StartFrom.NEWEST, wanted) if by is RescaledBy.NEW_JOB else None,
        wanted if by is RescaledBy.REQUEST else None,
    )


# -- shapes: what is made of the numbers is counted by key and written --------------------------------------

_FIRST = OperatorShape(0, OperatorKind.SOURCE)

_SECOND = OperatorShape(1, OperatorKind.SOURCE)

_PAIR = OperatorShape(2, OperatorKind.STEP)

_OTHER_PAIR = OperatorShape(3, OperatorKind.STEP)

_COUNT = OperatorShape(4, OperatorKind.KEYED, keys=_KEYS)

_OUT = OperatorShape(5, OperatorKind.SINK)
#: A source that keeps its parallelism.
_STEADY = OperatorShape(6, OperatorKind.SOURCE)


def _source(parallelism: int, *chain: OperatorShape) -> VertexShape:
    return VertexShape(chain, parallelism, counts=_COUNTS, chunk=2, pause=0.004 * parallelism)


def _counted(parallelism: int, *inputs: int) -> VertexShape:
    by_key = tuple((position, Partitioning.KEY_GROUP) for position in inputs)
    return VertexShape((_COUNT, _OUT), parallelism, by_key)


def _keyed(n: int) -> list[VertexShape]:
    return [_source(n, _FIRST, _PAIR), _counted(n, 0)]


def _rebalanced(n: int) -> list[VertexShape]:
    in_turn = VertexShape((_PAIR,), n, ((0, Partitioning.REBALANCE),))
    return [_source(n, _FIRST), in_turn, _counted(n, 1)]


def _union(n: int) -> list[VertexShape]:
    both = VertexShape((_PAIR,), n, ((0, Partitioning.FORWARD), (1, Partitioning.FORWARD)))
    return [_source(n, _FIRST), _source(n, _SECOND), both, _counted(n, 2)]


def _several_inputs(n: int) -> list[VertexShape]:
    in_turn = VertexShape((_OTHER_PAIR,), n, ((1, Partitioning.REBALANCE),))
    return [_source(n, _FIRST, _PAIR), _source(2, _STEADY), in_turn, _counted(n, 0, 2)]


#: How the records get to the operator that counts them, by the shape's name.
SHAPES: Final[Mapping[str, Callable[[int], list[VertexShape]]]] = {
    "keyed": _keyed,
    "rebalanced": _rebalanced,
    "union": _union,
    "several inputs": _several_inputs,
}


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
    conditions = pressing_conditions(parallelism, tick=0.0001, slow_channels=0.1, slowness=0.003)
    return Scenario(seed, mode, stress_shape(parallelism), config, conditions, _faults(parallelism))


def happened_failures(result: SimulationResult) -> int:
    """Number of the five that have happened."""
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


#: How many processes die.
KILLS: Final = 5


def stored_alignment_scenario(seed: int, parallelism: int = 2) -> Scenario:
    """One job.

    Args:
        seed: Decides who dies and when, the memory, the limit, and the order of what happens.
        parallelism: Of every vertex.
    """
    draws = Draws(seed)
    config = pressing_config(every=0.02, unaligned=False, stored_in_memory=draws.pick((0, 600, 1_500)))
    assert config.checkpointing is not None, "the job takes checkpoints"
    limited = replace(config.checkpointing, max_alignment_bytes=draws.pick((None, None, 60)))
    faults = tuple(
        PlannedFault(FaultKind.CRASH, Moment.STORING, 2 + 3 * kill, delay=draws.between(0, 4))
        for kill in range(KILLS)
    )
    conditions = pressing_conditions(parallelism, tick=0.0001, slow_channels=0.3, slowness=0.01)
    return Scenario(
        seed,
        HandlerMode.STORED,
        stress_shape(parallelism),
        replace(config, checkpointing=limited),
        conditions,
        faults,
    )
