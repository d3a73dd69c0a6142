"""As-of and temporal joins over rows and over columns against a comparison of all records with all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import HeapState, RocksDB
from penstock.operators import ArrowBatch, RowBatch
from penstock.testing import OperatorHarness

Row = dict[str, Any]

END = (1 << 63) - 1

#: A record: side, key, microseconds after the last watermark, and whether it is a delete.
RECORDS = st.tuples(
    st.sampled_from([0, 1]), st.sampled_from(["a", "b", None]), st.integers(-2, 10), st.booleans()
)

#: Records, a watermark, or a restart.
STEPS = st.lists(
    st.one_of(st.lists(RECORDS, min_size=1, max_size=6), st.integers(0, 6), st.just("restart")), max_size=20
)

#: Strategy, tolerance in microseconds, whether exact matches count, and the kind.
RULES = st.tuples(
    st.sampled_from(["backward", "forward", "nearest", "temporal"]),
    st.sampled_from([None, 0, 2, 5]),
    st.booleans(),
    st.sampled_from(["left", "inner"]),
)


class Run:
    """Drives an operator, and keeps what it should emit."""

    def __init__(self, rules: tuple[str, int | None, bool, str], form: str) -> None:
        self.strategy, self.tolerance, self.is_exact, self.how = rules
        if self.strategy == "temporal":
            self.tolerance = None
        self.is_exact = self.is_exact or self.strategy in ("temporal", "nearest")
        self.form = form
        self.harness = self.opened([])
        self.reached: int | None = None
        self.passed: int | None = None
        self.seen = self.count = 0
        self.rows: tuple[list[tuple[Any, int, int, bool]], ...] = [], []
        self.late, self.counted = [0, 0], [0, 0]
        self.emitted: list[tuple[Any, int]] = []

    def opened(self, restored: Sequence[Any]) -> OperatorHarness:
        in_columns = self.form == "arrow"
        given: dict[str, Any] = {
            "on": "k",
            "how": self.how,
            "batch_format": "arrow" if in_columns else "rows",
        }

        def joined(left: Any, right: Any) -> Any:
            if self.strategy == "temporal":
                deleted: Any = pc.field("gone") if in_columns else lambda row: row["gone"]
                return left.join_temporal(right, deleted=deleted, **given)
            return left.join_asof(
                right,
                strategy=self.strategy,
                tolerance=None if self.tolerance is None else self.tolerance / 1e6,
                allow_exact_matches=self.is_exact,
                **given,
            )

        backend = RocksDB() if self.form == "rocksdb" else HeapState()
        return OperatorHarness.of(joined, restored=restored, state_backend=backend)

    def push(self, records: Sequence[tuple[int, Any, int, bool]]) -> None:
        for side in (0, 1):
            mine = [
                (key, at + (self.reached or 0), gone) for where, key, at, gone in records if where == side
            ]
            if not mine:
                continue
            rows = [{"k": key, "n": self.count + n} for n, (key, _, _) in enumerate(mine)]
            for row, (key, at, gone) in zip(rows, mine, strict=True):
                if side:
                    row["gone"] = gone
                if self.reached is not None and at <= self.reached:
                    self.late[side] += 1
                else:
                    self.rows[side].append((key, row["n"], at, gone))
            self.count += len(mine)
            stamps = [at for _, at, _ in mine]
            batch: Any = RowBatch(rows, stamps)
            if self.form == "arrow":
                fields = {"k": pa.string(), "n": pa.int64(), **({"gone": pa.bool_()} if side else {})}
                batch = ArrowBatch(pa.RecordBatch.from_pylist(rows, pa.schema(fields)), pa.array(stamps))
            self.harness.push_batch(batch, input_index=side)
            self.collect()

    def advance(self, by: int) -> None:
        self.reached = by if self.reached is None else self.reached + by
        self.harness.push_watermark(self.reached)
        self.collect()

    def end(self) -> None:
        self.harness.push_watermark(END)
        self.collect()

    def restart(self) -> None:
        self.counted = [self.counted[side] + self.late_here(side) for side in (0, 1)]
        snapshot = self.harness.snapshot()
        self.harness.close()
        self.harness = self.opened([snapshot])
        self.passed, self.seen = None, 0

    def late_here(self, side: int) -> int:
        return len(self.harness.side_output(("late_left", "late_right")[side]))

    def collect(self) -> None:
        """Take what was emitted; nothing may come at or before a watermark that was emitted before it."""
        for batch in self.harness.batches[self.seen :]:
            rows = batch.batch.to_pylist() if isinstance(batch, ArrowBatch) else batch.rows
            stamps = list(batch.timestamps.to_pylist() if isinstance(batch, ArrowBatch) else batch.timestamps)
            assert self.passed is None or min(stamps) > self.passed
            self.emitted += zip(
                [(row["k"], row["n"], row.get("n_right")) for row in rows], stamps, strict=True
            )
        self.seen = len(self.harness.batches)
        watermarks = self.harness.watermarks
        assert list(watermarks) == sorted(watermarks)
        self.passed = max(watermarks, default=None)

    def expected(self) -> list[tuple[Any, int]]:
        left, right = self.rows
        results = []
        for key, n, at, _ in left:
            partner = self.partner(at, [row for row in right if row[0] == key] if key is not None else [])
            if partner is not None or self.how == "left":
                results.append(((key, n, partner), at))
        return results

    def partner(self, at: int, rows: list[tuple[Any, int, int, bool]]) -> int | None:
        near = [row for row in rows if self.tolerance is None or abs(row[2] - at) <= self.tolerance]
        near = [row for row in near if self.is_exact or row[2] != at]
        # By time and arrival: of rows with one timestamp, the last one counts.
        back = max((row for row in near if row[2] <= at), key=lambda row: (row[2], row[1]), default=None)
        ahead = min((row for row in near if row[2] >= at), key=lambda row: (row[2], -row[1]), default=None)
        if self.strategy == "temporal":
            return None if back is None or back[3] else back[1]
        if self.strategy == "nearest" and back is not None and ahead is not None:
            chosen: Any = back if at - back[2] <= ahead[2] - at else ahead
        else:
            chosen = {"backward": back, "forward": ahead, "nearest": back or ahead}[self.strategy]
        return None if chosen is None else chosen[1]


@pytest.mark.parametrize("form", ["rows", "arrow", "rocksdb"])
@given(RULES, STEPS)
@settings(deadline=None)
def test_join_gives_what_a_comparison_of_all_records_gives(form: str, rules: Any, steps: Any) -> None:
    run = Run(rules, form)
    # The names of both sides are known from here on.
    run.push([(0, None, 1, False), (1, None, 1, False)])
    for step in steps:
        if step == "restart":
            run.restart()
        elif isinstance(step, int):
            run.advance(step)
        else:
            run.push(step)
    run.end()
    assert sorted(map(repr, run.emitted)) == sorted(map(repr, run.expected()))
    assert [run.counted[side] + run.late_here(side) for side in (0, 1)] == run.late
    gauges = run.harness.statistics().gauges
    assert gauges["rows_left"].total == 0
    # Only the version of each key is left.
    assert gauges["rows_right"].total <= (0 if run.strategy == "forward" else 2)
    run.harness.close()
