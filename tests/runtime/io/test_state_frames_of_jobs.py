"""Every kind of state of a job, read out of a checkpoint of its own that builds on the one before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from simulated_jobs.scripted_job import ScriptedJob
from state_tables import entries_of

from penstock import (
    Checkpointing,
    CollectSink,
    GeneratorSource,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.snapshot.metadata import encode_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.state.key_groups import key_group_of
from penstock.state import read_state
from penstock.windows import TumblingEventTimeWindows

GROUPS, LANES = 16, 2
#: Microseconds of a window, and of the time from one record to the next.
WINDOW, STEP = 20_000_000, 1_000_000
#: Keys of the first records; those that come later have a few of them.
KEYS, FEW, FIRST = 97, 7, 600


def key_of(i: int) -> str:
    return f"k{i % (KEYS if i < FIRST else FEW)}"


class Remembers(KeyedProcessFunction[str, int, int]):
    """Keeps a number, a list, a map and an accumulator of each key."""

    def open(self, ctx: RuntimeContext) -> None:
        self.number = ctx.value_state("number", default=0, of_type=int)
        self.latest = ctx.value_state("latest")
        self.by_digit = ctx.value_state("by digit")
        self.mean = ctx.value_state("mean", default=(0.0, 0))

    def process(self, value: int, ctx: RuntimeContext) -> Iterable[int]:
        self.number.update(self.number.value() + 1)
        self.latest.update([*(self.latest.value() or []), value][-3:])
        digits = self.by_digit.value() or {}
        self.by_digit.update({**digits, value % 10: digits.get(value % 10, 0) + 1})
        total, count = self.mean.value()
        self.mean.update((total + value, count + 1))
        return [value]


class Taken:
    """A job's newest checkpoint, in a folder, and what its sinks have committed by then."""

    def __init__(self, folder: Path) -> None:
        self.largest, self.seen = InMemoryCollector(), InMemoryCollector()
        env = StreamEnvironment("all-kinds", parallelism=LANES, max_parallelism=GROUPS)
        numbers = env.from_source(
            "numbers", GeneratorSource(lambda i: i, rate=2_000.0)
        ).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_bounded_out_of_orderness(10_000).with_timestamp_assigner(
                lambda i: i * STEP
            ),
            id="times",
        )
        by_key = numbers.key_by(key_of)
        by_key.reduce("largest", max).sink("larger", CollectSink(self.largest))
        by_key.process("remembers", Remembers()).sink("seen", CollectSink(self.seen))
        windows = by_key.window(TumblingEventTimeWindows(WINDOW / 1e6))
        windows.reduce("windows", max).sink("none", CollectSink(InMemoryCollector()))
        storage = open_location(str(folder), create=True)
        config = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=5))
        job = ScriptedJob(build_execution_graph(env.build()), config, storage, 7)
        while len(self.seen.rows()) < FIRST:
            job.run(1_500)
            job.complete_checkpoint()
        for _ in range(2):
            job.run(200)
            job.complete_checkpoint()
        newest = job.newest
        assert newest is not None
        self.checkpoint = replace(newest, metadata=None)
        path = SnapshotPaths("step-job").metadata(newest.kind, newest.checkpoint_id, newest.attempt)
        storage.put(path, encode_metadata(self.checkpoint, path))
        self.url = str(folder / path.rpartition("/")[0])

    @property
    def read(self) -> list[int]:
        """The records that are in the checkpoint, as the positions of the source say, lane by lane."""
        splits = from_arrow(read_state(self.url, "numbers", "splits")["value"])
        assert [split["step"] for split in splits] == [LANES] * LANES
        return [i for split in splits for i in range(split["next"] % LANES, split["next"], LANES)]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return Taken(tmp_path_factory.mktemp("checkpoints"))


def by_key(records: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i in records:
        found.setdefault(key_of(i), []).append(i)
    return found


def test_keyed_state_of_a_checkpoint_by_changes_is_what_its_output_says(taken: Taken) -> None:
    handles = [h for s in taken.checkpoint.operators["largest"].subtasks.values() for h in s.keyed]
    assert all(len(handle.files) > 1 for handle in handles), "a base, and changes since"
    table = read_state(taken.url, "largest")
    assert entries_of(table) == {key: max(seen) for key, seen in by_key(taken.read).items()}
    assert entries_of(table) == {key: max(seen) for key, seen in by_key(taken.largest.rows()).items()}
    assert table["key_group"].to_pylist() == [key_group_of(key, GROUPS) for key in entries_of(table)]
    frame = table.to_pandas().set_index("key")
    assert frame["value"].to_dict() == entries_of(table)
    assert frame["key_group"].to_dict() == {key: key_group_of(key, GROUPS) for key in frame.index}


def test_numbers_lists_maps_and_accumulators_of_a_key_are_read(taken: Taken) -> None:
    read = partial(read_state, taken.url, "remembers")
    seen = by_key(taken.read)
    assert sorted(taken.seen.rows()) == sorted(taken.read)
    assert entries_of(read("number")) == {key: len(values) for key, values in seen.items()}
    assert entries_of(read("mean")) == {key: (float(sum(v)), len(v)) for key, v in seen.items()}
    latest = entries_of(read("latest"))
    # Records of two lanes come in any order.
    assert {key: len(values) for key, values in latest.items()} == {
        k: min(len(v), 3) for k, v in seen.items()
    }
    assert all(set(values) <= set(seen[key]) for key, values in latest.items())
    digits = {key: {i % 10 for i in values} for key, values in seen.items()}
    counted = entries_of(read("by digit"))
    assert {key: set(counts) for key, counts in counted.items()} == digits
    assert {key: sum(counts.values()) for key, counts in counted.items()} == entries_of(read("number"))


def test_open_windows_of_a_key_are_read_by_their_start(taken: Taken) -> None:
    expected: dict[str, dict[int, int]] = {}
    for i in sorted(taken.read):
        expected.setdefault(key_of(i), {})[i * STEP // WINDOW * WINDOW] = i
    assert entries_of(read_state(taken.url, "windows", "windows")) == expected


def test_lists_that_are_split_joined_or_broadcast_are_read(taken: Taken) -> None:
    """Prepared transactions of sinks, the event time, and the windows."""
    pending = read_state(taken.url, "seen", "committables", value=lambda prepared: prepared[0])
    newest = taken.checkpoint.checkpoint_id
    assert pending.to_pydict() == {"subtask": [0, 1], "value": [newest] * LANES}
    watermarks = read_state(taken.url, "windows", "watermark").to_pydict()
    assert watermarks["subtask"] == [0, 1]
    assert [(each["_1"], each["_2"]) for each in watermarks["value"]] == [(0, LANES), (1, LANES)]
    shape = read_state(taken.url, "windows", "shape").to_pydict()
    assert shape["subtask"] == [0], "one of two equal copies"
    assert [each["_1"] for each in shape["value"]] == [WINDOW]
