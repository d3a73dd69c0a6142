"""Models of `dedup`, `latest_by` and `top_n`, one record after the other, and streams to compare them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock import DataStream, StateTtl
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.testing import OperatorHarness

SECOND = 1_000_000

Row = dict[str, Any]
Build = Callable[[DataStream[Any]], DataStream[Any]]


@dataclass(frozen=True)
class Step:
    """Records with their seconds, or a watermark; `is_arrow` says as what the records come."""

    rows: tuple[Row, ...] = ()
    seconds: tuple[int, ...] = ()
    is_arrow: bool = False
    watermark: int | None = None
    restores: bool = False


def records(step: Step) -> list[tuple[Row, int]]:
    return list(zip(step.rows, step.seconds, strict=True))


_RECORD = st.tuples(
    st.sampled_from(["a", "b", "c"]), st.integers(0, 5), st.integers(0, 2), st.integers(0, 30)
)


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    drawn, number = list[Step](), 0
    for _ in range(draw(st.integers(1, 6))):
        found = draw(st.lists(_RECORD, max_size=12))
        rows = tuple({"k": k, "v": v, "w": w / 2, "n": number + at} for at, (k, v, w, _) in enumerate(found))
        number += len(rows)
        seconds = tuple(second for *_, second in found)
        drawn.append(Step(rows, seconds, draw(st.booleans()), restores=draw(st.booleans())))
        if draw(st.booleans()):
            drawn.append(Step(watermark=draw(st.integers(0, 40))))
    return drawn


@dataclass
class Lives:
    """The lives of keys with a TTL in event time."""

    ttl: StateTtl | None
    watermark: int = -1
    used: dict[Any, int] = field(default_factory=dict)

    def now(self, second: int) -> int:
        return max(second, self.watermark)

    def begins(self, key: Any, second: int) -> bool:
        if self.ttl is None or key not in self.used:
            return key not in self.used
        return self.used[key] + self.ttl.duration <= self.now(second)

    def use(self, key: Any, second: int) -> None:
        self.used[key] = max(self.now(second), self.used.get(key, -1))


def outputs(build: Build, given: Sequence[Step]) -> Iterator[list[Row]]:
    """The output rows of each step of records; the job may be restored behind a step."""
    harness = OperatorHarness.of(build)
    for step in given:
        if step.watermark is not None:
            harness.push_watermark(step.watermark * SECOND)
            harness.flush()
            continue
        stamps = [second * SECOND for second in step.seconds]
        batch: Any = RowBatch(step.rows, stamps)
        if step.is_arrow and step.rows:
            batch = ArrowBatch(pa.RecordBatch.from_pylist(list(step.rows)), pa.array(stamps, pa.int64()))
        yield harness.push_batch(batch)
        if step.restores:
            snapshot = harness.snapshot()
            harness.close()
            harness = OperatorHarness.of(build, restored=[snapshot])
    harness.close()
