"""As-of and temporal joins one by one: when a row is decided, what is kept, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DataStream, GraphError, OperatorError, RocksDB, StreamEnvironment
from penstock.operators import ArrowBatch
from penstock.runtime.operators.joins.column_asof_join import ColumnAsofJoinOperator
from penstock.testing import OperatorHarness

END = (1 << 63) - 1
SECOND = 1_000_000

FORMATS = pytest.mark.parametrize("batch_format", ["rows", "arrow"])


def joined(batch_format: str, *, restored: Sequence[Any] = (), **settings: Any) -> OperatorHarness:
    """An as-of join of left columns `k` and `n` with right columns `k` and `m`."""
    given = {"on": "k", "batch_format": batch_format, **settings}
    return OperatorHarness.of(lambda left, right: left.join_asof(right, **given), restored=restored)


def versioned(batch_format: str, *, restored: Sequence[Any] = (), **settings: Any) -> OperatorHarness:
    """A temporal join, in which right rows with an `m` of -1 are deletes."""
    deleted: Any = pc.field("m") == -1 if batch_format == "arrow" else lambda row: row["m"] == -1
    given = {"on": "k", "batch_format": batch_format, "deleted": deleted, **settings}
    return OperatorHarness.of(lambda left, right: left.join_temporal(right, **given), restored=restored)


def push(harness: OperatorHarness, side: int, rows: list[dict[str, Any]], seconds: list[float]) -> list[Any]:
    stamps = [int(second * SECOND) for second in seconds]
    if isinstance(harness._operator, ColumnAsofJoinOperator):
        columns = ArrowBatch(pa.RecordBatch.from_pylist(rows), pa.array(stamps))
        return harness.push_batch(columns, input_index=side)
    return harness.push(rows, stamps, input_index=side)


def partners(rows: list[Any]) -> list[tuple[Any, Any]]:
    return [(row["n"], row["m"]) for row in rows]


def moved(batch_format: str, snapshots: Sequence[Any], build: Any, **settings: Any) -> list[OperatorHarness]:
    """Two subtasks that continue from the snapshots of others."""
    given = {"on": "k", "batch_format": batch_format, **settings}
    return [
        OperatorHarness.of(
            lambda left, right: build(left)(right, **given), restored=snapshots, subtask=n, parallelism=2
        )
        for n in (0, 1)
    ]


@FORMATS
def test_of_right_rows_with_one_timestamp_the_later_arrival_wins(batch_format: str) -> None:
    for strategy, at in [("backward", 5), ("forward", 1), ("nearest", 4)]:
        with joined(batch_format, strategy=strategy) as harness:
            push(harness, 1, [{"k": "a", "m": 1}, {"k": "a", "m": 2}], [3, 3])
            push(harness, 1, [{"k": "a", "m": 3}], [3])
            push(harness, 0, [{"k": "a", "n": 1}], [at])
            assert partners(harness.push_watermark(9 * SECOND)) == [(1, 3)]


@FORMATS
def test_a_delete_that_arrives_after_a_version_of_its_timestamp_wins(batch_format: str) -> None:
    with versioned(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1}, {"k": "a", "m": -1}], [3, 3])
        push(harness, 1, [{"k": "b", "m": -1}, {"k": "b", "m": 2}], [3, 3])
        push(harness, 0, [{"k": "a", "n": 1}, {"k": "b", "n": 2}], [3, 4])
        assert partners(harness.push_watermark(9 * SECOND)) == [(1, None), (2, 2)]


@FORMATS
def test_ties_of_time_are_decided_in_the_same_way_after_a_rescale(batch_format: str) -> None:
    keys = [f"key {n}" for n in range(20)]
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": key, "m": 1} for key in keys], [3] * 20)
        push(harness, 1, [{"k": key, "m": 2} for key in keys[::-1]], [3] * 20)
        snapshot = harness.snapshot()
    found = []
    for subtask in moved(batch_format, [snapshot], lambda left: left.join_asof):
        with subtask as harness:
            mine = [key for key in keys if harness.owns(key)]
            # After the restore the first keys have later arrivals again.
            push(harness, 1, [{"k": key, "m": 3} for key in mine[:5]], [3] * 5)
            push(harness, 0, [{"k": key, "n": key} for key in mine], [4] * len(mine))
            found += [
                (row["n"], row["m"], row["n"] in mine[:5]) for row in harness.push_watermark(9 * SECOND)
            ]
    assert len(found) == 20
    assert all(m == (3 if is_newer else 2) for _, m, is_newer in found)


@FORMATS
def test_the_newest_version_at_or_below_the_watermark_stays_and_older_ones_go(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1}, {"k": "a", "m": 2}, {"k": "a", "m": 3}], [1, 2, 50])
        harness.push_watermark(20 * SECOND)
        # The version of second 2, and the row that waits.
        assert harness.statistics().gauges["rows_right"].total == 2
        snapshot = harness.snapshot()
    with joined(batch_format, restored=[snapshot]) as harness:
        push(harness, 0, [{"k": "a", "n": 1}, {"k": "a", "n": 2}], [21, 60])
        assert partners(harness.push_watermark(100 * SECOND)) == [(1, 2), (2, 3)]


@FORMATS
def test_a_version_of_the_watermark_itself_stays(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [20])
        harness.push_watermark(20 * SECOND)
        push(harness, 0, [{"k": "a", "n": 1}], [21])
        assert partners(harness.push_watermark(21 * SECOND)) == [(1, 1)]


@FORMATS
def test_a_delete_means_absent_from_then_on(batch_format: str) -> None:
    with versioned(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1}, {"k": "a", "m": -1}, {"k": "a", "m": 2}], [1, 3, 6])
        push(harness, 0, [{"k": "a", "n": n} for n in range(1, 5)], [1, 2, 3, 5])
        assert partners(harness.push_watermark(5 * SECOND)) == [(1, 1), (2, 1), (3, None), (4, None)]
        assert harness.statistics().gauges["rows_right"].total == 1
        snapshot = harness.snapshot()
    with versioned(batch_format, restored=[snapshot], how="inner") as harness:
        push(harness, 0, [{"k": "a", "n": 5}, {"k": "a", "n": 6}], [5.5, 6])
        assert partners(harness.push_watermark(9 * SECOND)) == [(6, 2)]


@FORMATS
def test_a_late_probe_whose_version_is_gone_is_counted_and_goes_aside(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1}, {"k": "a", "m": 2}], [1, 5])
        harness.push_watermark(5 * SECOND)
        late = push(harness, 0, [{"k": "a", "n": 1}, {"k": "a", "n": 2}], [2, 5])
        late += push(harness, 1, [{"k": "a", "m": 3}], [5])
        assert late + harness.push_watermark(END) == []
        assert harness.side_output("late_left") == [{"k": "a", "n": 1}, {"k": "a", "n": 2}]
        assert harness.side_output("late_right") == [{"k": "a", "m": 3}]
        counts = harness.statistics().extra
        assert (counts["late_records_left"], counts["late_records_right"]) == (2, 1)


@FORMATS
def test_the_watermark_of_the_build_side_is_there_after_a_failover(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [3])
        harness.push_watermark(5 * SECOND)
        snapshot = harness.snapshot()
    with joined(batch_format, restored=[snapshot]) as harness:
        push(harness, 1, [{"k": "a", "m": 2}], [4])
        assert harness.side_output("late_right") == [{"k": "a", "m": 2}]
        push(harness, 0, [{"k": "a", "n": 1}], [6])
        # The sources start again with lower watermarks.
        assert harness.push_watermark(2 * SECOND) == []
        assert partners(harness.push_watermark(6 * SECOND)) == [(1, 1)]


@FORMATS
@pytest.mark.parametrize("strategy", ["backward", "forward", "nearest"])
def test_a_backfill_gives_the_same_as_live(batch_format: str, strategy: str) -> None:
    right = [({"k": "ab"[n % 2], "m": n}, 3 * n % 40) for n in range(30)]
    left = [({"k": "abc"[n % 3], "n": n}, 7 * n % 40) for n in range(30)]

    def run(step: int) -> list[Any]:
        with joined(batch_format, strategy=strategy, tolerance=4) as harness:
            for begin in range(0, 40, step):
                for side, rows in ((0, left), (1, right)):
                    now = [(row, at) for row, at in rows if begin <= at < begin + step]
                    if now:
                        push(harness, side, [row for row, _ in now], [at for _, at in now])
                harness.push_watermark((begin + step) * SECOND - 1)
            harness.push_watermark(END)
            return sorted(partners(harness.outputs), key=repr)

    assert run(1) == run(3) == run(40)
    assert {m is None for _, m in run(1)} == {True, False}


@FORMATS
def test_state_of_keys_that_never_return_goes_by_time(batch_format: str) -> None:
    for strategy, kept in [("backward", 10), ("nearest", 20)]:
        with joined(batch_format, strategy=strategy, tolerance=10) as harness:
            push(harness, 1, [{"k": f"key {n}", "m": n} for n in range(5)], [1] * 5)
            harness.push_watermark((1 + kept) * SECOND - 1)
            assert harness.statistics().gauges["rows_right"].total == 5
            harness.push_watermark((1 + 2 * kept) * SECOND)
            assert harness.statistics().gauges["rows_right"].total == 0


@FORMATS
def test_the_watermark_waits_for_left_rows_that_are_not_decided(batch_format: str) -> None:
    with joined(batch_format, strategy="forward", tolerance=10) as harness:
        push(harness, 0, [{"k": "a", "n": 1}, {"k": "b", "n": 2}], [5, 7])
        harness.push_watermark(8 * SECOND)
        assert harness.watermarks == (5 * SECOND - 1,)
        push(harness, 1, [{"k": "a", "m": 1}], [9])
        assert partners(harness.push_watermark(9 * SECOND)) == [(1, 1)]
        assert harness.watermarks[-1] == 7 * SECOND - 1
        assert partners(harness.push_watermark(17 * SECOND)) == [(2, None)]
        assert harness.watermarks[-1] == 17 * SECOND
    with joined(batch_format) as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [5])
        harness.push_watermark(8 * SECOND)
        assert harness.watermarks == (8 * SECOND,)


@FORMATS
def test_a_nearest_row_is_decided_as_soon_as_none_can_be_nearer(batch_format: str) -> None:
    with joined(batch_format, strategy="nearest") as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [1])
        push(harness, 0, [{"k": "a", "n": 1}, {"k": "a", "n": 2}], [1, 5])
        assert partners(harness.push_watermark(5 * SECOND)) == [(1, 1)]
        assert harness.push_watermark(9 * SECOND - 1) == []
        snapshot = harness.snapshot()
    with joined(batch_format, strategy="nearest", restored=[snapshot]) as harness:
        push(harness, 1, [{"k": "a", "m": 2}], [9])
        # Both are as near: the earlier one counts.
        assert partners(harness.push_watermark(9 * SECOND)) == [(2, 1)]


@FORMATS
def test_a_tolerance_and_exact_matches_limit_the_partners(batch_format: str) -> None:
    with joined(batch_format, tolerance=2, allow_exact_matches=False) as harness:
        push(harness, 1, [{"k": "a", "m": 1}, {"k": "a", "m": 2}], [1, 3])
        push(harness, 0, [{"k": "a", "n": n} for n in (1, 3, 4, 6)], [1, 3, 4, 6])
        assert partners(harness.push_watermark(9 * SECOND)) == [(1, None), (3, 1), (4, 2), (6, None)]


@FORMATS
def test_null_keys_match_nothing_and_come_out_of_a_left_join(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": None, "m": 1}, {"k": "a", "m": 2}], [1, 1])
        assert partners(push(harness, 0, [{"k": None, "n": 1}, {"k": "a", "n": 2}], [2, 2])) == [(1, None)]
        assert partners(harness.push_watermark(END)) == [(2, 2)]
    with joined(batch_format, how="inner") as harness:
        push(harness, 0, [{"k": None, "n": 1}], [2])
        assert harness.push_watermark(END) == []


@FORMATS
def test_idle_sides_do_not_hold_rows_of_the_other(batch_format: str) -> None:
    with joined(batch_format, strategy="forward", tolerance=10) as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [5])
        push(harness, 1, [{"k": "a", "m": 1}], [6])
        harness.push_status(idle=True, input_index=1)
        assert partners(harness.push_watermark(50 * SECOND, input_index=0)) == [(1, 1)]


@FORMATS
def test_both_keys_stay_if_they_have_different_names(batch_format: str) -> None:
    with joined(batch_format, on=None, left_on="k", right_on="j", suffix="_2") as harness:
        push(harness, 1, [{"j": 1, "n": 7}], [1])
        push(harness, 0, [{"k": 1, "n": 1}, {"k": 2, "n": 2}], [2, 2])
        assert harness.push_watermark(2 * SECOND) == [
            {"k": 1, "n": 1, "j": 1, "n_2": 7},
            {"k": 2, "n": 2, "j": None, "n_2": None},
        ]


@FORMATS
def test_columns_that_a_newer_version_does_not_have_are_null(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 1, [{"k": "a", "m": 1, "text": "x", "parts": [1]}], [1])
        harness.push_watermark(1 * SECOND)
        snapshot = harness.snapshot()
    with joined(batch_format, restored=[snapshot]) as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [2])
        (row,) = harness.push_watermark(2 * SECOND)
        assert row == {"k": "a", "n": 1, "m": 1, "text": "x", "parts": [1]}
        push(harness, 1, [{"k": "a", "m": 2}], [3])
        harness.push_watermark(3 * SECOND)
        push(harness, 0, [{"k": "a", "n": 2}], [4])
        (row,) = harness.push_watermark(4 * SECOND)
        assert row == {"k": "a", "n": 2, "m": 2, "text": None, "parts": None}


@FORMATS
def test_the_end_of_time_leaves_versions_to_a_job_that_continues(batch_format: str) -> None:
    with joined(batch_format, tolerance=10) as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [1])
        harness.push_watermark(END)
        snapshot = harness.snapshot()
    with joined(batch_format, tolerance=10, restored=[snapshot]) as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [2])
        assert partners(harness.push_watermark(END)) == [(1, 1)]


def test_key_functions_need_select_which_gets_none_for_no_partner() -> None:
    def build(left: Any, right: Any) -> DataStream[Any]:
        return left.key_by(abs).join_asof(right.key_by(len), select=lambda a, b: (a, b))

    with OperatorHarness.of(build) as harness:
        harness.push(["abc"], [0], input_index=1)
        harness.push([-3, 4], [1, 1])
        assert harness.push_watermark(1) == [(-3, "abc"), (4, None)]


def test_many_rows_that_are_due_leave_in_portions_and_survive_a_restart_between_two() -> None:
    with joined("rows", strategy="nearest") as harness:
        push(harness, 1, [{"k": n % 7, "m": n} for n in range(2000)], [n / 100 for n in range(2000)])
        push(harness, 0, [{"k": n % 7, "n": n} for n in range(2000)], [n / 100 for n in range(2000)])
        first = harness.push_watermark(100 * SECOND)
        assert 0 < len(first) < 2000
        assert harness.watermarks == ()
        snapshot = harness.snapshot()
    with joined("rows", strategy="nearest", restored=[snapshot]) as harness:
        rest: list[Any] = []
        while len(first) + len(rest) < 2000:
            rest += harness.flush()
        assert partners(first + rest) == [(n, n) for n in range(2000)]


@FORMATS
def test_records_without_timestamps_are_refused(batch_format: str) -> None:
    with joined(batch_format) as harness, pytest.raises(OperatorError, match="the left records have no time"):
        harness.push([{"k": 1}])


def refused(message: str, build: Callable[[DataStream[Any], DataStream[Any]], object]) -> None:
    env = StreamEnvironment("refused")
    with pytest.raises(GraphError, match=message):
        build(env.from_collection("a", [{"k": 1}]), env.from_collection("b", [{"k": 1}]))


def test_arguments_that_fit_no_join_are_refused_with_the_way_out() -> None:
    refused("did you mean 'backward'", lambda a, b: a.join_asof(b, on="k", strategy="backwards"))
    refused("join_asof: how must be one of 'left', 'inner'", lambda a, b: a.join_asof(b, on="k", how="full"))
    refused("tolerance=-1", lambda a, b: a.join_asof(b, on="k", tolerance=-1))
    refused("allow_exact_matches must be", lambda a, b: a.join_asof(b, on="k", allow_exact_matches=1))
    refused(
        "always allows exact",
        lambda a, b: a.join_asof(b, on="k", strategy="nearest", allow_exact_matches=False),
    )
    refused("join_asof: give the key as", lambda a, b: a.join_asof(b))
    refused("key_by on both", lambda a, b: a.key_by("k").join_asof(b))
    refused("join_asof: with key functions", lambda a, b: a.key_by(len).join_asof(b.key_by(len)))
    refused(
        "needs keys that name columns",
        lambda a, b: a.join_asof(b, left_on=len, right_on=len, batch_format="arrow"),
    )
    refused(
        "select is for batch_format", lambda a, b: a.join_asof(b, on="k", select=max, batch_format="arrow")
    )
    refused("needs batch_format", lambda a, b: a.join_temporal(b, on="k", deleted=pc.field("m") == 1))
    refused(
        "deleted is an expression", lambda a, b: a.join_temporal(b, on="k", deleted=len, batch_format="arrow")
    )


def test_columns_are_not_joined_in_rocksdb() -> None:
    with pytest.raises(Exception, match="RocksDB"):
        OperatorHarness.of(lambda a, b: a.join_asof(b, on="k", batch_format="arrow"), state_backend=RocksDB())


@FORMATS
def test_state_of_other_rules_or_of_an_interval_join_is_refused(batch_format: str) -> None:
    with joined(batch_format, tolerance=5) as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [1])
        harness.push_watermark(3 * SECOND)
        snapshot = harness.snapshot()
    with pytest.raises(OperatorError, match=r"tolerance=5.0 on 'k' = 'k', but this .*tolerance=6.0 on"):
        joined(batch_format, tolerance=6, restored=[snapshot])
    settings: dict[str, Any] = {"on": "k", "within": 5, "batch_format": batch_format}
    with OperatorHarness.of(lambda left, right: left.join(right, **settings)) as harness:
        columns = ArrowBatch(pa.record_batch({"k": ["a"], "m": [1]}), pa.array([SECOND]))
        harness.push_batch(columns, input_index=1)
        snapshot = harness.snapshot()
    with pytest.raises(OperatorError, match="a join with how='inner'"):
        joined(batch_format, restored=[snapshot])


def test_whole_numbers_of_two_types_meet_in_a_key_of_two_columns() -> None:
    with joined("arrow", on=["k", "j"], strategy="nearest", tolerance=9) as harness:
        for side, kind in enumerate((pa.int64(), pa.int32())):
            columns = pa.record_batch({"k": pa.array([2], kind), "j": ["x"], "nm"[side]: [side]})
            harness.push_batch(ArrowBatch(columns, pa.array([SECOND])), input_index=side)
        assert harness.push_watermark(END) == [{"k": 2, "j": "x", "n": 0, "m": 1}]


def test_keys_of_two_types_in_one_column_are_refused_with_the_way_out() -> None:
    with joined("arrow") as harness:
        for kind in (pa.int64(), pa.int64()):
            columns = pa.record_batch({"k": pa.array([2], kind), "m": [1]})
            harness.push_batch(ArrowBatch(columns, pa.array([SECOND])), input_index=1)
        columns = pa.record_batch({"k": [2.5], "m": [1]})
        with pytest.raises(OperatorError, match=r"'k' of the right stream is of type int64 .* cast it"):
            harness.push_batch(ArrowBatch(columns, pa.array([SECOND])), input_index=1)
