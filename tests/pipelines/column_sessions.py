"""Sessions over Arrow batches: the clicks of a visit, which ends when nothing came for ten seconds."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Count, Max
from penstock.windows import EventTimeSessionWindows

SECOND = 1_000_000
GAP = 10

Row = dict[str, Any]
#: User, first second, number of clicks, and the largest basket.
Visit = tuple[str, int, int, int]

IN_COLUMNS = True

#: A drain ends the visits of the moment.
whole = None


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def make_input(random: Random) -> list[Row]:
    return [
        {
            "user": random.choice("abcd"),
            "at": max(0, 2 * n - random.randrange(8)) * SECOND,
            "basket": random.randrange(9),
        }
        for n in range(60)
    ]


def build(env: StreamEnvironment, clicks: list[Row]) -> DataStream[Visit]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(8).with_timestamp_column("at")
    columns = env.from_collection("clicks", clicks, parallelism=1).map_batches(
        as_columns, "arrow", parallelism=1
    )
    timed = columns.assign_timestamps_and_watermarks(strategy, parallelism=1)
    sessions = timed.key_by("user").window(EventTimeSessionWindows(GAP))
    visits = sessions.aggregate("visits", clicks=Count(), top=Max("basket"))
    return visits.map(
        lambda row: (row["user"], round(row["window_start"].timestamp()), row["clicks"], row["top"])
    )


def expected(clicks: list[Row]) -> list[Visit]:
    visits: list[Visit] = []
    for user in "abcd":
        of: list[Row] = []
        for click in sorted((each for each in clicks if each["user"] == user), key=lambda each: each["at"]):
            if of and click["at"] - of[-1]["at"] >= GAP * SECOND:
                visits.append(visit(user, of))
                of = []
            of.append(click)
        if of:
            visits.append(visit(user, of))
    return visits


def visit(user: str, clicks: list[Row]) -> Visit:
    return user, clicks[0]["at"] // SECOND, len(clicks), max(each["basket"] for each in clicks)
