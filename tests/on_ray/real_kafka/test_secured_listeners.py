"""Jobs use the listeners of Apache Kafka with passwords, tokens and TLS, and show no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from jobs.driving import failure_of, finish, submit
from serving.client import Client
from serving.in_thread import served
from serving.kafka import Broker
from serving.kafka_security import Listener, unsigned_token
from serving.kafka_topics import Record, create_topic, produce, read

from penstock import Checkpointing, JobConfig, NoRestart, StreamEnvironment
from penstock.actors.web.server import JobDirectory
from penstock.cluster import RayJobHandle
from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.kafka]

LISTENERS: Final[tuple[Listener, ...]] = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")


def properties(broker: Broker, listener: Listener) -> tuple[str, dict[str, Any]]:
    settings: dict[str, Any] = dict(broker.client(listener))
    return settings.pop("bootstrap.servers"), settings


def with_tokens(broker: Broker, token: str) -> tuple[str, dict[str, Any]]:
    """TLS and OAUTHBEARER, with this token each time."""
    address, settings = properties(broker, "SASL_SSL")
    del settings["sasl.username"], settings["sasl.password"]
    expires = unsigned_token("alice")[1]
    return address, settings | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda config: (token, expires)}


def environment(folder: Path) -> StreamEnvironment:
    checkpointing = Checkpointing(every=0.3, storage=str(folder), keep_after="always")
    config = JobConfig(checkpointing=checkpointing, restart=NoRestart())
    return StreamEnvironment("secure", parallelism=1, config=config)


def copy(env: StreamEnvironment, address: str, name: str, properties: Mapping[str, Any]) -> list[Any]:
    """Add a source and a sink that copy a topic to the job, and return both."""
    end = OffsetsInitializer.latest()
    source: KafkaSource[Any] = KafkaSource(
        address, f"in-{name}", bounded=end, group_id="copies", properties=properties
    )
    sink: KafkaSink[Any] = KafkaSink(address, f"out-{name}", properties=properties)
    env.from_source(f"in-{name}", source).sink(f"out-{name}", sink)
    return [source, sink]


def test_a_job_reads_and_writes_through_each_listener_and_shows_no_secret(
    broker: Broker, password: str, tmp_path: Path
) -> None:
    token, _ = unsigned_token("alice")
    secured = {listener.lower().replace("_", "-"): properties(broker, listener) for listener in LISTENERS}
    secured["tokens"] = with_tokens(broker, token)
    env = environment(tmp_path)
    shown: list[Any] = []
    for name, (address, settings) in secured.items():
        for topic in (f"in-{name}", f"out-{name}"):
            create_topic(broker.client(), topic)
        produce(broker.client(), f"in-{name}", [Record(b"%d" % number) for number in range(100)])
        shown += copy(env, address, name, settings)
    job = submit(env)
    finish(job)
    for name in secured:
        values = [record.value for record in read(broker.client(), f"out-{name}")]
        assert values == [b"%d" % number for number in range(100)], name
    assert_hidden([password, token], job, tmp_path, *map(repr, shown), env.describe())


@pytest.mark.long
def test_a_wrong_password_fails_the_job_with_the_reason_and_without_the_password(
    broker: Broker, tmp_path: Path
) -> None:
    address, settings = properties(broker, "SASL_PLAINTEXT")
    env = environment(tmp_path)
    copy(env, address, "nothing", settings | {"sasl.password": "Tr0ub4dor&3"})
    job = submit(env)
    what = failure_of(job)
    assert "Authentication failed" in what
    assert "the topics can't be listed: Kafka at" in what
    assert_hidden(["Tr0ub4dor&3"], job, tmp_path, what)


def assert_hidden(secrets: list[str], job: RayJobHandle, storage: Path, *texts: str) -> None:
    """Check that no text, report, log, REST answer or file of the job contains a secret."""
    report = job.report()
    shown = {
        "texts": "\n".join(texts),
        "report": repr(report) + json.dumps(report.to_dict()),
        "log": "\n".join(map(repr, job.logs())),
        "description": job.describe(),
    }
    with served(JobDirectory(str(storage)), token="t" * 32) as server:
        client = Client(server.address, "t" * 32)
        for path in ("", "/checkpoints", "/log?text=", "/state"):
            answer = client.get(f"/v1/jobs/{job.job_id}{path}")
            assert answer.status == 200, (path, answer.body)
            shown[f"REST {path}"] = answer.body.decode()
    files = {str(file): file.read_bytes().decode("latin-1") for file in storage.rglob("*") if file.is_file()}
    assert any(name.endswith("status.json") for name in files), "the archived report"
    places = shown | files
    found = [(secret, place) for secret in secrets for place, text in places.items() if secret in text]
    assert found == []
