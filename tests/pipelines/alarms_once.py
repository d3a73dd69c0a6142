"""An alarm is passed on once, and again when its machine was silent for ten seconds: `dedup` with a TTL.

One subtask reads, in the order of time. Rows and Arrow batches share one state in columns.
"""

from __future__ import annotations

from random import Random

from penstock import CollectionSource, DataStream, StateTtl, StreamEnvironment, WatermarkStrategy

SECOND = 1_000_000
SILENCE = StateTtl(10, time="event", refreshed_by="reads_and_writes")

Alarm = dict[str, int | str]

IN_COLUMNS = True


def make_input(random: Random) -> list[Alarm]:
    seconds = sorted(random.randrange(200) for _ in range(60))
    return [
        {"at": second, "machine": random.choice("abcd"), "number": number}
        for number, second in enumerate(seconds)
    ]


def build(env: StreamEnvironment, alarms: list[Alarm]) -> DataStream[Alarm]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda alarm: int(alarm["at"]) * SECOND
    )
    source = env.from_source("alarms", CollectionSource(alarms), watermarks=strategy, parallelism=1)
    return source.dedup("new", "machine", ttl=SILENCE)


def expected(alarms: list[Alarm]) -> list[Alarm]:
    before: dict[int | str, int] = {}
    rows = []
    for alarm in alarms:
        second = int(alarm["at"])
        if second - before.get(alarm["machine"], -100) >= 10:
            rows.append(alarm)
        before[alarm["machine"]] = second
    return rows
