"""Transactions whose producers have died: a process of its own writes, flushes and is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from serving.kafka_security import Settings


@dataclass(frozen=True)
class AbandonedTransaction:
    transactional_id: str
    producer_id: int
    epoch: int


def abandon(
    settings: Settings, transactional_id: str, topic: str, values: Sequence[str]
) -> AbandonedTransaction:
    """Write values in a transaction of a process that is then killed with SIGKILL.

    The model of a broker has clients in this process only, so there the producer is dropped.
    """
    from serving.kafka_model import (  # the process that is killed starts without it
        BOOTSTRAP,
        abandon_at_model,
    )

    if settings["bootstrap.servers"] == BOOTSTRAP:
        numbers = abandon_at_model(settings, transactional_id, topic, values)
        return AbandonedTransaction(transactional_id, *numbers)
    program = [sys.executable, "-m", "serving.kafka_abandoned"]
    arguments = [json.dumps(settings), transactional_id, topic, *values]
    folders = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*program, *arguments], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": folders}
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said, f"the producer has ended with {process.wait()}"
        numbers = json.loads(said)
    finally:
        process.kill()
        process.communicate()
    return AbandonedTransaction(transactional_id, numbers["producer_id"], numbers["producer_epoch"])


def _write(settings: Settings, transactional_id: str, topic: str, values: Sequence[str]) -> None:
    """Write and flush, print the numbers of the producer, and wait for the end."""
    numbers: dict[str, int] = {}

    def statistics(text: str) -> None:
        numbers.update(json.loads(text)["eos"])

    producer = Producer(
        {**settings, "transactional.id": transactional_id, "statistics.interval.ms": 10}, stats_cb=statistics
    )
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush()
    while numbers.get("producer_id", -1) < 0:
        producer.poll(0.1)
    print(json.dumps(numbers), flush=True)
    signal.pause()


if __name__ == "__main__":
    _write(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
