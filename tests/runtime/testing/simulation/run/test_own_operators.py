"""Jobs with operators of users' own under the simulation: crashes, rescales, every kind of state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock import Checkpointing, CollectSink, StreamEnvironment, WatermarkStrategy
from penstock.operators import ArrowBatch, Operator, OperatorContext, RowBatch, Watermark
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.state.key_groups import key_group_of
from penstock.state import RawState
from penstock.testing import SimulationReport, simulate

COUNT = 60
MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned with a timeout": {"unaligned": True, "aligned_timeout": 0.01},
}
#: Checkpoints of this mode begin aligned and become unaligned. The long version takes the other modes, too.
MIXED = "aligned with a timeout"
SHORT_MODES = [pytest.param(mode, marks=() if mode == MIXED else pytest.mark.long) for mode in MODES]


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
        self.subtasks = context.operator_list_state("subtasks", "union")
        self.rules = context.operator_list_state("rules", "broadcast")
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


@pytest.mark.simulation
@pytest.mark.parametrize("mode", SHORT_MODES)
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


# -- a job whose operators use everything that there is ----------------------------------------------------

#: Numbers: enough for checkpoints that complete before something fails.
MANY = 120


class World:
    """The output of a run, and the calls of the operators of all runs."""

    def __init__(self, met: Counter[str]) -> None:
        self.results = InMemoryCollector()
        self.met = met

    def __deepcopy__(self, memo: object) -> World:
        return self  # it is outside of all processes

    def left(self) -> dict[str, list[Any]]:
        """The totals as each kind of state has them at the end, and the numbers that were released."""
        left: dict[str, list[Any]] = {"released": [], "managed": [], "raw": [], "pieces": []}
        for kind, value in self.results.rows():
            left[kind].append(value)
        return {kind: sorted(values) for kind, values in left.items()}


def columns(numbers: list[int]) -> ArrowBatch:
    return ArrowBatch(pa.RecordBatch.from_pydict({"n": numbers}))


class Notified(Operator):
    """Checks the notices of checkpoints: in order, of those that were taken here, and never both."""

    def __init__(self, world: World) -> None:
        self.world = world

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.taken: set[int] = set()
        self.completed = self.aborted = -1

    def snapshot(self, checkpoint_id: int) -> None:
        self.taken.add(checkpoint_id)

    def notify_checkpoint_complete(self, permit: Any) -> None:
        assert permit.checkpoint_id in self.taken
        assert permit.checkpoint_id > self.completed
        assert permit.checkpoint_id != self.aborted
        self.completed = permit.checkpoint_id
        self.world.met["complete"] += 1

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        assert checkpoint_id != self.completed
        self.aborted = checkpoint_id
        self.world.met["aborted"] += 1


class CurrentRole(Notified):
    """Holds numbers in split list state until the watermark has passed them; takes rows and Arrow batches.

    It asks for its list when it needs it, so some checkpoints are taken before.
    """

    batch_format = "both"

    def process(self, batch: RowBatch | ArrowBatch) -> Iterator[RowBatch]:
        self.world.met[type(batch).__name__] += 1
        held = self.context.operator_list_state("held")
        is_rows = isinstance(batch, RowBatch)
        for number in (row["n"] for row in batch.rows) if is_rows else batch.batch["n"].to_pylist():
            held.add(number)
        yield from ()

    def process_watermark(self, watermark: Watermark) -> Iterator[RowBatch | ArrowBatch]:
        held = self.context.operator_list_state("held")
        ready = [number for number in held.get() if number <= watermark.timestamp]
        held.update([number for number in held.get() if number > watermark.timestamp])
        yield RowBatch([{"n": number} for number in ready if number % 2])
        yield columns([number for number in ready if not number % 2])


class ColumnSums(Notified):
    """Sums Arrow batches by key; the sums leave in front of barriers, and the numbers are noted at once."""

    batch_format = "arrow"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.sums: Counter[int] = Counter()

    def process(self, batch: ArrowBatch) -> Iterator[RowBatch]:
        numbers = batch.batch["n"].to_pylist()
        for number in numbers:
            self.sums[number % 5] += number
        yield RowBatch([("released", number) for number in numbers])

    def prepare_snapshot_pre_barrier(self) -> Iterator[RowBatch]:
        sums, self.sums = self.sums, Counter()
        yield RowBatch([(str(key), sum) for key, sum in sums.items()])

    end_of_data = prepare_snapshot_pre_barrier


class KeepsTwice(Notified):
    """Keeps totals in keyed state and in raw keyed state, which must agree after each restore and rescale."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.total = context.value_state("total", default=0)
        self.raw: dict[int, dict[str, int]] = {}
        for group, data in context.raw.keyed.items():
            assert group in context.key_groups
            self.raw[group] = dict(pair.split("=") for pair in data.decode().split(","))  # type: ignore[arg-type]
            for key, total in self.raw[group].items():
                context.set_current_key(key)
                assert self.total.value() == int(total), "raw and managed state disagree"
                self.world.met["restored raw keys"] += 1
        self.pieces = list(context.raw.operator)
        self.has_asked = False

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        if not self.has_asked:
            self.has_asked = True
            writers = self.context.operator_list_state("writers", "union").get()
            assert len(set(writers)) == len(writers), "a union list was multiplied"
            assert self.context.operator_list_state("rules", "broadcast").get() in ([], ["rule"])
            self.world.met["restored writers"] += len(writers)
        for key, (kind, number) in self.context.by_key(batch):
            if kind == "released":
                yield RowBatch([(kind, number)])
                continue
            self.total.update(self.total.value() + number)
            self.raw.setdefault(key_group_of(key, 128), {})[key] = self.total.value()
            self.pieces.append(b"%d" % number)

    def snapshot(self, checkpoint_id: int) -> None:
        super().snapshot(checkpoint_id)
        if self.has_asked:
            attempt = self.context.connector.attempt
            self.context.operator_list_state("writers", "union").update([(attempt, self.context.subtask)])
            self.context.operator_list_state("rules", "broadcast").update(["rule"])

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        keyed = {
            group: ",".join(f"{key}={total}" for key, total in totals.items()).encode()
            for group, totals in self.raw.items()
        }
        return RawState(self.pieces, keyed)

    def end_of_data(self) -> Iterator[RowBatch]:
        raw = [(key, int(total)) for totals in self.raw.values() for key, total in totals.items()]
        rows: list[Any] = [("raw", each) for each in raw]
        for key, _ in raw:
            self.context.set_current_key(key)
            rows.append(("managed", (key, self.total.value())))
        yield RowBatch([*rows, *(("pieces", int(piece)) for piece in self.pieces)])


