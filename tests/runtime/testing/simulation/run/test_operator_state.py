"""Lists of functions under the simulation: every value exactly once, and union lists whole, after kills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Checkpointing, CollectSink, KeyedProcessFunction, RuntimeContext, StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.state import OperatorListState
from penstock.testing import simulate

COUNT, KEYS = 60, 40
MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned with a timeout": {"unaligned": True, "aligned_timeout": 0.01},
}


class Passes:
    """Passes numbers on; none of them is in its list when it comes."""

    passed = OperatorListState(int)

    def __call__(self, number: int) -> int:
        assert number not in self.passed.get(), f"{number} is older than the state"
        self.passed.add(number)
        return number


class Gathers(KeyedProcessFunction[int, int, tuple[str, int]]):
    """Gathers numbers in a list of the subtask, which comes out at the end of time."""

    gathered = OperatorListState(int)
    writers = OperatorListState(tuple, mode="union")

    def open(self, ctx: RuntimeContext) -> None:
        self.me = ctx.subtask, ctx.parallelism
        writers = self.writers.get()
        for _, parallelism in writers:
            assert {subtask for subtask, _ in writers} == set(range(parallelism)), writers

    def process(self, value: int, ctx: RuntimeContext) -> None:
        self.gathered.add(value)
        ctx.timer_service.register_event_time_timer(2**60)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[int]:
        yield from self.gathered.get()
        self.gathered.clear()

    def snapshot(self, checkpoint_id: int) -> None:
        self.writers.update([self.me])


def job(**checkpointing: Any) -> tuple[StreamEnvironment, InMemoryCollector]:
    results = InMemoryCollector()
    env = StreamEnvironment("lists", parallelism=2, checkpointing=Checkpointing(every=60, **checkpointing))
    numbers = env.from_collection("numbers", range(COUNT))
    passed = numbers.rebalance().map(Passes, id="passes")
    passed.key_by(lambda n: n % KEYS).process("gathers", Gathers()).sink("out", CollectSink(results))
    return env, results


#: Some that bring operators to another parallelism while they run.
RESCALING = (8, 12, 21, 22, 24, 29)


@pytest.mark.parametrize("mode", MODES)
def test_every_value_of_a_list_is_there_once_after_kills_and_rescales(mode: str) -> None:
    report = simulate(
        lambda: job(**MODES[mode]), output=InMemoryCollector.rows, seeds=RESCALING, interleavings=1
    )
    assert report.restarts > 0
    assert report.failures["rescaled while running"] > 0


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_many_kills_and_rescales_leave_every_value_of_a_list_once(mode: str) -> None:
    report = simulate(lambda: job(**MODES[mode]), output=InMemoryCollector.rows, seeds=range(8, 160))
    assert report.restarts > 100
