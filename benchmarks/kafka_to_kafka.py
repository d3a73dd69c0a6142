"""JSON records of Kafka to sums by key and second in an exactly-once topic, compared with other systems.

    python benchmarks/kafka_to_kafka.py --json kafka.json
    python benchmarks/kafka_to_kafka.py --only "Penstock, columns" "consume loop" --rounds 3

The broker is a real Apache Kafka on the same machine (`make kafka` fetches it). The contenders read topics
of two partitions, and a slow contender reads fewer records. Their sums are compared with independent ones.
Records and contenders are in `peers/kafka_orders.py` and `peers/kafka_sums.py`. Each contender runs twice in
a round, over different numbers of records. A rate is the difference in records divided by the difference in
time, so it excludes start and warm-up. A system in Java first runs once more over the smaller number, to warm
up its compiler. `start` is the time of the first run minus the time of its records. A second of a core is a
second of processor time of a contender's processes, without the broker's. On a busy machine compare those
rates.

The last part kills the process of a job with SIGKILL. It measures the time until a consumer of committed
records has the first one of the next attempt.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from measure import (
    Figures,
    cluster,
    machine,
    middle,
    options,
    rows_a_second,
    running,
    scratch,
    spread,
    table,
    versions,
)
from peers import environments
from peers.comparison import Rate, failures_of, rates_of
from peers.kafka_orders import PARTITIONS, Orders, make_topic
from peers.kafka_sums import CONSUMER, EVERY, FLINK, ORDERS_PER_TRIGGER, SPARK, Sums
from peers.report import Ended

from penstock import Checkpointing, FixedDelay, StreamEnvironment
from penstock.kafka import KafkaSink, KafkaSource
from penstock.testing import kill_process

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # for `serving.kafka`

from serving.kafka import kafka_broker

#: Ratio, contender, contender below it, and target.
RATIOS: Final = (
    ("columns_vs_confluent_loop", "Penstock, columns", "consume loop", "at least 1.0"),
    ("columns_vs_flink_sql", "Penstock, columns, parallelism 2", "Flink SQL", "at least 1.2"),
    ("columns_vs_spark_structured_streaming", "Penstock, columns, parallelism 2", "Spark", "at least 2.5"),
    ("columns_vs_quix", "Penstock, columns", "Quix", "at least 6"),
    ("rows_vs_quix", "Penstock, rows", "Quix", "at least 2.5"),
    ("exactly_once_vs_quix", "Penstock, rows", "Quix, exactly once", "at least 2.5"),
    (
        "exactly_once_vs_at_least_once",
        "Penstock, columns",
        "Penstock, columns, at least once",
        "at least 0.9",
    ),
)

_PATIENCE: Final = 120.0
#: Seconds between two checkpoints of the job that is killed, and its records in a second.
_SHORT_EVERY, _SLOW = 0.2, 20_000


@dataclass(frozen=True)
class Contender:
    """A contender.

    Attributes:
        run: Runs over some numbers of records; its results are in the topic `NAME-COUNT`.
        is_slow: Whether it gets a quarter of the records.
        open_seconds: Last seconds whose results it does not write, because no later record closes them.
        peer: Its environment; empty for Penstock and the loop.
        warms_up: Whether its first run is a warm-up, whose results are in `NAME-warm-up-COUNT`.
    """

    run: Callable[[Sums, str, Sequence[int]], list[Ended]]
    is_slow: bool = False
    open_seconds: int = 0
    peer: str = ""
    warms_up: bool = False


def own(sums: Sums, name: str, counts: Sequence[int], **settings: Any) -> list[Ended]:
    """Run Penstock."""
    with cluster():
        return [sums.own(name, count, **settings) for count in counts]


def with_warm_up(name: str, counts: Sequence[int]) -> list[tuple[str, int]]:
    """The jobs of a contender, after one that only warms up."""
    return [(f"{name}-warm-up", counts[0]), *((name, count) for count in counts)]


CONTENDERS: Final[Mapping[str, Contender]] = {
    "Penstock, columns": Contender(partial(own, batch_format="arrow", parallelism=1)),
    "consume loop": Contender(lambda sums, name, counts: sums.loop([(name, count) for count in counts])),
    "Penstock, columns, at least once": Contender(
        partial(own, batch_format="arrow", parallelism=1, guarantee="at_least_once")
    ),
    "Penstock, columns, parallelism 2": Contender(partial(own, batch_format="arrow", parallelism=2)),
    "Penstock, rows": Contender(partial(own, batch_format="rows", parallelism=1), is_slow=True),
    "Flink SQL": Contender(
        lambda sums, name, counts: sums.flink(with_warm_up(name, counts)), peer="flink", warms_up=True
    ),
    "Spark": Contender(
        lambda sums, name, counts: sums.spark(with_warm_up(name, counts)),
        open_seconds=3,
        peer="spark",
        warms_up=True,
    ),
    "Quix": Contender(
        lambda sums, name, counts: sums.quix([(name, count) for count in counts], "at-least-once"),
        is_slow=True,
        open_seconds=1,
        peer="quix",
    ),
    "Quix, exactly once": Contender(
        lambda sums, name, counts: sums.quix([(name, count) for count in counts], "exactly-once"),
        is_slow=True,
        open_seconds=1,
        peer="quix",
    ),
}


@dataclass(frozen=True)
class Round:
    """The rate of a contender; `seconds` are those of its first run, with its start."""

    rate: Rate
    seconds: float

    @property
    def start(self) -> float | None:
        rate = self.rate
        return None if rate.rate is None else max(self.seconds - rate.sizes[0] / rate.rate, 0.001)


def measured(
    chosen: Sequence[str], orders: Orders, sums: Sums, size: int, growth: int, rounds: int
) -> dict[str, list[Round]]:
    """Run the contenders, round by round; one that fails is left out."""
    rounds_of: dict[str, list[Round]] = {name: [] for name in chosen}
    written: set[int] = set()
    for number in range(rounds):
        for name in [*rounds_of]:
            contender = CONTENDERS[name]
            least = size // 4 if contender.is_slow else size
            counts = (least, least * growth)
            slug = f"{name.lower().replace(', ', '-').replace(' ', '-')}-{number}"
            for count in counts:
                if count not in written:
                    orders.write(sums.servers, f"orders-{count}", count)
                    written.add(count)
                make_topic(sums.servers, f"{slug}-{count}")
            if contender.warms_up:
                make_topic(sums.servers, f"{slug}-warm-up-{least}")
            try:
                ended = contender.run(sums, slug, counts)
                if failures := failures_of(ended):
                    raise RuntimeError("; ".join(failures.values()))
                rate = rates_of(ended)[slug]
            except RuntimeError as failure:  # keep the figures of the others
                print(f"{name} failed: {failure}", file=sys.stderr, flush=True)
                del rounds_of[name]
                continue
            for count in counts:
                orders.check(sums.servers, f"{slug}-{count}", count, contender.open_seconds)
            rounds_of[name].append(Round(rate, ended[0].seconds))
            print(f"round {number + 1}, {name}: {rate.shown()}", file=sys.stderr, flush=True)
    return rounds_of


def show(rounds_of: Mapping[str, Sequence[Round]], figures: Figures) -> None:
    """Print and keep rates and ratios."""
    lines = []
    for name, rounds in rounds_of.items():
        by_core = f"{name}, a second of a core"
        keep(name, [each.rate.rate for each in rounds], figures.rates, figures)
        keep(by_core, [each.rate.by_core for each in rounds], figures.rates, figures)
        keep(f"{name}, start", [each.start for each in rounds], figures.seconds, figures)
        shown = [rows_a_second(figures.rates[key]) if key in figures.rates else "" for key in (name, by_core)]
        start = figures.seconds.get(f"{name}, start")
        lines.append([name, *shown, "" if start is None else f"{start:.1f} s"])
    print(table(["contender", "records/s", "records/s and core", "start"], lines), end="\n\n")
    lines = []
    for name, above, below, target in RATIOS:
        pairs = [*zip(rounds_of.get(above, ()), rounds_of.get(below, ()), strict=False)]
        rates = [quotient(a.rate.rate, b.rate.rate) for a, b in pairs]
        by_core = [quotient(a.rate.by_core, b.rate.by_core) for a, b in pairs]
        lines.append([name, target, *keep(name, rates, figures.ratios, figures)])
        lines[-1] += keep(f"{name}, a second of a core", by_core, figures.ratios, figures)
    ours = rounds_of.get("Penstock, columns, parallelism 2", ())
    pairs = [*zip(ours, rounds_of.get("Flink SQL", ()), strict=False)]
    name = "columns_vs_flink_sql, with start"
    spans = keep(name, [b.seconds / a.seconds for a, b in pairs], figures.ratios, figures)
    lines.append([name, "at least 3", *spans, "", ""])
    print(table(["ratio", "target", "by rate", "all rounds", "by CPU", "all rounds"], lines), end="\n\n")


def quotient(above: float | None, below: float | None) -> float | None:
    """The quotient of two rates that are known."""
    return None if above is None or below is None else above / below


def keep(
    name: str, values: Sequence[float | None], medians: dict[str, float], figures: Figures
) -> tuple[str, str]:
    """Keep the median and all rounds of a figure; return both for a table, empty if no value is known."""
    known = [value for value in values if value is not None]
    if not known:
        return "", ""
    medians[name] = middle(known)
    figures.details[name] = known
    return f"{middle(known):.2f}", spread(known)


@dataclass(frozen=True)
class WithProcess:
    """Replaces an order by its number and the process of its subtask."""

    def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the number of an order, and the process."""
        return {"id": order["id"], "process": os.getpid()}


