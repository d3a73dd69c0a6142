"""Jobs whose operators have coordinators, under the simulation: events both ways, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Checkpointing, CollectSink, StreamEnvironment
from penstock.operators import (
    CoordinatorAnswer,
    Operator,
    OperatorContext,
    OperatorCoordinator,
    OperatorCoordinatorContext,
    RowBatch,
)
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.operators.coordinator_host import CoordinatorHost
from penstock.runtime.task.subtask_checkpoints import CoordinatorMail
from penstock.testing import SimulationFailedError, SimulationReport, simulate

COUNT, EVERY = 60, 4
MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned with a timeout": {"unaligned": True, "aligned_timeout": 0.01},
}
#: Checkpoints of this mode begin aligned and become unaligned. The long version takes the other modes, too.
MIXED = "aligned with a timeout"
SHORT_MODES = [pytest.param(mode, marks=() if mode == MIXED else pytest.mark.long) for mode in MODES]


class World:
    """The output of a run: committed rows, and each coordinator's sum.

    The last one is of the last attempt.
    """

    def __init__(self) -> None:
        self.results = InMemoryCollector()
        self.sums: list[int] = []

    def __deepcopy__(self, memo: object) -> World:
        return self  # it is outside of all processes

    def left(self) -> list[Any]:
        """Each row once, and the sum that the last coordinator has come to."""
        return [sorted(self.results.rows()), self.sums[-1]]


class Worlds:
    """The output of two pipelines."""

    def __init__(self) -> None:
        self.first, self.second = World(), World()

    def __deepcopy__(self, memo: object) -> Worlds:
        return self

    def left(self) -> list[Any]:
        return [self.first.left(), self.second.left()]


class Limits(OperatorCoordinator):
    """Adds counts up, and tells all subtasks of each new limit."""

    def __init__(self, context: OperatorCoordinatorContext, world: World) -> None:
        self.context, self.world = context, world
        self.sum = self.limit = 0
        self.number = len(world.sums)
        world.sums.append(0)

    def handle_event(self, subtask: int, event: int) -> None:
        self.sum += event
        self.world.sums[self.number] = self.sum
        while self.sum >= (self.limit + 1) * EVERY:
            self.limit += 1
            for each in range(self.context.parallelism):
                self.context.send_event(each, self.limit)

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        answer.complete((self.sum, self.limit))

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        self.sum, self.limit = state or (0, 0)
        self.world.sums[self.number] = self.sum


class Limited(Operator):
    """Reports each row, and passes it on; a limit that comes twice, or never, fails the job."""

    def __init__(self, world: World) -> None:
        self.world = world

    def coordinator(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        return Limits(context, self.world)

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.saved = context.operator_list_state("limit", "union")
        self.limit = max(self.saved.get(), default=0)

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.context.send_event(len(batch))
        yield batch

    def handle_event(self, event: int) -> None:
        assert event == self.limit + 1, f"limit {event} came behind {self.limit}"
        self.limit = event

    def snapshot(self, checkpoint_id: int) -> None:
        self.saved.update([self.limit])


def limited_job(chained: bool = False, **checkpointing: Any) -> tuple[StreamEnvironment, World]:
    """numbers -> limited -> out; chained, the operator runs in the source's subtasks."""
    world = World()
    env = StreamEnvironment("limited", parallelism=2, checkpointing=Checkpointing(every=60, **checkpointing))
    pipeline(env, world, chained=chained)
    return env, world


def two_limited_jobs(**checkpointing: Any) -> tuple[StreamEnvironment, Worlds]:
    """Two such pipelines in one job. Nothing joins them, so each is a region that restarts alone."""
    worlds = Worlds()
    env = StreamEnvironment("two", parallelism=2, checkpointing=Checkpointing(every=60, **checkpointing))
    pipeline(env, worlds.first, "first-")
    pipeline(env, worlds.second, "second-")
    return env, worlds


def pipeline(env: StreamEnvironment, world: World, name: str = "", *, chained: bool = False) -> None:
    numbers = env.from_collection(f"{name}numbers", range(COUNT))
    stream = (numbers if chained else numbers.rebalance()).transform(f"{name}limited", Limited(world))
    stream.rebalance().sink(f"{name}out", CollectSink(world.results))


def kills(report: SimulationReport) -> int:
    """Processes that died: of subtasks and of the JobMaster."""
    return sum(count for kind, count in report.failures.items() if "crash" in kind)


def run(seeds: range, *, interleavings: int = 2, **job: Any) -> SimulationReport:
    report = simulate(
        lambda: limited_job(**job),
        output=World.left,
        equal=lambda expected, actual: actual == expected == [list(range(COUNT)), COUNT],
        seeds=seeds,
        interleavings=interleavings,
    )
    print(f"{job}: {kills(report)} kills, {report.restarts} restarts, {report.checkpoints} checkpoints")
    return report


@pytest.mark.simulation
@pytest.mark.parametrize("chained", [False, True], ids=["behind an exchange", "in the source's chain"])
@pytest.mark.parametrize("mode", SHORT_MODES)
def test_counts_and_limits_are_exactly_once_under_crashes_and_rescales(mode: str, chained: bool) -> None:
    assert kills(run(range(6), chained=chained, **MODES[mode])) > 0


def run_two(seeds: range, *, interleavings: int = 2, **job: Any) -> SimulationReport:
    one = [list(range(COUNT)), COUNT]
    report = simulate(
        lambda: two_limited_jobs(**job),
        output=Worlds.left,
        equal=lambda expected, actual: actual == expected == [one, one],
        seeds=seeds,
        interleavings=interleavings,
    )
    print(f"two {job}: {kills(report)} kills, {report.restarts} restarts, {report.checkpoints} checkpoints")
    return report


@pytest.mark.simulation
@pytest.mark.parametrize("mode", SHORT_MODES)
def test_a_region_that_fails_takes_its_coordinator_back_and_no_other(mode: str) -> None:
    assert kills(run_two(range(4), **MODES[mode])) > 0


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_regions_under_many_kills_lose_and_repeat_no_count_and_no_limit(mode: str) -> None:
    assert kills(run_two(range(4, 60), interleavings=4, **MODES[mode])) >= 20


def test_the_simulation_finds_a_coordinator_that_does_not_go_back_with_its_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OperatorCoordinators, "reset_operator", lambda *given: None)
    with pytest.raises(SimulationFailedError):
        run_two(range(100))


@pytest.mark.long
@pytest.mark.parametrize("chained", [False, True], ids=["behind an exchange", "in the source's chain"])
@pytest.mark.parametrize("mode", MODES)
def test_many_kills_lose_and_repeat_no_count_and_no_limit(mode: str, chained: bool) -> None:
    report = run(range(6, 120), interleavings=10, chained=chained, **MODES[mode])
    assert kills(report) >= 20
    assert report.failures["rescaled while running"] >= 5


@pytest.mark.parametrize("planted", ["not recorded", "not held"])
def test_the_simulation_finds_an_event_on_the_wrong_side_of_a_checkpoint(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if planted == "not recorded":
        monkeypatch.setattr(CoordinatorHost, "recorded_state", lambda self, checkpoint_id: None)
    else:
        monkeypatch.setattr(CoordinatorMail, "deliver_before", lambda self, checkpoint_id: None)
        monkeypatch.setattr(
            CoordinatorMail, "deliver_due", lambda self, is_past: self._deliver_where(lambda event: True)
        )
    with pytest.raises(SimulationFailedError):
        run(range(400))
