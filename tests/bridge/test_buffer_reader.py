"""A reader continues when Ray could not reach its receive buffer for a moment, and gives no row twice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from buffer_frames import closed, frame
from unsteady import DEAD, Unsteady

from penstock.actors.shared import actor_calls
from penstock.bridge import spark_source
from penstock.bridge.frame_store import FrameStore
from penstock.bridge.push_partition import encoded
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import Chunk
from penstock.bridge.spark_source import BufferReader, BufferSplit
from penstock.runtime.errors import LostInputError
from penstock.runtime.execution.deadlines import Pauses

ROWS = 3


class Held:
    """The calls that a reader makes of the actor around a receive buffer."""

    def __init__(self, buffer: ReceiveBuffer) -> None:
        self.buffer = buffer

    def attach(self, instance: str, epoch: int | None) -> str:
        return "instance"

    def read(self, position: int, epoch: int, max_bytes: int, patience: float) -> Chunk:
        return self.buffer.read(position, 1)  # a frame at a time

    def emitted(self, epoch: int) -> None:
        self.buffer.epochs.emitted = epoch

    def confirm(self, position: int, epoch: int) -> None:
        self.buffer.confirm(position, epoch)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look makes a call again."""
    monkeypatch.setattr(actor_calls, "BETWEEN_CALLS", Pauses(0.0))


@pytest.fixture
def buffer(files: FrameStore) -> ReceiveBuffer:
    """Holds a micro-batch of three frames."""
    opened = ReceiveBuffer(0, files, staged=True)
    opened.begin(0, "run")
    for number in range(ROWS):
        batch = pa.record_batch({"n": [number]})
        opened.push(frame(0, number, encoded([batch]).to_pybytes()))
    assert closed(opened, 0, "run", {0: (ROWS, ROWS)}) is None
    return opened


def opened(handle: Any) -> BufferReader:
    reader = BufferReader(handle, BufferSplit(0, 1), staged=True)
    reader.wait_until_there()
    return reader


def rows_of(reader: BufferReader, count: int, polls: int) -> list[int]:
    rows: list[int] = []
    for _ in range(polls):
        batch = reader.next_batch(100)
        if batch is not None:
            rows += batch["n"].to_pylist()
        if len(rows) == count:
            return rows
        reader.report_emitted()
    raise AssertionError(f"only {rows} after {polls} polls")


@pytest.mark.parametrize("arrives", [False, True])
def test_lost_reads_and_a_lost_attach_call_are_repeated(buffer: ReceiveBuffer, arrives: bool) -> None:
    handle = Unsteady(Held(buffer), {"attach": 1, "read": 2}, arrives=arrives)
    assert rows_of(opened(handle), ROWS, polls=20) == list(range(ROWS))


def test_a_lost_report_that_a_micro_batch_is_emitted_is_repeated(buffer: ReceiveBuffer) -> None:
    handle = Unsteady(Held(buffer), {"emitted": 2})
    reader = opened(handle)
    assert rows_of(reader, ROWS, polls=10) == list(range(ROWS))
    for _ in range(10):
        reader.report_emitted()
    assert buffer.epochs.emitted >= 0
    assert handle.calls.count(("emitted", 0)) == 3, "and then no more"


def test_a_buffer_that_is_dead_or_stays_away_loses_the_input(
    buffer: ReceiveBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = opened(Unsteady(Held(buffer), {"read": 1}, error=DEAD))
    with pytest.raises(LostInputError, match=r"the rows between Spark and the job died"):
        reader.next_batch(1)
    monkeypatch.setattr(spark_source, "_AWAY", 0.0)
    reader = opened(Unsteady(Held(buffer), {"read": 1}))
    with pytest.raises(LostInputError, match=r"Ray could not reach the process .* start the job again"):
        reader.next_batch(1)
