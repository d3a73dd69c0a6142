"""The completed store under any order of completions, failures and running checkpoints."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["trigger", "complete", "complete", "abort"]), st.integers(0, 5), st.integers(0, 7)
    ),
    max_size=60,
)


def completed(checkpoint_id: int, files: frozenset[str], kind: SnapshotKind) -> CompletedCheckpoint:
    handles = tuple(FileHandle(path, 1, "") for path in sorted(files))
    state = OperatorSubtaskState((KeyedStateHandle(KeyGroupRange(0, 127), handles),))
    return CompletedCheckpoint(
        checkpoint_id, 1, kind, {"count": OperatorState("count", 1, 128, {0: state})}, 0.0, 0.0
    )


@given(STEPS, st.integers(1, 3))
def test_no_file_goes_that_somebody_names_or_may_name_and_none_goes_twice_or_stays(
    steps: list[tuple[str, int, int]], retained: int
) -> None:
    store = CompletedCheckpointStore(retained)
    running: dict[int, tuple[int, frozenset[str]]] = {}
    written: set[str] = set()
    deleted: set[str] = set()
    saved: set[str] = set()
    for number, (step, choice, bits) in enumerate(steps):
        free: tuple[FileHandle, ...] = ()
        if step == "trigger":
            base = store.latest_checkpoint
            names = sorted(handle.path for handle in base.files()) if base else []
            taken = frozenset(name for index, name in enumerate(names) if bits >> index % 3 & 1)
            running[number] = (-1 if base is None else base.checkpoint_id, taken | {f"f{number}"})
            continue
        if not running:
            continue
        chosen = sorted(running)[choice % len(running)]
        _, files = running.pop(chosen)
        bases = [base for base, _ in running.values() if base >= 0]
        oldest = min(bases) if bases else None
        if step == "complete":
            kind = SnapshotKind.SAVEPOINT if bits == 7 else SnapshotKind.CHECKPOINT
            saved |= files if kind.is_savepoint else set()
            written |= files
            free = store.add(completed(chosen, files, kind), oldest_pending_base=oldest)
        else:
            handles = [FileHandle(path, 1, "") for path in files]
            assert {handle.path for handle in store.unreferenced(handles)} == {f"f{chosen}"}
            free = store.release(oldest)
        going = [handle.path for handle in free]
        assert len(set(going)) == len(going)
        assert deleted.isdisjoint(going)
        deleted.update(going)
        assert deleted.isdisjoint(handle.path for c in store.all for handle in c.files())
        assert all(deleted.isdisjoint(files) for _, files in running.values())
        assert deleted.isdisjoint(saved)
    deleted.update(handle.path for handle in store.release())
    assert written - deleted == saved | {handle.path for c in store.all for handle in c.files()}
