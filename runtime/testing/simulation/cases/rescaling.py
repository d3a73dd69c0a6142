"""Jobs that continue at a given other parallelism, for tables of cases.

The job runs under back pressure, with slow channels, and with frames that are reordered or delivered twice.
Three processes die: one in the middle of a step before the parallelism changes, one while the job restarts,
one later. The parallelism changes while the job runs, or the job is cancelled and another one starts from its
last checkpoint. Nothing may be lost or duplicated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.cases.back_pressure import pressing_config, pressing_weather
from penstock.runtime.testing.simulation.jobs.scenario import HandlerMode, Scenario
from penstock.runtime.testing.simulation.jobs.second_job import SecondJob, StartFrom
from penstock.runtime.testing.simulation.jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: Splits of a source, and the records of each: enough splits for the largest parallelism.
_COUNTS: Final = (8,) * 20

_KEYS: Final = 11
_KEY_GROUPS: Final = 24


class RescaledBy(Enum):
    """How a job gets to its new parallelism."""

    REQUEST = "rescaled while it runs"
    NEW_JOB = "started again from its last checkpoint"


def rescale_scenario(
    shape: str, old: int, new: int, mode: HandlerMode, by: RescaledBy, seed: int = 1
) -> Scenario:
    """A job that goes on at another parallelism.

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
        pressing_weather(largest, tick=0.0002, slow_channels=0.3, slowness=0.01),
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
