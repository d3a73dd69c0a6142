"""The descriptors of an attempt: splits on a fresh start, state on a restore."""

from __future__ import annotations

from operator import add
from pathlib import Path

import pytest

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError, ConnectorError, CorruptSnapshotError, OperatorError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.io.connectors.files.file_source import FileSource
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import encode_atoms, write_state_file
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.task.describe_tasks import describe_tasks
from penstock.runtime.task.descriptor import TaskDescriptor


class FailingSource(GeneratorSource[int]):
    error: Exception

    def splits(self, parallelism: int) -> list[object]:  # type: ignore[override]
        raise self.error


def graph_of(*sources: GeneratorSource[int], parallelism: int = 2) -> ExecutionGraph:
    env = StreamEnvironment("job", parallelism=parallelism)
    for index, source in enumerate(sources):
        env.from_source(f"source-{index}", source).sink(f"sink-{index}", DiscardSink(), parallelism=1)
    return build_execution_graph(env.build())


def described(
    graph: ExecutionGraph, restore: CompletedCheckpoint | None = None
) -> dict[SubtaskId, TaskDescriptor]:
    tasks = describe_tasks("job-1", 4, graph, JobConfig(), restore, MemoryStorage())
    assert {(task.job_id, task.job_name, task.attempt) for task in tasks} == {("job-1", "job", 4)}
    return {task.id: task for task in tasks}


def checkpoint_of(operator: str, *atoms: bytes) -> CompletedCheckpoint:
    handle = OperatorStateHandle(
        "splits", RedistributionMode.SPLIT_DISTRIBUTE, InlineHandle(encode_atoms(atoms)), len(atoms)
    )
    state = OperatorState(operator, 1, 128, {0: OperatorSubtaskState((), (handle,))})
    return CompletedCheckpoint(7, 3, SnapshotKind.CHECKPOINT, {operator: state}, 0.0, 1.0)


def test_fresh_splits_are_dealt_out_in_turn() -> None:
    class Five(GeneratorSource[int]):
        def splits(self, parallelism: int) -> list[str]:  # type: ignore[override]
            return list("abcde")

    tasks = described(graph_of(Five(lambda i: i)))
    assert [list(tasks[SubtaskId("source-0", i)].splits) for i in range(2)] == [["a", "c", "e"], ["b", "d"]]
    assert list(tasks[SubtaskId("sink-0", 0)].splits) == []
    assert all(task.restore is None for task in tasks.values())


def test_what_a_source_says_about_its_splits_is_a_warning_that_names_it(tmp_path: Path) -> None:
    for name in ("a.txt", "_b.txt"):
        (tmp_path / name).write_text("x\n")
    env = StreamEnvironment("job")
    env.from_source("lines", FileSource.text(tmp_path)).sink("out", DiscardSink())
    graph, warnings = build_execution_graph(env.build()), list[str]()
    describe_tasks("job-1", 1, graph, JobConfig(), None, MemoryStorage(), warn=warnings.append)
    [warning] = warnings
    assert warning.startswith(f"source 'lines': {tmp_path}: 1 file was left out")


class Refusing(DiscardSink):
    """Refuses its destination with an error, and notes the jobs that ask."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, list[str]()

    def prepare_destination(self, job_id: str) -> None:
        self.asked.append(job_id)
        if self.error is not None:
            raise self.error


def graph_into(sink: DiscardSink) -> ExecutionGraph:
    env = StreamEnvironment("job", parallelism=2)
    env.from_source("numbers", GeneratorSource(lambda i: i)).sink("out", sink)
    return build_execution_graph(env.build())


def test_sink_checks_its_destination_once_and_only_if_nothing_is_restored() -> None:
    sink = Refusing()
    graph = graph_into(sink)
    described(graph, checkpoint_of("numbers", b"1"))
    describe_tasks("job-1", 4, graph, JobConfig(), None, MemoryStorage(), is_first=False)
    assert sink.asked == []
    described(graph)
    assert sink.asked == ["job-1"], "not once for each subtask"


@pytest.mark.parametrize(
    ("error", "message"),
    [(ConnectorError("it is full"), "it is full"), (OSError("disk gone"), "prepare_destination.*disk gone")],
)
def test_sink_that_refuses_its_destination_is_named_with_its_line(error: Exception, message: str) -> None:
    with pytest.raises(OperatorError, match=rf"'out'.*test_describe_tasks.py.*{message}") as caught:
        described(graph_into(Refusing(error)))
    assert caught.value.__cause__ is error


def test_restored_source_gets_its_state_and_a_new_one_beside_it_its_splits() -> None:
    source = GeneratorSource(lambda i: i, count=4)
    tasks = described(graph_of(source, source), checkpoint_of("source-0", b"1", b"2"))
    old, new = tasks[SubtaskId("source-0", 0)], tasks[SubtaskId("source-1", 0)]
    assert old.restore is not None
    assert list(old.restore.operators["source-0"].lists["splits"]) == [b"1"]
    assert list(old.splits) == []
    assert new.restore is not None
    assert new.restore.operators == {}
    assert len(new.splits) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigurationError("no file matches"), "no file matches"),
        (OSError("disk gone"), "OSError: disk gone"),
    ],
)
def test_source_that_can_not_list_its_splits_is_named(error: Exception, message: str) -> None:
    source = FailingSource(lambda i: i)
    object.__setattr__(source, "error", error)
    with pytest.raises(OperatorError, match=f"'source-0'.*{message}"):
        described(graph_of(source))


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT])
def test_damaged_state_of_a_finished_source_is_found_at_the_restart_if_checkpoints_must_copy_it(
    kind: SnapshotKind,
) -> None:
    """Files of a savepoint are copied. Those of a checkpoint are named again by the next ones."""
    storage = MemoryStorage()
    file = write_state_file(storage, "chk-7/state", b"state")
    storage.put("chk-7/state", b"damaged")
    state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), (file,)),))
    ended = frozenset({0})
    operators = {
        "numbers": OperatorState("numbers", 1, 128, finished=ended),
        "sum": OperatorState("sum", 1, 128, {0: state}, ended),
        "out": OperatorState("out", 1, 128, finished=ended),
    }
    restore = CompletedCheckpoint(7, 3, kind, operators, 0.0, 1.0)
    env = StreamEnvironment("job", parallelism=1)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i))
    numbers.key_by(lambda n: n % 2).reduce("sum", add).sink("out", DiscardSink())
    graph = build_execution_graph(env.build())

    def describe() -> None:
        describe_tasks("job-1", 4, graph, JobConfig(), restore, storage)

    if kind is SnapshotKind.SAVEPOINT:
        with pytest.raises(CorruptSnapshotError, match="chk-7/state"):
            describe()
    else:
        describe()