class Mixes(Operator):
    """Sends odd numbers as rows and even ones as Arrow batches."""

    def process(self, batch: RowBatch) -> Iterator[RowBatch | ArrowBatch]:
        yield RowBatch([{"n": number} for number in batch.rows if number % 2])
        yield columns([number for number in batch.rows if not number % 2])


def everything_job(met: Counter[str], **checkpointing: Any) -> tuple[StreamEnvironment, World]:
    """numbers -> mixed -> held until their time -> sums of Arrow batches -> totals by key, kept twice."""
    world = World(met)
    env = StreamEnvironment("all", parallelism=2, checkpointing=Checkpointing(every=40, **checkpointing))
    numbers = env.from_collection("numbers", range(MANY)).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner(lambda number: number)
    )
    held = numbers.rebalance().transform("mixes", Mixes()).transform("held", CurrentRole(world))
    sums = held.rebalance().transform("sums", ColumnSums(world))
    totals = sums.key_by(lambda pair: pair[0]).transform("totals", KeepsTwice(world))
    totals.sink("out", CollectSink(world.results))
    return env, world


def is_exactly_once(expected: dict[str, list[Any]], actual: dict[str, list[Any]]) -> bool:
    """Compared with an independent computation; how many pieces there are depends on the flushes."""
    totals = sorted((str(key), sum(range(key, MANY, 5))) for key in range(5))
    return (
        actual["released"] == list(range(MANY))
        and actual["managed"] == actual["raw"] == totals
        and sum(actual["pieces"]) == sum(range(MANY))
    )


def run_everything(mode: str, seeds: range) -> tuple[SimulationReport, Counter[str]]:
    met: Counter[str] = Counter()
    report = simulate(
        lambda: everything_job(met, **MODES[mode]),
        output=World.left,
        equal=is_exactly_once,
        seeds=seeds,
        interleavings=2,
    )
    print(f"{mode}: {kills(report)} kills, {report.restarts} restarts, met {dict(met)}")
    return report, met


@pytest.mark.simulation
@pytest.mark.parametrize("mode", SHORT_MODES)
def test_every_kind_of_state_format_and_notice_survives_crashes_and_rescales(mode: str) -> None:
    report, met = run_everything(mode, range(30, 34))
    assert kills(report) > 0
    assert min(met[each] for each in ("RowBatch", "ArrowBatch", "complete", "restored raw keys")) > 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES)
def test_many_kills_and_rescales_leave_every_kind_of_state_as_it_was(mode: str) -> None:
    report, met = run_everything(mode, range(34, 74))
    assert kills(report) >= 20
    assert report.failures["rescaled while running"] >= 5
    assert min(met[each] for each in ("aborted", "restored raw keys", "restored writers")) >= 20
