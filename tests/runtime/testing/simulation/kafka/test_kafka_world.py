"""A job from topic to topic under simulated failures, also of Kafka, and planted bugs of the connector."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from deep import DEEP

from penstock import Checkpointing, ConfigurationError, StreamEnvironment
from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.runtime.io.connectors.kafka import transaction_requests, transactions, writers
from penstock.runtime.io.connectors.kafka.reader import KafkaReader
from penstock.runtime.io.connectors.kafka.sink import KafkaSink as Sink
from penstock.runtime.io.connectors.kafka.transactions import TransactionalIds
from penstock.runtime.io.connectors.kafka.writers import ExactlyOnceWriter
from penstock.runtime.testing.simulation.run.user_run import FAILED_BY_LOSS
from penstock.testing import KafkaWorld, SimulationReport, simulate

LINES = ("to be or not", "to be", "that is the", "question or be") * 2
FAULTS = tuple(KafkaWorld.faults)


def counted_words(kafka: KafkaWorld) -> StreamEnvironment:
    env = StreamEnvironment("words", parallelism=2, checkpointing=Checkpointing(every=10))
    source = KafkaSource(
        kafka.bootstrap_servers, "lines", bounded=OffsetsInitializer.latest(), group_id="words"
    )
    words = env.from_source("lines", source).flat_map(lambda line: [(word, 1) for word in line.split()])
    counts = words.key_by(lambda pair: pair[0]).reduce("counts", lambda a, b: (a[0], a[1] + b[1]))
    counts.sink("out", KafkaSink(kafka.bootstrap_servers, "counts", key=lambda pair: pair[0]))
    return env


def counts(kafka: KafkaWorld) -> list[tuple[str, int]]:
    return [(word, count) for word, count in kafka.values("counts")]


def world() -> KafkaWorld:
    kafka = KafkaWorld({"lines": 3, "counts": 2}, brokers=3)
    kafka.put("lines", LINES)
    return kafka


def simulated(seeds: Iterable[int], *faults: str, interleavings: int = 3) -> SimulationReport:
    return simulate(
        counted_words,
        world=world(),
        output=counts,
        seeds=seeds,
        faults=faults,
        interleavings=interleavings,
        check=False,
    )


def test_each_count_is_committed_once_whatever_fails() -> None:
    report = simulated(range(6 * DEEP), *FAULTS)
    assert report.passed, str(report)
    assert {"call refused", "kafka_broker_crashes", "kafka_coordinator_moves"} <= set(report.failures)


@pytest.mark.simulation
def test_each_count_is_committed_once_under_dozens_of_seeds() -> None:
    report = simulated(range(100, 140 if DEEP == 1 else 200), *FAULTS, "zombies")
    assert report.passed, str(report)
    assert set(FAULTS) <= set(report.failures)


@pytest.mark.simulation
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_count_is_committed_once_under_a_thousand_seeds() -> None:
    for faults in ((), (*FAULTS, "zombies", "network_cuts", "clock_jumps", "frozen_processes")):
        report = simulated(range(1000), *faults)
        assert report.passed, str(report)


def test_a_job_may_fail_because_of_a_loss_that_its_error_names() -> None:
    report = simulated((49, 61, 86), "kafka_expired_records", interleavings=1)
    assert report.passed, str(report)
    assert report.failures[FAILED_BY_LOSS] > 0


def test_the_output_is_what_the_input_says() -> None:
    found: list[list[tuple[str, int]]] = []

    def output(kafka: KafkaWorld) -> list[tuple[str, int]]:
        found.append(counts(kafka))
        return found[-1]

    simulate(counted_words, world=world(), output=output, seeds=range(1), interleavings=1)
    words = Counter(" ".join(LINES).split())
    assert Counter(found[0]) == Counter({(word, n): 1 for word in words for n in range(1, words[word] + 1)})


def test_each_count_is_committed_once_while_leaders_move() -> None:
    report = simulated(range(300, 300 + 3 * DEEP), "kafka_leader_moves", interleavings=1)
    assert report.passed, str(report)
    assert report.failures["kafka_leader_moves"] > 0


# -- planted bugs -----------------------------------------------------------------------------------------


def commit_with_a_stale_epoch(patch: pytest.MonkeyPatch) -> None:
    """Of an id that is used again, the committable has the epoch of the transaction before."""
    begin = writers._Transaction.begin

    def begun(self: writers._Transaction) -> None:
        begin(self)
        self.epoch = max(0, self.epoch - 1)

    patch.setattr(writers._Transaction, "begin", begun)


def use_ids_of_the_restored_checkpoint_again(patch: pytest.MonkeyPatch) -> None:
    """FLINK-40703: the first producer of an attempt aborts what the checkpoint has flushed with its id."""
    make = TransactionalIds.make
    patch.setattr(
        TransactionalIds, "make", lambda self, attempt, subtask, number: make(self, 1, subtask, number)
    )


def abort_no_superseded_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ExactlyOnceWriter, "remove_leftovers", lambda self, permit: None)
    patch.setattr(Sink, "remove_uncovered", lambda self, job_id, operator_id, covered: None)


def snapshot_what_is_fetched_and_not_polled(patch: pytest.MonkeyPatch) -> None:
    """The position of a partition is that of the fetcher, which is ahead of the task."""

    def snapshot(self: KafkaReader[Any]) -> Any:
        splits = dict(self._splits)
        for fetched in self._fetcher._ready:
            if fetched.partition in splits:
                split = splits[fetched.partition]
                splits[fetched.partition] = replace(split, next_offset=fetched.next_offset)
        return list(splits.values())

    patch.setattr(KafkaReader, "snapshot", snapshot)


def ignore_expired_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transactions, "_report_lost", lambda committable, fate, allow_missing: None)


def take_a_moving_coordinator_for_an_answer(patch: pytest.MonkeyPatch) -> None:
    raise_for = transaction_requests._raise_for
    patch.setattr(transaction_requests, "_raise_for", lambda code: raise_for(code if code > 16 else 0))


def commit_without_a_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writers._Sender, "flush", lambda self: None)


def commit_before_the_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    prepare = ExactlyOnceWriter.prepare_commit

    def prepared(self: ExactlyOnceWriter) -> Any:
        committables = prepare(self)
        transactions.commit_transactions(self._cluster, committables, allow_missing=True)
        return committables

    patch.setattr(ExactlyOnceWriter, "prepare_commit", prepared)


#: A seed of each bug that finds it, and the faults that it needs.
@pytest.mark.parametrize(
    ("plant", "seed", "faults"),
    [
        (commit_with_a_stale_epoch, 0, ()),
        (use_ids_of_the_restored_checkpoint_again, 0, ()),
        (abort_no_superseded_transaction, 9, ()),
        (snapshot_what_is_fetched_and_not_polled, 0, ()),
        (ignore_expired_transactions, 14, ("kafka_expired_transactions",)),
        (take_a_moving_coordinator_for_an_answer, 14, ("kafka_coordinator_moves",)),
        (commit_without_a_flush, 0, ()),
        (commit_before_the_checkpoint_is_complete, 10, ()),
    ],
)
def test_a_planted_bug_of_the_connector_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    seed: int,
    faults: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    report = simulated(range(seed, seed + 40), *faults, interleavings=2)
    assert report.failed is not None
    assert report.failed.is_repeatable


# -- the world --------------------------------------------------------------------------------------------


def test_a_topic_that_is_misspelt_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="no topic 'line'; did you mean 'lines'"):
        world().put("line", ["a"])
    with pytest.raises(ConfigurationError, match="give it at least 1"):
        KafkaWorld({"lines": 0})
    with pytest.raises(ConfigurationError, match="brokers=0 is not allowed"):
        KafkaWorld({"lines": 1}, brokers=0)


def test_the_name_is_there_without_the_client_of_kafka() -> None:
    program = "import sys; from penstock.testing import KafkaWorld; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
