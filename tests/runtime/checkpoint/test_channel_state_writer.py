"""In-flight data becomes one file a checkpoint, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest
from manual_work import ManualAsyncRunner, TwoStepRunner

from penstock.runtime.checkpoint.channel_state_writer import (
    AsyncChannelStateWriter,
    ChannelState,
    ChannelStateAborted,
    decode_channel_state,
    encode_channel_state,
)
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.ports import AsyncRunner
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, Watermark
from penstock.runtime.snapshot.handles import ChannelStateHandle, FileHandle
from penstock.runtime.snapshot.ids import ChannelId, EdgeId, SubtaskId
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage

TO = OutputChannelSpec(SubtaskId("count", 2), 5)
INPUTS = [ChannelId(EdgeId("read", None, "map"), sender, 0) for sender in range(4)]
OUT = ChannelId(EdgeId("map", None, "count"), 0, 2)
SMALL, LARGE = Buffer(b"rows", 1), Buffer(b"x" * 20_000, 7)


class Fixture:
    def __init__(self, runner: AsyncRunner | None = None) -> None:
        self.storage = MemoryStorage()
        self.runner = ManualAsyncRunner()
        numbers = count()
        self.writer = AsyncChannelStateWriter(
            INPUTS,
            {TO: OUT},
            lambda checkpoint: StateFiles(self.storage, lambda: f"job/{checkpoint}-{next(numbers)}"),
            runner or self.runner,
        )
        self.told: list[ChannelStateHandle | BaseException | None] = []

    def ask(self, checkpoint_id: int) -> None:
        self.writer.result(checkpoint_id, self.told.append, self.told.append)

    def collect(self, checkpoint_id: int) -> None:
        self.writer.start(checkpoint_id)
        self.writer.add_input(checkpoint_id, 3, [LARGE])
        self.writer.add_output(checkpoint_id, TO, [encode_element(SMALL)])
        self.writer.add_input(checkpoint_id, 3, [Watermark(9)])

    def finish(self, checkpoint_id: int) -> None:
        self.writer.finish_input(checkpoint_id)
        self.writer.finish_output(checkpoint_id)


def test_all_channels_of_a_checkpoint_are_in_one_file_in_order() -> None:
    f = Fixture()
    f.collect(1)
    f.ask(1)
    f.finish(1)
    assert f.told == []
    f.runner.run_all()
    (handle,) = f.told
    assert isinstance(handle, ChannelStateHandle)
    assert isinstance(handle.state, FileHandle)
    assert f.storage.list("") == [handle.state.path]
    read = decode_channel_state(f.storage.get(handle.state.path), handle.state.path)
    assert read.inputs == {INPUTS[3]: [encode_element(LARGE), encode_element(Watermark(9))]}
    assert read.outputs == {OUT: [encode_element(SMALL)]}
    assert handle.elements == read.elements == 3
    assert f.writer.running == 0


def test_nothing_is_written_before_both_parts_are_complete_nor_when_nothing_was_in_flight() -> None:
    f = Fixture()
    f.writer.start(1)
    f.ask(1)
    f.writer.finish_output(1)
    assert f.runner.waiting == 0
    f.writer.finish_input(1)
    assert f.told == [None]
    assert f.runner.waiting == 0


def test_whoever_asks_late_is_told_at_once() -> None:
    f = Fixture()
    f.collect(1)
    f.finish(1)
    f.runner.run_all()
    f.ask(1)
    assert isinstance(f.told[0], ChannelStateHandle)
    f.ask(1)
    assert isinstance(f.told[1], ChannelStateAborted)


def test_abort_tells_who_waits_and_collects_nothing_more() -> None:
    f = Fixture()
    f.collect(1)
    f.ask(1)
    f.writer.abort(1)
    f.collect(1)
    f.finish(1)
    assert f.runner.waiting == 0
    assert [type(told) for told in f.told] == [ChannelStateAborted]
    f.collect(2)
    f.finish(2)
    f.ask(2)
    f.runner.run_all()
    assert isinstance(f.told[1], ChannelStateHandle)


def test_abort_before_the_start_forbids_the_start() -> None:
    f = Fixture()
    f.writer.abort(1)
    f.collect(1)
    f.ask(1)
    assert isinstance(f.told[0], ChannelStateAborted)


def test_abort_while_the_file_is_written_removes_it() -> None:
    f = Fixture()
    f.collect(1)
    f.finish(1)
    f.writer.abort(1)
    f.runner.run_all()
    assert f.storage.list("") == []


@pytest.mark.parametrize("end", ["abort", "close"])
@pytest.mark.parametrize("moment", ["not begun", "written", "told"])
def test_no_file_is_left_whenever_its_checkpoint_is_given_up(end: str, moment: str) -> None:
    background = TwoStepRunner()
    f = Fixture(background)
    f.collect(1)
    f.finish(1)
    if moment != "not begun":
        background.do(0)
        assert len(f.storage.list("")) == 1
    if moment == "told":
        background.done.pop().tell()
    f.writer.abort(1) if end == "abort" else f.writer.close()
    while background.waiting:
        background.do(0)  # the outcome is reported to no task: it may be gone
    assert f.storage.list("") == []


@pytest.mark.parametrize("is_written", [False, True])
def test_file_that_can_not_be_removed_stays_and_fails_nothing(is_written: bool) -> None:
    class Sticky(MemoryStorage):
        def delete(self, paths: Iterable[str]) -> None:
            raise StorageError("it sticks")

    f = Fixture()
    f.storage = Sticky()
    f.collect(1)
    f.finish(1)
    if is_written:
        f.runner.run_all()
    f.writer.abort(1)
    f.runner.run_all()
    assert len(f.storage.list("")) == 1
    assert f.told == []


def test_storage_that_refuses_and_takes_the_file_all_the_same_keeps_none() -> None:
    class Unsure(MemoryStorage):
        def put(self, path: str, data: bytes, *, create: bool = False) -> None:
            super().put(path, data, create=create)
            raise StorageError("no answer")

    f = Fixture()
    f.storage = Unsure()
    f.collect(1)
    f.finish(1)
    f.ask(1)
    f.runner.run_all()
    assert [str(told) for told in f.told] == ["no answer"]
    assert f.storage.list("") == []


def test_failure_to_write_is_told() -> None:
    class Full(MemoryStorage):
        def put(self, path: str, data: bytes, *, create: bool = False) -> None:
            raise StorageError("the disk is full")

    f = Fixture()
    f.storage = Full()
    f.collect(1)
    f.finish(1)
    f.runner.run_all()
    f.ask(1)
    assert [str(told) for told in f.told] == ["the disk is full"]


def test_start_again_keeps_what_was_collected() -> None:
    f = Fixture()
    f.collect(1)
    f.writer.start(1)
    f.finish(1)
    f.ask(1)
    f.runner.run_all()
    assert isinstance(f.told[0], ChannelStateHandle)
    assert f.told[0].elements == 3


@pytest.mark.parametrize("cut", [0, 5, 30, -1])
def test_damaged_file_is_refused_with_its_name(cut: int) -> None:
    data = encode_channel_state(ChannelState({OUT: [b"abc"]}))
    with pytest.raises(CorruptSnapshotError, match="job/1-0 should be the in-flight data"):
        decode_channel_state(data[:cut], "job/1-0")
