"""The inspection of a snapshot without running its job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_storages import MemoryPlaces
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.checkpoint.operator_snapshot import OperatorSnapshot, SubtaskSnapshotTask
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig, RocksDB
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource, IndexRange
from penstock.runtime.operators.operator_state import RawState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics, CompletedCheckpointStatistics
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.handles import OperatorState, StateHandle
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import StateFiles, read_state
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state_processor.inspection import SnapshotSummary, StateSummary, inspect_snapshot

COUNT, KEYS = 3000, 9


@pytest.fixture
def places() -> MemoryPlaces:
    return MemoryPlaces()


@pytest.fixture(params=[40, 1 << 20])
def saved(request: pytest.FixtureRequest, places: MemoryPlaces, monkeypatch: pytest.MonkeyPatch) -> str:
    """A savepoint, with small state in files and in the metadata."""
    monkeypatch.setattr(metadata, "INLINE_LIMIT", request.param)
    env = StreamEnvironment("count", parallelism=2, max_parallelism=16)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT))
    counts = numbers.key_by(lambda i: i % KEYS).reduce("largest", max)
    counts.sink("out", CollectSink(InMemoryCollector()))
    config = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=5))
    job = ScriptedJob(build_execution_graph(env.build()), config, MemoryStorage(), 1, open_location=places)
    job.run(100)
    job.complete_checkpoint()
    job.run(50)
    return job.take_savepoint("/saved")


def inspected(places: MemoryPlaces, url: str, codec: ValueCodec) -> SnapshotSummary:
    return inspect_snapshot(
        open_snapshot(url, places).checkpoint, lambda handle: read_state(places(url), handle), codec
    )


def test_operators_states_keys_sizes_and_positions_are_told(saved: str, places: MemoryPlaces) -> None:
    summary = inspected(places, saved, ValueCodec(allow_pickle=False, classes=[IndexRange]))
    assert (summary.kind, summary.location) == ("savepoint", saved)
    operators = {operator.operator_id: operator for operator in summary.operators}
    assert list(operators) == ["numbers", "largest", "out"]
    (largest,) = operators["largest"].states
    assert (largest.name, largest.kind, largest.entries, largest.is_exact) == ("reduce", "keyed", KEYS, True)
    assert (operators["largest"].parallelism, operators["largest"].max_parallelism) == (2, 16)
    (splits,) = operators["numbers"].states
    assert (splits.name, splits.kind, splits.entries) == ("splits", "split_distribute", 2)
    assert all(text.startswith("IndexRange(") for text in splits.values)
    assert summary.size == sum(operator.size for operator in summary.operators) > 0
    assert summary.files == sum(operator.files for operator in summary.operators)
    assert summary.files == len(places(saved).list("")) - 1


def test_checkpoint_of_a_backend_on_disk_is_told_and_its_number_of_entries_is_an_estimate(
    places: MemoryPlaces,
) -> None:
    env = StreamEnvironment("count", parallelism=2, max_parallelism=16)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT))
    counts = numbers.key_by(lambda i: i % KEYS).reduce("largest", max)
    counts.sink("out", CollectSink(InMemoryCollector()))
    config = JobConfig(
        checkpointing=Checkpointing(every=1),
        advanced=AdvancedConfig(buffer_rows=5),
        state_backend=RocksDB(8 * 1024 * 1024),
    )
    storage = MemoryStorage()
    job = ScriptedJob(build_execution_graph(env.build()), config, storage, 1, open_location=places)
    job.run(100)
    job.complete_checkpoint()
    taken = job.newest
    assert taken is not None
    codec = ValueCodec(allow_pickle=False, classes=[IndexRange])
    summary = inspect_snapshot(taken, lambda handle: read_state(storage, handle), codec)
    operators = {operator.operator_id: operator for operator in summary.operators}
    (largest,) = operators["largest"].states
    assert (largest.name, largest.kind, largest.is_exact) == (
        "(in the files of RocksDB)",
        "keyed",
        False,
    )
    assert largest.entries >= 1
    assert operators["largest"].size > 0
    assert operators["numbers"].states[0].is_exact


def test_what_can_not_be_decoded_here_is_said_to_be_so(saved: str, places: MemoryPlaces) -> None:
    class Nothing(ValueCodec):
        def loads(self, data: bytes) -> object:
            return ValueCodec(allow_pickle=False).loads(b"\xc7\x01\x7f\x00")

    summary = inspected(places, saved, Nothing(allow_pickle=False))
    operators = {operator.operator_id: operator for operator in summary.operators}
    (largest,) = operators["largest"].states
    assert largest.entries >= KEYS
    assert not largest.is_exact
    assert all("this program does not know" in text for text in operators["numbers"].states[0].values)


def test_what_each_subtask_measured_is_told_when_the_snapshot_has_it(
    saved: str, places: MemoryPlaces
) -> None:
    measured = {SubtaskId("largest", n): CheckpointMetrics(alignment_duration=n + 0.5) for n in (0, 1)}
    statistics = CompletedCheckpointStatistics.of(3, 2, 1, 0.25, measured)
    taken = replace(open_snapshot(saved, places).checkpoint, statistics=statistics)
    summary = inspect_snapshot(taken, lambda handle: read_state(places(saved), handle), ValueCodec())
    assert summary.by_subtask == measured
    rows = summary.to_dict()["by_subtask"]
    assert [(row["subtask"], row["alignment_duration"]) for row in rows] == [(0, 0.5), (1, 1.5)]
    without = replace(taken, statistics=None)
    summary = inspect_snapshot(without, lambda handle: read_state(places(saved), handle), ValueCodec())
    assert summary.to_dict()["by_subtask"] == []


def test_raw_state_is_counted_and_not_looked_into() -> None:
    storage, subtasks = MemoryStorage(), {}
    states = [RawState([b"a", b"b"], {0: b"of 0", 3: b"of 3"}), RawState([b"c"], {4: b"of 4"})]
    for index, raw in enumerate(states):
        parts = {"index": OperatorSnapshot(raw=raw)}
        files = StateFiles(storage, lambda: "never needed: it is small")
        written = SubtaskSnapshotTask(3, parts, {}, lambda _, files=files: files).run()  # type: ignore[misc]
        subtasks[index] = written.operators["index"]
    operators = {"index": OperatorState("index", 2, 8, subtasks)}
    checkpoint = CompletedCheckpoint(3, 1, SnapshotKind.CHECKPOINT, operators, 0.0, 1.0)

    def read(handle: StateHandle) -> bytes:
        raise AssertionError(f"{handle} was read")

    (index_state,) = inspect_snapshot(checkpoint, read, ValueCodec(allow_pickle=False)).operators
    assert index_state.states == (StateSummary("(raw)", "keyed", 3), StateSummary("(raw)", "list", 3))
    assert index_state.size == state_size(operators) > 0
    assert index_state.coordinator is None
