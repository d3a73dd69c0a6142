"""Program: sums by user and second in a loop over confluent-kafka's `consume()`, with orjson and a dict.

Its argument is JSON: `servers`, `settings` of the consumer, and `jobs` with a name and a number of orders.
A job reads `orders-COUNT` and writes `NAME-COUNT`. It takes no checkpoints, and writes its sums at the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Ended, busy_seconds


def run(servers: str, settings: dict[str, Any], name: str, count: int) -> Ended:
    """Read `count` orders, and write their sums."""
    topic, output = f"orders-{count}", f"{name}-{count}"
    begun, busy = time.monotonic(), busy_seconds()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": output, **settings})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    totals: defaultdict[tuple[int, str], int] = defaultdict(int)
    left, loads = count, orjson.loads
    while left:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            order = loads(message.value())
            totals[order["at"] // 1_000_000, order["user"]] += order["amount"]
        left -= len(messages)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for (second, user), total in totals.items():
        producer.produce(output, orjson.dumps({"user": user, "second": second, "total": total}), user)
        producer.poll(0)
    producer.flush()
    consumer.close()
    return Ended(name, count, time.monotonic() - begun, busy_seconds() - busy)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for job in given["jobs"]:
        run(given["servers"], given["settings"], *job).say()
