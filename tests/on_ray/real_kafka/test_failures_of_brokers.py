"""Jobs on Apache Kafka whose brokers and connections fail: committed reads see each count exactly once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs.driving import (
    after_checkpoints,
    eventually,
    failure_of,
    kill_subtask,
    penstock_actors,
    when_records_flow,
)
from jobs.faults import DeadlySink
from jobs.kafka_words import KafkaWords, message, restarted, vertices
from serving.kafka import Broker, kafka_cluster
from serving.kafka_log import ended_transactions
from serving.kafka_proxy import Api, KafkaProxy, kafka_proxy
from serving.kafka_topics import read, read_with_java

from penstock.actors.shared.registry import NAMESPACE
from penstock.cluster import RayJobHandle
from penstock.connectors import Sink
from penstock.kafka import KafkaSink
from penstock.runtime.io.connectors.kafka.transaction_requests import list_transactions

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.kafka]


@pytest.fixture(scope="module")
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    with kafka_proxy(broker) as started:
        yield started


@pytest.fixture
def words(broker: Broker, tmp_path: Path) -> KafkaWords:
    return KafkaWords(broker, tmp_path)


@pytest.fixture
def proxied(broker: Broker) -> str:
    """The address of the broker behind the proxy."""
    return str(broker.client("PROXIED")["bootstrap.servers"])


@pytest.mark.long
def test_connections_that_are_cut_in_the_middle_of_a_request_cost_no_record(
    words: KafkaWords, proxy: KafkaProxy, proxied: str
) -> None:
    words.write(500)
    job = words.submit(bootstrap=proxied)
    after_checkpoints(job, 1)
    for api in (Api.PRODUCE, Api.FETCH, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN, Api.INIT_PRODUCER_ID):
        for within in ("request", "answer"):
            cut = proxy.cut(api, within)
            words.write(200)
            cut.wait()
    words.assert_each_count_once(job)
    assert job.statistics().attempt == 1
    job.cancel()


def test_a_subtask_that_dies_between_flush_and_commit_costs_no_record(
    words: KafkaWords,
    broker: Broker,
    proxy: KafkaProxy,
    proxied: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Before the checkpoint is complete, and when it is complete and the commit does not come through.

    If long, Kafka's own tools see the same records, and the end of each transaction.
    """

    def deadly(sink: KafkaSink[Any]) -> Sink[Any]:
        return DeadlySink(sink, "after prepare", str(tmp_path / "killed"), str(tmp_path / "armed"), True)

    words.write(500)
    job = words.submit(bootstrap=proxied, wrapped=deadly)
    after_checkpoints(job, 1)
    (tmp_path / "armed").touch()
    words.write(200)
    restarted(job, 1)
    assert (tmp_path / "killed").exists()
    with proxy.holding(Api.END_TXN) as held:
        words.write(200)
        held.wait()
        kill_subtask(job, sinking(job))
        restarted(job, 2)
    words.assert_each_count_once(job)
    job.cancel()
    if not request.config.getoption("--run-long"):
        return  # each tool is a JVM

    seen = read_with_java(broker.bootstrap, words.counts, tmp_path)
    assert seen == read(broker.client(), words.counts)
    expected = {message(*pair) for pair in words.pairs(words.written)}
    assert {replace(record, partition=None, offset=None) for record in seen} == expected
    assert len(seen) == len(expected)
    ended = ended_transactions(broker.log.parent / "data", words.counts)
    assert sum(each.records for each in ended if each.end == "COMMIT") == len(expected)
    assert sum(each.records for each in ended if each.end == "ABORT") > 0


@pytest.mark.long
def test_the_only_broker_is_killed_and_away_for_longer_than_the_timeout_of_checkpoints(
    words: KafkaWords, broker: Broker, proxy: KafkaProxy, proxied: str
) -> None:
    words.write(500)
    job = words.submit(bootstrap=proxied, checkpointing={"timeout": 1})
    after_checkpoints(job, 1)
    with proxy.holding(Api.PRODUCE) as held:
        words.write(500)
        held.wait()
        broker.kill()
    restarted(job, 1)
    broker.start()
    words.write(500)
    words.assert_each_count_once(job)
    assert job.statistics().failed_checkpoints > 2
    job.cancel()


def test_a_transaction_that_runs_into_its_timeout_fails_the_job_and_names_its_records(
    words: KafkaWords, broker: Broker, proxy: KafkaProxy, proxied: str
) -> None:
    job = words.submit(bootstrap=proxied, sink={"transaction_timeout": 2}, checkpointing={"timeout": 1})
    after_checkpoints(job, 1)
    with proxy.holding(Api.END_TXN) as held:
        words.write(4)
        held.wait()
        eventually("a transaction that the broker aborts", lambda: aborted(broker, job) != [])
    what = failure_of(job)
    lost = re.search(r"transaction '(\S+)' of \d records, flushed at 20.*its records are lost", what)
    assert lost, what
    assert lost[1] in aborted(broker, job)
    assert "set allow_missing=True" in what


