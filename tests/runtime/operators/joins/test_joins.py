"""Joins one by one: what is late, what is kept, what the output looks like, and what is refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from math import nan
from operator import itemgetter
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DataStream, GraphError, OperatorError, RocksDB, StreamEnvironment
from penstock.operators import ArrowBatch
from penstock.runtime.errors import KeyTypeError
from penstock.runtime.graph.streams.joins import BySide, KeyOfTagged, Product
from penstock.runtime.io.rocksdb import cached_entries
from penstock.runtime.operators.joins import row_interval_join
from penstock.runtime.operators.joins.column_interval_join import ColumnIntervalJoinOperator
from penstock.runtime.operators.joins.output_rows import MOST_NAMES, MergedRows
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.state import row_ring
from penstock.runtime.state.captured_rows import CapturedRows
from penstock.runtime.state.row_log import RowLog
from penstock.testing import OperatorHarness
from penstock.windows import TimeWindow, TumblingEventTimeWindows

END = (1 << 63) - 1
SECOND = 1_000_000

FORMATS = pytest.mark.parametrize("batch_format", ["rows", "arrow"])


def joined(batch_format: str, **settings: Any) -> OperatorHarness:
    """A join of columns `k` and `n`, ten seconds to both sides."""
    given = {"within": 10, "on": "k", "batch_format": batch_format, **settings}
    of_state = {name: given.pop(name) for name in ("restored", "state_backend") if name in given}
    return OperatorHarness.of(lambda left, right: left.join(right, **given), **of_state)


def push(harness: OperatorHarness, side: int, rows: list[dict[str, Any]], seconds: list[float]) -> list[Any]:
    stamps = [int(second * SECOND) for second in seconds]
    if isinstance(harness._operator, ColumnIntervalJoinOperator):
        columns = ArrowBatch(pa.RecordBatch.from_pylist(rows), pa.array(stamps))
        return harness.push_batch(columns, input_index=side)
    return harness.push(rows, stamps, input_index=side)


@FORMATS
def test_no_row_comes_out_alone_before_the_band_has_passed_for_both_watermarks(batch_format: str) -> None:
    with joined(batch_format, how="left") as harness:
        push(harness, 1, [{"k": "b", "m": 0}], [0])
        push(harness, 0, [{"k": "a", "n": 1}], [5])
        assert harness.push_watermark(100 * SECOND, input_index=0) == []
        assert harness.push_watermark(15 * SECOND - 1, input_index=1) == []
        assert harness.push_watermark(15 * SECOND, input_index=1) == [{"k": "a", "n": 1, "m": None}]


@FORMATS
def test_a_row_that_matched_does_not_come_out_alone_even_after_a_restart(batch_format: str) -> None:
    with joined(batch_format, how="full") as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [5])
        assert push(harness, 1, [{"k": "a", "m": 2}], [6]) == [{"k": "a", "n": 1, "m": 2}]
        snapshot = harness.snapshot()
    restored = OperatorHarness.of(
        lambda a, b: a.join(b, on="k", within=10, how="full", batch_format=batch_format), restored=[snapshot]
    )
    with restored:
        assert restored.push_watermark(END) == []


@FORMATS
def test_a_row_that_comes_and_expires_at_once_is_joined_and_comes_out_alone(batch_format: str) -> None:
    with joined(batch_format, how="left", within=(-10, -5)) as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [0])
        harness.push_watermark(1 * SECOND)
        both = push(harness, 0, [{"k": "a", "n": 1}, {"k": "b", "n": 2}], [5, 5])
        assert both == [{"k": "a", "n": 1, "m": 1}, {"k": "b", "n": 2, "m": None}]


@FORMATS
def test_late_rows_match_nothing_and_are_counted_by_side(batch_format: str) -> None:
    with joined(batch_format, how="full") as harness:
        push(harness, 1, [{"k": "a", "m": 1}], [5])
        push(harness, 0, [{"k": "z", "n": 0}], [5])
        harness.push_watermark(5 * SECOND)
        assert push(harness, 0, [{"k": "a", "n": 2}, {"k": "a", "n": 3}], [5, 5.1]) == [
            {"k": "a", "n": 3, "m": 1}
        ]
        push(harness, 1, [{"k": "a", "m": 4}], [4])
        assert (harness.side_output("late_left"), harness.side_output("late_right")) == (
            [{"k": "a", "n": 2}],
            [{"k": "a", "m": 4}],
        )
        counts = harness.statistics().extra
        assert (counts["late_records_left"], counts["late_records_right"]) == (1, 1)


@FORMATS
def test_a_stream_joined_with_itself_meets_each_row_once(batch_format: str) -> None:
    with joined(batch_format, within=0) as harness:
        rows = [{"k": "a", "n": 1}, {"k": "a", "n": 2}]
        push(harness, 0, rows, [1, 2])
        assert push(harness, 1, rows, [1, 2]) == [
            {"k": "a", "n": 1, "n_right": 1},
            {"k": "a", "n": 2, "n_right": 2},
        ]


@FORMATS
def test_the_watermark_behind_an_outer_join_waits_for_rows_that_come_alone(batch_format: str) -> None:
    with joined(batch_format, how="left", within=(-20, 10)) as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [45])
        harness.push_watermark(50 * SECOND)
        assert harness.watermarks == (40 * SECOND,)
    with joined(batch_format, how="full", within=(-20, 10)) as harness:
        harness.push_watermark(50 * SECOND)
        assert harness.watermarks == (30 * SECOND,)
    with joined(batch_format, within=(-20, 10)) as harness:
        harness.push_watermark(50 * SECOND)
        assert harness.watermarks == (50 * SECOND,)


@FORMATS
def test_idle_sides_do_not_hold_the_state_of_the_other(batch_format: str) -> None:
    with joined(batch_format, how="left") as harness:
        push(harness, 0, [{"k": "a", "n": 1}], [5])
        harness.push_status(idle=True, input_index=1)
        assert [row["n"] for row in harness.push_watermark(50 * SECOND, input_index=0)] == [1]


@FORMATS
def test_null_keys_match_nothing_and_come_out_of_outer_joins(batch_format: str) -> None:
    with joined(batch_format, how="full", on=["k", "j"]) as harness:
        push(harness, 0, [{"k": "a", "j": "b", "n": 0}], [1])
        push(harness, 1, [{"k": "a", "j": "c", "m": 0}], [1])
        assert push(harness, 0, [{"k": "a", "j": None, "n": 1}], [1]) == [
            {"k": "a", "j": None, "n": 1, "m": None}
        ]
        assert push(harness, 1, [{"k": "a", "j": None, "m": 1}], [1]) == [
            {"k": "a", "j": None, "n": None, "m": 1}
        ]


@FORMATS
def test_nan_is_one_key_and_so_are_both_zeros(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 0, [{"k": nan, "n": 1}, {"k": -0.0, "n": 2}], [1, 1])
        rows = push(harness, 1, [{"k": nan, "m": 1}, {"k": 0.0, "m": 2}], [1, 1])
        assert [(row["n"], row["m"]) for row in rows] == [(1, 1), (2, 2)]


@FORMATS
def test_a_pair_that_the_condition_refuses_is_no_partner(batch_format: str) -> None:
    where: Any = pc.field("n") < pc.field("m") if batch_format == "arrow" else lambda a, b: a["n"] < b["m"]
    with joined(batch_format, how="left", where=where) as harness:
        push(harness, 0, [{"k": "a", "n": 5}], [1])
        assert push(harness, 1, [{"k": "a", "m": 4}], [1]) == []
        assert harness.push_watermark(END) == [{"k": "a", "n": 5, "m": None}]


@FORMATS
def test_equal_names_of_the_right_side_get_the_suffix(batch_format: str) -> None:
    with joined(batch_format, on=None, left_on="k", right_on="j", suffix="_2") as harness:
        push(harness, 0, [{"k": 1, "n": 1, "j": 0}], [1])
        assert push(harness, 1, [{"j": 1, "n": 2}], [1]) == [{"k": 1, "n": 1, "j": 0, "j_2": 1, "n_2": 2}]


@FORMATS
def test_a_row_alone_has_nulls_in_all_columns_of_the_other_side(batch_format: str) -> None:
    with joined(batch_format, on=None, left_on="k", right_on="j", how="full") as harness:
        push(harness, 0, [{"k": 1, "n": 1}], [1])
        push(harness, 1, [{"j": 2, "m": 1}], [1])
        assert harness.push_watermark(END) == [
            {"k": 1, "n": 1, "j": None, "m": None},
            {"k": None, "n": None, "j": 2, "m": 1},
        ]


@FORMATS
def test_a_name_that_both_sides_have_even_with_the_suffix_is_an_error(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 0, [{"k": 1, "n": 1, "n_right": 0}], [1])
        with pytest.raises(OperatorError, match="'n_right' twice"):
            push(harness, 1, [{"k": 1, "n": 2}], [1])


@FORMATS
def test_records_without_timestamps_are_refused(batch_format: str) -> None:
    with joined(batch_format) as harness, pytest.raises(OperatorError, match="the left records have no time"):
        harness.push([{"k": 1}])


@FORMATS
def test_keys_that_can_never_be_equal_are_refused(batch_format: str) -> None:
    with joined(batch_format) as harness:
        push(harness, 0, [{"k": 1}], [1])
        with pytest.raises(OperatorError, match="can never be equal"):
            push(harness, 1, [{"k": "1"}], [1])


def test_text_and_lists_and_times_of_columns_come_out_as_they_came() -> None:
    with joined("arrow", how="full") as harness:
        left = pa.RecordBatch.from_pydict(
            {
                "k": pa.array([1, 2]),
                "text": pa.array(["a", None]).dictionary_encode(),
                "parts": pa.array([[1], []]),
                "at": pa.array([0, None], pa.timestamp("ms", "UTC")),
            }
        )
        harness.push_batch(ArrowBatch(left, pa.array([0, 0])))
        harness.push_batch(
            ArrowBatch(pa.record_batch({"k": [1], "even": [True]}), pa.array([0])), input_index=1
        )
        harness.push_watermark(END)
        rows = [row for batch in harness.batches for row in batch.batch.to_pylist()]
        assert [(row["k"], row["text"], row["parts"], row["even"]) for row in rows] == [
            (1, "a", [1], True),
            (2, None, [], None),
        ]


def test_key_functions_need_select_which_gets_none_for_a_missing_side() -> None:
    def build(left: Any, right: Any) -> DataStream[Any]:
        return left.key_by(abs).join(right.key_by(len), within=1, how="full", select=lambda a, b: (a, b))

    with OperatorHarness.of(build) as harness:
        harness.push([-3, 4], [0, 0])
        assert harness.push(["abc", "abcde"], [0, 0], input_index=1) == [(-3, "abc")]
        assert sorted(harness.push_watermark(END), key=repr) == [(4, None), (None, "abcde")]


def refused(message: str, build: Callable[[DataStream[Any], DataStream[Any]], object]) -> None:
    env = StreamEnvironment("refused")
    with pytest.raises(GraphError, match=message):
        build(env.from_collection("a", [{"k": 1}]), env.from_collection("b", [{"k": 1}]))


def test_arguments_that_fit_no_join_are_refused_with_the_way_out() -> None:
    minute = timedelta(minutes=1)
    refused("the wrong way round", lambda a, b: a.join(b, on="k", within=(minute, -minute)))
    refused("did you mean 'left'", lambda a, b: a.join(b, on="k", within=1, how="lefft"))
    refused("without a bound", lambda a, b: a.join(b, on="k"))
    refused("not both", lambda a, b: a.join(b, on="k", within=1, window=TumblingEventTimeWindows(1)))
    refused("left_on=... and right_on", lambda a, b: a.join(b, within=1))
    refused("left_on=... and right_on", lambda a, b: a.join(b, left_on="k", within=1))
    refused("key_by on both", lambda a, b: a.key_by("k").join(b, within=1))
    refused("not a DataStream", lambda a, b: a.join(b.key_by("k"), on="k", within=1))
    refused("never equal", lambda a, b: a.join(b, left_on="k", right_on=["k", "j"], within=1))
    refused("or keys that name columns", lambda a, b: a.key_by(len).join(b.key_by(len), within=1))
    refused(
        "needs keys that name columns",
        lambda a, b: a.join(b, left_on=len, right_on=len, within=1, batch_format="arrow"),
    )
    refused("needs batch_format", lambda a, b: a.join(b, on="k", within=1, where=pc.field("k") > 1))
    refused(
        "where must be an expression",
        lambda a, b: a.join(b, on="k", within=1, where=max, batch_format="arrow"),
    )
    refused("takes no select", lambda a, b: a.join(b, on="k", within=1, how="anti", select=max))
    refused("suffix must be a non-empty string", lambda a, b: a.join(b, on="k", within=1, suffix=""))
    refused(
        'only how="inner"', lambda a, b: a.join(b, on="k", how="left", window=TumblingEventTimeWindows(1))
    )


def test_columns_are_not_joined_in_rocksdb() -> None:
    with pytest.raises(Exception, match="RocksDB"):
        OperatorHarness.of(
            lambda a, b: a.join(b, on="k", within=1, batch_format="arrow"), state_backend=RocksDB()
        )


def test_records_of_both_sides_are_grouped_by_key_and_window() -> None:
    function = BySide(lambda key, window, left, right: [(key, len(left), right)])
    assert function("k", TimeWindow(0, 1), [(1, "a"), (0, 5), (1, "b")]) == [("k", 1, ["a", "b"])]


def merged() -> MergedRows:
    return MergedRows((ColumnKey(("k",)), ColumnKey(("k",))), "_right")


def test_names_of_a_window_join_do_not_depend_on_the_pair() -> None:
    left, right = [{"k": 1, "n": 1}, {"k": 1, "m": 5}], [{"k": 1, "n": 3}]
    assert list(Product(merged, None)(1, TimeWindow(0, 1), left, right)) == [
        {"k": 1, "n": 1, "m": None, "n_right": 3},
        {"k": 1, "n": None, "m": 5, "n_right": 3},
    ]


@pytest.mark.parametrize(
    ("left", "right"), [(1, "1"), (("a", 1), ("a", "1")), (b"a", "a"), (("a",), ("a", "b"))]
)
def test_windows_refuse_keys_that_can_never_be_equal(left: Any, right: Any) -> None:
    key_of = KeyOfTagged((itemgetter("k"), itemgetter("k")))
    for fits in (None, left, None):
        assert key_of((0, {"k": fits})) == key_of((1, {"k": fits})) == fits
    key_of = KeyOfTagged((itemgetter("k"), itemgetter("k")))
    assert key_of((0, {"k": left})) == left
    with pytest.raises(KeyTypeError, match="the keys of the inputs can never be equal"):
        key_of((1, {"k": right}))


def test_a_name_that_a_dict_with_a_default_lacks_is_null() -> None:
    with joined("rows") as harness:
        push(harness, 0, [{"k": 1, "n": 1}, defaultdict(int, k=1)], [1, 1])
        expected = [{"k": 1, "n": 1, "m": 2}, {"k": 1, "n": None, "m": 2}]
        assert push(harness, 1, [{"k": 1, "m": 2}], [1]) == expected
        assert push(harness, 1, [Counter(k=1), {"k": 1, "m": 2}], [1, 1])[2:] == expected


def test_rows_whose_names_are_data_are_refused_with_the_way_out() -> None:
    rows = [{"k": 1, f"name {n}": n} for n in range(MOST_NAMES)]
    with OperatorHarness.of(lambda a, b: a.join(b, on="k", within=1)) as harness:
        harness.push(rows[:-1], [0] * (MOST_NAMES - 1))
        with pytest.raises(OperatorError, match=r"left records have had more than 1,000 names.*select="):
            harness.push(rows[-1:], [0])


def test_a_window_join_gives_all_pairs_but_none_of_a_null_key() -> None:
    pairs = Product(merged, lambda a, b: a["n"] < b["n"])
    window = TimeWindow(0, 1)
    left, right = [{"k": 1, "n": 1}, {"k": 1, "n": 5}], [{"k": 1, "n": 3}, {"k": 1, "n": 6}]
    assert list(pairs(1, window, left, right)) == [
        {"k": 1, "n": 1, "n_right": 3},
        {"k": 1, "n": 1, "n_right": 6},
        {"k": 1, "n": 5, "n_right": 6},
    ]
    assert list(pairs(None, window, left, right)) == []
    assert list(pairs((1, None), window, left, right)) == []


def test_functions_that_change_their_records_do_not_change_the_state() -> None:
    def taken(left: dict[str, Any], right: dict[str, Any]) -> Any:
        return left.pop("n", None), right.pop("m", None)

    def fits(left: dict[str, Any], right: dict[str, Any]) -> bool:
        return left.pop("k", None) is not None

    with OperatorHarness.of(lambda a, b: a.join(b, on="k", within=9, where=fits, select=taken)) as harness:
        harness.push([{"k": 1, "n": 5}], [0])
        assert harness.push([{"k": 1, "m": 1}], [0], input_index=1) == [(5, 1)]
        assert harness.push([{"k": 1, "m": 2}], [0], input_index=1) == [(5, 2)]
        assert harness.push([{"k": 1, "n": 6}], [0]) == [(6, 1), (6, 2)]


def test_a_snapshot_of_dicts_encodes_none_of_them_while_the_task_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with joined("rows") as harness:
        push(harness, 0, [{"k": 1, "n": [n]} for n in range(10)], [0] * 10)
        backend = harness._backend
        assert backend is not None
        with monkeypatch.context() as patched:
            patched.setattr(CapturedRows, "encoded", None)
            backend.snapshot(1, -1)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """State in RocksDB leaves memory after every change."""
    monkeypatch.setattr(cached_entries, "_LEAST_KEYS", 1)
    monkeypatch.setattr(cached_entries, "_OVERHEAD", 1 << 40)
    monkeypatch.setattr(cached_entries, "_MAX_CHANGES", 1)


@pytest.mark.usefixtures("little_memory")
def test_a_snapshot_of_rows_looks_up_none_of_them() -> None:
    def build(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        return left.join_asof(right, on="k")

    with OperatorHarness.of(build) as harness:
        assert harness._backend is not None
        tables = [harness._backend.table(f"join_{side}", nested=True) for side in ("left", "right")]
        for at in (0, 1):
            push(harness, 0, [{"k": key, "n": at} for key in range(3)], [at] * 3)
            push(harness, 1, [{"k": key, "m": at} for key in range(3)], [at] * 3)
        for table in tables:
            assert not table.changed.dirty_keys
            written = {entry: table.entries[entry[0]][entry[1]] for entry in table.changed.written}
            assert table.changed.written == written
            assert len(written) == 6
        harness.push_watermark(END)
        assert not any(table.changed.written for table in tables), "rows that came and went leave no trace"


def test_every_row_that_matched_is_marked_however_little_is_in_memory() -> None:
    with joined("rows", how="full", state_backend=RocksDB()) as harness:
        push(harness, 0, [{"k": key, "n": n} for n, key in enumerate("abaa")], [1, 1, 2, 3])
        assert len(push(harness, 1, [{"k": "b", "m": 0}, {"k": "a", "m": 1}], [1, 1])) == 4
        assert harness.push_watermark(END) == []


@pytest.mark.usefixtures("little_memory")
def test_rows_that_are_only_found_leave_memory_again() -> None:
    with joined("rows", state_backend=RocksDB()) as harness:
        assert harness._backend is not None
        push(harness, 1, [{"k": key, "m": key} for key in range(20)], [1] * 20)
        for key in range(20):
            assert len(push(harness, 0, [{"k": key, "n": key}], [1])) == 1
        in_memory = harness._backend.table("join_right", nested=True).entries
        assert dict.__len__(in_memory) <= 1


def of_columns(harness: OperatorHarness, side: int, second: float, **columns: pa.Array) -> list[Any]:
    """Push a batch whose rows have one time; return the rows of the output."""
    batch = pa.record_batch(columns)
    stamps = pa.array([int(second * SECOND)] * batch.num_rows, pa.int64())
    return harness.push_batch(ArrowBatch(batch, stamps), input_index=side)


@FORMATS
def test_rows_alone_have_the_key_columns_of_both_sides_if_these_differ(batch_format: str) -> None:
    with joined(batch_format, how="full", on=None, left_on="a", right_on="b") as harness:
        push(harness, 0, [{"a": 1, "x": 1}, {"a": 2, "x": 2}], [1, 1])
        push(harness, 1, [{"b": 1, "y": 1}, {"b": 3, "y": 3}], [1, 1])
        assert harness.push_watermark(END) == [
            {"a": 2, "x": 2, "b": None, "y": None},
            {"a": None, "x": None, "b": 3, "y": 3},
        ]


@FORMATS
def test_a_column_that_a_batch_lacks_is_null_and_the_others_keep_their_names(batch_format: str) -> None:
    settings = {"batch_format": batch_format, "how": "full"}
    with joined(**settings) as harness:
        push(harness, 0, [{"k": 1, "v": 1}], [1])
        push(harness, 1, [{"k": 1, "v": 9}], [1])
        assert push(harness, 0, [{"k": 1}], [2]) == [{"k": 1, "v": None, "v_right": 9}]
        snapshot = harness.snapshot()
    with joined(**settings, restored=[snapshot]) as harness:
        assert push(harness, 0, [{"k": 1, "w": 5}], [3]) == [{"k": 1, "v": None, "w": 5, "v_right": 9}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.decimal128(38, 2)),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")),
    ],
)
@pytest.mark.parametrize("how", ["full", "semi"])
def test_equal_keys_of_two_types_are_joined_and_keep_their_types(
    how: str, first: pa.DataType, second: pa.DataType
) -> None:
    one, other = pa.array([2], pa.int64()).cast(first), pa.array([2], pa.int64()).cast(second)
    with joined("arrow", how=how) as harness:
        of_columns(harness, 0, 1, k=one, x=pa.array([1]))
        of_columns(harness, 0, 1, k=other, x=pa.array([2]))
        pairs = of_columns(harness, 1, 1, k=one, y=pa.array([3]))
        assert [row["x"] for row in pairs] == [1, 2]
        assert [batch.batch.column("k").type for batch in harness.batches] == [first, second]
        assert harness.push_watermark(END) == []


@pytest.mark.parametrize("on", ["k", ["k", "j"]], ids=str)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int32(), pa.int64()),
        (pa.int8(), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.int32(), pa.float64()),
        (pa.int16(), pa.decimal128(5, 1)),
    ],
)
def test_equal_numbers_of_two_types_meet(
    first: pa.DataType, second: pa.DataType, on: str | list[str]
) -> None:
    j = pa.array(["x", "x"])
    for left, right in ((first, second), (second, first)):
        with joined("arrow", on=on) as harness:
            of_columns(harness, 0, 1, k=pa.array([2, 3], left), j=j, n=pa.array([1, 2]))
            for _ in range(2):
                pairs = of_columns(harness, 1, 1, k=pa.array([3, 4], right), j=j)
                assert [row["n"] for row in pairs] == [2]


def test_a_column_named_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * 3, names=["k", "x", "x"])
    with joined("arrow") as harness, pytest.raises(OperatorError, match="column 'x' twice: k, x, x"):
        harness.push_batch(ArrowBatch(batch, pa.array([1])))


@pytest.mark.parametrize("name", [":row", ":time", ":matched"])
def test_a_column_named_as_one_of_the_state_is_refused(name: str) -> None:
    with joined("arrow") as harness, pytest.raises(OperatorError, match=f"right stream .* '{name}'"):
        of_columns(harness, 1, 1, **{"k": pa.array([1]), name: pa.array([1])})


@FORMATS
def test_the_least_and_the_greatest_times_are_joined(batch_format: str) -> None:
    with joined(batch_format) as harness:
        for at in (-END, END - 1):
            for side in (0, 1):
                row = {"k": 1, "lr"[side]: at}
                columns = ArrowBatch(pa.RecordBatch.from_pylist([row]), pa.array([at]))
                out = harness.push_batch(columns, input_index=side)
            assert out == [{"k": 1, "l": at, "r": at}]


def test_the_pairs_of_a_large_batch_come_in_batches_of_limited_length() -> None:
    with joined("arrow") as harness:
        of_columns(harness, 1, 1, k=pa.array([1] * 500), y=pa.array(range(500)))
        of_columns(harness, 0, 1, k=pa.array([1] * 500), x=pa.array(range(500)))
        lengths = [len(batch) for batch in harness.batches]
        assert sum(lengths) == 250_000
        assert max(lengths) == 1 << 16


def test_rows_with_many_partners_each_are_joined_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    find_some = RowLog.find_some

    def counted(log: RowLog, *arguments: Any) -> Any:
        places, slots, searched = find_some(log, *arguments)
        found.append(len(places))
        return places, slots, searched

    monkeypatch.setattr(RowLog, "find_some", counted)
    monkeypatch.setattr(row_interval_join, "_MOST_PAIRS", 1000)
    with joined("rows", how="full") as harness:
        push(harness, 0, [{"k": 1, "n": n} for n in range(700)], [1] * 700)
        pairs = push(harness, 1, [{"k": 1, "m": m} for m in range(50)] + [{"k": 2, "m": 50}], [1] * 51)
        assert max(found) < 2000
        assert [(row["n"], row["m"]) for row in pairs] == [(n, m) for m in range(50) for n in range(700)]
        assert [row["m"] for row in harness.push_watermark(END)] == [50]


def test_the_number_of_rows_that_are_searched_together_follows_that_of_their_partners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[int] = []
    find_some = RowLog.find_some

    def counted(log: RowLog, *arguments: Any) -> Any:
        places, slots, searched = find_some(log, *arguments)
        found.append(len(places))
        return places, slots, searched

    monkeypatch.setattr(RowLog, "find_some", counted)
    with joined("rows") as harness:
        push(harness, 0, [{"k": 1, "n": n} for n in range(700)], [1] * 700)
        assert sum(found) == 0
        assert len(found) == 2, "256 rows, and twice as many"
        for _ in range(2):
            found.clear()
            assert len(push(harness, 1, [{"k": 1, "m": m} for m in range(50)], [1] * 50)) == 35_000
        assert max(found) <= 1 << 14


def test_rows_that_expire_are_looked_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_ring, "_SEGMENT", 4)
    lengths: list[int] = []
    until = RowLog.until

    def counted(log: RowLog, *arguments: Any) -> Any:
        slots = until(log, *arguments)
        lengths.append(len(slots))
        return slots

    monkeypatch.setattr(RowLog, "until", counted)
    with joined("rows", how="left") as harness:
        push(harness, 0, [{"k": 1, "n": n} for n in range(100)], list(range(100)))
        assert [row["n"] for row in harness.push_watermark(END)] == list(range(100))
        assert max(lengths) == 4 * row_interval_join._SEGMENTS


@FORMATS
@pytest.mark.parametrize(
    "changed", [{"within": 5}, {"within": 20}, {"how": "left"}, {"on": "j"}, {"on": ["k", "j"]}], ids=str
)
def test_rows_of_another_join_are_refused(batch_format: str, changed: dict[str, Any]) -> None:
    with joined(batch_format) as harness:
        push(harness, 0, [{"k": 1, "j": 2, "n": 1}], [1])
        full = harness.snapshot()
        harness.push_watermark(100 * SECOND)
        empty = harness.snapshot()
    with pytest.raises(OperatorError, match=r"a join with how='inner', within=\(-10.0, 10.0\) on 'k' = 'k'"):
        joined(batch_format, **changed, restored=[full])
    with joined(batch_format, **changed, restored=[empty]) as harness:
        push(harness, 0, [{"k": 1, "j": 2, "n": 1}], [101])
        assert len(push(harness, 1, [{"k": 1, "j": 2, "n": 1}], [101])) == 1
    with joined(batch_format, suffix="_2", restored=[full]) as harness:
        assert push(harness, 1, [{"k": 1, "n": 3}], [1]) == [{"k": 1, "j": 2, "n": 1, "n_2": 3}]


def never(left: dict[str, Any], right: dict[str, Any]) -> bool:
    raise ValueError(left["n"])


def test_an_error_of_the_condition_names_it_and_the_record() -> None:
    with joined("rows", where=never) as harness:
        push(harness, 0, [{"k": "a", "n": 7}], [1])
        with pytest.raises(OperatorError, match=r"join function never \(.*ValueError: 7, .*record .*'b': 8"):
            push(harness, 1, [{"k": "a", "b": 8}], [1])


@FORMATS
def test_a_key_with_many_rows_meets_the_same_rows_in_the_same_order(batch_format: str) -> None:
    draws = Random(1)
    left, right = ([(n, draws.randrange(1000)) for n in range(300)] for _ in "lr")
    with joined(batch_format, how="full", within=(0, 5)) as harness:
        push(harness, 0, [{"k": "a", "n": n} for n, _ in left], [at for _, at in left])
        pairs = push(harness, 1, [{"k": "a", "m": m} for m, _ in right], [at for _, at in right])
        expected = [(n, m) for m, at in right for n, time in left if 0 <= at - time <= 5]
        assert [(row["n"], row["m"]) for row in pairs] == expected
        alone = harness.push_watermark(END)
        matched = [{n for n, _ in expected}, {m for _, m in expected}]
        assert {row["n"] for row in alone if row["m"] is None} == set(range(300)) - matched[0]
        assert {row["m"] for row in alone if row["n"] is None} == set(range(300)) - matched[1]
