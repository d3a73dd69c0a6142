"""Jobs on Kafka without an end: the simulation stops them when completed checkpoints cover all input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import pytest
from deep import DEEP

from penstock import Checkpointing, ConfigurationError, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Count
from penstock.kafka import KafkaSink, KafkaSource
from penstock.runtime.io.connectors.kafka.reader import KafkaReader
from penstock.testing import ExternalWorld, KafkaWorld, SimulationReport, simulate
from penstock.windows import TumblingEventTimeWindows

FAULTS = tuple(KafkaWorld.faults)
STOPS: tuple[Literal["drain", "savepoint"], ...] = ("drain", "savepoint")


def clicks() -> list[dict[str, Any]]:
    return [{"user": f"u{number % 3}", "second": number} for number in range(12)]


def world() -> KafkaWorld:
    """Half of the clicks are there; the others come while the job runs, some to partitions that are new."""
    kafka = KafkaWorld({"clicks": 2, "counts": 2}, brokers=3)
    kafka.put("clicks", clicks()[:6])
    kafka.put("clicks", clicks()[6:9], after=0.2)
    kafka.put("clicks", clicks()[9:], after=0.6)
    return kafka


def counted(kafka: KafkaWorld, *, group_id: str | None = "clicks") -> StreamEnvironment:
    env = StreamEnvironment("clicks", parallelism=2, checkpointing=Checkpointing(every=10))
    source = KafkaSource(kafka.bootstrap_servers, "clicks", group_id=group_id, discover_every=0.1)
    counts = (
        env.from_source("clicks", source)
        .map(lambda click: (click["user"], 1))
        .key_by(lambda pair: pair[0])
        .reduce("counts", lambda a, b: (a[0], a[1] + b[1]))
    )
    counts.sink("out", KafkaSink(kafka.bootstrap_servers, "counts"))
    return env


def windowed(kafka: KafkaWorld) -> StreamEnvironment:
    """Its last windows are emitted only if event time ends."""
    env = StreamEnvironment("clicks", parallelism=2, checkpointing=Checkpointing(every=10))
    source = KafkaSource(kafka.bootstrap_servers, "clicks", group_id="clicks")
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(60).with_timestamp_assigner(
        lambda click: click["second"] * 1_000_000
    )
    counts = (
        env.from_source("clicks", source, watermarks=watermarks)
        .key_by("user")
        .window(TumblingEventTimeWindows(4))
        .aggregate("counts", count=Count())
    )
    counts.map(lambda row: row["count"]).sink("out", KafkaSink(kafka.bootstrap_servers, "counts"))
    return env


def simulated(
    seeds: Iterable[int], *faults: str, build: Any = counted, interleavings: int = 2, **settings: Any
) -> SimulationReport:
    settings = {"stop": "drain", **settings}
    return simulate(
        build,
        world=world(),
        output=lambda kafka: kafka.values("counts"),
        seeds=seeds,
        faults=faults,
        interleavings=interleavings,
        check=False,
        **settings,
    )


@pytest.mark.parametrize("stop", STOPS)
def test_a_job_without_an_end_is_stopped_when_it_has_read_everything(stop: str) -> None:
    found: list[Any] = []
    simulate(
        counted,
        world=world(),
        output=lambda kafka: found.append(kafka.values("counts")) or found[-1],
        seeds=range(DEEP),
        faults=FAULTS,
        interleavings=1,
        stop=stop,
    )
    assert Counter(map(tuple, found[0])) == Counter(
        (f"u{n}", count) for n in range(3) for count in range(1, 5)
    )


def test_a_drain_emits_the_windows_that_are_left() -> None:
    found: list[list[int]] = []
    for stop in STOPS:
        simulate(
            windowed,
            world=world(),
            output=lambda kafka: found.append(kafka.values("counts")) or found[-1],
            seeds=range(DEEP),
            interleavings=1,
            stop=stop,
        )
    assert (sum(found[0]), found[-1]) == (12, [])


@pytest.mark.simulation
@pytest.mark.parametrize("stop", STOPS)
def test_a_job_without_an_end_counts_everything_once_under_a_dozen_seeds(stop: str) -> None:
    report = simulated(range(100, 112 if DEEP == 1 else 130), *FAULTS, "zombies", stop=stop)
    assert report.passed, str(report)
    assert "kafka_new_partitions" in report.failures


def test_records_of_partitions_that_come_later_are_read() -> None:
    """Without them the job would never have read everything."""
    report = simulated(range(40, 42), "kafka_new_partitions", interleavings=1)
    assert report.passed, str(report)
    assert report.failures["kafka_new_partitions"] > 0


def test_a_connector_that_loses_records_is_found_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored job begins at what the fetcher had, which is ahead of the task."""

    def snapshot(self: KafkaReader[Any]) -> Any:
        splits = dict(self._splits)
        for fetched in self._fetcher._ready:
            if fetched.partition in splits:
                split = splits[fetched.partition]
                splits[fetched.partition] = replace(split, next_offset=fetched.next_offset)
        return list(splits.values())

    monkeypatch.setattr(KafkaReader, "snapshot", snapshot)
    report = simulated(range(5, 20), interleavings=1)
    assert report.failed is not None
    assert report.failed.is_repeatable


def test_a_job_whose_world_never_learns_what_is_read_is_named() -> None:
    report = simulated(
        range(1), build=lambda kafka: counted(kafka, group_id=None), interleavings=1, most_moves=2_000
    )
    assert report.failed is not None
    assert "KafkaSource needs group_id=" in str(report)


class Silent(ExternalWorld):
    """A world that does not know what is read."""


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"stop": "drain", "world": None}, r"stop='drain' is not allowed: give .*world="),
        ({"stop": "now", "world": Silent()}, "stop='now' is not allowed"),
    ],
)
def test_a_stop_needs_a_world_and_one_of_two_kinds(settings: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        simulate(counted, output=lambda kafka: [], **settings)


def test_a_world_that_does_not_know_what_is_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"needs has_been_read\(\) of Silent"):
        Silent().has_been_read()
