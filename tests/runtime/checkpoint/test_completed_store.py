from __future__ import annotations

import pytest

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore, SharedFiles
from penstock.runtime.checkpoint.log.records import CheckpointCompleted, LogView
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import ConfigurationError, CorruptSnapshotError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)


def checkpoint(
    checkpoint_id: int, *files: str, kind: SnapshotKind = SnapshotKind.CHECKPOINT
) -> CompletedCheckpoint:
    handles = tuple(FileHandle(path, 10, "") for path in files)
    keyed = KeyedStateHandle(KeyGroupRange(0, 127), handles)
    state = OperatorState("count", 1, 128, {0: OperatorSubtaskState((keyed,))})
    metadata = FileHandle(f"m{checkpoint_id}", 1, "")
    return CompletedCheckpoint(checkpoint_id, 1, kind, {"count": state}, 0.0, 0.0, metadata, 10 * len(files))


def savepoint(checkpoint_id: int, *files: str) -> CompletedCheckpoint:
    return checkpoint(checkpoint_id, *files, kind=SnapshotKind.SAVEPOINT)


def ids(store: CompletedCheckpointStore) -> list[int]:
    return [c.checkpoint_id for c in store.all]


def paths(handles: tuple[FileHandle, ...]) -> list[str]:
    return [handle.path for handle in handles]


def test_a_file_that_a_newer_checkpoint_names_stays() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1, "a", "b"))
    assert paths(store.add(checkpoint(2, "b", "c"))) == ["a", "m1"]
    assert paths(store.add(checkpoint(3, "c"))) == ["b", "m2"]


def test_files_are_held_while_a_checkpoint_runs_that_builds_on_them() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1, "a"))
    assert store.add(checkpoint(2, "b"), oldest_pending_base=1) == ()
    assert store.add(checkpoint(4, "d"), oldest_pending_base=1) == ()
    assert paths(store.add(checkpoint(3, "a", "c"), oldest_pending_base=2)) == ["m1"]
    assert ids(store) == [4]
    assert paths(store.release()) == ["b", "m2", "a", "c", "m3"]
    assert store.release() == ()


def test_files_that_a_running_checkpoint_has_taken_over_stay_when_it_completes() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1, "a", "b"))
    store.add(checkpoint(2, "c"), oldest_pending_base=1)
    assert paths(store.add(checkpoint(3, "b", "d"))) == ["a", "m1", "c", "m2"]


def test_files_are_given_back_when_the_running_checkpoint_is_given_up() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1, "a"))
    store.add(checkpoint(2, "b"), oldest_pending_base=1)
    assert paths(store.release()) == ["a", "m1"]


def test_only_new_files_of_an_abandoned_checkpoint_may_go() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1, "a"))
    store.add(checkpoint(2, "b"), oldest_pending_base=1)
    new = FileHandle("new", 1, "")
    assert store.unreferenced([FileHandle("a", 10, ""), FileHandle("b", 10, ""), new]) == (new,)


def test_savepoints_do_not_count_and_are_never_given_back() -> None:
    store = CompletedCheckpointStore(2)
    for number in (1, 2):
        store.add(checkpoint(number, f"f{number}"))
    assert store.add(savepoint(3, "f2", "s3")) == ()
    assert ids(store) == [1, 2, 3]
    assert paths(store.add(checkpoint(4, "f4"))) == ["f1", "m1"]
    assert ids(store) == [2, 3, 4]
    assert paths(store.add(checkpoint(5))) == ["m2"]
    assert ids(store) == [4, 5]
    assert store.names("f2")
    assert store.names("s3")


def test_a_savepoint_is_restored_from_but_not_built_upon() -> None:
    store = CompletedCheckpointStore()
    point, save = checkpoint(1), savepoint(2)
    store.add(save)
    assert store.latest_checkpoint is None
    store.add(point)
    assert store.latest == save
    assert store.latest_checkpoint == point


