"""Jobs with operators of users' own under the simulation: crashes, rescales, every kind of state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.runtime import (
    Checkpointing,
    CollectSink,
    InMemoryCollector,
    Operator,
    OperatorContext,
    RawState,
    RowBatch,
    StreamEnvironment,
)
from penstock.runtime.testing import SimulationReport, simulate

COUNT = 60
MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned with a timeout": {"unaligned": True, "aligned_timeout": 0.01},
}


class LocalSums(Operator):
    """Sums numbers by key before they are sent, and lets the sums go in front of each barrier."""

    def open(self, context: OperatorContext) -> None:
        self.sums: Counter[int] = Counter()

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        for number in batch.rows:
            self.sums[number % 5] += number
        yield from ()

    def prepare_snapshot_pre_barrier(self) -> Iterator[RowBatch]:
        sums, self.sums = self.sums, Counter()
        yield RowBatch(list(sums.items()))

    def end_of_data(self) -> Iterator[RowBatch]:
        yield from self.prepare_snapshot_pre_barrier()


class Totals(Operator):
    """Adds up local sums in keyed state; a copy by key group is raw keyed state of its own."""

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.total = context.value_state("total", default=0)
        self.raw = dict(context.raw.keyed)
        self.pieces = list(context.raw.operator)
        self.subtasks = context.list_state("subtasks", "union")
        self.rules = context.list_state("rules", "broadcast")
        rules = self.rules.get()
        assert rules in ([], ["rule"]), rules
        assert bool(rules) == context.is_restored
        self.rules.update(["rule"])

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        out = []
        for key, (_, number) in self.context.by_key(batch):
            self.total.update(self.total.value() + number)
            out.append((key, self.total.value()))
            self.pieces.append(b"%d" % number)
        yield RowBatch(out)

    def snapshot(self, checkpoint_id: int) -> None:
        self.subtasks.update([(checkpoint_id, self.context.subtask)])

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        own = dict.fromkeys(self.context.key_groups, b"%d" % checkpoint_id)
        return RawState(self.pieces, own)

    def end_of_data(self) -> Iterator[RowBatch]:
        yield RowBatch([("pieces", sum(map(int, self.pieces)))])


def sums_job(**checkpointing: Any) -> tuple[StreamEnvironment, InMemoryCollector]:
    results = InMemoryCollector()
    env = StreamEnvironment("sums", parallelism=2, checkpointing=Checkpointing(every=60, **checkpointing))
    numbers = env.from_collection("numbers", range(COUNT))
    sums = numbers.rebalance().transform("local", LocalSums()).key_by(lambda pair: pair[0])
    sums.transform("totals", Totals()).sink("out", CollectSink(results))
    return env, results


def outcome(results: InMemoryCollector) -> list[Any]:
    """The last total of each key, and the sum of what went through all subtasks."""
    totals: dict[Any, int] = {}
    pieces = 0
    for key, value in results.rows():
        if key == "pieces":
            pieces += value
        else:
            totals[key] = max(value, totals.get(key, 0))
    return [sorted(totals.items()), pieces]


def kills(report: SimulationReport) -> int:
    """Processes that died: of subtasks and of the JobMaster."""
    return sum(count for kind, count in report.failures.items() if "crash" in kind)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_flushed_in_front_of_barriers_is_exactly_once_in_every_kind_of_state(mode: str) -> None:
    report = simulate(lambda: sums_job(**MODES[mode]), output=outcome, seeds=range(8), interleavings=2)
    print(f"{mode}: {kills(report)} kills, {report.restarts} restarts, {report.checkpoints} checkpoints")
    assert kills(report) > 0


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_many_kills_and_rescales_change_nothing_in_what_is_flushed(mode: str) -> None:
    report = simulate(lambda: sums_job(**MODES[mode]), output=outcome, seeds=range(8, 120))
    print(f"{mode}: {kills(report)} kills, {report.restarts} restarts, {report.checkpoints} checkpoints")
    assert kills(report) >= 20
    assert report.failures["rescaled while running"] >= 5
