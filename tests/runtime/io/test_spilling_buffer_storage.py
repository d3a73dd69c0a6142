"""What comes from blocked channels is kept on disk, and nothing is left there."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.errors import StorageError
from penstock.runtime.io.spilling_buffer_storage import SpillingBufferStorage
from penstock.runtime.network.buffer_storage import StoredElement
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, EndOfPartition, Watermark


def test_elements_come_back_as_they_were_and_no_file_is_left(tmp_path: Path) -> None:
    storage = SpillingBufferStorage(tmp_path)
    stored = [
        StoredElement(3, Buffer(b"x" * 100_000, 7), 100_000),
        StoredElement(0, CheckpointBarrier(5, 1.5), 40),
        StoredElement(1, Watermark(-1), 9),
        StoredElement(0, EndOfPartition(), 1),
    ]
    for one in stored:
        storage.add(one)
    storage.roll_over()
    assert [storage.poll() for _ in range(5)] == [*stored, None]
    assert storage.is_empty
    storage.add(stored[0])
    storage.close()
    assert list(tmp_path.iterdir()) == []
    assert storage.statistics().largest_alignment == 100_050


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    storage = SpillingBufferStorage(tmp_path / "gone")
    with pytest.raises(StorageError, match=r"could not be made in .*gone"):
        storage.add(StoredElement(0, Watermark(1), 9))