def downtimes(servers: str, folder: Path, topic: str, kills: int) -> list[float]:
    """Seconds from each SIGKILL to the first committed record of the next attempt."""
    output = f"killed-{time.time_ns()}"
    make_topic(servers, output)
    env = StreamEnvironment(
        output,
        checkpointing=Checkpointing(every=_SHORT_EVERY, storage=str(folder / output)),
        restart=FixedDelay(attempts=100, delay=0),
    )
    orders = env.from_source("orders", KafkaSource(servers, topic)).rate_limit(_SLOW)
    orders.map(WithProcess(), id="numbers").sink("out", KafkaSink(servers, output))
    taken = []
    with cluster(), running(env, "numbers") as job, committed(servers, output) as processes:
        seen = {next(processes)}
        for _ in range(kills):
            victim = job.processes()[0]
            killed = time.monotonic()
            kill_process(victim)
            while (process := next(processes)) in seen:
                pass
            taken.append(time.monotonic() - killed)
            seen.add(process)
    return taken


@contextmanager
def committed(servers: str, topic: str) -> Iterator[Iterator[int]]:
    """An endless iterator over the processes in the committed records of a topic."""
    settings = {"group.id": topic, "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def processes() -> Iterator[int]:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.01):
                if message.error() is None:
                    deadline = time.monotonic() + _PATIENCE
                    yield json.loads(message.value() or b"")["process"]
        msg = f"no record was committed within {_PATIENCE:g} s"
        raise TimeoutError(msg)

    try:
        yield processes()
    finally:
        consumer.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, records=2_000_000, growth=3, rounds=1, kills=5)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--without-peers", action="store_true", help="measure Penstock and the loop alone")
    given = parser.parse_args(arguments)
    chosen = [name for name in given.only if not (given.without_peers and CONTENDERS[name].peer)]
    figures, orders = Figures(), Orders()
    with scratch() as folder, kafka_broker(folder / "kafka") as broker:
        sums = Sums(broker.bootstrap, folder)
        # A first job loads Ray from disk, and makes the broker start its transaction coordinator.
        orders.write(broker.bootstrap, "orders-1000", 1_000)
        make_topic(broker.bootstrap, "warm-up-1000")
        own(sums, "warm-up", [1_000], batch_format="arrow", parallelism=2)
        show(measured(chosen, orders, sums, given.records, given.growth, given.rounds), figures)
        if given.kills:
            orders.write(broker.bootstrap, "orders-of-kills", 20 * _SLOW)
            taken = downtimes(broker.bootstrap, folder, "orders-of-kills", given.kills)
            figures.seconds["SIGKILL to the next committed record"] = middle(taken)
            line = [
                "SIGKILL to the next committed record",
                f"{middle(taken):.2f} s",
                "at most 2 s",
                spread(taken),
            ]
            print(table(["", "seconds", "target", f"of {given.kills} kills"], [line]), end="\n\n")
    print(
        f"Sums by {orders.users:,} users and second; {orders.event_rate:,} records in a second of event "
        "time. "
        f"A checkpoint, or a commit, every {EVERY:g} s, but {_SHORT_EVERY:g} s in the job that is killed. "
        "Spark has two cores, Flink parallelism 2, and Penstock parallelism 1 unless stated otherwise. "
        "Quix and the loop run in one process each."
    )
    for name, settings in {
        "Flink": FLINK,
        "Spark": {**SPARK, "maxOffsetsPerTrigger": ORDERS_PER_TRIGGER},
        "the consumers of Quix and of the loop": CONSUMER,
    }.items():
        listed = ", ".join(f"`{setting}={value}`" for setting, value in settings.items())
        print(f"Settings of {name}: {listed}.")
    print(f"\n{machine().in_words()}")
    peers = {CONTENDERS[name].peer for name in chosen} - {""}
    named = {
        peer: version("pyspark") if peer == "spark" else environments.version_of(peer)
        for peer in sorted(peers)
    }
    figures.write(given.json, versions(**{"confluent-kafka": version("confluent-kafka")}, **named))
    return 0


if __name__ == "__main__":
    sys.exit(main())