def test_a_late_savepoint_does_not_displace_a_newer_checkpoint() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(2, "b"))
    assert store.add(savepoint(1, "s")) == ()
    assert ids(store) == [2]


def test_flink_1_11_counts_savepoints_and_takes_the_order_of_completion() -> None:
    store = CompletedCheckpointStore(semantics=Semantics.flink_1_11())
    store.add(checkpoint(2, "b"))
    assert paths(store.add(savepoint(1, "s"))) == ["b", "m2"]
    assert ids(store) == [1]


def test_files_of_others_are_never_given_back() -> None:
    store = CompletedCheckpointStore(may_delete=lambda handle: not handle.path.startswith("other"))
    store.add(checkpoint(1, "other/a", "b"))
    assert paths(store.add(checkpoint(2))) == ["b", "m1"]
    assert store.unreferenced([FileHandle("other/c", 1, "")]) == ()


@pytest.mark.parametrize(
    ("state", "kept_by"),
    [
        ("finished", {KeepAfter.ALWAYS}),
        ("failed", {KeepAfter.ALWAYS, KeepAfter.FAILURE, KeepAfter.FAILURE_OR_CANCELLATION}),
        ("cancelled", {KeepAfter.ALWAYS, KeepAfter.FAILURE_OR_CANCELLATION}),
        ("suspended", {KeepAfter.ALWAYS, KeepAfter.FAILURE_OR_CANCELLATION}),
    ],
)
def test_what_stays_after_the_job_depends_on_its_end(state: str, kept_by: set[KeepAfter]) -> None:
    for keep_after in KeepAfter:
        store = CompletedCheckpointStore(2)
        store.add(checkpoint(1, "a"))
        store.add(checkpoint(2, "a", "b"))
        store.add(savepoint(3, "b", "s"))
        gone = [] if keep_after in kept_by else ["m1", "a", "m2"]
        assert paths(store.shutdown(state, keep_after)) == gone
        assert store.all == ()


def test_held_files_go_at_the_end_even_when_checkpoints_stay() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1, "a"))
    store.add(checkpoint(2, "b"), oldest_pending_base=1)
    assert paths(store.shutdown("failed", KeepAfter.ALWAYS)) == ["a", "m1"]


def test_an_unknown_end_is_refused() -> None:
    with pytest.raises(ValueError, match="'running' is not a final job state"):
        CompletedCheckpointStore().shutdown("running", KeepAfter.ALWAYS)


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        CompletedCheckpointStore(0)


def test_a_checkpoint_is_added_once() -> None:
    store = CompletedCheckpointStore()
    store.add(checkpoint(1))
    with pytest.raises(ValueError, match="checkpoint 1 is already in the store"):
        store.add(checkpoint(1))


def record(checkpoint_id: int) -> CheckpointCompleted:
    return CheckpointCompleted(
        checkpoint_id, 1, SnapshotKind.CHECKPOINT, FileHandle(f"m{checkpoint_id}", 1, ""), 0.0
    )


def test_the_store_is_filled_from_the_log_and_tells_what_is_damaged() -> None:
    def read(wanted: CheckpointCompleted) -> CompletedCheckpoint:
        if wanted.checkpoint_id == 2:
            raise CorruptSnapshotError("damaged")
        return checkpoint(wanted.checkpoint_id, "a", f"f{wanted.checkpoint_id}")

    store = CompletedCheckpointStore(2)
    view = LogView(completed=(record(1), record(2), record(3)))
    assert store.recover(view, read) == (record(2),)
    assert ids(store) == [1, 3]
    assert paths(store.add(checkpoint(4))) == ["f1", "m1"]


def test_a_file_nobody_named_can_not_be_released() -> None:
    with pytest.raises(KeyError):
        SharedFiles().release([FileHandle("a", 1, "")])


def test_a_file_named_twice_by_one_checkpoint_is_counted_once() -> None:
    files, a = SharedFiles(), FileHandle("a", 1, "")
    files.retain([a, a])
    assert files.release([a, a]) == [a]
    assert "a" not in files
    assert len(files) == 0
