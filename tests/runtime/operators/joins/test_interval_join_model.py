"""Interval joins over rows and over columns against a join that compares all records with all."""

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

HOWS = ("inner", "left", "right", "full", "semi", "anti")

#: A record: side, key, and microseconds after the last watermark. Or a watermark, or a restart.
STEPS = st.lists(
    st.one_of(
        st.lists(
            st.tuples(st.sampled_from([0, 1]), st.sampled_from(["a", "b", None]), st.integers(-3, 10)),
            min_size=1,
            max_size=6,
        ),
        st.integers(0, 6),
        st.just("restart"),
    ),
    max_size=20,
)


class Run:
    """Drives an operator, and keeps what it should emit."""

    def __init__(self, how: str, bounds: tuple[int, int], has_condition: bool, form: str) -> None:
        self.how, self.bounds, self.has_condition, self.form = how, bounds, has_condition, form
        self.harness = self.opened([])
        self.reached: int | None = None
        self.passed: int | None = None
        self.seen = 0
        self.rows: tuple[list[tuple[Any, int, int]], ...] = [], []
        self.late, self.counted = [0, 0], [0, 0]
        self.emitted: list[tuple[Any, int]] = []
        self.count = 0

    def opened(self, restored: Sequence[Any]) -> OperatorHarness:
        lower, upper = (bound / 1e6 for bound in self.bounds)
        in_columns = self.form == "arrow"
        where: Any = None
        if self.has_condition:
            where = pc.field("n") <= pc.field("n_right") if in_columns else lambda a, b: a["n"] <= b["n"]

        def joined(left: Any, right: Any) -> Any:
            return left.join(
                right,
                on="k",
                within=(lower, upper),
                how=self.how,
                where=where,
                batch_format="arrow" if in_columns else "rows",
            )

        backend = RocksDB() if self.form == "rocksdb" else HeapState()
        return OperatorHarness.of(joined, restored=restored, state_backend=backend)

    def push(self, records: Sequence[tuple[int, Any, int]]) -> None:
        for side in (0, 1):
            mine = [(key, at + (self.reached or 0)) for where, key, at in records if where == side]
            if not mine:
                continue
            rows = [{"k": key, "n": self.count + n} for n, (key, _) in enumerate(mine)]
            for row, (key, at) in zip(rows, mine, strict=True):
                if self.reached is not None and at <= self.reached:
                    self.late[side] += 1
                else:
                    self.rows[side].append((key, row["n"], at))
            self.count += len(mine)
            stamps = [at for _, at in mine]
            if self.form == "arrow":
                columns = pa.RecordBatch.from_pylist(rows, pa.schema({"k": pa.string(), "n": pa.int64()}))
                self.harness.push_batch(ArrowBatch(columns, pa.array(stamps)), input_index=side)
            else:
                self.harness.push_batch(RowBatch(rows, stamps), input_index=side)
            self.collect()

    def advance(self, by: int) -> None:
        self.reached = by if self.reached is None else self.reached + by
        self.harness.push_watermark(self.reached)
        self.collect()

    def end(self) -> None:
        self.harness.push_watermark((1 << 63) - 1)
        self.collect()

    def restart(self) -> None:
        self.counted = [self.counted[side] + self.late_here(side) for side in (0, 1)]
        snapshot = self.harness.snapshot()
        self.harness.close()
        self.harness = self.opened([snapshot])
        self.passed, self.seen = None, 0

    def late_here(self, side: int) -> int:
        name = ("late_left", "late_right")[side]
        return sum(1 for _ in self.harness.side_output(name))

    def collect(self) -> None:
        """Take what was emitted; nothing may come at or before a watermark that was emitted before it."""
        for batch in self.harness.batches[self.seen :]:
            rows = batch.batch.to_pylist() if isinstance(batch, ArrowBatch) else batch.rows
            stamps = list(batch.timestamps.to_pylist() if isinstance(batch, ArrowBatch) else batch.timestamps)
            assert self.passed is None or min(stamps) > self.passed
            self.emitted += zip([plain(row) for row in rows], stamps, strict=True)
        self.seen = len(self.harness.batches)
        self.passed = max(self.harness.watermarks, default=None)

    def expected(self) -> list[tuple[Any, int]]:
        (left, right), (lower, upper) = self.rows, self.bounds
        pairs = [
            (one, other)
            for one in left
            for other in right
            if one[0] is not None
            and one[0] == other[0]
            and lower <= other[2] - one[2] <= upper
            and (not self.has_condition or one[1] <= other[1])
        ]
        matched = {one[1] for one, _ in pairs} | {other[1] for _, other in pairs}
        both = [((one[0], one[1], other[1]), max(one[2], other[2])) for one, other in pairs]
        alone = [((key, n, None), at) for key, n, at in left if n not in matched]
        alone_right = [((key, None, n), at) for key, n, at in right if n not in matched]
        return {
            "inner": both,
            "left": both + alone,
            "right": both + alone_right,
            "full": both + alone + alone_right,
            "semi": [((key, n, None), at) for key, n, at in left if n in matched],
            "anti": alone,
        }[self.how]


def plain(row: Row) -> tuple[Any, Any, Any]:
    return row["k"], row.get("n"), row.get("n_right")


@pytest.mark.parametrize("form", ["rows", "arrow", "rocksdb"])
@given(st.sampled_from(HOWS), st.tuples(st.integers(-6, 6), st.integers(0, 6)), st.booleans(), STEPS)
@settings(deadline=None)
def test_join_gives_what_a_comparison_of_all_records_gives(
    form: str, how: str, bounds: tuple[int, int], has_condition: bool, steps: Any
) -> None:
    lower, width = bounds
    run = Run(how, (lower, lower + width), has_condition, form)
    # The names of both sides are known from here on.
    run.push([(0, None, 1), (1, None, 1)])
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
    assert not any(run.harness.statistics().gauges[f"rows_{side}"].total for side in ("left", "right"))
    run.harness.close()
