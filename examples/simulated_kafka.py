"""A Kafka job under simulated failures, first with an at-least-once sink, then with an exactly-once sink."""

from __future__ import annotations

import logging
import sys

from penstock import Checkpointing, StreamEnvironment
from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.testing import KafkaWorld, SimulationReport, simulate

LINES = ("to be or not", "to be", "that is the", "question")


def build(servers: str, *, is_exact: bool) -> StreamEnvironment:
    """Build the job; in production `servers` are those of a real cluster."""
    env = StreamEnvironment("words", parallelism=2, checkpointing=Checkpointing(every=10))
    lines = env.from_source("lines", KafkaSource(servers, "lines", bounded=OffsetsInitializer.latest()))
    words = lines.flat_map(lambda line: line.split())
    guarantee = "exactly_once" if is_exact else "at_least_once"
    words.sink("out", KafkaSink(servers, "words", key=lambda word: word, delivery_guarantee=guarantee))
    return env


def check(seeds: int, *, is_exact: bool) -> SimulationReport:
    """Simulate the job once for each seed below `seeds`, on a model of a Kafka cluster."""
    kafka = KafkaWorld({"lines": 2, "words": 2})
    kafka.put("lines", LINES)
    return simulate(
        lambda world: build(world.bootstrap_servers, is_exact=is_exact),
        world=kafka,
        output=lambda world: world.values("words"),
        faults=["kafka_broker_crashes", "kafka_coordinator_moves", "kafka_expired_transactions"],
        seeds=range(seeds),
        check=False,
    )


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the failures that the job survives
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for is_exact in (False, True):
        report = check(seeds, is_exact=is_exact)
        name = "exactly once" if is_exact else "at least once"
        print(f"{name}: {'passed' if report.passed else 'FAILED'}\n{report}\n")
