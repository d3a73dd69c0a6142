"""Event time of a source subtask against a brute-force model: splits that come, read, pause, wait and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock import WatermarkStrategy
from penstock.connectors import ConnectorContext, Polled, SplitProgress
from penstock.operators import ArrowBatch, RowBatch
from penstock.testing import SourceHarness

TIMEOUT = 3
NAMES = st.integers(0, 3)

#: Records of a split, a split that begins, one that ends, whether others wait, seconds that pass.
Happening: TypeAlias = tuple[str, Any, Any]
HAPPENINGS = st.lists(
    st.tuples(st.just("read"), NAMES, st.lists(st.integers(0, 30), min_size=1, max_size=3))
    | st.tuples(st.just("begin") | st.just("end"), NAMES, st.none())
    | st.tuples(st.just("wait"), st.booleans(), st.none())
    | st.tuples(st.just("pass"), st.integers(1, 5), st.none()),
    max_size=40,
)


class Scripted:
    """A source whose one reader follows a script."""

    def __init__(self, *, columnar: bool) -> None:
        self.columnar = columnar
        self.open: list[tuple[int, int]] = []
        self.waits = False
        self.next: tuple[Any, list[int]] | None = None
        self._progress = SplitProgress(())

    def splits(self, parallelism: int) -> Sequence[int]:
        return []

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Scripted:
        return self

    @property
    def split_progress(self) -> SplitProgress:
        if (tuple(self.open), self.waits) != (self._progress.reading, self._progress.has_waiting):
            self._progress = SplitProgress(tuple(self.open), self.waits)
        return self._progress

    def poll(self, max_rows: int) -> Polled[Any]:
        if self.next is None:
            return Polled()
        (split, moments), self.next = self.next, None
        rows = [{"at": moment} for moment in moments]
        if self.columnar:
            return Polled(ArrowBatch(pa.RecordBatch.from_pylist(rows)), split=split)
        return Polled(RowBatch(rows), split=split)

    def snapshot(self) -> Sequence[Any]:
        return []

    def close(self) -> None:
        pass


@dataclass
class Model:
    """The expected event time of the subtask, counted second by second."""

    splits: dict[Any, tuple[int | None, int]] = field(default_factory=dict)
    waits: bool = False
    without: int = 0
    watermark: int | None = None
    highest: int | None = None
    is_idle: bool = False

    def merge(self) -> None:
        newest_of_all = [newest for newest, _ in self.splits.values() if newest is not None]
        if newest_of_all:
            self.highest = max(newest_of_all if self.highest is None else [self.highest, *newest_of_all])
        active = [newest for newest, quiet in self.splits.values() if quiet < TIMEOUT]
        self.is_idle = False
        if self.waits:
            return
        self.is_idle = not active if self.splits else self.without >= TIMEOUT
        if self.is_idle and self.highest is not None:
            self.watermark = self.highest - 1
        if active and None not in active:
            lowest = min(each for each in active if each is not None) - 1
            if self.watermark is None or lowest > self.watermark:
                self.watermark = lowest

    def second(self) -> None:
        self.splits = {name: (newest, quiet + 1) for name, (newest, quiet) in self.splits.items()}
        self.without = 0 if self.splits else self.without + 1
        self.merge()


@given(happenings=HAPPENINGS, columnar=st.booleans())
def test_the_watermark_is_the_lowest_of_the_active_splits(
    happenings: list[Happening], columnar: bool
) -> None:
    source, model, lives = Scripted(columnar=columnar), Model(), dict[int, int]()
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at").with_idleness(TIMEOUT)
    )
    with SourceHarness(source, watermarks=strategy) as harness:
        for what, which, moments in happenings:
            name = (which, lives.get(which, 0))
            if what == "pass":
                for _ in range(which):
                    model.second()
                harness.advance(which)
            elif what == "wait":
                source.waits = model.waits = which
            elif what == "begin" and name not in source.open:
                source.open.append(name)
                model.splits[name] = (None, 0)
            elif what == "end" and name in source.open:
                source.open.remove(name)
                del model.splits[name]
                lives[which] = lives.get(which, 0) + 1
                model.without = 0
            elif what == "read" and name in source.open:
                source.next = (name, moments)
                newest = model.splits[name][0]
                model.splits[name] = (max(moments if newest is None else [newest, *moments]), 0)
            if what != "pass":
                harness.poll()
                model.merge()
            assert (harness.watermarks[-1] if harness.watermarks else None) == model.watermark
            assert harness.is_idle is model.is_idle
        assert list(harness.watermarks) == sorted(set(harness.watermarks)), "time never goes back"


@given(newest=st.lists(st.integers(0, 30), min_size=1, max_size=4), data=st.data())
def test_when_all_splits_are_idle_the_fastest_counts_whichever_became_idle_or_ended_first(
    newest: list[int], data: st.DataObject
) -> None:
    source = Scripted(columnar=False)
    source.open = [(number, 0) for number in range(len(newest))]
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at").with_idleness(TIMEOUT)
    )
    with SourceHarness(source, watermarks=strategy) as harness:
        for number in data.draw(st.permutations(range(len(newest)))):
            source.next = ((number, 0), [newest[number]])
            harness.poll()
            harness.advance(data.draw(st.integers(0, 1)))
        for number in data.draw(st.lists(st.integers(0, len(newest) - 1), unique=True)):
            source.open.remove((number, 0))
            harness.poll()
            harness.advance(data.draw(st.integers(0, 1)))
        for _ in range(2 * TIMEOUT):
            harness.advance(1)
        assert harness.is_idle
        assert harness.watermarks[-1] == max(newest) - 1


@given(
    lists=st.lists(st.lists(st.integers(0, 50), max_size=6).map(sorted), max_size=4),
    order=st.lists(st.integers(0, 3), max_size=30),
    columnar=st.booleans(),
)
def test_no_record_is_late_where_each_split_is_in_order(
    lists: list[list[int]], order: list[int], columnar: bool
) -> None:
    source = Scripted(columnar=columnar)
    left = {number: list(moments) for number, moments in enumerate(lists)}
    source.open = [(number, 0) for number in left]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    with SourceHarness(source, watermarks=strategy) as harness:
        for number in order:
            if left.get(number):
                moment = left[number].pop(0)
                assert not harness.watermarks or moment > harness.watermarks[-1] + 0
                source.next = ((number, 0), [moment])
            elif (number, 0) in source.open:
                source.open.remove((number, 0))
            harness.poll()
