"""Windows that are combined from panes emit what windows with accumulators of their own emit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates import ApproxCountDistinct, Count, CountDistinct, Max, Mean, Min, StdDev, Sum
from penstock.runtime.errors import OperatorError, PenstockError
from penstock.runtime.operators.aggregation import paned_aggregate
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.combined_panes import order_of_parts
from penstock.runtime.operators.aggregation.paned_aggregate import PanedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.window_aggregate import WindowedAggregateOperator
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, Batch, RowBatch
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.testing import HarnessSnapshot, OperatorHarness
from penstock.windows import CumulativeEventTimeWindows, SlidingEventTimeWindows

KEY = ColumnKey(("k",))
MICRO = 1e-6
SLIDING = SlidingEventTimeWindows(10 * MICRO, 2 * MICRO)

#: Of one multiple, of a common divisor, of none, with an offset, from before the epoch; and cumulative.
WINDOWS = [
    SLIDING,
    SlidingEventTimeWindows(10 * MICRO, 4 * MICRO),
    SlidingEventTimeWindows(7 * MICRO, 3 * MICRO, offset=-2 * MICRO),
    CumulativeEventTimeWindows(12 * MICRO, 3 * MICRO, offset=1 * MICRO),
]

#: Functions that give the same result in each order of additions.
FUNCTIONS: dict[str, Any] = {
    "n": Count(),
    "some": Count("v"),
    "total": Sum("v"),
    "mean": Mean("v"),
    "low": Min("t"),
    "top": Max("v"),
    "kinds": CountDistinct("t"),
    "values": CountDistinct("v"),
}
#: Functions that a combiner can compute.
COMBINING = {
    name: function for name, function in FUNCTIONS.items() if not isinstance(function, CountDistinct)
}

#: Key, value, text, moment in microseconds.
Record = tuple[Any, Any, Any, int]


def rows(records: Sequence[Record]) -> RowBatch:
    return RowBatch([{"k": k, "v": v, "t": t} for k, v, t, _ in records], [at for *_, at in records])


def columns(records: Sequence[Record]) -> ArrowBatch:
    """Columns of int64 and text: values of other types become whole numbers."""
    k, v, t, at = zip(*records, strict=True)
    batch = {
        "k": pa.array([None if key is None else int(key) for key in k], pa.int64()),
        "v": pa.array([None if value is None else int(value) for value in v], pa.int64()),
        "t": pa.array(t, pa.string()),
    }
    return ArrowBatch(pa.record_batch(batch), pa.array(at, pa.int64()))


def panes(windows: Any, functions: Any = FUNCTIONS, **setting: Any) -> OperatorHarness:
    return OperatorHarness(PanedAggregateOperator(KEY, Aggregation(KEY.names, functions), windows), **setting)


def whole(windows: Any, functions: Any = FUNCTIONS, **setting: Any) -> OperatorHarness:
    return OperatorHarness(
        WindowedAggregateOperator(KEY, Aggregation(KEY.names, functions), windows), **setting
    )


@dataclass
class Restarts:
    """An operator that may be restored from its own snapshots."""

    make: Callable[..., OperatorHarness]
    functions: Any
    harness: OperatorHarness = field(init=False)
    late: list[Any] = field(default_factory=list)
    late_count: int = 0

    def __post_init__(self) -> None:
        self.harness = self.make(functions=self.functions)

    def restart(self) -> None:
        snapshot = self.harness.snapshot()
        self.close()
        self.harness = self.make(functions=self.functions, restored=[snapshot])

    def close(self) -> None:
        self.late += self.harness.side_output(LATE_RECORDS)
        self.late_count += self.harness.statistics().extra[LATE_RECORDS]
        self.harness.close()


KEYS = st.sampled_from([1, 1.0, 2, 2.5, None])
VALUES = st.sampled_from([None, 0, 1, 1.0, 2.5, -3, 7])
TEXTS = st.sampled_from([None, "a", "b", "cc"])
RECORDS = st.lists(st.tuples(KEYS, VALUES, TEXTS, st.integers(-25, 45)), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        RECORDS.map(rows),
        RECORDS.map(columns),
        st.integers(-20, 60),
        st.just("restart"),
        st.just("checkpoint"),
    ),
    max_size=16,
)


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@given(steps=STEPS, size=st.sampled_from([1, 5, 1 << 18]))
@settings(max_examples=40, deadline=None)
def test_windows_of_panes_emit_what_windows_with_own_accumulators_emit(
    windows: Any, steps: list[Any], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paned_aggregate, "MOST_PARTS", size)
        one, other = (
            Restarts(lambda make=make, **setting: make(windows, **setting), FUNCTIONS)
            for make in (panes, whole)
        )
        assert outcome(one, steps) == outcome(other, steps)


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@given(steps=STEPS)
@settings(max_examples=20, deadline=None)
def test_a_combiner_in_front_of_panes_changes_nothing(windows: Any, steps: list[Any]) -> None:
    def combined(batch: Batch) -> list[Batch]:
        sender = WindowCombineOperator(KEY, Aggregation(KEY.names, COMBINING), windows)
        with OperatorHarness(sender) as harness:
            harness.push_batch(batch)
            harness.end_of_data()
            return harness.batches

    one = Restarts(lambda **setting: panes(windows, **setting), COMBINING)
    other = Restarts(lambda **setting: whole(windows, **setting), COMBINING)
    assert outcome(one, steps, combined) == outcome(other, steps, combined)


def outcome(
    running: Restarts, steps: list[Any], sent: Callable[[Batch], list[Batch]] = lambda batch: [batch]
) -> Any:
    """The results of each watermark, and what was late."""
    found: list[list[str]] = []
    for step in [*steps, END_OF_TIME]:
        if isinstance(step, int):
            emitted = running.harness.push_watermark(step)
            found.append(sorted(map(repr, emitted)))
        elif step == "restart":
            running.restart()
        elif step == "checkpoint":
            running.harness.complete_checkpoint(running.harness.snapshot())
        else:
            for batch in sent(step):
                assert running.harness.push_batch(batch) == []
    running.close()
    return found, sorted(map(repr, running.late)), running.late_count


def test_results_come_in_the_order_of_their_windows() -> None:
    with panes(SLIDING, {"n": Count()}) as harness:
        harness.push_batch(columns([(2, 1, "a", 5), (1, 1, "a", 1), (1, 1, "a", 30)]))
        ends = [row["window_end"] for row in harness.push_watermark(END_OF_TIME - 1)]
        timestamps = [at for batch in harness.batches for at in batch.timestamps.to_pylist()]
    assert ends == sorted(ends)
    assert len(ends) == 15
    assert timestamps == [round(end.timestamp() * 1e6) - 1 for end in ends]


def test_windows_are_combined_in_portions_of_whole_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paned_aggregate, "MOST_PARTS", 4)
    with panes(SLIDING, {"n": Count()}) as harness:
        harness.push_batch(columns([(1, 1, "a", at) for at in range(0, 30, 2)]))
        harness.push_watermark(END_OF_TIME)
        sizes = [len(batch) for batch in harness.batches]
    # The windows from the first on have 1, 2, 3, 4, 5 panes, and so on.
    assert sizes[:4] == [3, 1, 1, 1]
    assert sum(sizes) == 19


def test_the_state_has_one_slot_for_a_key_and_pane_until_the_last_window_of_the_pane() -> None:
    functions = {"n": Count(), "kinds": CountDistinct("v")}
    operator = PanedAggregateOperator(KEY, Aggregation(KEY.names, functions), SLIDING)
    with OperatorHarness(operator) as harness:
        harness.push_batch(columns([(1, 1, "a", 0), (1, 2, "a", 1), (1, 1, "a", 3), (2, 1, "a", 0)]))
        sizes = []
        for reached in (1, 8, 9, 11):
            harness.push_watermark(reached)
            sizes.append((len(operator._table), len(operator._pairs["kinds"]), len(operator._numbers)))
    # The pane from 0 to 2 ends with the window from 0 to 10.
    assert sizes == [(3, 4, 2), (3, 4, 2), (1, 1, 1), (0, 0, 0)]


def test_a_slot_that_is_used_again_has_the_number_of_its_new_key() -> None:
    with panes(SLIDING, {"n": Count()}) as harness:
        found = []
        for at in range(0, 100, 5):
            harness.push_batch(columns([(10 * at + number, 1, "a", at) for number in range(at % 7 + 1)]))
            found += harness.push_watermark(at)
        found += harness.push_watermark(END_OF_TIME - 1)
    windows = [(row["k"], row["window_end"]) for row in found]
    assert len(windows) == len(set(windows)) == 5 * sum(at % 7 + 1 for at in range(0, 100, 5))
    assert {row["n"] for row in found} == {1}


def two_subtasks(first: int, second: int) -> tuple[list[int], list[HarnessSnapshot]]:
    """A key of each of two subtasks with a record at 5, and their snapshots at two watermarks."""
    keys, saved = [], []
    for subtask, reached in enumerate((first, second)):
        groups = key_group_range(subtask, 2, 128)
        key = next(key for key in range(100) if groups.first <= key_group_of(key, 128) <= groups.last)
        with panes(SLIDING, {"n": Count()}, subtask=subtask, parallelism=2) as harness:
            harness.push_batch(columns([(key, 1, "a", 5)]))
            harness.push_watermark(reached)
            keys.append(key)
            saved.append(harness.snapshot())
    return keys, saved


def ends_by_key(found: list[dict[str, Any]]) -> dict[Any, list[tuple[int, int]]]:
    ends: dict[Any, list[tuple[int, int]]] = {}
    for row in found:
        ends.setdefault(row["k"], []).append((round(row["window_end"].timestamp() * 1e6), row["n"]))
    return ends


def test_windows_that_an_old_subtask_has_fired_do_not_fire_again_at_another_parallelism() -> None:
    (behind, ahead), saved = two_subtasks(5, 9)
    with panes(SLIDING, {"n": Count()}, restored=saved) as harness:
        found = ends_by_key(harness.push_watermark(7) + harness.push_watermark(END_OF_TIME - 1))
    assert found == {
        behind: [(8, 1), (10, 1), (12, 1), (14, 1)],
        ahead: [(12, 1), (14, 1)],
    }


@pytest.mark.parametrize("combined", [False, True])
def test_records_of_windows_that_an_old_subtask_has_fired_are_late_at_another_parallelism(
    combined: bool,
) -> None:
    (behind, ahead), saved = two_subtasks(5, 13)
    records = [(key, 1, "a", at) for key in (behind, ahead) for at in (1, 3, 4)]
    functions = {"n": Count()}
    with panes(SLIDING, functions, restored=saved) as harness:
        if combined:
            sender = WindowCombineOperator(KEY, Aggregation(KEY.names, functions), SLIDING)
            with OperatorHarness(sender) as before:
                before.push_batch(columns(records))
                before.end_of_data()
                for batch in before.batches:
                    harness.push_batch(batch)
        else:
            harness.push_batch(columns(records))
        late = harness.statistics().extra[LATE_RECORDS]
        found = ends_by_key(harness.push_watermark(END_OF_TIME - 1))
    # Open windows of the first key end at 8 or later, and those of the other key at 16 or later.
    assert found == {behind: [(8, 4), (10, 4), (12, 3), (14, 2)]}
    assert late == 3


def test_late_records_of_another_parallelism_go_to_the_side_output() -> None:
    (_, ahead), saved = two_subtasks(5, 13)
    with panes(SLIDING, {"n": Count()}, restored=saved) as harness:
        harness.push_batch(rows([(ahead, 1, "a", 4), (ahead, 2, "a", 20)]))
        assert harness.side_output(LATE_RECORDS) == [{"k": ahead, "v": 1, "t": "a"}]


def test_a_sum_that_does_not_fit_names_its_key_also_if_only_the_window_is_too_large() -> None:
    with panes(SLIDING, {"total": Sum("v")}) as harness:
        large = (1 << 62) + (1 << 61)
        harness.push_batch(columns([(7, large, "a", 0), (7, large, "a", 3), (8, 1, "a", 3)]))
        with pytest.raises(PenstockError, match=r"at key 7: Sum\('v'\)"):
            harness.push_watermark(END_OF_TIME - 1)


def test_values_without_an_order_in_two_panes_name_their_key() -> None:
    with panes(SLIDING, {"top": Max("v")}) as harness:
        harness.push_batch(rows([(8, 1, "a", 0), (7, 1, "a", 0), (8, 2, "a", 2), (7, "x", "a", 2)]))
        with pytest.raises(PenstockError, match=r"at key 7: Max\('v'\)"):
            harness.push_watermark(END_OF_TIME - 1)


def test_sums_of_floats_are_the_same_after_a_restore() -> None:
    """A restore changes the order of the slots, but not that of additions."""
    records = [(key, 0.1 * key + at / 7, "a", at) for key in range(40) for at in range(0, 10, 2)]
    functions = {"total": Sum("v"), "spread": StdDev("v")}
    with panes(SLIDING, functions) as harness:
        harness.push_batch(rows(records))
        snapshot = harness.snapshot()
        expected = sorted(map(repr, harness.push_watermark(END_OF_TIME - 1)))
    with panes(SLIDING, functions, restored=[snapshot]) as harness:
        assert sorted(map(repr, harness.push_watermark(END_OF_TIME - 1))) == expected


def test_sketches_are_combined() -> None:
    with panes(SLIDING, {"about": ApproxCountDistinct("v")}) as harness:
        harness.push_batch(columns([(1, value % 30, "a", value % 8) for value in range(100)]))
        found = [row["about"] for row in harness.push_watermark(9)]
    assert found[-1] == 30


def test_a_function_that_the_saved_program_did_not_have_begins_empty() -> None:
    with panes(SLIDING, {"n": Count()}) as harness:
        harness.push_batch(columns([(1, 5, "a", 0), (1, 5, "a", 2)]))
        snapshot = harness.snapshot()
    with panes(SLIDING, {"n": Count(), "top": Max("v")}, restored=[snapshot]) as harness:
        found = {(row["k"], row["n"], row["top"]) for row in harness.push_watermark(3)}
        harness.push_batch(columns([(1, 6, "a", 9)]))
        later = [(row["k"], row["n"], row["top"]) for row in harness.push_watermark(9)]
    assert found == {(1, 1, None), (1, 2, None)}
    assert later == [(1, 2, None), (1, 2, None), (1, 3, 6)]


@pytest.mark.parametrize(("saved", "restored"), [(whole, panes), (panes, whole)])
def test_a_snapshot_of_whole_windows_is_refused_and_the_other_way_round(saved: Any, restored: Any) -> None:
    with saved(SLIDING, {"n": Count()}) as harness:
        harness.push_batch(columns([(1, 5, "a", 0)]))
        snapshot = harness.snapshot()
    with pytest.raises(OperatorError, match=r"keep aggregates.*new id"):
        restored(SLIDING, {"n": Count()}, restored=[snapshot])


def test_parts_are_sorted_also_if_no_number_of_64_bits_holds_their_code() -> None:
    windows, numbers = np.array([1, 0, 0, 0]), np.array([5, 1 << 40, 4, 1 << 40])
    moments = np.array([10, 1 << 40, 20, 0])
    assert order_of_parts(windows, numbers, moments).tolist() == [2, 3, 1, 0]
