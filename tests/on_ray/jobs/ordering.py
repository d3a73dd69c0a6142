"""Numbered records of very different sizes, and an operator that checks their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock import KeyedProcessFunction, RuntimeContext, ValueState

#: Lane, number in the lane, payload.
Record = tuple[int, int, bytes]
Key = tuple[int, int]

#: From ten bytes to three times the 100 kB up to which Ray sends an argument inside the call.
SIZES = (10, 10, 150_000, 100, 10, 300_000, 10, 1_000, 10, 120_000)

#: Keys of a lane; they spread over the subtasks.
KEYS = 7


def payload(lane: int, number: int, small: bool) -> bytes:
    """Bytes that follow from the record's number."""
    seed = hashlib.blake2b(f"{lane}/{number}".encode()).digest()
    size = SIZES[0] if small else SIZES[number % len(SIZES)]
    return (seed * (size // len(seed) + 1))[:size]


@dataclass(frozen=True)
class Numbered:
    """Record `index` of all lanes together; each lane is read by one subtask."""

    lanes: int
    small: bool = False

    def __call__(self, index: int) -> Record:
        lane, number = index % self.lanes, index // self.lanes
        return lane, number, payload(lane, number, self.small)


def key_of(record: Record) -> Key:
    return record[0], record[1] % KEYS


class ChecksOrder(KeyedProcessFunction[Key, Record, dict[str, Any]]):
    """Emits each record's number and what is wrong with it, as far as it sees."""

    def open(self, ctx: RuntimeContext) -> None:
        self._next: ValueState = ctx.value_state("next")
        self._last_of_channel: dict[int, int] = {}
        self._subtask = ctx.subtask

    def process(self, value: Record, ctx: RuntimeContext) -> Iterator[dict[str, Any]]:
        lane, number, data = value
        expected = self._next.value()
        if expected is None:
            expected = number % KEYS
        self._next.update(number + KEYS)
        last = self._last_of_channel.get(lane, -1)
        self._last_of_channel[lane] = number
        yield {
            "lane": lane,
            "number": number,
            "subtask": self._subtask,
            "in_order_of_key": number == expected,
            "in_order_of_channel": number > last,
            "intact": data == payload(lane, number, len(data) == SIZES[0]),
        }
