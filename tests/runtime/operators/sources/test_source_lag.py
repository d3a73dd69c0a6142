"""A reader reports its lag and its metrics; an error in a lag is the reader's, and fails the next poll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectionSource, FileSource, HybridSource
from penstock.connectors import ConnectorContext, Polled, ReportsLag, SourceLag, SplitLag
from penstock.operators import RowBatch
from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.requested_splits import RequestedSplits
from penstock.runtime.operators.source_coordinator import NO_MORE_SPLITS
from penstock.testing import ManualClock, SourceHarness


def context() -> ConnectorContext:
    return ConnectorContext("job", "job", "read", 0, 1, 1, ManualClock())


class Countdown:
    """Reads numbers down to 1, and counts what it emits."""

    def __init__(self, lag: Callable[[int], Any] | None = None) -> None:
        self.of_left = lag or (lambda left: SourceLag.of([SplitLag("numbers", left)]))

    def splits(self, parallelism: int) -> list[int]:
        return [5]

    def reader(self, context: ConnectorContext, splits: Sequence[int]) -> Any:
        return CountdownReader(self, context, splits)


class CountdownReader:
    def __init__(self, source: Countdown, context: ConnectorContext, splits: Sequence[int]) -> None:
        self._source = source
        self._left = sum(splits)
        self._emitted = context.counter("emitted")
        context.gauge("largest").set(self._left)

    def poll(self, max_rows: int) -> Polled[int]:
        rows = list(range(self._left, max(0, self._left - max_rows), -1))
        self._left -= len(rows)
        self._emitted.increment(len(rows))
        return Polled(RowBatch(rows) if rows else None, finished=not self._left)

    def lag(self) -> Any:
        return self._source.of_left(self._left)

    def snapshot(self) -> list[int]:
        return [self._left] if self._left else []

    def close(self) -> None:
        """Nothing is open."""


def test_the_lag_and_the_metrics_of_a_reader_are_in_its_statistics() -> None:
    with SourceHarness(Countdown()) as harness:
        harness.poll(2)
        statistics = harness.statistics()
        assert statistics.lag == SourceLag(3, None, 1, (SplitLag("numbers", 3),))
        assert statistics.counters == {"emitted": 2}
        assert statistics.gauges["largest"].total == 5
    assert harness.statistics().lag == statistics.lag, "the last one, after the end"


def test_a_reader_without_a_lag_has_none() -> None:
    with SourceHarness(CollectionSource("ab")) as harness:
        assert harness.statistics().lag is None


@pytest.mark.parametrize(
    ("lag", "message"),
    [
        (lambda left: 1 // 0, "source Countdown: lag.*ZeroDivisionError"),
        (lambda left: left, r"lag returned 5; return a SourceLag\(\.\.\.\), or None for unknown"),
    ],
)
def test_an_error_in_a_lag_fails_the_next_poll(lag: Callable[[int], Any], message: str) -> None:
    with SourceHarness(Countdown(lag)) as harness:
        assert harness.statistics().lag is None
        with pytest.raises(OperatorError, match=message):
            harness.poll()


def test_a_reader_may_not_know_its_lag_yet() -> None:
    with SourceHarness(Countdown(lambda left: None)) as harness:
        assert harness.statistics().lag is None
        assert harness.poll(1) == [5]


def test_the_lag_of_requested_splits_is_known_when_no_more_come() -> None:
    reader: RequestedSplits[int] = RequestedSplits(Countdown(), context(), [], lambda event: None)
    assert isinstance(reader, ReportsLag)
    assert reader.lag() == SourceLag.of([])
    reader.handle_event((4,))
    assert reader.lag() is None, "its reader has not begun"
    reader.poll(1)
    assert reader.lag() is None, "the enumerator may have more"
    reader.poll(9)
    assert reader.lag() is None, "it has asked for more"
    reader.handle_event((4,))
    reader.handle_event(NO_MORE_SPLITS)
    reader.poll(1)
    assert reader.lag() == SourceLag.of([SplitLag("numbers", 3)])
    reader.poll(9)
    assert reader.lag() == SourceLag.of([])


def test_the_lag_of_a_hybrid_source_is_that_of_the_live_one() -> None:
    source: Any = HybridSource(CollectionSource("ab"), then=Countdown())
    history, live = (0, None, (0, 2)), (1, None, 5)
    reader = source.reader(context(), [history, live])
    reader.poll(1)
    assert reader.lag() is None
    reader.poll(1)
    reader.poll(1)
    assert reader.lag() == SourceLag.of([SplitLag("numbers", 4)])
    reader.poll(9)
    assert reader.lag() == SourceLag.of([]), "the live source has ended"


def test_the_lag_of_a_hybrid_source_is_unknown_until_the_live_source_begins() -> None:
    source: Any = HybridSource(CollectionSource("ab"), then=Countdown())
    reader: RequestedSplits[Any] = RequestedSplits(source, context(), [(0, None, (0, 2))], lambda event: None)
    reader.poll(9)
    reader.poll(9)
    assert reader.lag() is None, "the history has ended, and the live splits are not known"
    reader.handle_event(((1, None, 5),))
    reader.poll(1)
    assert reader.lag() == SourceLag.of([SplitLag("numbers", 4)])
    reader.poll(9)
    assert reader.lag() == SourceLag.of([])


def test_files_count_what_is_left_of_them(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("12345\n" * 10)
    with SourceHarness(FileSource.text(str(tmp_path))) as harness:
        lag = harness.statistics().lag
        assert lag is not None
        assert (lag.splits, lag.bytes, lag.records) == (3, 180, None)
        harness.poll(4)
        lag = harness.statistics().lag
        assert lag is not None
        assert (lag.splits, lag.bytes) == (3, 156)
        assert [split.split for split in lag.by_split] == [str(tmp_path / "a.txt")]
        harness.read_all()
        lag = harness.statistics().lag
        assert lag is not None
        assert (lag.splits, lag.bytes) == (0, 0)


def test_files_whose_bytes_are_not_cut_count_splits_only(tmp_path: Path) -> None:
    import gzip

    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write("12345\n" * 10)
    with SourceHarness(FileSource.text(str(tmp_path))) as harness:
        harness.poll(4)
        lag = harness.statistics().lag
        assert lag is not None
        assert (lag.splits, lag.bytes) == (1, None)
