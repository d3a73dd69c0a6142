"""A reader goes on when Ray could not reach its depot for a moment, and gives no row twice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from buffer_frames import closed, frame
from unsteady import DEAD, Unsteady

from penstock.actors.shared import repeated_call
from penstock.bridge.dataframes_in import buffer_reader
from penstock.bridge.dataframes_in.buffer_reader import Share, ShareReader
from penstock.bridge.receive_buffer.frame_store import FrameStore
from penstock.bridge.receive_buffer.messages import Chunk
from penstock.bridge.receive_buffer.receive_buffer import Depot
from penstock.bridge.transfer.push_partition import encoded
from penstock.runtime.errors import LostInputError
from penstock.runtime.execution.absence import Pauses

ROWS = 3


class Held:
    """The calls that a reader makes of the actor around a depot."""

    def __init__(self, depot: Depot) -> None:
        self.depot = depot

    def hello(self, stamp: str, epoch: int | None) -> str:
        return "stamp"

    def read(self, position: int, epoch: int, max_bytes: int, patience: float) -> Chunk:
        return self.depot.read(position, 1)  # a frame at a time

    def passed(self, epoch: int) -> None:
        self.depot.epochs.passed = epoch

    def confirm(self, position: int, epoch: int) -> None:
        self.depot.confirm(position, epoch)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look makes a call again."""
    monkeypatch.setattr(repeated_call, "BETWEEN_CALLS", Pauses(0.0))


@pytest.fixture
def depot(files: FrameStore) -> Depot:
    """Holds a micro-batch of three frames."""
    opened = Depot(0, files, staged=True)
    opened.begin(0, "run")
    for number in range(ROWS):
        batch = pa.record_batch({"n": [number]})
        opened.push(frame(0, number, encoded([batch]).to_pybytes()))
    assert closed(opened, 0, "run", {0: (ROWS, ROWS)}) is None
    return opened


def opened(handle: Any) -> ShareReader:
    reader = ShareReader(handle, Share(0, 1), staged=True)
    reader.wait_until_there()
    return reader


def rows_of(reader: ShareReader, count: int, polls: int) -> list[int]:
    rows: list[int] = []
    for _ in range(polls):
        batch = reader.next_batch(100)
        if batch is not None:
            rows += batch["n"].to_pylist()
        if len(rows) == count:
            return rows
        reader.tell_passed()
    raise AssertionError(f"only {rows} after {polls} polls")


@pytest.mark.parametrize("arrives", [False, True])
def test_lost_reads_and_a_lost_greeting_are_repeated(depot: Depot, arrives: bool) -> None:
    handle = Unsteady(Held(depot), {"hello": 1, "read": 2}, arrives=arrives)
    assert rows_of(opened(handle), ROWS, polls=20) == list(range(ROWS))


def test_a_lost_word_that_a_micro_batch_is_passed_is_said_again(depot: Depot) -> None:
    handle = Unsteady(Held(depot), {"passed": 2})
    reader = opened(handle)
    assert rows_of(reader, ROWS, polls=10) == list(range(ROWS))
    for _ in range(10):
        reader.tell_passed()
    assert depot.epochs.is_passed(0)
    assert handle.calls.count(("passed", 0)) == 3, "and then no more"


def test_a_depot_that_is_dead_or_stays_away_loses_the_input(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = opened(Unsteady(Held(depot), {"read": 1}, error=DEAD))
    with pytest.raises(LostInputError, match=r"the rows between Spark and the job died"):
        reader.next_batch(1)
    monkeypatch.setattr(buffer_reader, "_AWAY", 0.0)
    reader = opened(Unsteady(Held(depot), {"read": 1}))
    with pytest.raises(LostInputError, match=r"Ray could not reach the process .* start the job again"):
        reader.next_batch(1)
