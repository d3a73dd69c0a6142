"""Draws the graph of a simulated job, and what comes on top: hooks, rescales, a second job, windows.

Draws what comes on top of a scenario: hooks, splits on request, rescales, a second job, and windows.

It has streams of its own, so it changes nothing of what the other streams draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault
from simulated_jobs.handover import SecondJob, StartFrom
from simulated_jobs.records import Copies
from simulated_jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape

#: So many ways from sources to sinks keep a run short.
MOST_PATHS: Final = 8

#: Exchanges that keep no key together, and how often each is drawn.
_EXCHANGES: Final = (
    *(Partitioning.REBALANCE,) * 4,
    *(Partitioning.FORWARD,) * 4,
    Partitioning.BROADCAST,
    Partitioning.GLOBAL,
)


def draw_shape(draws: Draws, most_parallelism: int = 5) -> Shape:
    """Draw a graph."""
    return _Drawing(draws, most_parallelism).shape()


class _Drawing:
    """A graph in the making."""

    def __init__(self, draws: Draws, most_parallelism: int) -> None:
        self._draws = draws
        self._most = most_parallelism
        self._usual = draws.between(1, most_parallelism)
        self._numbers = 0
        self._vertices: list[VertexShape] = []
        self._read: set[int] = set()
        #: Vertices behind a keyed operator: nothing may be dropped there, its numbers must all come out.
        self._behind_keyed: set[int] = set()
        #: Vertices after a broadcast: one is enough, two would multiply the records.
        self._behind_broadcast: set[int] = set()
        self._paths: dict[int, int] = {}

    def shape(self) -> Shape:
        """Sources, what reads them, and a sink behind everything that has no reader."""
        draws = self._draws
        for _ in range(draws.pick((1, 1, 1, 2, 2, 3))):
            self._add_source()
        for _ in range(draws.pick((0, 1, 1, 2, 2, 3, 4))):
            self._add_inner()
        for position in range(len(self._vertices)):
            if position not in self._read:
                self._end(position)
        return Shape(tuple(self._vertices), draws.pick((7, 12, 128)))

    def _parallelism(self) -> int:
        return self._usual if self._draws.chance(0.6) else self._draws.between(1, self._most)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers - 1

    def _add_source(self) -> None:
        draws = self._draws
        source = OperatorShape(self._number(), OperatorKind.SOURCE)
        chain = (source, self._step(may_drop=True)) if draws.chance(0.3) else (source,)
        splits = draws.between(1, 4)
        size = draws.pick((0, 5, 20, 40, 60)) // splits + 1
        counts = tuple(draws.between(size // 2, size + size // 2) for _ in range(splits))
        pause = draws.pick((0.0, 0.0, 0.001, 0.01))
        self._paths[len(self._vertices)] = 1
        self._vertices.append(VertexShape(chain, self._parallelism(), (), counts, draws.between(1, 5), pause))

    def _add_inner(self) -> None:
        draws = self._draws
        before = list(range(len(self._vertices)))
        if sum(self._paths.values()) >= MOST_PATHS:
            return
        # Steps without a reader come first, so that graphs grow long more often than wide.
        unread = [position for position in before if position not in self._read]
        readable = unread if unread and draws.chance(0.7) else before
        inputs = _some(draws, readable, draws.pick((1, 1, 1, 2, 2, 3)))
        behind_keyed = any(position in self._behind_keyed for position in inputs)
        is_keyed = draws.chance(0.5)
        head = self._keyed() if is_keyed else self._step(may_drop=not behind_keyed)
        behind_keyed = behind_keyed or is_keyed
        chain = (head, self._step(may_drop=not behind_keyed)) if draws.chance(0.25) else (head,)
        self._append(chain, inputs, is_keyed=is_keyed, behind_keyed=behind_keyed)

    def _append(
        self, chain: tuple[OperatorShape, ...], inputs: Sequence[int], *, is_keyed: bool, behind_keyed: bool
    ) -> None:
        parallelism = self._parallelism()
        position = len(self._vertices)
        exchanges = tuple((where, self._exchange(where, parallelism, is_keyed=is_keyed)) for where in inputs)
        self._vertices.append(VertexShape(chain, parallelism, exchanges))
        self._paths[position] = sum(self._paths[where] for where in inputs)
        self._read.update(inputs)
        if any(how is Partitioning.BROADCAST or where in self._behind_broadcast for where, how in exchanges):
            self._behind_broadcast.add(position)
        if behind_keyed:
            self._behind_keyed.add(position)

    def _exchange(self, where: int, parallelism: int, *, is_keyed: bool) -> Partitioning:
        if is_keyed:
            return Partitioning.KEY_GROUP
        drawn = self._draws.pick(_EXCHANGES)
        unequal = self._vertices[where].parallelism != parallelism
        if (drawn is Partitioning.FORWARD and unequal) or (
            drawn is Partitioning.BROADCAST and where in self._behind_broadcast
        ):
            return Partitioning.REBALANCE
        return drawn

    def _end(self, position: int) -> None:
        """Put a sink behind a vertex: chained, or with subtasks of its own."""
        vertex = self._vertices[position]
        sink = OperatorShape(self._number(), OperatorKind.SINK)
        if self._draws.chance(0.5):
            chained = VertexShape(
                (*vertex.operators, sink),
                vertex.parallelism,
                vertex.inputs,
                vertex.counts,
                vertex.chunk,
                vertex.pause,
            )
            self._vertices[position] = chained
        else:
            self._append((sink,), [position], is_keyed=False, behind_keyed=False)

    def _step(self, *, may_drop: bool) -> OperatorShape:
        several = Copies.NONE_TO_TWO if may_drop else Copies.ONE_OR_TWO
        copies = several if self._draws.chance(0.25) else Copies.ONE
        return OperatorShape(self._number(), OperatorKind.STEP, copies)

    def _keyed(self) -> OperatorShape:
        draws = self._draws
        return OperatorShape(
            self._number(),
            OperatorKind.KEYED,
            keys=draws.pick((1, 2, 5, 11)),
            text_keys=draws.chance(0.5),
            is_padded=draws.chance(0.4),
        )


def _some(draws: Draws, possibilities: Sequence[int], number: int) -> list[int]:
    left = list(possibilities)
    return sorted(left.pop(draws.below(len(left))) for _ in range(min(number, len(left))))


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
    """The failures of a job, and the user's requests meanwhile."""
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
    """Perhaps give the records of a source timestamps, and let windows read them beside its other readers.

    Splits on request come one after the other, so the lag of the next one is unknown: not for them.
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
