"""Draws the graph of a simulated job: chains, diamonds, unions, several sources, every kind of exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.jobs.records import Copies
from penstock.runtime.testing.simulation.jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape
from penstock.runtime.testing.simulation.world.draws import Draws

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
        """Sources, what reads them, and a sink behind everything that nobody reads."""
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
        # What nobody reads yet comes first, so that graphs grow long more often than wide.
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
