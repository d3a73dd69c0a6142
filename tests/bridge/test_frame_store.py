"""Frames lie in memory while there is room, and otherwise in files without names."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.bridge.frame_store import FrameLocation, FrameStore, NoRoomError

MEMORY, FILE_SIZE = 30, 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FrameStore]:
    opened = FrameStore(memory=10, folder=str(tmp_path))
    yield opened
    opened.close()


def test_what_fits_is_held_in_memory_and_the_rest_in_a_file_without_a_name(
    store: FrameStore, tmp_path: Path
) -> None:
    locations = [store.append(data) for data in (b"123456", b"78901", b"2345")]
    assert (store.memory_bytes, store.open_files) == (10, 1)
    assert list(tmp_path.iterdir()) == []
    assert [store.read(location) for location in locations] == [b"123456", b"78901", b"2345"]


def test_room_in_memory_is_used_again(store: FrameStore) -> None:
    first = store.append(b"1234567890")
    store.append(b"in a file")
    store.release(first)
    store.append(b"in memory")
    assert (store.memory_bytes, store.open_files) == (9, 1)


def test_nothing_is_kept_of_what_it_was_given(store: FrameStore) -> None:
    shared = bytearray(b"frame")
    location = store.append(pa.py_buffer(shared))
    shared[:] = b"other"
    assert store.read(location) == b"frame"


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can be longer than 12 bytes, so not that of pytest's output either: for one call at most."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signals = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signals)


def test_a_frame_that_could_be_written_in_part_only_leaves_nothing_behind(tmp_path: Path) -> None:
    store = FrameStore(folder=str(tmp_path))
    first = store.append(b"12345678")
    with full_disk(), pytest.raises(OSError, match="File too large"):
        store.append(b"too long")
    last = store.append(b"last")
    assert [store.read(location) for location in (first, last)] == [b"12345678", b"last"]
    store.close()


class Frames(RuleBasedStateMachine):
    """Against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.store = FrameStore(memory=MEMORY, file_size=FILE_SIZE)
        self.held: dict[FrameLocation, bytes] = {}

    @rule(data=st.binary(min_size=1, max_size=12))
    def append(self, data: bytes) -> None:
        location = self.store.append(data)
        assert location not in self.held
        self.held[location] = data

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        location = data.draw(st.sampled_from(sorted(self.held, key=lambda p: (p.file, p.offset))))
        self.store.release(location)
        del self.held[location]

    @invariant()
    def every_frame_is_read_as_it_came(self) -> None:
        assert {location: self.store.read(location) for location in self.held} == self.held

    @invariant()
    def memory_is_bounded_and_files_without_frames_go(self) -> None:
        in_memory = sum(len(data) for location, data in self.held.items() if location.file == 0)
        assert self.store.memory_bytes == in_memory <= MEMORY
        in_files = {location.file for location in self.held if location.file}
        assert self.store.open_files <= len(in_files) + 1, "the newest one may wait for frames"

    def teardown(self) -> None:
        self.store.close()
        assert (self.store.memory_bytes, self.store.open_files) == (0, 0)


TestFrames = Frames.TestCase


def test_files_hold_no_more_than_they_may_and_a_refused_frame_leaves_no_trace(tmp_path: Path) -> None:
    store = FrameStore(memory=4, folder=str(tmp_path), file_size=10, max_disk_bytes=25)
    locations = [store.append(b"1234") for _ in range(7)]
    assert (store.memory_bytes, store.disk_bytes) == (4, 24)
    with pytest.raises(NoRoomError, match=f"24 bytes in files in {tmp_path}.*max_disk_bytes=25"):
        store.append(b"1234")
    assert store.disk_bytes == 24
    for location in locations[1:4]:
        store.release(location)
    assert store.disk_bytes == 12
    assert store.read(store.append(b"again")) == b"again"
    store.close()
