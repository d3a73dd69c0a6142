"""Write the classes of a broker to a file that maps them into the memory of the next ones.

    PYTHONPATH=tests python -m brokers.make_class_archive .venv/kafka/classes.jsa

`make kafka` calls it. A broker at work loads the classes. It writes them when it stops.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from serving.kafka import kafka_broker
from serving.kafka_topics import Record, create_topic, read, send


def make(archive: Path) -> None:
    archive.unlink(missing_ok=True)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:ArchiveClassesAtExit={archive}"
    with tempfile.TemporaryDirectory() as folder, kafka_broker(Path(folder)) as broker:
        create_topic(broker.client(), "topic")
        producer = Producer({**broker.client(), "transactional.id": "id"})
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, "topic", [Record(b"value")])
        producer.commit_transaction()
        assert read(broker.client(), "topic")
        broker.stop()
    assert archive.exists(), "the JVM has written no archive"


if __name__ == "__main__":
    make(Path(sys.argv[1]))
