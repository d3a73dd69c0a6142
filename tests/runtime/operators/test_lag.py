"""Lags are added up, and a number that one of them does not know is not known for all."""

from __future__ import annotations

import json

from penstock.connectors import SourceLag, SplitLag, VersionLag
from penstock.runtime.operators.lag import MOST_SPLITS
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.snapshot.plain_values import from_plain, to_plain


def test_splits_are_added_up_where_all_of_them_know_a_number() -> None:
    lag = SourceLag.of([SplitLag("b", 3, 10), SplitLag("a", 4, None)])
    assert (lag.records, lag.bytes, lag.splits) == (7, None, 2)
    assert [split.split for split in lag.by_split] == ["a", "b"]
    nothing = SourceLag.of([])
    assert (nothing.records, nothing.bytes, nothing.splits) == (0, 0, 0)
    assert lag.plus(nothing) == lag


def test_the_largest_lags_are_listed_and_all_are_counted() -> None:
    splits = [SplitLag(f"p{number:04}", number) for number in range(MOST_SPLITS + 50)]
    lag = SourceLag.of(splits)
    assert (len(lag.by_split), lag.splits) == (MOST_SPLITS, MOST_SPLITS + 50)
    assert lag.by_split[0].split == "p0050"
    assert lag.records == sum(range(MOST_SPLITS + 50))
    given = SourceLag(1, 2, 3, tuple(splits)).bounded()
    assert (given.records, given.bytes, given.splits, len(given.by_split)) == (1, 2, 3, MOST_SPLITS)


def test_a_source_whose_subtask_knows_no_lag_has_none() -> None:
    known, unknown = OperatorStatistics(lag=SourceLag(1)), OperatorStatistics()
    assert known.plus(known).lag == SourceLag(2)
    assert known.plus(unknown).lag is None
    assert unknown.plus(known).lag is None


def test_a_lag_is_the_same_after_json_and_older_statistics_have_none() -> None:
    statistics = OperatorStatistics(1, 2, lag=SourceLag.of([SplitLag("a[0]", 3, position=4, end=7)]))
    assert from_plain(OperatorStatistics, json.loads(json.dumps(to_plain(statistics)))) == statistics
    assert from_plain(OperatorStatistics, {"records_in": 3}).lag is None


def test_of_several_readers_the_version_counts_that_is_the_furthest_behind() -> None:
    def versions(*read: VersionLag | None) -> VersionLag | None:
        first, *others = (SourceLag.of((), each) for each in read)
        for other in others:
            first = first.plus(other)
        return first.version

    new, old, unknown = VersionLag("9", "9", 0), VersionLag("4", "9", 5), VersionLag("2")
    assert versions(new, None, old) == old
    assert versions(old, unknown, new) == unknown
    assert SourceLag.of((), old).bounded().version == old
