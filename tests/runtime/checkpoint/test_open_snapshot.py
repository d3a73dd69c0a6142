"""Snapshots that a user names, and that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.checkpoint.coordinator.completion import complete_elsewhere
from penstock.runtime.checkpoint.recovery import LAST_ID, open_snapshot
from penstock.runtime.errors import RestoreError, StorageError
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint


def saved(folder: Path, checkpoint_id: int) -> str:
    """A savepoint of this number in a folder of its own."""
    taken = CompletedCheckpoint(checkpoint_id, 1, SnapshotKind.SAVEPOINT, {}, 0.0, 1.0)
    complete_elsewhere(open_location(str(folder), create=True), taken)
    return str(folder)


def test_a_snapshot_whose_number_leaves_none_for_a_jobs_own_checkpoints_is_refused(tmp_path: Path) -> None:
    assert open_snapshot(saved(tmp_path / "last", LAST_ID), open_location).checkpoint.checkpoint_id == LAST_ID
    for too_far in (LAST_ID + 1, (1 << 62) - 1):
        url = saved(tmp_path / str(too_far), too_far)
        with pytest.raises(RestoreError, match=f"{url}/metadata has the id {too_far}"):
            open_snapshot(url, open_location)


def test_a_savepoint_is_found_through_a_link_that_the_user_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(saved(tmp_path / "saved", 3))
    assert open_snapshot(str(tmp_path / "link"), open_location).checkpoint.checkpoint_id == 3


def test_metadata_that_is_a_link_is_not_read_and_its_target_not_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("topsecret-password")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "metadata").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match=r"can't read .*symbolic link") as caught:
        open_snapshot(str(tmp_path / "saved"), open_location)
    assert "topsecret" not in str(caught.value)
