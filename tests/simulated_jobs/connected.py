"""A part of a simulated job in which one operator reads two streams.

Two sources feed one operator (`ConnectedKind`). It counts the records of each key by stream, keeps rules that
come by broadcast, or joins both streams by time. So barriers, watermarks and records in flight of two gates
meet in one subtask.

A count emits a row for each record: the record, its key, and how many records of either stream the key has
seen. The rows of a key in the order of these numbers must be a walk: each record is one step of its stream.
With rules, every subtask emits each rule with its number there, and each other record is numbered by key. A
join emits the pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import product
from typing import Any, Final, TypeAlias

from penstock import ValueState
from penstock.connected import (
    BroadcastContext,
    BroadcastState,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from penstock.runtime.graph.job_graph import JobEdge, JobVertex, OperatorSpec, Partitioner, Partitioning
from penstock.runtime.operators.functions.co_process import (
    KeyedBroadcastProcessOperator,
    KeyedCoProcessOperator,
)
from penstock.runtime.operators.functions.process_function import RuntimeContext
from penstock.runtime.operators.joins.interval_join import IntervalJoin
from penstock.runtime.operators.joins.output_rows import OutputRows
from penstock.runtime.operators.joins.row_interval_join import RowIntervalJoinOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.testing.simulation.world.agenda import Draws
from simulated_jobs.operators import CodeHooks, SimulatedSink, SimulatedSource
from simulated_jobs.records import ExternalSystem, Origin, Record
from simulated_jobs.split_source import JobPorts
from simulated_jobs.timed import UNIT, timestamps

#: Ids of the sources, of the operator with two inputs and of its sink.
SOURCES: Final = ("left", "right")
CONNECTED: Final = "connected"
SINK: Final = "connected-sink"

#: How many of the seeds have such a part.
_SHARE: Final = 0.15

#: The sources' numbers in the records of the simulation; no other operators have them.
_NUMBERS: Final = (-2, -3)

#: A row of the output, in the form of the simulation's records.
Row: TypeAlias = tuple[tuple[Any, ...], tuple[()]]


class ConnectedKind(Enum):
    """The work of the operator with two inputs."""

    COUNTS = "counts by key"
    RULES = "rules by broadcast"
    JOIN = "interval join"


@dataclass(frozen=True, slots=True)
class ConnectedShape:
    """Such a part.

    Attributes:
        counts: How many records each split has, of both sources.
        chunk: Most records of one poll.
        pause: Seconds between two polls.
        parallelism: Of the sources, and of the operator.
        keys: How many there are.
        span: For a join: most positions between two partners.
    """

    kind: ConnectedKind
    counts: tuple[tuple[int, ...], tuple[int, ...]]
    chunk: int
    pause: float
    parallelism: tuple[int, int, int]
    keys: int
    span: int

    @property
    def rescalable(self) -> tuple[str, ...]:
        """Vertices whose parallelism may change: not one with broadcast input, whose output would differ."""
        return SOURCES if self.kind is ConnectedKind.RULES else (*SOURCES, CONNECTED)

    def build(self, key_groups: int, ports: JobPorts) -> tuple[tuple[JobVertex, ...], tuple[JobEdge, ...]]:
        """Its vertices and edges."""
        sink = partial(SinkOperator, SimulatedSink(ports.system, ports.hooks))
        chains = [self._senders(side) for side in (0, 1)]
        chains.append(
            [
                OperatorSpec(
                    CONNECTED, CONNECTED, partial(self._operator, ports.hooks), stateful=True, keyed=True
                ),
                OperatorSpec(SINK, SINK, sink, stateful=True, is_sink=True),
            ]
        )
        vertices = tuple(
            JobVertex(chain[0].id, tuple(chain), parallelism, key_groups)
            for chain, parallelism in zip(chains, self.parallelism, strict=True)
        )
        by_key = Partitioner(Partitioning.KEY_GROUP, self.key_of)
        to_all = Partitioner(Partitioning.BROADCAST)
        edges = tuple(
            JobEdge(chain[0].id, chain[-1].id, None, CONNECTED, side, how)
            for side, chain, how in (
                (0, chains[0], by_key),
                (1, chains[1], to_all if self.kind is ConnectedKind.RULES else by_key),
            )
        )
        return vertices, edges

    def _senders(self, side: int) -> list[OperatorSpec]:
        name, is_join = SOURCES[side], self.kind is ConnectedKind.JOIN
        source = SimulatedSource(_NUMBERS[side], self.counts[side], self.chunk, self.pause, in_order=is_join)
        chain = [OperatorSpec(name, name, None, source, stateful=True)]
        if is_join:
            moments = f"moments of {name}"
            chain.append(OperatorSpec(moments, moments, partial(timestamps, self.chunk)))
        return chain

    def _operator(self, hooks: CodeHooks) -> Operator:
        keys = self.key_of, self.key_of
        if self.kind is ConnectedKind.COUNTS:
            return KeyedCoProcessOperator(keys, CountBoth(hooks))
        if self.kind is ConnectedKind.RULES:
            return KeyedBroadcastProcessOperator(keys[:1], CountRules(hooks))
        join = IntervalJoin(-self.span * UNIT, self.span * UNIT)
        pairs = OutputRows(partial(_pair, hooks))
        return RowIntervalJoinOperator(join, keys, pairs, None, ("late left", "late right"))

    def key_of(self, record: Record) -> int:
        """The key of a record."""
        return self.key_of_origin(record[0])

    def key_of_origin(self, origin: Origin) -> int:
        """The key of a record that begins so."""
        _, split, index = origin
        return (3 * split + index) % self.keys

    def origins(self, side: int) -> list[Origin]:
        """All records of a source."""
        return [
            (_NUMBERS[side], split, index)
            for split, count in enumerate(self.counts[side])
            for index in range(count)
        ]

    def pairs(self) -> Iterator[tuple[Origin, Origin]]:
        """All pairs of partners."""
        for left, right in product(self.origins(0), self.origins(1)):
            is_near = abs(left[2] - right[2]) <= self.span
            if is_near and self.key_of_origin(left) == self.key_of_origin(right):
                yield left, right


def draw_connected(draws: Draws) -> ConnectedShape | None:
    """Draw such a part; `None` for most seeds."""
    if not draws.chance(_SHARE):
        return None
    counts = [
        tuple(draws.between(size // 2, size) for _ in range(draws.between(1, 3)))
        for size in (draws.pick((8, 16)), draws.pick((4, 8, 16)))
    ]
    return ConnectedShape(
        draws.pick(tuple(ConnectedKind)),
        (counts[0], counts[1]),
        chunk=draws.pick((1, 2, 5)),
        pause=draws.pick((0.0, 0.001, 0.005)),
        parallelism=(draws.between(1, 3), draws.between(1, 2), draws.between(1, 3)),
        keys=draws.pick((1, 3, 7)),
        span=draws.pick((0, 2, 5)),
    )


# -- users' functions -------------------------------------------------------------------------------------


def _row(*parts: Any) -> Row:
    return parts, ()


def _pair(hooks: CodeHooks, left: Record, right: Record) -> Row:
    hooks.record(CONNECTED, 0)
    return _row("pair", left[0], right[0])


class CountBoth(KeyedCoProcessFunction[int, Record, Record, Row]):
    """Counts the records of a key by stream, and emits both counts for each record."""

    seen = ValueState(tuple, default=(0, 0))

    def __init__(self, hooks: CodeHooks) -> None:
        self._hooks = hooks

    def process_element1(self, value: Record, ctx: RuntimeContext) -> list[Row]:
        return self._count(value, ctx, 1, 0)

    def process_element2(self, value: Record, ctx: RuntimeContext) -> list[Row]:
        return self._count(value, ctx, 0, 1)

    def _count(self, value: Record, ctx: RuntimeContext, left: int, right: int) -> list[Row]:
        self._hooks.record(ctx.operator_id, ctx.subtask)
        lefts, rights = self.seen.value()
        self.seen.update((lefts + left, rights + right))
        return [_row("counted", value[0], ctx.current_key, *self.seen.value())]


class CountRules(KeyedBroadcastProcessFunction[int, Record, Record, Row]):
    """Numbers rules by subtask and other records by key."""

    seen = ValueState(int, default=0)
    rules = BroadcastState(str, int)

    def __init__(self, hooks: CodeHooks) -> None:
        self._hooks = hooks

    def process_element(self, value: Record, ctx: RuntimeContext) -> list[Row]:
        self._hooks.record(ctx.operator_id, ctx.subtask)
        self.seen.update(self.seen.value() + 1)
        return [_row("data", value[0], ctx.current_key, self.seen.value())]

    def process_broadcast_element(self, value: Record, ctx: BroadcastContext) -> list[Row]:
        self._hooks.record(ctx.operator_id, ctx.subtask)
        self.rules["number"] = self.rules.get("number", 0) + 1
        return [_row("rule", value[0], ctx.subtask, self.rules["number"])]


# -- the rule ---------------------------------------------------------------------------------------------


def connected_problems(
    shape: ConnectedShape, system: ExternalSystem, *, complete: bool, exactly_once: bool, is_whole: bool
) -> list[str]:
    """Violations in the committed output.

    Args:
        complete: Whether the job has come to its end.
        exactly_once: Whether nothing may count twice.
        is_whole: Whether event time did not come to its end early, as a drain lets it.
    """
    rows: list[Any] = [row for row, _ in system.rows(SINK)]
    if shape.kind is ConnectedKind.JOIN:
        expected = Counter[Any](shape.pairs())
        complete = complete and is_whole
        found = Counter((left, right) for _, left, right in rows)
    else:
        rules = shape.parallelism[2] if shape.kind is ConnectedKind.RULES else 1
        expected = Counter(dict.fromkeys(shape.origins(0), 1) | dict.fromkeys(shape.origins(1), rules))
        found = Counter(row[1] for row in rows)
    problems = []
    unknown = sorted(found.keys() - expected.keys())
    if unknown:
        problems.append(f"{SINK} has written what nobody sent: {unknown[:5]}")
    lost, twice = sorted((expected - found).elements()), sorted((found - expected).elements())
    if complete and lost:
        problems.append(f"{SINK} lost {len(lost)}: {lost[:5]}")
    if exactly_once and twice and not unknown:
        problems.append(f"{SINK} has written twice: {twice[:5]}")
    if complete and exactly_once and not problems and shape.kind is not ConnectedKind.JOIN:
        problems += _misnumbered(rows)
    return problems


def _misnumbered(rows: Iterable[Any]) -> Iterator[str]:
    """Keys and subtasks whose rows are not numbered one by one."""
    groups: defaultdict[tuple[str, Any], list[Any]] = defaultdict(list)
    for row in rows:
        groups[row[0], row[2]].append(row)
    for (what, of), counted in groups.items():
        before = [0] * len(counted[0][3:])
        for row in sorted(counted, key=lambda row: sum(row[3:])):
            before[_NUMBERS.index(row[1][0]) if len(before) == 2 else 0] += 1
            if before != [*row[3:]]:
                yield f"{CONNECTED}, {what} of {of}: {row[1]} has number {row[3:]} instead of {before}"
                break
