"""Three exchanges in a row: one source passes all of them, one joins behind the first, one ends early.

The source beside them sends its barriers directly to the last two operators. So their alignments begin at
once, and last until the first operator has sent a barrier, or has given the checkpoint up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs.faults import first_time
from jobs.lasting import Lasting
from jobs.words import NEVER

from penstock import FileSink, GeneratorSource, StreamEnvironment
from penstock.connectors import ConnectorContext, Polled, SourceReader

#: Source, number, letters of the operators on the way.
Record = tuple[str, int, str]

#: Records of each source.
COUNTS: Final = {"main": 1_500, "side": 900, "short": 40}

_RATE: Final = 1_000.0
_POLL: Final = 0.02


@dataclass(frozen=True)
class Named:
    """Makes the records of a source."""

    source: str

    def __call__(self, index: int) -> Record:
        return self.source, index, ""


@dataclass(frozen=True)
class Passes:
    """Notes that a record has passed an operator."""

    letter: str

    def __call__(self, record: Record) -> Record:
        source, number, way = record
        return source, number, way + self.letter


def as_row(record: Record) -> dict[str, Any]:
    return dict(zip(("source", "number", "way"), record, strict=True))


@dataclass(frozen=True)
class EndsWhenTold:
    """A source whose subtask hears that the checkpoint of its end is complete, and waits for a file.

    Its end reaches no receiver before that. It says in a file `.ended` that every checkpoint from now on
    covers its end, and in a file `.reached` that it waits.
    """

    inner: GeneratorSource[Record]
    opened: str

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[Record]:
        return WaitingReader(self.inner.reader(context, splits), self.opened)


class WaitingReader:
    """Waits in the notice of the checkpoint that covers its end."""

    def __init__(self, reader: SourceReader[Record], opened: str) -> None:
        self._reader = reader
        self._opened = opened
        self._has_ended = self._is_covered = False

    def poll(self, max_rows: int) -> Polled[Record]:
        polled = self._reader.poll(max_rows)
        if polled.finished:
            self._has_ended = True
            first_time(self._opened + ".ended")
        return polled

    def snapshot(self) -> Sequence[Any]:
        return self._reader.snapshot()

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self._is_covered = self._has_ended

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        while self._is_covered and not Path(self._opened).exists():
            first_time(self._opened + ".reached")
            time.sleep(_POLL)

    def close(self) -> None:
        self._reader.close()


def build(env: StreamEnvironment, folder: Path) -> None:
    """main, short -> a -> b -> c -> out; side -> b, side -> c. They end when the file `go` is there."""

    def lasting(name: str) -> Lasting[Record]:
        generator = GeneratorSource(Named(name), count=COUNTS[name], rate=_RATE)
        return Lasting(generator, attempt=NEVER, release=str(folder / "go"))

    ending = EndsWhenTold(GeneratorSource(Named("short"), count=COUNTS["short"]), str(folder / "open"))
    main = env.from_source("main", lasting("main")).rebalance()
    side = env.from_source("side", lasting("side")).rebalance()
    short = env.from_source("short", ending).rebalance()
    a = main.union(short).map(Passes("a"), id="a").rebalance()
    b = a.union(side).map(Passes("b"), id="b").rebalance()
    c = b.union(side).map(Passes("c"), id="c")
    c.map(as_row).sink("out", FileSink.json(folder / "out"))


def expected() -> Counter[tuple[str, int, str]]:
    """The output that must be committed: each record once for each way through the graph."""
    ways = {"main": ["abc"], "short": ["abc"], "side": ["bc", "c"]}
    return Counter(
        (source, number, way)
        for source, each in ways.items()
        for way in each
        for number in range(COUNTS[source])
    )
