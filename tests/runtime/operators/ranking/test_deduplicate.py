"""`dedup` and `latest_by` give what their models give, for rows and columns, with a TTL and without."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking_models import SECOND, Lives, Row, Step, outputs, records, steps

from penstock import DataStream, GraphError, StateTtl
from penstock.runtime.errors import OperatorError
from penstock.runtime.record.elements import ArrowBatch
from penstock.testing import ManualClock, OperatorHarness

TTLS = st.sampled_from(
    [None, StateTtl(7, time="event"), StateTtl(7, time="event", refreshed_by="reads_and_writes")]
)


def keys_in_state(harness: OperatorHarness) -> int:
    """The number of keys in the next snapshot."""
    harness.snapshot()
    operator: Any = harness._operator
    return len(operator._table)


def first_ones(given: Sequence[Step], ttl: StateTtl | None) -> list[list[Row]]:
    lives, found = Lives(ttl), []
    for step in given:
        if step.watermark is not None:
            lives.watermark = max(lives.watermark, step.watermark)
            continue
        chosen = []
        for row, second in records(step):
            is_first = lives.begins(row["k"], second)
            if is_first:
                chosen.append(row)
            if is_first or (ttl is not None and ttl.refreshed_by == "reads_and_writes"):
                lives.use(row["k"], second)
        found.append(chosen)
    return found


def latest_ones(given: Sequence[Step], ttl: StateTtl | None, by: str | None) -> list[list[Row]]:
    """The newest row of each life of a key in each batch, in the order of arrival."""
    lives, newest, found = Lives(ttl), dict[str, int](), []
    for step in given:
        if step.watermark is not None:
            lives.watermark = max(lives.watermark, step.watermark)
            continue
        chosen, number = dict[Any, Row](), dict[str, int]()
        for row, second in records(step):
            key, rank = row["k"], second if by is None else row[by]
            if lives.begins(key, second) and key in newest:
                del newest[key]
                number[key] = number.get(key, 0) + 1
            lives.use(key, second)
            if key not in newest or rank >= newest[key]:
                newest[key] = rank
                chosen[key, number.get(key, 0)] = row
        found.append(sorted(chosen.values(), key=lambda row: row["n"]))
    return found


@given(steps(), TTLS)
def test_dedup_emits_the_first_record_of_each_key_from_rows_and_columns(
    some: list[Step], ttl: StateTtl | None
) -> None:
    expected = first_ones(some, ttl)
    assert list(outputs(lambda rows: rows.dedup("first", "k", ttl=ttl), some)) == expected
    assert list(outputs(lambda rows: rows.dedup("first", ["k"], ttl=ttl), some)) == expected
    by_function = outputs(lambda rows: rows.dedup("first", lambda row: row["k"], ttl=ttl), some)
    assert list(by_function) == expected


@given(steps(), st.sampled_from([None, StateTtl(7, time="event")]), st.sampled_from([None, "v"]))
def test_latest_records_are_those_of_the_model_from_rows_and_columns(
    some: list[Step], ttl: StateTtl | None, by: str | None
) -> None:
    def latest(rows: DataStream[Any], keys: Any) -> DataStream[Any]:
        if by is None:
            return rows.dedup("latest", keys, keep="last", ttl=ttl)
        return rows.latest_by("latest", by, keys, ttl=ttl)

    expected = latest_ones(some, ttl, by)
    assert list(outputs(lambda rows: latest(rows, "k"), some)) == expected
    by_function = list(outputs(lambda rows: latest(rows, lambda row: row["k"]), some))
    last = [{row["k"]: row for row in rows} for rows in by_function]
    assert last == [{row["k"]: row for row in rows} for rows in expected]


def test_keep_last_the_later_arrival_wins_ties() -> None:
    rows = [{"k": 1, "n": 1}, {"k": 1, "n": 2}, {"k": 1, "n": 3}]
    for keys in ("k", lambda row: row["k"]):
        with OperatorHarness.of(lambda s, keys=keys: s.dedup("d", keys, keep="last")) as harness:
            assert harness.push(rows, [5, 5, 4])[-1] == rows[1]
            assert harness.push(rows[2:], [5]) == [rows[2]]
            assert harness.push(rows[:1], [4]) == []


def test_without_timestamps_the_last_arrival_is_the_latest_and_no_state_is_kept() -> None:
    rows = [{"k": 1, "n": 1}, {"k": 2, "n": 2}, {"k": 1, "n": 3}]
    with OperatorHarness.of(lambda s: s.dedup("d", "k", keep="last")) as harness:
        assert harness.push(rows) == rows[1:]
        assert keys_in_state(harness) == 0


def test_mini_batch_paths_obey_the_ttl() -> None:
    """A key expires between two records of one batch as it does between two batches."""
    rows = [{"k": 1, "v": 9}, {"k": 1, "v": 1}]
    ttl = StateTtl(10, time="event")
    for build in (
        lambda s: s.dedup("d", "k", ttl=ttl),
        lambda s: s.latest_by("d", "v", "k", ttl=ttl),
        lambda s: s.top_n("d", "v", 1, "k", ttl=ttl),
    ):
        for seconds, expected in (([0, 10], rows), ([0, 9], rows[:1])):
            stamps = [second * SECOND for second in seconds]
            with OperatorHarness.of(build) as at_once, OperatorHarness.of(build) as one_by_one:
                assert at_once.push(rows, stamps) == expected
                for row, at in zip(rows, stamps, strict=True):
                    one_by_one.push([row], [at])
                assert one_by_one.outputs == expected


def test_eviction_comes_between_batches_only() -> None:
    clock = ManualClock()
    with OperatorHarness.of(lambda s: s.dedup("d", "k", ttl=10), clock=clock) as harness:
        harness.push([{"k": 1}, {"k": 2}])
        clock.advance(11)
        assert harness.push([{"k": 2}, {"k": 2}]) == [{"k": 2}], (
            "an expired key is new, though it was not evicted"
        )
        assert harness.statistics().records_out == 3
        harness.flush()
        assert keys_in_state(harness) == 1


def test_state_of_keys_that_never_return_goes_by_time() -> None:
    for time in ("processing", "event"):
        ttl, clock = StateTtl(10, time=time), ManualClock()  # type: ignore[arg-type]
        for build in (
            lambda s, ttl=ttl: s.dedup("d", "k", ttl=ttl),
            lambda s, ttl=ttl: s.latest_by("d", "k", "k", ttl=ttl),
            lambda s, ttl=ttl: s.top_n("d", "k", 2, "k", ttl=ttl),
        ):
            with OperatorHarness.of(build, clock=clock) as harness:
                harness.push([{"k": n} for n in range(5000)], [0] * 5000)
                assert keys_in_state(harness) == 5000
                harness.advance(11)
                harness.push_watermark(11 * SECOND)
                for _ in range(5):
                    harness.flush()
                    clock.advance(1)
                assert keys_in_state(harness) == 0


def test_an_expired_key_stays_hidden_after_a_restore_whose_clock_is_behind() -> None:
    def new(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.dedup("d", "k", ttl=10)

    clock = ManualClock()
    with OperatorHarness.of(new, clock=clock) as harness:
        harness.push([{"k": 1}])
        clock.advance(9)
        harness.push([{"k": 2}])
        clock.advance(1)
        snapshot = harness.snapshot()
    with OperatorHarness.of(new, clock=ManualClock(), restored=[snapshot]) as harness:
        assert harness.push([{"k": 1}, {"k": 2}]) == [{"k": 1}]


def test_a_ttl_that_a_restored_job_adds_begins_with_the_restore() -> None:
    with OperatorHarness.of(lambda s: s.dedup("d", "k")) as harness:
        harness.push([{"k": 1}])
        snapshot = harness.snapshot()
    clock = ManualClock()
    clock.advance(1000)
    with OperatorHarness.of(lambda s: s.dedup("d", "k", ttl=10), clock=clock, restored=[snapshot]) as harness:
        harness.flush()
        assert harness.push([{"k": 1}]) == []
        harness.advance(10)
        assert harness.push([{"k": 1}]) == [{"k": 1}]


def test_keys_are_found_again_at_another_parallelism() -> None:
    def new(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.dedup("d", "k")

    with OperatorHarness.of(new) as harness:
        harness.push([{"k": n} for n in range(100)])
        snapshot = harness.snapshot()
    for subtask in range(3):
        with OperatorHarness.of(new, restored=[snapshot], subtask=subtask, parallelism=3) as harness:
            own = [{"k": n} for n in range(200) if harness.owns(n)]
            assert harness.push(own) == [row for row in own if row["k"] >= 100]


def test_records_without_a_rank_are_dropped_and_counted() -> None:
    rows = [{"k": 1, "v": None}, {"k": 1}, {"k": 1, "v": float("nan")}, {"k": 1, "v": 2.0}]
    for by, keys in (("v", "k"), (lambda row: row.get("v"), lambda row: row["k"])):
        for build in (
            lambda s, by=by, keys=keys: s.latest_by("d", by, keys),
            lambda s, by=by, keys=keys: s.top_n("d", by, 2, keys),
        ):
            with OperatorHarness.of(build) as harness:
                assert harness.push(rows) == rows[3:]
                assert harness.statistics().extra == {"unranked_records": 3}


def test_ranks_of_types_that_can_not_be_compared_are_refused() -> None:
    day, moment = date(2020, 1, 1), datetime.fromisoformat("2020-01-01")
    for early, late, before, after in (
        (day, 5, "dates", "whole numbers"),
        (day, moment, "dates", "times"),
        (moment, moment.replace(tzinfo=UTC), "times", "times with a time zone"),
    ):
        rows = [{"k": 1, "v": early}, {"k": 1, "v": late}]
        with (
            OperatorHarness.of(lambda s: s.latest_by("d", "v", "k")) as harness,
            pytest.raises(OperatorError, match=f"column 'v' has {after} here and {before} in the state"),
        ):
            harness.push(rows)
    rows = [{"k": 1, "v": 5}, {"k": 1, "v": "new"}]
    for build in (
        lambda s: s.latest_by("d", lambda row: row["v"], lambda row: row["k"]),
        lambda s: s.top_n("d", lambda row: row["v"], 2, lambda row: row["k"]),
    ):
        with OperatorHarness.of(build) as harness, pytest.raises(OperatorError) as caught:
            harness.push(rows)
        assert "returned 'new' of type str, which can't be compared with the rank 5 of" in str(caught.value)
        assert "test_deduplicate.py" in str(caught.value)
        assert "on record {'k': 1, 'v': 'new'}" in str(caught.value)


def test_an_error_of_a_ranking_function_names_the_function_and_the_record() -> None:
    with (
        OperatorHarness.of(lambda s: s.latest_by("d", lambda row: 1 / 0, lambda row: row["k"])) as harness,
        pytest.raises(
            OperatorError, match=r"latest_by: by function lambda \(.*test_deduplicate.py:\d+\) failed"
        ),
    ):
        harness.push([{"k": 1}])


def test_all_types_of_times_and_numbers_rank_records() -> None:
    kinds = (pa.int8(), pa.uint32(), pa.float32(), pa.date32(), pa.timestamp("ms"), pa.duration("s"))
    for kind in (*kinds, pa.time32("s"), pa.timestamp("us", "Europe/Berlin")):
        numbers = pa.array([2, 3, 1], pa.int32() if kind.bit_width <= 32 else pa.int64())
        ranks = numbers.cast(kind)
        batch = ArrowBatch(pa.record_batch({"k": pa.array([1, 1, 1]), "v": ranks, "n": [1, 2, 3]}))
        with OperatorHarness.of(lambda s: s.latest_by("d", "v", "k")) as harness:
            assert [row["n"] for row in harness.push_batch(batch)] == [2], kind


def test_a_column_that_does_not_rank_records_is_named() -> None:
    with (
        OperatorHarness.of(lambda s: s.latest_by("d", "v", "k")) as harness,
        pytest.raises(OperatorError, match="latest_by: column 'v' is of type string, which can't rank"),
    ):
        harness.push([{"k": 1, "v": "new"}])
    with OperatorHarness.of(lambda s: s.top_n("d", "v", 1, "k")) as harness:
        harness.push([{"k": 1, "v": 1}])
        with pytest.raises(OperatorError, match="column 'v' has floats here and whole numbers in the state"):
            harness.push([{"k": 1, "v": 1.5}])


def test_wrong_arguments_are_refused_with_the_line_of_the_program() -> None:
    def refused(build: Any, message: str) -> None:
        with pytest.raises(GraphError, match=message) as caught:
            OperatorHarness.of(build)
        assert "test_deduplicate.py" in str(caught.value)

    refused(lambda s: s.dedup("d", "k", keep="newest"), "keep is 'first' or 'last', not 'newest'")
    refused(lambda s: s.dedup("d", "k", ttl=0), "dedup: .*longer than 0 s")
    refused(lambda s: s.dedup("d"), r"dedup\(id, keys\): missing a required argument: 'keys'")
    refused(lambda s: s.latest_by("d", lambda row: 1, "k"), "by must name a column")
    refused(lambda s: s.latest_by("d", 3, "k"), "latest_by: by needs a function")
    refused(lambda s: s.top_n("d", "v", 0, "k"), "n is a whole number from 1 to 1000, not 0")
    refused(lambda s: s.top_n("d", "v", 3, "k", change_kind=""), "change_kind")
    refused(lambda s: s.top_n("d", "v", 3, "k", descending=None), "descending must be True or False")


def test_keys_are_there_after_many_incremental_checkpoints_also_those_that_expired_and_came_again() -> None:
    def new(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.dedup("d", "k", ttl=10)

    clock = ManualClock()
    with OperatorHarness.of(new, clock=clock) as harness:
        for number in range(40):
            harness.push([{"k": number}, {"k": number % 12}])
            clock.advance(1)
            snapshot = harness.snapshot()
            harness.complete_checkpoint(snapshot)
        seen = {number for number in range(50) if not harness.push([{"k": number}])}
    with OperatorHarness.of(new, clock=clock, restored=[snapshot]) as harness:
        assert {number for number in range(50) if not harness.push([{"k": number}])} == seen
    assert seen >= set(range(31, 40))
