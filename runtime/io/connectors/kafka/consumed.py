"""Sorts the messages of one poll by partition, and keeps the cycle collector away from them.

A topic may have hundreds of thousands of messages a second, so little here runs per message in Python. Each
message is an object that the collector would look at several times while a batch is made. That costs more
than anything else: 1.4 of 2.9 microseconds a message. Messages are in no cycles, and a batch drops them
within a second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.io.connectors.kafka.partitions import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no cycles in this process until the block ends; collection that was off stays off."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def errors_in(messages: Sequence[Message]) -> bool:
    """Whether one of the messages stands for an error or for the end of a partition.

    Example:
        >>> errors_in([])
        False
    """
    from confluent_kafka import Message

    return any(map(Message.error, messages))


def by_partition(messages: Sequence[Message], topic: str | None) -> dict[TopicPartition, list[Message]]:
    """Sort messages without errors by their partitions; each partition's stay in order.

    Args:
        topic: The topic of all messages; `None` if they may have several.
    """
    from confluent_kafka import Message

    sorted_: dict[TopicPartition, list[Message]] = {}
    if topic is None:
        for place, message in zip(
            zip(map(Message.topic, messages), map(Message.partition, messages), strict=True),
            messages,
            strict=True,
        ):
            sorted_.setdefault(place, []).append(message)  # type: ignore[arg-type]
        return sorted_
    # Messages come in long runs of one partition: an answer of the broker has many of each.
    numbers = np.fromiter(map(Message.partition, messages), np.int32, len(messages))
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(messages)]
    for start, end in pairwise(starts):
        sorted_.setdefault((topic, int(numbers[start])), []).extend(messages[start:end])
    return sorted_
