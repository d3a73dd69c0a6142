"""Elements of blocked channels are kept in memory, then in files; nothing is lost without room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.runtime.errors import StorageError
from penstock.runtime.io.scratch import open_spill_file
from penstock.runtime.network.buffer_storage import ELEMENT_OVERHEAD, BufferStorage, StoredElement
from penstock.runtime.ports import SpillFile
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, EndOfPartition, Watermark

STORED = [
    StoredElement(3, Buffer(b"x" * 100_000, 7), 100_000),
    StoredElement(0, CheckpointBarrier(5, 1.5), 40),
    StoredElement(1, Watermark(-1), 9),
    StoredElement(0, EndOfPartition(), 1),
]


class SmallDisk:
    """Files of one folder, which together hold a number of bytes.

    Attributes:
        left: Bytes for which there is room.
        open: Files that are open.
    """

    def __init__(self, folder: Path, left: int = 1_000_000) -> None:
        self._folder = folder
        self.left = left
        self.open = 0

    def __call__(self) -> SpillFile:
        self.open += 1
        return OnSmallDisk(self, open_spill_file(self._folder))


class OnSmallDisk:
    def __init__(self, disk: SmallDisk, file: SpillFile) -> None:
        self._disk = disk
        self._file = file
        self.read = file.read

    def append(self, data: bytes) -> None:
        if len(data) > self._disk.left:
            raise StorageError("no room")
        self._file.append(data)
        self._disk.left -= len(data)

    def close(self) -> None:
        self._disk.open -= 1
        self._file.close()


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path)


def numbered(number: int, size: int = 10) -> StoredElement:
    return StoredElement(0, Buffer(b"%10d" % number, 1), size)


def drained(storage: BufferStorage) -> list[StoredElement]:
    taken = []
    while not storage.is_empty:
        if (stored := storage.poll()) is not None:
            taken.append(stored)
    return taken


@pytest.mark.parametrize("memory", [0, 2 * ELEMENT_OVERHEAD, 10_000_000])
def test_elements_come_back_as_they_were_wherever_they_are_kept(disk: SmallDisk, memory: int) -> None:
    storage = BufferStorage(disk, memory)
    for stored in STORED:
        storage.add(stored)
    storage.roll_over()
    assert drained(storage) == STORED
    assert storage.statistics().largest_alignment == 100_050
    assert disk.open == 0


def test_what_exceeds_the_memory_is_spilled_and_counted(disk: SmallDisk) -> None:
    storage = BufferStorage(disk, memory_bytes=2 * (ELEMENT_OVERHEAD + 10))
    for number in range(5):
        storage.add(numbered(number))
    assert (storage.pending_bytes, storage.pending_spilled_bytes) == (50, 30)
    storage.roll_over()
    assert (storage.pending_bytes, storage.pending_spilled_bytes) == (0, 0)
    assert drained(storage) == [numbered(n) for n in range(5)]
    assert storage.statistics().spilled_bytes == 30


def test_small_element_does_not_pass_a_large_one_that_was_spilled(disk: SmallDisk) -> None:
    storage = BufferStorage(disk, memory_bytes=ELEMENT_OVERHEAD + 20)
    order = [numbered(0, 500), numbered(1, 1), numbered(2, 1)]
    for stored in order:
        storage.add(stored)
    storage.roll_over()
    assert drained(storage) == order


def test_memory_is_shared_by_all_sequences_and_given_back(disk: SmallDisk) -> None:
    storage = BufferStorage(disk, memory_bytes=ELEMENT_OVERHEAD + 10)
    storage.add(numbered(0))
    storage.roll_over()
    storage.add(numbered(1))
    assert storage.pending_spilled_bytes == 10, "the memory is used by what is being handed out"
    assert storage.poll() == numbered(0)
    storage.roll_over()
    storage.add(numbered(2))
    assert storage.pending_spilled_bytes == 0, "the memory is free again"
    assert drained(storage) == [numbered(1)]
    storage.roll_over()
    assert drained(storage) == [numbered(2)]


def test_without_room_elements_stay_in_memory_in_order_and_the_failure_is_said(disk: SmallDisk) -> None:
    storage = BufferStorage(disk)
    disk.left = 150
    failures: list[str | None] = []
    for number in range(6):
        storage.add(numbered(number))
        failures.append(storage.take_failure())
    assert failures[0] is None
    assert "no room" in [failure for failure in failures if failure]
    assert storage.take_failure() is None
    disk.left = 1_000_000
    storage.add(numbered(6))
    storage.roll_over()
    assert drained(storage) == [numbered(n) for n in range(7)]
    assert storage.statistics().spilled_bytes < 70


def test_file_that_can_not_be_made_is_no_loss(tmp_path: Path) -> None:
    storage = BufferStorage(lambda: open_spill_file(tmp_path / "gone"))
    storage.add(numbered(0))
    failure = storage.take_failure()
    assert failure is not None
    assert "gone" in failure
    storage.roll_over()
    assert drained(storage) == [numbered(0)]


@pytest.mark.parametrize("rolls", [True, False])
def test_closed_storage_has_no_open_file(disk: SmallDisk, rolls: bool) -> None:
    storage = BufferStorage(disk, memory_bytes=ELEMENT_OVERHEAD + 10)
    for number in range(3):
        storage.add(numbered(number))
    if rolls:
        storage.roll_over()
        storage.add(numbered(3))
    assert disk.open == 1 + rolls
    storage.close()
    assert disk.open == 0
    assert storage.is_empty


class Damaged:
    """A file whose bytes come back otherwise than they were written."""

    def __init__(self, damage: Callable[[bytes], bytes]) -> None:
        self._damage = damage
        self._data = b""

    def append(self, data: bytes) -> None:
        self._data += self._damage(data)

    def read(self, size: int) -> bytes:
        read, self._data = self._data[:size], self._data[size:]
        return read

    def close(self) -> None:
        """There is nothing to give back."""


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:5]], ids=["element", "header"])
def test_damaged_file_is_an_error_and_no_element(damage: Callable[[bytes], bytes]) -> None:
    storage = BufferStorage(lambda: Damaged(damage))
    storage.add(numbered(0))
    storage.roll_over()
    with pytest.raises(StorageError, match="a spilled element of a blocked channel can't be read"):
        storage.poll()


def test_counters_may_be_read_while_the_task_interrupts_and_rolls_over(disk: SmallDisk) -> None:
    meddle = [False]

    class Meddling(int):
        """A size that stands for the task's thread: adding it up begins another sequence once."""

        def __radd__(self, other: int) -> Meddling:
            meddles, meddle[0] = meddle[0], False
            if meddles:
                storage.add(numbered(9))
                storage.roll_over()
            return Meddling(int(self) + int(other))

        __add__ = __radd__

    storage = BufferStorage(disk, memory_bytes=1_000_000)
    for number in range(3):
        storage.add(numbered(number, Meddling(10)))
        storage.roll_over()
    meddle[0] = True
    assert storage.statistics().rolled_bytes == 20
    assert storage.rolled_bytes == 30
