"""Runs the sums of `kafka_orders.py` in Penstock and in other systems.

Every run reads the topic `orders-COUNT` and writes the topic `NAME-COUNT`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock import AggregateFunction, Checkpointing, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Sum
from penstock.formats import Json
from penstock.kafka import KafkaSink, KafkaSource, OffsetsInitializer
from penstock.windows import TimeWindow, TumblingEventTimeWindows

from . import environments, flink_queries, spark_queries
from .own_job import run_to_end
from .programs import Job, run
from .report import Ended

#: Seconds between two checkpoints, and between two commits of Quix.
EVERY: Final = 1.0

SCHEMA: Final = pa.schema(
    {
        "id": pa.int64(),
        "user": pa.string(),
        "amount": pa.int64(),
        "weight": pa.float64(),
        "at": pa.int64(),
        "paid": pa.bool_(),
        "note": pa.string(),
    }
)
_SECOND: Final = timedelta(seconds=1)

#: Settings of librdkafka for the loop and for Quix. By default a full queue pauses fetching for a second.
CONSUMER: Final[Mapping[str, Any]] = {
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 262_144,
    "fetch.max.bytes": 50 * 1024 * 1024,
    "max.partition.fetch.bytes": 8 * 1024 * 1024,
}
FLINK: Final = {**flink_queries.SETTINGS, "parallelism.default": "2"}
SPARK: Final = spark_queries.SETTINGS
#: Maximum orders in a micro-batch of Spark; with few orders, Spark's planning would take most of the time.
ORDERS_PER_TRIGGER: Final = 500_000


class Total(AggregateFunction[dict[str, Any], int, int]):
    """The sum of amounts."""

    def create_accumulator(self) -> int:
        """Begin at 0."""
        return 0

    def add(self, value: dict[str, Any], accumulator: int) -> int:
        """Add one order."""
        return accumulator + int(value["amount"])

    def get_result(self, accumulator: int) -> int:
        """Return the sum."""
        return accumulator


def row(user: str, window: TimeWindow, total: int) -> Iterable[dict[str, Any]]:
    """The row of a user and second."""
    yield {"user": user, "second": window.start_timestamp // 1_000_000, "total": total}


def user_of(order: dict[str, Any]) -> str:
    """The key."""
    user: str = order["user"]
    return user


def time_of(order: dict[str, Any]) -> int:
    """The time of an order, in microseconds since the epoch."""
    return int(order["at"])


@dataclass(frozen=True)
class Sums:
    """The contenders, with a broker and a folder for their state."""

    servers: str
    folder: Path

    def own(
        self,
        name: str,
        count: int,
        batch_format: Literal["rows", "arrow"],
        parallelism: int,
        guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once",
    ) -> Ended:
        """Run a job of Penstock to the end of its topic."""
        source = KafkaSource[Any](
            self.servers,
            f"orders-{count}",
            value_format=Json(SCHEMA) if batch_format == "arrow" else Json(),
            bounded=OffsetsInitializer.latest(),
            batch_format=batch_format,
        )
        sink = KafkaSink[Any](self.servers, f"{name}-{count}", key="user", delivery_guarantee=guarantee)
        return run_to_end(self.job(f"{name}-{count}", source, sink, parallelism), name, count)

    def job(
        self, name: str, source: KafkaSource[Any], sink: KafkaSink[Any], parallelism: int
    ) -> StreamEnvironment:
        """Sums by user and second."""
        storage = Checkpointing(every=EVERY, storage=str(self.folder / f"checkpoints-{name}"))
        env = StreamEnvironment(name, parallelism=parallelism, checkpointing=storage)
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
        if source.batch_format == "arrow":
            orders = env.from_source("orders", source, watermarks=strategy.with_timestamp_column("at"))
            of_columns(orders).sink("out", sink)
            return env
        orders = env.from_source("orders", source, watermarks=strategy.with_timestamp_assigner(time_of))
        windows = orders.key_by(user_of).window(TumblingEventTimeWindows(_SECOND))
        windows.aggregate("sums", Total(), row).sink("out", sink)
        return env

    def loop(self, jobs: Sequence[Job]) -> list[Ended]:
        """Run the loop over confluent-kafka's `consume()`."""
        return self._run(None, "consume_loop.py", jobs, settings=CONSUMER)

    def flink(self, jobs: Sequence[Job]) -> list[Ended]:
        """Run jobs of Flink SQL."""
        jars = list(map(str, environments.prepare_jars("flink")))
        checkpoints = {
            "execution.checkpointing.interval": f"{round(EVERY * 1000)} ms",
            "execution.checkpointing.dir": f"file://{self.folder}/flink",
        }
        return self._run("flink", "flink_kafka_job.py", jobs, settings=FLINK | checkpoints, jars=jars)

    def spark(self, jobs: Sequence[Job]) -> list[Ended]:
        """Run queries of Structured Streaming."""
        jars = list(map(str, environments.prepare_jars("spark")))
        given = {"settings": SPARK, "jars": jars, "orders_per_trigger": ORDERS_PER_TRIGGER}
        return self._run(None, "spark_kafka_job.py", jobs, **given)

    def quix(self, jobs: Sequence[Job], guarantee: Literal["exactly-once", "at-least-once"]) -> list[Ended]:
        """Run applications of Quix."""
        given = {"guarantee": guarantee, "settings": CONSUMER, "commit_interval": EVERY}
        return self._run("quix", "quix_job.py", jobs, **given)

    def _run(self, peer: str | None, program: str, jobs: Sequence[Job], **given: Any) -> list[Ended]:
        python = Path(sys.executable) if peer is None else environments.prepare(peer)
        common: Mapping[str, Any] = {"servers": self.servers, "folder": str(self.folder), "jobs": jobs}
        return run(python, program, {**common, **given})


def of_columns(orders: DataStream[Any]) -> DataStream[Any]:
    """The sums of orders in columns."""
    windows = orders.key_by("user").window(TumblingEventTimeWindows(_SECOND))
    sums = windows.aggregate("sums", total=Sum("amount"))
    second = pc.field("window_start").cast(pa.int64()) / pc.scalar(1_000_000)
    return sums.select("user", "total", second=second)
