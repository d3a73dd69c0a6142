"""A pattern with a limit of time, in real processes that are killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from jobs.driving import after_checkpoints, finish, kill_subtask, submit, wait_until
from jobs.words import NEVER, environment, paced_lines
from pipelines.unpaid_orders import (
    DELAY,
    LIMIT,
    SECOND,
    UNPAID,
    Event,
    expected,
    is_order,
    paid,
    pays,
    unpaid,
)

from penstock import CollectSink, FixedDelay, RocksDB, WatermarkStrategy
from penstock.actors.client.collect import RayCollector
from penstock.patterns import Pattern
from penstock.runtime.testing.simulation.run.report import difference

pytestmark = pytest.mark.usefixtures("ray_cluster")

ORDERS = 1_000
CUSTOMERS = "abcdefg"


def all_events() -> list[Event]:
    """Orders, and payments of most of them, out of order."""
    events = []
    for order in range(ORDERS):
        second, customer = order // 4, CUSTOMERS[order * 5 % len(CUSTOMERS)]
        events.append((second, customer, "order", order))
        if order % 5:
            events.append((second + 1 + order * 7 % (2 * LIMIT), customer, "pay", order))
    return sorted(events, key=lambda event: event[0] + event[3] * 13 % DELAY)


EVENTS = all_events()


def event(i: int) -> Event:
    return EVENTS[i]


def customer_of(event: Event) -> str:
    return event[1]


def time_of(event: Any) -> int:
    at: int = event[0] * SECOND
    return at


@pytest.mark.long  # the pipeline `price_dips` has kills and rescales in the simulation
@pytest.mark.parametrize(("backend", "unaligned", "kills"), [(RocksDB(), True, 2), (None, False, 8)])
def test_matches_and_timed_out_partial_matches_are_exact_whoever_dies_and_at_another_parallelism(
    tmp_path: Path, backend: Any, unaligned: bool, kills: int
) -> None:
    draws, go = random.Random(kills), tmp_path / "go"
    restart = FixedDelay(attempts=10 * kills, delay=0.1)
    env = environment(tmp_path, parallelism=2, restart=restart, unaligned=unaligned, state_backend=backend)
    strategy: Any = WatermarkStrategy.for_bounded_out_of_orderness(DELAY).with_timestamp_assigner(time_of)
    lines: Any = paced_lines(len(EVENTS), 1_000.0, NEVER, go, line=event)  # type: ignore[arg-type]
    events = env.from_source("events", lines, watermarks=strategy, parallelism=1)
    pattern: Pattern[Event] = Pattern.begin("order", where=is_order).followed_by("payment", where=pays)
    orders = (
        events.key_by(customer_of).pattern(pattern.within(LIMIT)).select("orders", paid, timed_out=UNPAID)
    )
    results = {"paid": RayCollector(), "unpaid": RayCollector()}
    orders.sink("paid", CollectSink(results["paid"]))
    orders.side_output(UNPAID).map(unpaid).sink("unpaid", CollectSink(results["unpaid"]))
    job = submit(env)
    completed, victims = 0, ["orders"]
    for attempt in range(1, kills + 1):
        completed = after_checkpoints(job, completed + 2).statistics.completed_checkpoints
        for vertex in victims:
            kill_subtask(job, vertex, draws.randrange(2 if vertex == "orders" else 1))
        wait_until(job, "a restart", lambda r, attempt=attempt: r.statistics.attempt > attempt)  # type: ignore[misc]
        victims = [draws.choice(["events", "orders"])]
    before = after_checkpoints(job, completed + 1)
    job.rescale(orders=3)
    go.touch()

    finish(job)

    assert before.statistics.restarts >= kills
    for name, wanted in expected(EVENTS).items():
        assert len(wanted) > ORDERS / 4
        differs = difference(wanted, results[name].rows())
        assert differs is None, f"{name}: {differs}"
