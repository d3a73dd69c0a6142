"""Messages of one `consume()` are sorted by partition."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from penstock.runtime.io.connectors.kafka.consumed import PartitionRun, by_partition, errors_in


def messages(*places: tuple[str, int]) -> list[Message]:
    return [Message(topic, number, offset, value=b"v") for offset, (topic, number) in enumerate(places)]


def sorted_offsets(given: list[Message], topic: str | None) -> dict[tuple[str, int], list[int | None]]:
    return {place: [each.offset() for each in some] for place, some in by_partition(given, topic).items()}


@pytest.mark.parametrize("topic", ["a", None])
def test_the_messages_of_each_partition_stay_in_order(topic: str | None) -> None:
    given = messages(("a", 1), ("a", 1), ("a", 0), ("a", 1), ("a", 0))
    assert sorted_offsets(given, topic) == {("a", 1): [0, 1, 3], ("a", 0): [2, 4]}


def test_partitions_of_several_topics_are_kept_apart() -> None:
    given = messages(("a", 0), ("b", 0), ("a", 0))
    assert sorted_offsets(given, None) == {("a", 0): [0, 2], ("b", 0): [1]}


def test_an_error_among_the_messages_is_seen() -> None:
    end = Message("a", 0, 2, error=KafkaError(KafkaError._PARTITION_EOF))
    assert errors_in([*messages(("a", 0)), end])
    assert not errors_in(messages(("a", 0), ("a", 1)))


def at(*offsets: int) -> list[Message]:
    return [Message("a", 1, offset, value=b"%d" % offset) for offset in offsets]


def test_the_values_of_a_run_know_where_they_come_from_across_markers_and_chunks() -> None:
    run = PartitionRun(("a", 1), keeps_messages=False)
    for chunk in (at(5, 6, 7), at(9, 12), at(13)):
        run.add(chunk)
    offsets = [5, 6, 7, 9, 12, 13]
    assert run.values == [b"%d" % offset for offset in offsets]
    assert [run.origin(index) for index in range(len(offsets))] == [f"a[1]@{offset}" for offset in offsets]
    assert (run.next_offset, run.is_last, run.messages) == (14, False, [])
    with pytest.raises(IndexError):
        run.origin(len(offsets))


def test_a_run_keeps_messages_of_which_more_than_the_values_is_read() -> None:
    run = PartitionRun(("a", 1), keeps_messages=True)
    run.add(at(5))
    run.add(at(6))
    run.end(8)
    assert [each.offset() for each in run.messages] == [5, 6]
    assert (run.next_offset, run.is_last, run.values) == (8, True, [])
