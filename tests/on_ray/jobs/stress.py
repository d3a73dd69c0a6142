"""The jobs of Flink's `UnalignedCheckpointITCase`, and an oracle that counts what they did wrong.

Every record has a number in its lane, and a lane is read by one subtask. On its way it collects which
subtasks it went through. Records of a lane that took the same way must arrive in order, and there must be
each of them once.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from jobs.lasting import Lasting
from jobs.throttled import Throttled, fail_if_armed

from penstock import (
    DataStream,
    FileSink,
    GeneratorSource,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.connectors import Source

#: Source, lane, number in the lane.
Number = tuple[str, int, int]
#: A number, and the process and the subtask that it went through.
Routed = tuple[Number, int, int]
Key = tuple[str, int, int]

#: Keys of a lane in the failing and in the verifying operator: different ones, so records are exchanged.
_FAILING_KEYS: Final = 7
_VERIFYING_KEYS: Final = 5

#: Seconds for which the sink holds each record while it is shut.
_HOLD: Final = 0.06


@dataclass(frozen=True)
class Numbered:
    """Record `index` of all lanes of a source together."""

    source: str
    lanes: int

    def __call__(self, index: int) -> Number:
        return self.source, index % self.lanes, index // self.lanes


def with_process(number: Number) -> tuple[Number, int]:
    return number, os.getpid()


def failing_key(record: tuple[Number, int]) -> Key:
    source, lane, number = record[0]
    return source, lane, number % _FAILING_KEYS


def verifying_key(record: Routed) -> Key:
    source, lane, number = record[0]
    return source, lane, number % _VERIFYING_KEYS


class Failing(KeyedProcessFunction[Key, tuple[Number, int], Routed]):
    """Fails in a call, when it is opened, or when it is closed, each time a file asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def open(self, ctx: RuntimeContext) -> None:
        self._subtask = ctx.subtask
        self._fail_if_armed("open")

    def process(self, value: tuple[Number, int], ctx: RuntimeContext) -> Iterator[Routed]:
        self._fail_if_armed("process")
        yield *value, self._subtask

    def close(self) -> None:
        self._fail_if_armed("close")

    def _fail_if_armed(self, where: str) -> None:
        if self._subtask == 0:
            fail_if_armed(str(armed(Path(self._folder), where)))


class Verifying(KeyedProcessFunction[Key, Routed, dict[str, Any]]):
    """Numbers the records of each key in the order of their arrival."""

    def open(self, ctx: RuntimeContext) -> None:
        self._position: ValueState = ctx.value_state("position", default=0)

    def process(self, value: Routed, ctx: RuntimeContext) -> Iterator[dict[str, Any]]:
        (source, lane, number), process, subtask = value
        position = self._position.value()
        self._position.update(position + 1)
        yield {
            "lane": [source, lane],
            "number": number,
            "way": [process, subtask],
            "position": position,
        }


def armed(folder: Path, where: str) -> Path:
    """The file that makes the job fail once: in `process`, `open`, `close` or `prepare_commit`."""
    return folder / f"fail in {where}"


# -- topologies ---------------------------------------------------------------------------------------------


def pipeline(env: StreamEnvironment, numbers: Callable[[str], Source[Number]]) -> DataStream[Number]:
    """One source."""
    return env.from_source("first", numbers("first")).rebalance()


def multi_input(env: StreamEnvironment, numbers: Callable[[str], Source[Number]]) -> DataStream[Number]:
    """Inputs of two kinds: one that barriers overtake, and one where they can't."""
    second = env.from_source("second", numbers("second"))
    return env.from_source("first", numbers("first")).rebalance().union(second)


def union(env: StreamEnvironment, numbers: Callable[[str], Source[Number]]) -> DataStream[Number]:
    """Three sources."""
    first, second, third = (
        env.from_source(name, numbers(name)).rebalance() for name in ("first", "second", "third")
    )
    return first.union(second, third)


SOURCES: Final = {pipeline: ("first",), multi_input: ("first", "second"), union: ("first", "second", "third")}


@dataclass(frozen=True)
class Stress:
    """One stress job.

    Attributes:
        topology: Where its records come from.
        parallelism: Of every operator.
        folder: Of the test.
    """

    topology: Callable[..., DataStream[Number]]
    parallelism: int
    folder: Path

    @property
    def shut(self) -> Path:
        """While this exists the sink lets little through."""
        return self.folder / "shut"

    @property
    def released(self) -> Path:
        """Without this the sources do not end."""
        return self.folder / "released"

    @property
    def per_lane(self) -> int:
        """Records of each lane, enough to last for minutes through the shut sink."""
        return 1_500 // len(SOURCES[self.topology])

    def build(self, env: StreamEnvironment) -> None:
        """Sources, an exchange, the failing operator, an exchange, the verifying one, the sink."""
        numbers = self.topology(env, self._numbers)
        sink = Throttled(
            FileSink.json(self.folder / "out"),
            str(self.shut),
            _HOLD,
            str(armed(self.folder, "prepare_commit")),
        )
        (
            numbers.map(with_process, id="spread")
            .key_by(failing_key)
            .process("fail", Failing(self.folder))
            .key_by(verifying_key)
            .process("verify", Verifying())
            .sink("out", sink)
        )

    def _numbers(self, source: str) -> Source[Number]:
        lanes = self.parallelism
        generator = GeneratorSource(Numbered(source, lanes), count=lanes * self.per_lane)
        return Lasting(generator, attempt=1_000, release=str(self.released))

    def expected(self) -> set[Number]:
        """Every record once."""
        return {
            (source, lane, number)
            for source in SOURCES[self.topology]
            for lane in range(self.parallelism)
            for number in range(self.per_lane)
        }


# -- the oracle ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Anomalies:
    """States that must not be.

    Attributes:
        lost: Records that never arrived.
        duplicated: Records that arrived again.
        out_of_order: Records that arrived behind a later one of their lane and way.
        miscounted: Positions that the verifying operator's state gave twice or not at all.
    """

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    miscounted: int = 0


def anomalies(rows: Iterable[dict[str, Any]], expected: set[Number]) -> Anomalies:
    """Count them in what a stress job has committed."""
    seen: Counter[Number] = Counter()
    positions: dict[Key, list[int]] = defaultdict(list)
    ways: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        (source, lane), number = row["lane"], row["number"]
        key = source, lane, number % _VERIFYING_KEYS
        seen[source, lane, number] += 1
        positions[key].append(row["position"])
        ways[*key, *row["way"]].append((row["position"], number))
    assert seen.keys() <= expected, "records that nobody made"
    return Anomalies(
        lost=len(expected - seen.keys()),
        duplicated=seen.total() - len(seen),
        out_of_order=sum(
            later < earlier for way in ways.values() for (_, earlier), (_, later) in pairwise(sorted(way))
        ),
        miscounted=sum(sorted(given) != list(range(len(given))) for given in positions.values()),
    )