def test_added_partitions_rescales_and_a_stop_with_a_savepoint_cost_no_record(
    words: KafkaWords, tmp_path: Path
) -> None:
    words.write(500)
    found_soon: dict[str, Any] = {"source": {"discover_every": 0.1}}
    job = words.submit(**found_soon)
    after_checkpoints(job, 1)
    words.add_partitions(6)
    words.write(600)
    job.rescale(words=3, counts=1)
    words.write(600)
    job.rescale(words=1, counts=3)
    words.write(600)
    words.assert_each_count_once(job)
    words.write(600)
    savepoint = job.stop(tmp_path / "saved")
    words.write(600)
    again = words.submit(savepoint, **found_soon)
    words.assert_each_count_once(again)
    again.cancel()


@pytest.mark.long
def test_a_start_from_an_older_savepoint_repeats_what_came_later_and_loses_nothing(
    words: KafkaWords, proxy: KafkaProxy, proxied: str, tmp_path: Path
) -> None:
    """The savepoint has flushed transactions. Their ids were used again since; the last one is left open."""
    settings: dict[str, Any] = {"bootstrap": proxied, "sink": {"transactional_id_prefix": words.counts}}
    words.write(500)
    first = words.submit(run="first", checkpointing={"every": 100}, **settings)
    when_records_flow(first, "counts", 500)
    savepoint = first.savepoint(tmp_path / "saved")
    in_savepoint = words.pairs(words.written)
    for total in range(700, 1500, 200):
        words.write(200)
        when_records_flow(first, "counts", total)
        first.checkpoint()
    words.assert_each_count_once(first, "first")
    committed = words.counts_of("first")
    with proxy.holding(Api.END_TXN) as held:
        words.write(200)
        when_records_flow(first, "counts", 1500)
        first.checkpoint()
        held.wait()
        kill_all()

    second = words.submit(savepoint, run="second", **settings)
    repeated = words.pairs(words.written) - in_savepoint
    assert words.read(len(repeated), second, "second") == Counter(dict.fromkeys(repeated, 1))
    assert words.counts_of("first") == committed
    second.cancel()


@pytest.mark.long
def test_records_that_were_deleted_while_the_job_was_away_fail_it_unless_they_may_be_lost(
    words: KafkaWords, tmp_path: Path
) -> None:
    words.write(400)
    job = words.submit()
    words.assert_each_count_once(job)
    savepoint = job.stop(tmp_path / "saved")
    lost = words.write(200)
    words.delete_before(150)
    what = failure_of(words.submit(savepoint))
    assert re.search(rf"partition \d of topic '{words.words}' has no record at the offset", what), what
    assert "set offset_reset='earliest' or offset_reset='latest'" in what

    left = words.write(200)
    again = words.submit(savepoint, run="again", source={"offset_reset": "earliest"})
    before = words.written - lost - left
    expected = words.pairs(before + left) - words.pairs(before)
    assert words.read(200, again, "again") == Counter(dict.fromkeys(expected, 1))
    again.cancel()


@pytest.mark.long
def test_a_job_continues_without_one_of_three_brokers(tmp_path: Path) -> None:
    """The one that leads a partition of the output, and then the one that leads it since."""
    with kafka_cluster(tmp_path / "kafka") as cluster:
        words = KafkaWords(cluster, tmp_path)
        words.write(500)
        job = words.submit()
        after_checkpoints(job, 1)
        first = cluster.leader(words.counts)
        first.kill()
        words.write(500)
        words.assert_each_count_once(job)
        cluster.start()
        second = cluster.leader(words.counts)
        second.kill()
        words.write(500)
        words.assert_each_count_once(job)
        job.cancel()


def aborted(broker: Broker, job: RayJobHandle) -> list[str]:
    listed = list_transactions(broker.client(), states=["CompleteAbort"])
    return [each.transactional_id for each in listed if job.job_id in each.transactional_id]


def sinking(job: RayJobHandle) -> str:
    return next(vertex for vertex in vertices(job) if "counts" in vertex)


def kill_all() -> None:
    """Kill the JobMaster and all subtasks; nothing starts them again."""
    for actor in penstock_actors():
        ray.kill(ray.get_actor(actor["name"], namespace=NAMESPACE), no_restart=True)
    eventually("the end of all actors", lambda: not penstock_actors())
