"""Jobs on Apache Kafka whose brokers and connections fail: committed reads see each count exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, failure_of, kill_subtask, wait_until
from jobs.kafka_words import KafkaWords, restarted, vertices
from serving.kafka import Broker, kafka_broker, kafka_cluster
from serving.kafka_proxy import Api, KafkaProxy, kafka_proxy

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.kafka]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka"), listeners=["PROXIED"]) as started:
        yield started


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
    job.cancel()
