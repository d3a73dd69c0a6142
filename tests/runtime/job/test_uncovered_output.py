"""The output of a failed or cancelled job: all that a snapshot covers, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from memory_storages import MemoryPlaces

from penstock import DiscardSink, FileSink, StreamEnvironment
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.io.connectors.files.file_sink_writer import PendingFile
from penstock.runtime.job.end_of_job import UncoveredOutput
from penstock.runtime.operators.sinks import COMMITTABLES, SinkContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import RowBatch, SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import encode_atoms
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock

PLACES = MemoryPlaces()


def output(folder: Path) -> UncoveredOutput:
    env = StreamEnvironment("job")
    numbers = env.from_collection("numbers", [1])
    numbers.sink("out", FileSink.json(folder))
    numbers.sink("nowhere", DiscardSink())
    return UncoveredOutput("job-1", env.build(), ValueCodec(), MemoryStorage(), PLACES)


def pre_committed(
    folder: Path, *, subtask: int = 0, attempt: int = 1, job: str = "job-1"
) -> Sequence[PendingFile]:
    """The committables of one writer."""
    context = ConnectorContext(job, "job", "out", subtask, 2, attempt, ManualClock())
    writer = FileSink.json(folder).writer(context)
    writer.write(RowBatch([1]))
    pending = writer.prepare_commit()
    writer.write(RowBatch([2]))  # its process dies now
    return pending


def state_of(committables: Sequence[PendingFile]) -> InlineHandle:
    codec = ValueCodec()
    return InlineHandle(encode_atoms([codec.dumps((7, each)) for each in committables]))


def snapshot(
    handle: StateHandle, *, location: str | None = None, operator: str = "out"
) -> CompletedCheckpoint:
    part = OperatorSubtaskState(
        operator=(OperatorStateHandle(COMMITTABLES, RedistributionMode.SPLIT_DISTRIBUTE, handle, 1),)
    )
    operators = {operator: OperatorState(operator, 2, 128, {1: part})}
    return CompletedCheckpoint(7, 1, SnapshotKind.CHECKPOINT, operators, 0.0, 1.0, location=location)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_what_the_newest_snapshot_covers_stays_and_the_rest_goes(tmp_path: Path) -> None:
    """Of all subtasks and attempts, with the files that dead processes had open; other jobs' files stay."""
    covered = pre_committed(tmp_path, attempt=2)
    pre_committed(tmp_path, subtask=1, attempt=2)
    pre_committed(tmp_path)
    before = names(tmp_path)
    pre_committed(tmp_path, job="job-12")
    others = names(tmp_path) - before
    (tmp_path / "part-job-1-out-0-1-9.jsonl").touch()

    output(tmp_path).remove(snapshot(state_of(covered)))

    assert names(tmp_path) == {covered[0].name, "part-job-1-out-0-1-9.jsonl", *others}


def test_without_a_snapshot_nothing_is_covered(tmp_path: Path) -> None:
    pre_committed(tmp_path)
    output(tmp_path).remove(None)
    assert names(tmp_path) == set()


def test_nothing_is_removed_when_the_snapshot_can_not_be_read(tmp_path: Path) -> None:
    pre_committed(tmp_path)
    before = names(tmp_path)
    lost = FileHandle("job-1/shared/1-7-out-1-0", 10, "0" * 32)
    with pytest.raises(CorruptSnapshotError, match="is not there"):
        output(tmp_path).remove(snapshot(lost))
    with pytest.raises(StorageError, match="/moved"):
        output(tmp_path).remove(snapshot(state_of([]), location="/moved"))
    assert names(tmp_path) == before


class OutputWithCommitter:
    """A sink whose only committer commits for all writers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Sequence[Any]]] = []

    def writer(self, context: SinkContext) -> Any:
        raise NotImplementedError

    def committer(self, context: SinkContext) -> Any:
        raise NotImplementedError

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        self.asked.append((job_id, operator_id, covered))


def test_what_a_committer_covers_for_all_writers_stays(tmp_path: Path) -> None:
    sink = OutputWithCommitter()
    env = StreamEnvironment("job")
    env.from_collection("numbers", [1]).sink("out", sink)
    pending = pre_committed(tmp_path)
    removal = UncoveredOutput("job-1", env.build(), ValueCodec(), MemoryStorage(), PLACES)
    removal.remove(snapshot(state_of(pending), operator="out-committer"))
    assert sink.asked == [("job-1", "out", list(pending))]


def test_only_sinks_that_clean_up_are_asked() -> None:
    env = StreamEnvironment("job")
    env.from_collection("numbers", [1]).sink("nowhere", DiscardSink())
    assert not UncoveredOutput("job-1", env.build(), ValueCodec(), MemoryStorage(), None).is_known
