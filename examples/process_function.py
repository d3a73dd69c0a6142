"""State for each key: raise an alarm when a sensor is too hot three times in a row.

    python examples/process_function.py --output alarms

`TooHot` counts hot readings per sensor in a `ValueState`. The state is part of every checkpoint. So a job
that is restarted in the middle of a hot series continues its count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock import (
    Checkpointing,
    FileSink,
    GeneratorSource,
    KeyedProcessFunction,
    PenstockError,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)

Reading = tuple[str, float]

SENSORS = 10


class TooHot(KeyedProcessFunction[str, Reading, dict[str, Any]]):
    """Emits an alarm for every `in_a_row` consecutive readings of a sensor above `limit`."""

    hot = ValueState(int, default=0)

    def __init__(self, limit: float, in_a_row: int) -> None:
        self._limit = limit
        self._in_a_row = in_a_row

    def open(self, ctx: RuntimeContext) -> None:
        """Called once per attempt, before any record."""
        self._alarms = ctx.counter("alarms")

    def process(self, value: Reading, ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """Process one reading of the sensor that is the current key."""
        sensor, celsius = value
        hot = self.hot.value() + 1 if celsius > self._limit else 0
        if hot == self._in_a_row:
            self._alarms.increment()
            yield {"sensor": sensor, "celsius": celsius}
            hot = 0
        if hot:
            self.hot.update(hot)
        else:
            self.hot.clear()


def reading(i: int) -> Reading:
    """The i-th reading: sensor `n` has a hot spell of n readings, then one cool reading."""
    sensor, turn = i % SENSORS, i // SENSORS
    return f"sensor-{sensor}", 80.0 if turn % (sensor + 1) else 20.0


def sensor_of(value: Reading) -> str:
    """Return the sensor of a reading, which is its key."""
    return value[0]


def committed_alarms(output: Path) -> Counter[str]:
    """Number of alarms of each sensor in the committed files."""
    alarms: Counter[str] = Counter()
    for file in output.glob("part-*"):
        alarms.update(json.loads(line)["sensor"] for line in file.read_text(encoding="utf-8").splitlines())
    return alarms


def main() -> int:
    """Run the job and print the alarms."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that alarms are committed to")
    parser.add_argument("--readings", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "too-hot",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    # A single subtask reads, so the readings of a sensor stay in order.
    (
        env.from_source("readings", GeneratorSource(reading, count=options.readings), parallelism=1)
        .key_by(sensor_of)
        .process("too-hot", TooHot(limit=60, in_a_row=3))
        .sink("alarms", FileSink.json(output))
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"process_function: {error}", file=sys.stderr)
        return 1
    for sensor, alarms in sorted(committed_alarms(output).items()):
        print(f"{sensor}: {alarms} alarms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
