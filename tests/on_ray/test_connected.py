"""Rules that change while data flows, in real processes that are killed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from jobs.driving import after_checkpoints, finish, kill_subtask, submit, wait_until
from jobs.words import NEVER, environment, paced_lines
from pipelines.changing_rules import SECOND, Exceeded, Reading, Row, Rule, expected

from penstock import CollectSink, FixedDelay, WatermarkStrategy
from penstock.actors.client.collect import RayCollector
from penstock.runtime.testing.simulation.run.report import difference

pytestmark = pytest.mark.usefixtures("ray_cluster")

READINGS, RULES = 2_000, 200
PLACES = "abcd"


def reading(i: int) -> Reading:
    return i // len(PLACES), PLACES[i % len(PLACES)], i * 7919 % 100


def rule(i: int) -> Rule:
    degrees = i * 31 % 100
    return READINGS // len(PLACES) * i // RULES, PLACES[i * 5 // 3 % len(PLACES)], degrees or None


def second_of(event: Any) -> int:
    at: int = event[0] * SECOND
    return at


def place_of(event: Reading) -> str:
    return event[1]


@pytest.mark.long  # the pipeline `changing_rules` has kills and rescales in the simulation
@pytest.mark.parametrize(("unaligned", "kills"), [(True, 2), (False, 8)])
def test_rules_that_change_while_data_flows_are_in_force_at_their_time_though_processes_are_killed(
    tmp_path: Path, unaligned: bool, kills: int
) -> None:
    draws, collector, go = random.Random(kills), RayCollector(), tmp_path / "go"
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(second_of)
    restart = FixedDelay(attempts=10 * kills, delay=0.1)
    env = environment(tmp_path, parallelism=2, restart=restart, unaligned=unaligned)
    events: dict[str, Any] = {
        "readings": paced_lines(READINGS, 1_000.0, NEVER, go, line=reading),  # type: ignore[arg-type]
        "rules": paced_lines(RULES, 100.0, NEVER, go, line=rule),  # type: ignore[arg-type]
    }
    readings, rules = (
        env.from_source(name, source, watermarks=strategy, parallelism=1) for name, source in events.items()
    )
    exceeded = readings.key_by(place_of).connect(rules.broadcast()).process("exceeded", Exceeded())
    exceeded.sink("results", CollectSink(collector))
    job = submit(env)
    completed, victims = 0, ["exceeded"]
    for attempt in range(1, kills + 1):
        completed = after_checkpoints(job, completed + 2).statistics.completed_checkpoints
        for vertex in victims:
            kill_subtask(job, vertex, draws.randrange(2 if vertex == "exceeded" else 1))
        wait_until(job, "a restart", lambda r, attempt=attempt: r.statistics.attempt > attempt)  # type: ignore[misc]
        victims = [draws.choice(["readings", "rules", "exceeded"])]
    before = after_checkpoints(job, completed + 1)
    job.rescale(exceeded=3)
    go.touch()

    finish(job)

    assert before.statistics.restarts >= kills
    wanted: list[Row] = expected((list(map(reading, range(READINGS))), list(map(rule, range(RULES)))))
    assert len(wanted) > READINGS / 4
    differs = difference(wanted, collector.rows())
    assert differs is None, differs
