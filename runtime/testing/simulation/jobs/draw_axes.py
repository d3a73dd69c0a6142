"""Draws what comes on top of a scenario: hooks, splits on request, rescales, a second job, and windows.

It has streams of its own, so it changes nothing of what the other streams draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.jobs.second_job import SecondJob, StartFrom
from penstock.runtime.testing.simulation.jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: The largest parallelism of an operator in the second job.
_MOST_PARALLELISM: Final = 5

#: When a user asks for something: early, because a job may be over soon.
_EARLY: Final = (
    *(Moment.MOVE,) * 4,
    Moment.COMPLETED,
    *(Moment.ACKNOWLEDGED,) * 2,
    *(Moment.SNAPSHOT,) * 2,
    Moment.TRIGGERED,
    Moment.COMMITTED,
    Moment.STARTED,
    Moment.END_OF_DATA,
)

#: So many moves are early.
_EARLY_MOVES: Final = 400

#: What happens while a valve is closed, as often as it stands here.
_AT_THE_VALVE: Final = (
    *(FaultKind.MASTER_CRASH,) * 3,
    *(FaultKind.CRASH,) * 3,
    FaultKind.CRASH_IN_STEP,
    FaultKind.TWO_MASTERS,
)


def draw_sources(draws: Draws, shape: Shape, *, hooks: bool) -> Shape:
    """Let some sources hand out their splits on request, and some have a master hook."""
    is_hooked = hooks and draws.chance(0.35)
    vertices = []
    for vertex in shape.vertices:
        if not vertex.inputs:
            if draws.chance(0.4):
                vertex = replace(vertex, counts=_cut(draws, vertex.counts), is_on_request=True)
            vertex = replace(vertex, has_hook=is_hooked and draws.chance(0.7))
        vertices.append(vertex)
    return replace(shape, vertices=tuple(vertices))


def draw_axis_faults(draws: Draws, shape: Shape) -> tuple[PlannedFault, ...]:
    """What goes wrong with them, and what the user wants meanwhile."""
    planned = []
    if any(vertex.has_hook for vertex in shape.vertices):
        for _ in range(draws.between(0, 2)):
            kind = draws.pick((FaultKind.HOOK_FAILED, FaultKind.HOOK_LATE, FaultKind.HOOK_LATE))
            planned.append(_planned(draws, kind, (Moment.STARTED, Moment.COMPLETED, Moment.TRIGGERED)))
    if any(vertex.is_on_request for vertex in shape.vertices):
        for _ in range(draws.between(0, 2)):
            occurrence, delay = draws.between(1, 6), draws.pick((0, 0, 1, 3, 10))
            planned.append(PlannedFault(draws.pick(_AT_THE_VALVE), Moment.COORDINATED, occurrence, delay))
    if draws.chance(0.3):
        planned += [_planned(draws, FaultKind.RESCALED, _EARLY) for _ in range(draws.between(1, 2))]
    return tuple(planned)


def draw_second_job(draws: Draws, shape: Shape) -> tuple[SecondJob | None, tuple[PlannedFault, ...]]:
    """Perhaps a second job, which starts from what the first has left, and what ends the first one."""
    if not draws.chance(0.4):
        return None, ()
    start = draws.pick((StartFrom.NEWEST, StartFrom.NEWEST, StartFrom.NEWEST, StartFrom.OLDER))
    stops = (FaultKind.STOPPED, FaultKind.STOPPED, FaultKind.DRAINED, FaultKind.JOB_CANCELLED)
    kind = FaultKind.JOB_CANCELLED if start is StartFrom.OLDER else draws.pick(stops)
    wanted = {}
    if draws.chance(0.7):
        for vertex in shape.vertices:
            if not vertex.has_broadcast and draws.chance(0.6):
                wanted[vertex.head.id] = draws.between(1, _MOST_PARALLELISM)
    if kind is FaultKind.JOB_CANCELLED:
        needed = 2 if start is StartFrom.OLDER else 1
        end = PlannedFault(kind, Moment.COMPLETED, needed, draws.below(60))
    else:
        end = _planned(draws, kind, _EARLY)
    return SecondJob(start, wanted, is_moved=draws.chance(0.5)), (end,)


def draw_windows(draws: Draws, shape: Shape) -> Shape:
    """Perhaps give the records of a source timestamps, and let windows read them beside whoever does.

    Splits on request come one after the other, so nobody knows how far behind the next one is: not for them.
    """
    sources = [
        position
        for position, vertex in enumerate(shape.vertices)
        if not vertex.inputs
        and not vertex.is_on_request
        and vertex.operators[-1].kind is not OperatorKind.SINK
    ]
    if not sources or not draws.chance(0.4):
        return shape
    position, number = draws.pick(sources), 1 + max(operator.number for operator in shape.operators)
    source = shape.vertices[position]
    times = OperatorShape(number, OperatorKind.TIMES, length=source.chunk)
    window = OperatorShape(
        number + 1,
        OperatorKind.WINDOW,
        keys=draws.pick((1, 3, 7)),
        text_keys=draws.chance(0.5),
        length=draws.pick((1, 3, 8, 25)),
    )
    chain = (window, OperatorShape(number + 2, OperatorKind.SINK))
    parallelism, inputs = draws.between(1, _MOST_PARALLELISM), ((position, Partitioning.KEY_GROUP),)
    vertices = list(shape.vertices)
    vertices[position] = replace(source, operators=(*source.operators, times))
    return replace(shape, vertices=(*vertices, VertexShape(chain, parallelism, inputs)))


def _planned(draws: Draws, kind: FaultKind, moments: Sequence[Moment]) -> PlannedFault:
    moment = draws.pick(moments)
    occurrence = draws.below(_EARLY_MOVES) if moment is Moment.MOVE else draws.between(1, 3)
    return PlannedFault(kind, moment, occurrence, draws.pick((0, 1, draws.below(40))))


def _cut(draws: Draws, counts: Sequence[int]) -> tuple[int, ...]:
    """The same records in more and smaller splits, so that there is something to hand out."""
    cut: list[int] = []
    for count in counts:
        parts = min(count, draws.between(1, 4))
        cut += [count // parts + (part < count % parts) for part in range(parts)]
    return tuple(cut)
