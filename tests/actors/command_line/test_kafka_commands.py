"""`penstock kafka` against a broker: lag behind a snapshot; transactions listed, committed, aborted."""

from __future__ import annotations

import io
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from serving.kafka import Broker, kafka_broker, light_broker
from serving.kafka_topics import Record, create_topic, produce, read, send

from penstock.actors.command_line.app import main
from penstock.connectors import SinkContext
from penstock.kafka import KafkaSink
from penstock.operators import RowBatch
from penstock.runtime.errors import LostOutputError
from penstock.runtime.io.connectors.kafka.partitions import KafkaPartitionSplit
from penstock.runtime.io.storage import open_storage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, permit_of_ended_input
from penstock.runtime.snapshot.handles import (
    InlineHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.runtime.snapshot.metadata import encode_atoms, encode_metadata
from penstock.runtime.snapshot.paths import METADATA
from penstock.testing import ManualClock


@pytest.fixture(
    scope="module",
    params=["light", pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.timeout(300)])],
)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    make = light_broker if request.param == "light" else kafka_broker
    with make(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    create_topic(broker.client(), name)
    return name


class Run:
    """Runs commands in this process, with the broker's address in the environment."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *words: str, code: int = 0, answer: str = "") -> str:
        """Return the output of a command that ends with a code; of one that fails the message."""
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        self._monkeypatch.setattr(sys, "argv", ["penstock", "kafka", *words])
        ended: Any = 0
        try:
            main()
        except SystemExit as end:
            ended = end.code or 0
        out, err = self._capsys.readouterr()
        assert ended == code, (out, err)
        return out if code == 0 else err

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap)
    return Run(capsys, monkeypatch)


def snapshot(folder: Path, operator: str, name: str, values: Sequence[Any]) -> str:
    """A savepoint with one list of one operator; returns its URL."""
    codec = ValueCodec()
    atoms = encode_atoms([codec.dumps(value) for value in values])
    listed = OperatorStateHandle(name, RedistributionMode.SPLIT_DISTRIBUTE, InlineHandle(atoms), len(values))
    state = OperatorState(operator, 1, 128, {0: OperatorSubtaskState(operator=(listed,))})
    place = folder / f"savepoint-{operator}"
    saved = CompletedCheckpoint(7, 1, SnapshotKind.SAVEPOINT, {operator: state}, 1.0, 2.0)
    open_storage(str(place)).put(METADATA, encode_metadata(saved, METADATA), create=True)
    return str(place)


class Sink:
    """A writer of an exactly-once sink whose job has died."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.job = f"words-{uuid.uuid4().hex[:8]}"
        context = SinkContext(self.job, "words", "out", 0, 1, 3, ManualClock())
        self._writer: Any = KafkaSink(broker.bootstrap, topic).writer(context)

    def flushed(self, value: str) -> Any:
        self._writer.write(RowBatch([value]))
        (committable,) = self._writer.prepare_commit()
        return committable


@pytest.fixture
def sink(broker: Broker, topic: str) -> Iterator[Sink]:
    sink = Sink(broker, topic)
    yield sink
    sink._writer.close()


@pytest.fixture
def seen(broker: Broker, topic: str) -> Callable[[], list[Any]]:
    return lambda: [json.loads(record.value or b"") for record in read(broker.client(), topic)]


# -- lag --------------------------------------------------------------------------------------------------


def test_the_lag_is_what_stands_behind_the_positions_of_a_snapshot(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    produce(broker.client(), topic, [Record(b"1")] * 5)
    place = snapshot(tmp_path, "orders", "splits", [KafkaPartitionSplit(topic, 0, 2)])
    found = run.json("lag", "--from", place)
    assert (found["checkpoint_id"], found["lag"]) == (7, 3)
    (partition,) = found["partitions"]
    expected = {"operator_id": "orders", "topic": topic, "partition": 0, "position": 2, "end": 5, "lag": 3}
    assert partition == {**expected, "held_back": 0}
    shown = run("lag", "--from", place)
    assert topic in shown
    assert "lag: 3 records behind savepoint 7" in shown


def test_records_that_open_transactions_hold_back_are_counted(
    run: Run, broker: Broker, topic: str, sink: Sink, tmp_path: Path
) -> None:
    produce(broker.client(), topic, [Record(b"1")])
    sink.flushed("hidden")
    produce(broker.client(), topic, [Record(b"2")])
    place = snapshot(tmp_path, "orders", "splits", [KafkaPartitionSplit(topic, 0, 0)])
    (partition,) = run.json("lag", "--from", place)["partitions"]
    assert (partition["end"], partition["lag"], partition["held_back"]) == (3, 3, 2)
    assert "wait for open transactions" in run("lag", "--from", place)


def test_a_source_in_a_hybrid_source_and_a_stop_are_understood(
    run: Run, broker: Broker, topic: str, tmp_path: Path
) -> None:
    produce(broker.client(), topic, [Record(b"1")] * 5)
    place = snapshot(tmp_path, "orders", "splits", [(1, None, KafkaPartitionSplit(topic, 0, 1, 4))])
    (partition,) = run.json("lag", "--from", place)["partitions"]
    assert (partition["position"], partition["end"], partition["lag"]) == (1, 4, 3)


def test_a_snapshot_without_positions_and_missing_arguments_are_refused(run: Run, tmp_path: Path) -> None:
    place = snapshot(tmp_path, "orders", "splits", ["a file"])
    assert "has no position of a KafkaSource" in run("lag", "--from", place, code=1)
    assert "give either a JOB or --from SNAPSHOT" in run("lag", code=1)
    assert "give either a JOB or --from SNAPSHOT" in run("lag", "words", "--from", place, code=1)


# -- transactions -----------------------------------------------------------------------------------------


def test_open_transactions_are_listed_with_the_subtask_that_began_them(
    run: Run, topic: str, sink: Sink
) -> None:
    flushed = sink.flushed("hidden")
    (found,) = run.json("transactions", "list", "--prefix", f"penstock:{sink.job}")
    assert found["age"] >= 0
    expected = {
        "transactional_id": flushed.transactional_id,
        "state": "Ongoing",
        "producer_id": flushed.producer_id,
        "epoch": flushed.epoch,
        "timeout": 900.0,
        "partitions": [[topic, 0]],
        "prefix": "penstock",
        "job_id": sink.job,
        "operator_id": "out",
        "attempt": 3,
        "subtask": 0,
    }
    assert {name: found[name] for name in expected} == expected
    shown = run("transactions", "list")
    assert flushed.transactional_id in shown
    assert f"{topic}[0]" in shown
    assert run("transactions", "list", "--prefix", "no such id") == "no open transactions\n"


def test_a_commit_from_a_snapshot_commits_what_it_covers_and_nothing_else(
    run: Run, topic: str, sink: Sink, seen: Callable[[], list[Any]], tmp_path: Path
) -> None:
    covered, later = sink.flushed("covered"), sink.flushed("later")
    place = snapshot(tmp_path, "out", "committables", [(6, covered)])
    assert run("transactions", "commit", "--from", place) == f"committed {covered.transactional_id}\n"
    assert seen() == ["covered"]
    again = run("transactions", "commit", covered.transactional_id, "--from", place)
    assert again == f"committed before {covered.transactional_id}\n"
    left = run.json("transactions", "list", "--prefix", f"penstock:{sink.job}")
    assert [each["transactional_id"] for each in left] == [later.transactional_id]
    refused = run("transactions", "commit", later.transactional_id, "--from", place, code=1)
    assert f"does not cover a transaction '{later.transactional_id}'" in refused
    ended = run.json("transactions", "list", "--all", "--prefix", covered.transactional_id)
    assert [each["state"] for each in ended] == ["CompleteCommit"]


def test_an_abort_asks_first(run: Run, sink: Sink, seen: Callable[[], list[Any]]) -> None:
    name = sink.flushed("lost").transactional_id
    for answer in ("n\n", ""):
        run("transactions", "abort", name, "--force", code=1, answer=answer)
        assert run.json("transactions", "list", "--prefix", name)
    asked = run("transactions", "abort", name, "--force", answer="y\n")
    assert "Abort these transactions? Their records are lost" in asked
    assert asked.endswith(f"aborted {name}\n")
    assert seen() == []
    assert run.json("transactions", "list", "--prefix", name) == []
    refused = run("transactions", "abort", name, "--force", "--yes", code=1)
    assert f"'{name}' has no open transaction: its state is" in refused


def test_several_transactions_are_aborted_by_one_command(
    run: Run, sink: Sink, seen: Callable[[], list[Any]]
) -> None:
    names = [sink.flushed(value).transactional_id for value in ("a", "b", "c")]
    said = run("transactions", "abort", *names, names[0], "--force", "--yes")
    assert said.splitlines() == [f"aborted {name}" for name in names]
    assert seen() == []


@pytest.mark.parametrize("broker", [pytest.param("real", marks=pytest.mark.kafka)], indirect=True)
def test_a_covered_transaction_that_was_aborted_by_hand_is_lost_loudly(
    run: Run, topic: str, broker: Broker, sink: Sink, tmp_path: Path
) -> None:
    """The light broker raises the epoch in another way, as if the id had been used again."""
    flushed = sink.flushed("lost")
    run("transactions", "abort", flushed.transactional_id, "--force", "--yes")
    place = snapshot(tmp_path, "out", "committables", [(6, flushed)])
    refused = run("transactions", "commit", "--from", place, code=1)
    assert (
        "1 of 1 transaction(s) could not be committed: it was aborted, at its timeout or by hand" in refused
    )
    context = SinkContext("another-1f", "words", "out", 0, 1, 1, ManualClock())
    restored: Any = KafkaSink(broker.bootstrap, topic).writer(context)
    with pytest.raises(LostOutputError, match="its records are lost"):
        restored.commit([flushed], permit_of_ended_input(1))
    restored.close()


def test_a_commit_by_numbers_takes_those_of_the_open_transaction_only(
    run: Run, sink: Sink, seen: Callable[[], list[Any]]
) -> None:
    flushed = sink.flushed("by hand")
    name, producer, epoch = flushed.transactional_id, flushed.producer_id, flushed.epoch
    numbers = ("--producer-id", str(producer), "--epoch")
    wrong = run("transactions", "commit", name, *numbers, str(epoch + 1), "--force", code=1)
    assert f"has producer id {producer} and epoch {epoch} now (Ongoing)" in wrong
    assert seen() == []
    assert run("transactions", "commit", name, *numbers, str(epoch), "--force") == f"committed {name}\n"
    assert seen() == ["by hand"]
    assert "give --from SNAPSHOT, or one ID with" in run("transactions", "commit", name, code=1)


def test_an_unknown_id_is_refused_with_the_nearest_one(run: Run, sink: Sink) -> None:
    name = sink.flushed("1").transactional_id
    refused = run("transactions", "abort", f"{name}7", "--force", "--yes", code=1)
    assert "does not know the transactional id" in refused
    assert f"did you mean '{name}" in refused


def test_ids_of_other_programs_are_listed_without_a_job(run: Run, broker: Broker, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({**broker.client(), "transactional.id": f"other-{topic}"})
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, [Record(b"1")])
    (found,) = run.json("transactions", "list", "--prefix", f"other-{topic}")
    assert (found["state"], found["job_id"]) == ("Ongoing", None)
    producer.abort_transaction()


# -- settings ---------------------------------------------------------------------------------------------


def test_settings_come_from_a_file_and_are_never_printed(
    run: Run, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS")
    file = tmp_path / "client.properties"
    file.write_text(f"# of the team\n\nbootstrap.servers = {broker.bootstrap}\nclient.id=tools\n")
    assert run("transactions", "list", "--prefix", "no", "--config", str(file)) == "no open transactions\n"
    assert "no brokers: give --bootstrap-servers" in run("transactions", "list", code=1)
    file.write_text("bootstrap.servers=127.0.0.1:1\nsasl.password hunter2-of-the-team\n")
    said = run("transactions", "list", "--config", str(file), code=1)
    assert "line 2 is not of the form name=value" in said
    file.write_text("bootstrap.servers=127.0.0.1:1\nsecurity.protocol=ssl\nssl.cipher.suites=hunter2\n")
    said += run("transactions", "list", "--config", str(file), code=1)
    assert "'ssl.cipher.suites' can't be used for requests about transactions" in said
    said += run("transactions", "list", "--config", str(tmp_path / "none"), code=1)
    assert "No such file" in said
    assert "hunter2" not in said


def test_a_cluster_that_does_not_answer_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.io.connectors.kafka.tools._TIMEOUT", 0.2)
    said = run("transactions", "list", "--bootstrap-servers", "127.0.0.1:1", code=1)
    assert "transactions could not be listed at 127.0.0.1:1" in said
    assert len(said.splitlines()) == 1
