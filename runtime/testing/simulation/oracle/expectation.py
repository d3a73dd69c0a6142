"""What must come out of a simulated job, computed from its input and its graph alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.runtime.testing.simulation.jobs.records import Copies, Identity, Key, Origin, key_of
from penstock.runtime.testing.simulation.jobs.shape import OperatorKind, OperatorShape, Shape

#: Operator, copy, and the lane after a broadcast (else -1) of each step.
_Way = tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class Expectation:
    """What must come out.

    Attributes:
        output: What each sink must have committed, by the sink's id.
        keyed: What each key of each keyed operator must have seen, whatever the order.
        seen: What each operator must have been given.
    """

    output: dict[str, set[Identity]] = field(default_factory=dict)
    keyed: dict[tuple[int, Key], set[Identity]] = field(default_factory=dict)
    seen: dict[int, set[Identity]] = field(default_factory=dict)


def expect(shape: Shape) -> Expectation:
    """Follow every record along every way."""
    expected = Expectation()
    for operator in shape.operators:
        expected.seen[operator.number] = set()
        if operator.kind is OperatorKind.SINK:
            expected.output[operator.id] = set()
    for path in shape.paths():
        operators = [
            (operator, shape.vertices[position].parallelism)
            for position in path
            for operator in shape.vertices[position].operators
            if operator.shows_in_routes
        ]
        for origin in _origins(shape, path[0]):
            _follow(shape, origin, operators, expected)
    return expected


def _origins(shape: Shape, position: int) -> Iterator[Origin]:
    vertex = shape.vertices[position]
    for split, count in enumerate(vertex.counts):
        for index in range(count):
            yield vertex.head.number, split, index


def _follow(
    shape: Shape, origin: Origin, operators: list[tuple[OperatorShape, int]], expected: Expectation
) -> None:
    ways: list[_Way] = [()]
    before: int | None = None
    for operator, parallelism in operators:
        number = operator.number
        for way in ways:
            expected.seen[number].add((origin, way))
            if operator.kind is OperatorKind.KEYED:
                key = key_of(origin, number, operator.keys, text=operator.text_keys)
                expected.keyed.setdefault((number, key), set()).add((origin, way))
        is_broadcast = (before, number) in shape.broadcasts
        lanes = range(parallelism) if is_broadcast else (-1,)
        copies = operator.copies if operator.kind is OperatorKind.STEP else Copies.ONE
        made = range(copies.of(origin))
        ways = [(*way, (number, copy, lane)) for way in ways for lane in lanes for copy in made]
        before = number
    expected.output[operators[-1][0].id].update((origin, way) for way in ways)
