"""A source knows how far it is behind the ends of its partitions, also while nothing reads from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from topics import PATIENCE, Topic

from penstock.connectors import ConnectorContext, SinkContext, SourceLag
from penstock.operators import RowBatch
from penstock.runtime.io.connectors.kafka import fetcher
from penstock.runtime.snapshot.completed_checkpoint import permit_of_ended_input
from penstock.testing import ManualClock, SourceHarness

PERMIT = permit_of_ended_input(1)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "_LOOK_FOR_ENDS", 0.05)


def until_lag(harness: SourceHarness, is_wanted: Callable[[SourceLag], bool], *, polls: bool = True) -> Any:
    """Read until the lag is as wanted, and return it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        lag = harness.statistics().lag
        if lag is not None and is_wanted(lag):
            return lag
        assert time.monotonic() < deadline, f"the lag is {lag}"
        if polls:
            harness.poll()
        time.sleep(0.005)


def test_the_lag_of_each_partition_is_the_distance_from_its_end(topic: Topic) -> None:
    topic.put([1, 2, 3], partition=0)
    topic.put([4], partition=2)
    with SourceHarness(topic.source(bounded=None)) as harness:
        lag = until_lag(harness, lambda lag: lag.records == 4, polls=False)
        listed = [(split.split, split.records, split.position, split.end) for split in lag.by_split]
        names = [f"{topic.name}[{partition}]" for partition in range(3)]
        assert listed == [(names[0], 3, 0, 3), (names[1], 0, 0, 0), (names[2], 1, 0, 1)]
        assert (lag.splits, lag.bytes) == (3, None)
        until_lag(harness, lambda lag: lag.records == 0)


def test_the_lag_grows_while_nothing_reads(topic: Topic) -> None:
    topic.put(range(20))
    with SourceHarness(topic.source(bounded=None)) as harness:
        until_lag(harness, lambda lag: lag.records == 20, polls=False)
        topic.put(range(7))
        until_lag(harness, lambda lag: lag.records == 27, polls=False)


def test_markers_of_transactions_are_no_lag(topic: Topic) -> None:
    topic.put_in_transaction([1, 2], "commit_transaction")
    topic.put_in_transaction([3], "abort_transaction")
    with SourceHarness(topic.source(bounded=None)) as harness:
        lag = until_lag(harness, lambda lag: lag.records == 0)
        assert lag.by_split[0].end == 5


def test_records_of_an_open_transaction_are_no_lag_of_committed_reads(topic: Topic) -> None:
    topic.put([1, 2])
    producer = topic.put_in_transaction([3])
    for isolation_level, expected in (("read_committed", 2), ("read_uncommitted", 3)):
        with SourceHarness(topic.source(bounded=None, isolation_level=isolation_level)) as harness:
            until_lag(harness, lambda lag, expected=expected: lag.records == expected, polls=False)
    producer.abort_transaction(PATIENCE)


def test_a_bounded_source_has_no_lag_behind_its_stop(topic: Topic) -> None:
    topic.put([1, 2])
    source = topic.source()
    splits = source.splits(1)
    topic.put([3])
    reader = source.reader(ConnectorContext("job-1", "job", "read", 0, 1, 1, ManualClock()), splits)
    deadline = time.monotonic() + PATIENCE
    while (lag := reader.lag()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert lag.records == 2
    reader.close()


def test_the_lag_is_unknown_without_an_answer_and_records_flow(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer

    class Silent(Consumer):
        def offsets_for_times(self, *_: Any, **__: Any) -> Any:
            message = "no answer"
            raise KafkaException(message)

    monkeypatch.setattr("confluent_kafka.Consumer", Silent)
    topic.put([1, 2])
    with SourceHarness(topic.source(bounded=None)) as harness:
        read: list[Any] = []
        while len(read) < 2:
            read += harness.poll()
        assert harness.statistics().lag is None


def test_the_lag_is_unknown_when_the_last_answer_is_old(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer

    is_silent = False

    class Silent(Consumer):
        def offsets_for_times(self, *arguments: Any, **named: Any) -> Any:
            if is_silent:
                message = "no answer"
                raise KafkaException(message)
            return super().offsets_for_times(*arguments, **named)

    monkeypatch.setattr("confluent_kafka.Consumer", Silent)
    monkeypatch.setattr(fetcher, "_KNOWN_FOR", 0.5)
    topic.put([1, 2])
    with SourceHarness(topic.source(bounded=None)) as harness:
        until_lag(harness, lambda lag: lag.records == 2, polls=False)
        is_silent = True
        deadline = time.monotonic() + PATIENCE
        while harness.statistics().lag is not None:
            assert time.monotonic() < deadline, "an old end still counts"
            time.sleep(0.005)
        is_silent = False
        until_lag(harness, lambda lag: lag.records == 0)


def test_a_leader_that_does_not_answer_is_asked_for_its_end_less_often(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer

    asked: list[float] = []

    class Slow(Consumer):
        def offsets_for_times(self, *_: Any, **__: Any) -> Any:
            asked.append(time.monotonic())
            time.sleep(0.02)
            message = "no answer"
            raise KafkaException(message)

    monkeypatch.setattr("confluent_kafka.Consumer", Slow)
    with SourceHarness(topic.source(bounded=None)):
        deadline = time.monotonic() + PATIENCE
        while len(asked) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert asked[1] - asked[0] > 20 * 0.02


def test_a_source_counts_bytes_and_commits_to_its_group(topic: Topic) -> None:
    topic.put([b"12345", b"678"])
    with SourceHarness(topic.source(group_id=f"g-{topic.name}", bounded=None)) as harness:
        read: list[Any] = []
        while len(read) < 2:
            read += harness.poll()
        assert harness.statistics().counters["bytes_in"] == 8
        harness.complete_checkpoint(harness.snapshot())
        deadline = time.monotonic() + PATIENCE
        while not harness.statistics().counters["commits_succeeded"]:
            assert time.monotonic() < deadline
            harness.poll()


def test_a_sink_counts_bytes_and_its_open_transactions(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic()
    context = SinkContext(topic.name, "job", "out", 0, 1, 1, ManualClock())
    writer: Any = topic.sink().writer(context)

    def seen() -> tuple[Any, float]:
        values: Any = context.metrics.statistics()
        return values["bytes_out"], values["open_transactions"].total

    writer.write(RowBatch([10, 20]))
    assert seen() == (4, 1)
    flushed = writer.prepare_commit()
    writer.write(RowBatch([30]))
    assert seen() == (6, 2)
    writer.commit(flushed, PERMIT)
    assert seen() == (6, 1)
    writer.close()
