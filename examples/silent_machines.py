"""Alerts with timers: report every machine that has sent no heartbeat for half a minute.

    python examples/silent_machines.py --output alarms

A heartbeat sets a timer, and the machine's next heartbeat deletes it. A timer that fires is an alarm.
Timers are part of every checkpoint, so a job that is restarted forgets no machine. Event time comes from the
heartbeats, so the alarms don't depend on the speed of reading. At the end of the input all timers fire. So
the last heartbeat of each machine leads to an alarm, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock import (
    Checkpointing,
    FileSink,
    GeneratorSource,
    KeyedProcessFunction,
    PenstockError,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
    WatermarkStrategy,
)

MACHINES = 10
SECOND = 1_000_000

#: Seconds without a heartbeat after which a machine is silent.
LIMIT = 30


class Heartbeat(NamedTuple):
    """The state of a machine at one second; the job filters out machines that are off."""

    machine: str
    second: int
    is_alive: bool


class Silence(KeyedProcessFunction[str, Heartbeat, dict[str, Any]]):
    """Emits an alarm for each period in which a machine was silent for longer than the limit."""

    newest = ValueState(int)

    def process(self, value: Heartbeat, ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """Postpone the alarm, unless the heartbeat comes too late."""
        before = self.newest.value()
        if before is not None:
            ctx.timer_service.delete_event_time_timer((before + LIMIT) * SECOND)
            if value.second - before > LIMIT:
                yield self.alarm(ctx, before)
        self.newest.update(value.second)
        ctx.timer_service.register_event_time_timer((value.second + LIMIT) * SECOND)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """Emit an alarm, because no heartbeat has postponed it."""
        self.newest.clear()
        yield self.alarm(ctx, at // SECOND - LIMIT)

    @staticmethod
    def alarm(ctx: RuntimeContext, since: int) -> dict[str, Any]:
        """The alarm of the current machine."""
        return {"machine": ctx.current_key, "silent_since": since}


def heartbeat(i: int) -> Heartbeat:
    """The i-th heartbeat: every ten seconds; machine `n` is on for `n + 4` of these, then off for five."""
    beat, number = divmod(i, MACHINES)
    return Heartbeat(f"machine-{number}", 10 * beat, is_alive=beat % (number + 9) < number + 4)


def alarms_of(output: Path) -> list[tuple[str, int]]:
    """The alarms in the committed files, sorted."""
    lines = [line for file in output.glob("part-*") for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted((alarm["machine"], alarm["silent_since"]) for alarm in map(json.loads, lines))


def main() -> int:
    """Run the job and print how often each machine was silent."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that alarms are committed to")
    parser.add_argument("--heartbeats", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "silent-machines",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    strategy: WatermarkStrategy[Heartbeat] = WatermarkStrategy.for_bounded_out_of_orderness(
        timedelta(seconds=5)
    )
    # A single subtask reads, so the heartbeats of a machine stay in order.
    (
        env.from_source("heartbeats", GeneratorSource(heartbeat, count=options.heartbeats), parallelism=1)
        .filter(lambda beat: beat.is_alive, parallelism=1)
        .assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda beat: beat.second * SECOND), parallelism=1
        )
        .key_by(lambda beat: beat.machine)
        .process("silence", Silence())
        .sink("alarms", FileSink.json(output))
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"silent_machines: {error}", file=sys.stderr)
        return 1
    silent = [machine for machine, _ in alarms_of(output)]
    for machine in sorted(set(silent)):
        print(f"{machine}: silent {silent.count(machine)} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
