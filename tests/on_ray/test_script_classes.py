"""Records and enums that a script defines itself, through channels, checkpoints and a restore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from jobs.driving import PATIENCE

pytestmark = pytest.mark.usefixtures("ray_cluster")

SCRIPT = '''
import dataclasses
import enum
import json
import sys
import time
from typing import NamedTuple

from penstock.actors.client.collect import RayCollector
from penstock.testing import kill_process
from penstock import Checkpointing, CollectSink, FixedDelay, GeneratorSource, KeyedProcessFunction
from penstock import StreamEnvironment, ValueState


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Ball:
    colour: Colour
    number: int


class Tally(NamedTuple):
    ball: Ball
    seen: int


class Plain:
    """No record: it can only be pickled."""

    def __init__(self, text):
        self.text = text


def ball(i):
    return Ball(Colour.RED if i % 3 else Colour.BLUE, i)


def colour_of(ball):
    return ball.colour


def first(ball):
    return Tally(ball, 1)


def add(total, one):
    assert type(total) is Tally and type(total.ball) is Ball and type(total.ball.colour) is Colour
    return Tally(one.ball, total.seen + one.seen)


def tally_colour(tally):
    return tally.ball.colour


def plain(tally):
    assert tally.ball.colour in (Colour.RED, Colour.BLUE)
    return Plain(f"{tally.ball.colour.name} {tally.seen}")


def main():
    count = int(sys.argv[2])
    results = RayCollector()
    env = StreamEnvironment(
        "script",
        parallelism=2,
        checkpointing=Checkpointing(every=0.1, storage=sys.argv[1]),
        restart=FixedDelay(attempts=3, delay=0.1),
    )
    balls = env.from_source("balls", GeneratorSource(ball, count=count, rate=1_000.0))
    tallies = balls.map(first).key_by(tally_colour).reduce("tallies", add)
    tallies.map(plain).rebalance().map(vars).sink("out", CollectSink(results))
    job = env.submit()
    while job.statistics().completed_checkpoints < 2:
        time.sleep(0.05)
    kill_process(next(p for p in job.processes() if p.subtask.vertex == "tallies"))
    result = job.wait(60)
    rows = [row["text"] for row in results.rows()]
    print(json.dumps({"restarts": result.statistics.restarts, "rows": rows}))


if __name__ == "__main__":
    main()
'''


def test_a_scripts_own_classes_survive_channels_a_checkpoint_and_a_restore(tmp_path: Path) -> None:
    script = tmp_path / "balls.py"
    script.write_text(SCRIPT)
    count = 2_000

    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "checkpoints"), str(count)],
        env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    # Ray may print a warning of its own behind it.
    (outcome,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert outcome["restarts"] == 1
    blue = len(range(0, count, 3))
    expected = [f"BLUE {n}" for n in range(1, blue + 1)] + [f"RED {n}" for n in range(1, count - blue + 1)]
    assert sorted(outcome["rows"]) == sorted(expected)
