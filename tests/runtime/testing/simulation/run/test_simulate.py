"""Users' jobs under the simulation: correct ones pass, and mistakes of several kinds are found."""

from __future__ import annotations

import csv
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deep import DEEP

from penstock import (
    Checkpointing,
    CollectSink,
    ConfigurationError,
    FileSink,
    FileSource,
    GeneratorSource,
    GraphError,
    KeyedProcessFunction,
    RocksDB,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.aggregates import Count as CountRows
from penstock.connectors import CommitPermit, ConnectorContext, Polled
from penstock.operators import Batch, RowBatch
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.testing.simulation.run.user_run import Fault
from penstock.testing import Finding, SimulationFailedError, SimulationReport, simulate
from penstock.windows import TumblingEventTimeWindows

COUNT = 40
#: Enough for every fault that seeds draw.
SEEDS = 15 * DEEP

Built = tuple[StreamEnvironment, Any]


def environment(**checkpointing: Any) -> StreamEnvironment:
    return StreamEnvironment("mine", parallelism=2, checkpointing=Checkpointing(every=60, **checkpointing))


def rows(world: Any) -> list[Any]:
    return world.rows()  # type: ignore[no-any-return]


class Table:
    """A database outside."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def rows(self) -> list[Any]:
        return self.written


class Count(KeyedProcessFunction[int, int, tuple[int, int]]):
    def open(self, ctx: RuntimeContext) -> None:
        self.seen = ctx.value_state("seen", default=0)

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[tuple[int, int]]:
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()


def counting(function: Callable[[], KeyedProcessFunction[Any, Any, Any]] = Count, **settings: Any) -> Built:
    results, env = InMemoryCollector(), environment(**settings)
    keyed = env.from_collection("numbers", range(COUNT)).key_by(lambda n: n % 5)
    keyed.process("count", function()).sink("out", CollectSink(results))
    return env, results


# -- correct jobs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"unaligned": True},
        {"unaligned": True, "aligned_timeout": 1.0},
        {"max_concurrent": 3},
        {"alignment": "store", "max_alignment_bytes": 1_000_000},
    ],
    ids=["aligned", "unaligned", "aligned with a timeout", "several at a time", "aligned and stored"],
)
@pytest.mark.simulation
def test_a_correct_job_passes_and_the_report_counts_what_really_happened(settings: dict[str, Any]) -> None:
    report = simulate(lambda: counting(**settings), output=rows, seeds=range(SEEDS), interleavings=3)
    assert (report.passed, report.seeds, report.interleavings) == (True, SEEDS, 3)
    assert report.restarts > 10
    assert report.checkpoints > 100
    for kind in ("crash between steps", "crash inside a step", "rescaled while running", "JobMaster crash"):
        assert report.failures[kind] > 0, kind


class Tally:
    """Counts in an object that two functions share: one object where they are chained, else two."""

    def __init__(self) -> None:
        self.seen = 0

    def up(self, number: int) -> int:
        self.seen += 1
        return number

    def shown(self, number: int) -> tuple[int, int]:
        return number, self.seen


def shared_by_a_chain() -> Built:
    results, env, tally = InMemoryCollector(), environment(), Tally()
    numbers = env.from_collection("numbers", range(COUNT)).rebalance()
    numbers.map(tally.up).map(tally.shown).map(lambda pair: (pair[0], pair[1] > 0)).sink(
        "out", CollectSink(results)
    )
    return env, results


def of_batches() -> Built:
    results, env = InMemoryCollector(), environment()
    numbers = env.from_collection("numbers", range(COUNT)).rebalance()
    numbers.map_batches(lambda numbers: [len(numbers) > 1] * len(numbers)).sink("out", CollectSink(results))
    return env, results


@pytest.mark.parametrize("build", [shared_by_a_chain, of_batches])
def test_a_job_whose_output_depends_on_chaining_or_batches_is_found_without_any_failure(
    build: Callable[[], Built],
) -> None:
    report = simulate(build, output=rows, seeds=(), interleavings=10, check=False)
    assert report.failed is not None
    assert report.failed.finding is Finding.DEPENDS_ON_ORDER


def rude() -> Built:
    def kept_and_changed(row: dict[str, Any], kept: list[Any] = []) -> dict[str, Any]:  # noqa: B006
        for old in kept:
            old["items"].append("changed later")
        kept[:] = [row]
        row["items"].append("kept")
        return row

    results, env = InMemoryCollector(), environment()
    made = env.from_collection("records", [{"n": n, "items": [n]} for n in range(COUNT)])
    made.map(kept_and_changed).map(kept_and_changed).rebalance().sink("out", CollectSink(results))
    return env, results


def test_functions_that_change_what_they_have_emitted_give_the_same_output_whatever_happens() -> None:
    report = simulate(rude, output=rows, seeds=range(4 * DEEP), interleavings=6)
    assert report.passed


def windowed() -> Built:
    results, env = InMemoryCollector(), environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(60).with_timestamp_assigner(
        lambda n: n * 1_000_000
    )
    numbers = env.from_collection("numbers", range(COUNT)).assign_timestamps_and_watermarks(strategy)
    windows = numbers.key_by(lambda n: n % 3).window(TumblingEventTimeWindows(10))
    windows.apply("sum", lambda key, window, held: [(key, window.start_timestamp, sum(held))]).sink(
        "out", CollectSink(results)
    )
    return env, results


@pytest.mark.simulation
def test_windows_come_out_once_and_whole() -> None:
    assert simulate(windowed, output=rows, seeds=range(5 * DEEP), interleavings=2).passed


def windowed_with_pauses(**settings: Any) -> Built:
    """Sources pause for milliseconds, so streams become idle. The bound is so large that nothing is late."""
    results, env = InMemoryCollector(), environment(**settings)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(60).with_idleness(0.002)
    numbers = env.from_collection("numbers", range(COUNT)).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda n: n * 1_000_000)
    )
    windows = numbers.key_by(lambda n: n % 3).window(TumblingEventTimeWindows(10))
    sums = windows.apply("sum", lambda key, window, held: [(key, window.start_timestamp, sum(held))])
    sums.sink("out", CollectSink(results))
    return env, results


@pytest.mark.simulation
@pytest.mark.parametrize("settings", [{}, {"unaligned": True}], ids=["aligned", "unaligned"])
def test_windows_of_streams_that_pause_come_out_once_and_whole(settings: dict[str, Any]) -> None:
    build = partial(windowed_with_pauses, **settings)
    assert simulate(build, output=rows, seeds=range(6 * DEEP), interleavings=2).passed


def of_ordered_files(form: Any) -> Built:
    """Each file is in order, and all begin together: with a watermark of its own for each nothing is late."""
    results, env = InMemoryCollector(), environment()
    folder = tempfile.TemporaryDirectory()
    for part in range(4):
        lines = [json.dumps({"n": n, "at": n * 1_000_000}) + "\n" for n in range(part, COUNT, 4)]
        Path(folder.name, f"{part}.json").write_text("".join(lines))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    source = FileSource.json(f"{folder.name}/*.json", batch_format=form)
    read = env.from_source("read", source, watermarks=strategy.with_idleness(60))
    windows = read.key_by(lambda row: row["n"] % 3).window(TumblingEventTimeWindows(10))
    sums = windows.apply(
        "sum", lambda key, window, held: [(key, window.start_timestamp, sum(row["n"] for row in held))]
    )
    sums.sink("out", CollectSink(results))
    sums.side_output("late_records").sink("late", CollectSink(results))
    results.folder = folder  # type: ignore[attr-defined] # it goes with the results
    return env, results


@pytest.mark.simulation
@pytest.mark.parametrize("form", ["rows", "arrow"])
def test_nothing_is_late_where_each_split_is_in_order(form: str) -> None:
    seen: list[list[Any]] = []

    def output(results: Any) -> list[Any]:
        seen.append(rows(results))
        return seen[-1]

    assert simulate(
        partial(of_ordered_files, form), output=output, seeds=range(8 * DEEP), interleavings=2
    ).passed
    assert sum(total for _, _, total in seen[0]) == sum(range(COUNT))


def seconds(n: int) -> int:
    return n * 1_000_000


def of_sources_that_wait_for_each_other(**settings: Any) -> Built:
    results, env = InMemoryCollector(), environment(**settings)
    monotonous = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda n: n * 1_000_000
    )
    aligned = monotonous.with_alignment("both", max_drift=3, interval=0.002)
    even = env.from_source("even", GeneratorSource(lambda i: 2 * i, COUNT), watermarks=aligned)
    odd = env.from_source("odd", GeneratorSource(lambda i: 2 * i + 1, COUNT // 2), watermarks=aligned)
    windows = even.union(odd).key_by(lambda n: n % 3).window(TumblingEventTimeWindows(10))
    sums = windows.apply("sum", lambda key, window, held: [(key, window.start_timestamp, sum(held))])
    sums.sink("out", CollectSink(results))
    sums.side_output("late_records").sink("late", CollectSink(results))
    return env, results


@pytest.mark.simulation
@pytest.mark.parametrize("settings", [{}, {"unaligned": True}], ids=["aligned", "unaligned"])
def test_sources_that_wait_for_each_other_come_to_their_end(settings: dict[str, Any]) -> None:
    build = partial(of_sources_that_wait_for_each_other, **settings)
    assert simulate(build, output=rows, seeds=range(5 * DEEP), interleavings=2).passed


def from_files_to_files() -> tuple[StreamEnvironment, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory()
    lines = Path(folder.name, "in")
    lines.mkdir()
    for part in range(3):
        Path(lines, f"{part}.json").write_text(
            "".join(json.dumps({"n": n}) + "\n" for n in range(part, COUNT, 3))
        )
    env = environment()
    read = env.from_source("read", FileSource.json(f"{lines}/*.json"))
    squares = read.map(lambda row: {"n": row["n"], "square": row["n"] ** 2})
    squares.sink("write", FileSink.csv(f"{folder.name}/out"))
    return env, folder


def read_files(folder: tempfile.TemporaryDirectory[str]) -> list[Any]:
    files = [path for path in Path(folder.name, "out").rglob("*.csv") if path.name[0] not in "._"]
    return [row for path in sorted(files) for row in csv.reader(path.read_text().splitlines()[1:])]


def read_files_of_one_run() -> list[Any]:
    seen: list[list[Any]] = []

    def output(folder: tempfile.TemporaryDirectory[str]) -> list[Any]:
        seen.append(read_files(folder))
        return seen[-1]

    simulate(from_files_to_files, output=output, seeds=[], interleavings=1)
    return seen[0]


@pytest.mark.simulation
def test_a_job_from_files_to_files_runs_with_its_real_files() -> None:
    report = simulate(from_files_to_files, output=read_files, seeds=range(SEEDS), interleavings=2)
    assert report.passed
    assert len(read_files_of_one_run()) == COUNT
    assert report.failures["crash inside a step"] > 0


# -- faults that are asked for ------------------------------------------------------------------------------

#: What the report calls the faults that a user asks for.
STRUCK: dict[Fault, str] = {
    "slow_storage": "storage slow",
    "hanging_storage": "storage call given up, done later or never",
    "partial_listings": "listing without the newest names",
    "late_listings": "log listed late",
    "power_cuts": "power cut of the storage during a write",
    "full_disk": "checkpoint storage full",
    "network_cuts": "network cut in two",
    "zombies": "subtask that counts as dead keeps running",
    "clock_jumps": "wall clock set",
    "frozen_processes": "subtask frozen",
    "frozen_job_master": "JobMaster frozen",
}


@pytest.mark.simulation
def test_a_correct_job_passes_whatever_faults_are_asked_for() -> None:
    report = simulate(counting, output=rows, faults=STRUCK, seeds=range(24), interleavings=1)
    assert report.passed
    assert [fault for fault, happened in STRUCK.items() if not report.failures.get(happened)] == []


@pytest.mark.parametrize("fault", ["damaged_files", "lost_files"])
def test_a_job_may_end_that_names_its_damaged_file(fault: Fault) -> None:
    build = partial(counting, retain=2, unaligned=True)
    report = simulate(build, output=rows, faults=[fault], seeds=range(25), interleavings=1)
    assert report.failures["job failed by a damaged file"] > 0


@pytest.mark.simulation
def test_a_job_that_may_start_from_an_older_checkpoint_loses_nothing_by_damage() -> None:
    build = partial(counting, retain=3, allow_older=True)
    report = simulate(build, output=rows, faults=["damaged_files"], seeds=range(25), interleavings=1)
    assert report.failures["older checkpoint taken because of damage"] > 0


def test_a_fault_that_is_not_known_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match=r"no fault 'zombis'; did you mean 'zombies'\?"):
        simulate(counting, output=rows, faults=["zombis"])  # type: ignore[list-item]


# -- mistakes -----------------------------------------------------------------------------------------------


class WriteAtOnce:
    """A sink that is not transactional: what it writes is there at once."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def writer(self, context: ConnectorContext) -> WriteAtOnce:
        return self

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        self._table.written.extend(batch.rows)

    def prepare_commit(self) -> Sequence[Any]:
        return []

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        pass

    def close(self) -> None:
        pass


class CommitTwice(WriteAtOnce):
    """A sink that waits for its checkpoint, but appends again what is committed again."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._open: list[Any] = []

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        self._open += batch.rows

    def prepare_commit(self) -> Sequence[Any]:
        done, self._open = self._open, []
        return [done] if done else []

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        for each in committables:
            self._table.written.extend(each)


class ForgetUncommitted(CommitTwice):
    """A sink that commits from memory what should have come from the snapshot."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._prepared: dict[int, list[Any]] = {}

    def prepare_commit(self) -> Sequence[Any]:
        done, self._open = self._open, []
        self._prepared[len(self._prepared)] = done
        return [len(self._prepared) - 1]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        for each in committables:
            self._table.written.extend(self._prepared.pop(each, []))


def written_by(sink: Callable[[Table], Any]) -> Callable[[], Built]:
    def build() -> Built:
        table, env = Table(), environment()
        env.from_collection("numbers", range(COUNT)).sink("out", sink(table))
        return env, table

    return build


class CountInSelf(KeyedProcessFunction[int, int, tuple[int, int]]):
    """Keeps its counts where no checkpoint finds them."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[tuple[int, int]]:
        key = ctx.current_key
        self.counts[key] = self.counts.get(key, 0) + 1
        yield key, self.counts[key]


class Forgetful:
    """A source whose snapshot is where it began."""

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def reader(self, context: ConnectorContext, splits: Sequence[int]) -> ForgetfulReader:
        return ForgetfulReader(list(splits))


class ForgetfulReader:
    def __init__(self, splits: list[int]) -> None:
        self._splits = splits
        self._at = 0

    def poll(self, max_rows: int) -> Polled[int]:
        if not self._splits or self._at >= COUNT:
            return Polled(finished=True)
        first, self._at = self._at, min(COUNT, self._at + max_rows)
        return Polled(RowBatch(list(range(first, self._at))))

    def snapshot(self) -> Sequence[int]:
        return self._splits if self._at < COUNT else []

    def close(self) -> None:
        pass


def read_forgetfully() -> Built:
    results, env = InMemoryCollector(), environment()
    env.from_source("numbers", Forgetful()).sink("out", CollectSink(results))
    return env, results


def write_in_a_map() -> Built:
    table, env = Table(), environment()

    def store(number: int) -> int:
        table.written.append(number)
        return number

    env.from_collection("numbers", range(COUNT)).map(store).sink("out", CollectSink(InMemoryCollector()))
    return env, table


def count_in_a_closure() -> Built:
    results, env, counts = InMemoryCollector(), environment(), dict.fromkeys(range(5), 0)

    def count(number: int) -> tuple[int, int]:
        counts[number % 5] += 1
        return number % 5, counts[number % 5]

    one = env.from_collection("numbers", range(COUNT), parallelism=1)
    one.map(count, parallelism=1).sink("out", CollectSink(results))
    return env, results


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (written_by(WriteAtOnce), "unexpected"),
        (written_by(CommitTwice), "unexpected"),
        (written_by(ForgetUncommitted), "missing"),
        (lambda: counting(CountInSelf), "missing"),
        (read_forgetfully, "unexpected"),
        (write_in_a_map, "unexpected"),
        (count_in_a_closure, "missing"),
    ],
    ids=[
        "a sink without transactions",
        "a commit that can't be repeated",
        "transactions that are only in memory",
        "counts in self",
        "a source that forgets its position",
        "an effect in a map",
        "counts in a closure",
    ],
)
def test_a_mistake_that_only_a_failure_shows_is_found(build: Callable[[], Built], what: str) -> None:
    report = simulate(build, output=rows, seeds=range(300), interleavings=3, check=False)
    assert report.failed is not None
    assert report.failed.finding is Finding.LOST_OR_REPEATED
    assert getattr(report.failed.difference, what), report
    assert report.failed.is_repeatable


class First(KeyedProcessFunction[int, str, tuple[int, str]]):
    """Takes the record that comes first, from whichever source."""

    def open(self, ctx: RuntimeContext) -> None:
        self.had = ctx.value_state("had", default=False)

    def process(self, value: str, ctx: RuntimeContext) -> Iterator[tuple[int, str]]:
        if not self.had.value():
            self.had.update(True)
            yield ctx.current_key, value


def first_of_two() -> Built:
    results, env = InMemoryCollector(), environment()
    left = env.from_collection("left", [f"left {n}" for n in range(10)])
    right = env.from_collection("right", [f"right {n}" for n in range(10)])
    both = left.union(right).key_by(lambda text: int(text.split()[1]))
    both.process("first", First()).sink("out", CollectSink(results))
    return env, results


def test_a_job_that_depends_on_the_order_of_its_inputs_is_found_without_any_failure() -> None:
    report = simulate(first_of_two, output=rows, seeds=range(5), check=False)
    assert report.failed is not None
    assert report.failed.finding is Finding.DEPENDS_ON_ORDER
    assert report.seeds == 0
    assert "equal=" in str(report)


def test_differences_that_are_meant_are_allowed_by_the_user() -> None:
    def same_keys(expected: list[Any], actual: list[Any]) -> bool:
        return sorted(key for key, _ in expected) == sorted(key for key, _ in actual)

    assert simulate(first_of_two, output=rows, equal=same_keys, seeds=range(20)).passed


def test_users_code_that_fails_by_itself_is_told_with_its_line() -> None:
    def build() -> Built:
        results, env = InMemoryCollector(), environment()
        env.from_collection("numbers", range(COUNT)).map(lambda n: 1 // (n - 30)).sink(
            "out", CollectSink(results)
        )
        return env, results

    with pytest.raises(SimulationFailedError, match=r"(?s)did not finish.*test_simulate.py.*ZeroDivision"):
        simulate(build, output=rows, seeds=range(3))


# -- the report ---------------------------------------------------------------------------------------------


def failing() -> SimulationReport:
    return simulate(written_by(WriteAtOnce), output=rows, seeds=range(100), interleavings=2, check=False)


def test_the_error_tells_seed_difference_trace_and_how_to_see_it_again() -> None:
    report = failing()
    with pytest.raises(AssertionError) as caught:
        report.raise_if_failed()
    text = str(caught.value)
    assert f"seed {report.failing_seed}: the output differs" in text
    assert "unexpected: " in text
    assert report.trace[-1] in text
    assert f"simulate(build, output=output, seeds=[{report.failing_seed}])" in text


def test_the_seed_alone_gives_the_same_run_line_by_line() -> None:
    report = failing()
    assert report.failing_seed is not None
    again = simulate(
        written_by(WriteAtOnce), output=rows, seeds=[report.failing_seed], interleavings=1, check=False
    )
    assert again.trace == report.trace
    assert again.difference == report.difference


def test_a_failed_simulation_raises_unless_it_is_asked_not_to() -> None:
    with pytest.raises(SimulationFailedError) as caught:
        simulate(written_by(WriteAtOnce), output=rows, seeds=range(100), interleavings=1)
    assert caught.value.report.failing_seed is not None


def stamped(number: int) -> tuple[int, float]:
    return number, time.time()


def test_clocks_and_randomness_of_users_code_are_named_with_their_lines() -> None:
    def build() -> Built:
        results, env = InMemoryCollector(), environment()
        numbers = env.from_collection("numbers", range(5)).filter(lambda n: random.random() < 2, id="some")
        numbers.map(stamped, id="stamp").sink("out", CollectSink(results))
        return env, results

    report = simulate(build, output=lambda left: [n for n, _ in left.rows()], seeds=range(2))
    assert {(each.kind, each.what, each.operator) for each in report.uncontrolled} == {
        ("clock", "time.time", "stamp"),
        ("randomness", "random.random", "some"),
    }
    assert "not under control: clock: time.time in stamped (" in str(report)


# -- what can't be simulated --------------------------------------------------------------------------------


def test_a_job_without_checkpoints_is_refused_with_what_to_do() -> None:
    def build() -> StreamEnvironment:
        env = StreamEnvironment("mine")
        env.from_collection("numbers", range(3)).sink("out", CollectSink(InMemoryCollector()))
        return env

    with pytest.raises(ConfigurationError, match=r"takes no checkpoints.*checkpointing=Checkpointing"):
        simulate(build, output=list)


def test_what_can_not_travel_to_a_process_is_refused_with_what_to_do() -> None:
    def build() -> StreamEnvironment:
        env, held = environment(), (n for n in range(3))
        env.from_collection("numbers", range(3)).map(lambda n: (n, held)).sink(
            "out", CollectSink(InMemoryCollector())
        )
        return env

    with pytest.raises(GraphError, match=r"can't be sent to another process.*generator.*together with"):
        simulate(build, output=list)


def test_a_source_without_an_end_is_told_as_such() -> None:
    class Endless(Forgetful):
        def reader(self, context: ConnectorContext, splits: Sequence[int]) -> Any:
            reader = ForgetfulReader(list(splits))
            reader.poll = lambda max_rows: Polled(RowBatch([1]))  # type: ignore[method-assign]
            return reader

    def build() -> Built:
        results, env = InMemoryCollector(), environment()
        env.from_source("numbers", Endless()).sink("out", CollectSink(results))
        return env, results

    report = simulate(build, output=rows, seeds=[], most_moves=2_000, check=False)
    assert report.failed is not None
    assert "Every source must end" in report.failed.problem


def test_state_that_a_backend_cannot_hold_is_refused_as_it_is_on_a_cluster() -> None:
    def build() -> Built:
        results = InMemoryCollector()
        checkpointing = Checkpointing(every=60)
        env = StreamEnvironment("mine", checkpointing=checkpointing, state_backend=RocksDB())
        rows_by_key = env.from_collection("numbers", [{"k": 1}]).key_by("k")
        rows_by_key.aggregate("count", n=CountRows()).sink("out", CollectSink(results))
        return env, results

    with pytest.raises(GraphError, match="keeps its state in columns, which RocksDB can't hold"):
        simulate(build, output=rows, seeds=range(1))
