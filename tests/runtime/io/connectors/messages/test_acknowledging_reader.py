"""The common reader and fetcher, with a receiver that counts, and remembers what is acknowledged."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from polling import eventually

from penstock.operators import RowBatch
from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.messages.fetcher import Inbox, MessageFetcher
from penstock.runtime.io.connectors.messages.reader import AcknowledgingReader
from penstock.runtime.operators.source import Polled


@dataclass(frozen=True)
class Numbers:
    name: str
    next: int = 0

    def moved_to(self, position: int) -> Numbers:
        return replace(self, next=position)

    def lag(self, end: int) -> int:
        return end - self.next


class Counting:
    """Receives the numbers from 0; the broker is away after some of them, for good or once.

    Attributes:
        acknowledged: Numbers that were acknowledged, in order.
    """

    where = "the counter"
    transient: tuple[type[BaseException], ...] = (OSError,)

    def __init__(self, away_after: int | None = None, *, comes_back: bool = False) -> None:
        self.acknowledged: list[int] = []
        self.is_closed = False
        self._away_after = away_after
        self._comes_back = comes_back
        self._next = 0

    async def receive(self, inbox: Inbox) -> None:
        while True:
            if self._next == self._away_after:
                if self._comes_back:
                    self._away_after = None
                raise ConnectionResetError("password=open-sesame")
            number = self._next
            await inbox.put(Polled(RowBatch([number])), number + 1, [number])
            self._next += 1

    async def acknowledge(self, tokens: Sequence[int]) -> None:
        await asyncio.sleep(0.01)  # an answer takes its time
        self.acknowledged += tokens

    async def close(self) -> None:
        self.is_closed = True


class Ending(Counting):
    """Has an end that grows; the broker does not answer the first request for it."""

    end = 0

    async def find_end(self) -> int:
        self.end += 10
        if self.end == 10:
            raise ConnectionResetError
        return self.end


def reader_of(*receivers: Counting) -> AcknowledgingReader[int]:
    named = {f"r{index}": receiver for index, receiver in enumerate(receivers)}
    return AcknowledgingReader([Numbers(name) for name in named], MessageFetcher(dict(named), 0.2))


def polled(reader: AcknowledgingReader[int], count: int) -> list[Any]:
    found: list[Any] = []

    def are_enough() -> bool:
        taken = reader.poll(1)
        found.extend(() if taken.batch is None else [(taken.split, row) for row in taken.batch.rows])
        return len(found) == count

    eventually(are_enough, f"{count} come")
    return found


def taken(reader: AcknowledgingReader[int], checkpoint: int) -> list[int]:
    positions = [split.next for split in reader.snapshot()]
    reader.snapshot_taken(checkpoint)
    return positions


def test_only_what_the_completed_checkpoint_and_earlier_ones_cover_is_acknowledged() -> None:
    receiver = Counting()
    reader = reader_of(receiver)
    for checkpoint in (1, 2, 3):  # the first one is aborted
        polled(reader, 2)
        assert taken(reader, checkpoint) == [2 * checkpoint]
    reader.notify_checkpoint_complete(2)
    reader.close()
    assert receiver.acknowledged == [0, 1, 2, 3]
    assert receiver.is_closed


def test_each_split_has_its_position_and_a_paused_one_gives_nothing() -> None:
    first, second = Counting(), Counting()
    reader = reader_of(first, second)
    reader.pause_splits({"r1"})
    assert polled(reader, 6) == [("r0", number) for number in range(6)]
    reader.pause_splits(set())
    assert ("r1", 0) in polled(reader, 6)
    taken(reader, 1)
    reader.notify_checkpoint_complete(1)
    reader.close()
    assert len(first.acknowledged) + len(second.acknowledged) == 12


def test_a_receiver_that_is_slowly_read_receives_no_more() -> None:
    receiver = Counting()
    reader = reader_of(receiver)
    polled(reader, 1)
    eventually(lambda: receiver._next == 5, "the inbox is full")
    assert polled(reader, 1) == [("r0", 1)]
    eventually(lambda: receiver._next == 6, "there is room for one more")
    reader.close()


def test_a_receiver_continues_when_its_broker_comes_back() -> None:
    reader = reader_of(Counting(away_after=3, comes_back=True))
    assert polled(reader, 6) == [("r0", number) for number in range(6)]
    reader.close()


def test_all_that_came_before_a_failure_is_given_out_and_then_the_failure() -> None:
    reader = reader_of(Counting(away_after=3))
    polled(reader, 3)
    with pytest.raises(ConnectorError, match=r"the counter gave no answer for 0\.2 s: password=\*\*\*"):
        polled(reader, 1)
    reader.close()


def test_a_split_that_fails_is_not_hidden_by_a_busy_one() -> None:
    reader = reader_of(Counting(away_after=0), Counting())
    with pytest.raises(ConnectorError, match="the counter gave no answer"):
        polled(reader, sys.maxsize)
    reader.close()


def test_a_split_that_fails_is_not_hidden_by_a_paused_one_that_waits_for_it() -> None:
    reader = reader_of(Counting(away_after=0), Counting())
    reader.pause_splits({"r1"})
    with pytest.raises(ConnectorError, match="the counter gave no answer"):
        polled(reader, 1)
    reader.close()


@pytest.mark.usefixtures("quick_looks")
def test_the_lag_is_found_again_while_no_record_is_taken_and_after_a_request_without_an_answer() -> None:
    reader = reader_of(Ending(), Ending())
    polled(reader, 2)
    for least in (10, 50, 90):
        lag = eventually(
            lambda least=least: (found := reader.lag()) and (found.records or 0) > least and found,
            f"more than {least} are left",
        )
        assert [split.split for split in lag.by_split] == ["r0", "r1"]
        assert lag.records % 10 == 8
    reader.close()


class Falling(Ending):
    """Its end is found once, and then no more."""

    async def find_end(self) -> int:
        self.end += 10
        if self.end > 10:
            raise ConnectionResetError
        return self.end


@pytest.mark.usefixtures("quick_looks")
def test_a_lag_is_unknown_after_a_request_without_an_answer() -> None:
    falling = Falling()
    reader = reader_of(falling)
    eventually(lambda: falling.end > 20, "two requests had no answer")
    assert reader.lag() is None
    reader.close()


@pytest.mark.usefixtures("quick_looks")
def test_the_lag_is_unknown_if_that_of_one_split_is() -> None:
    ending = Ending()
    reader = reader_of(ending, Counting())
    eventually(lambda: ending.end > 20, "its end is known")
    assert reader.lag() is None
    reader.close()
