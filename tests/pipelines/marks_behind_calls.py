"""Watermarks keep their places between calls: what is late behind a call is what was late in front of it.

Records are enriched by calls of different length, in any order between two watermarks. Windows follow. A
watermark that overtook a record would make it late, and one that fell behind would let a late record in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from pipelines.late_records import SECOND, OneByOne, Record, add, moment_of_mark
from pipelines.late_records import expected as expected
from pipelines.late_records import make_input as late_input

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TumblingEventTimeWindows


async def enriched(record: Record) -> Record:
    await asyncio.sleep(record[1] % 5 / 1000)
    return record


def make_input(random: Random) -> list[Record]:
    return late_input(random)


def build(env: StreamEnvironment, records: list[Record]) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_punctuated(moment_of_mark)
    strategy = strategy.with_timestamp_assigner(lambda record: record[0] * SECOND)
    timed = env.from_source("records", OneByOne(records), watermarks=strategy, parallelism=1)
    enough = timed.map_async(enriched, id="enriched", capacity=6, ordered=False, parallelism=1)
    sums = (
        enough.key_by(lambda record: record[1] % 3).window(TumblingEventTimeWindows(10)).reduce("sums", add)
    )
    return {"sums": sums.map(lambda record: record[1]), "late": sums.side_output("late_records")}


#: With two subtasks a late record of one may come before the watermark of the other.
RESCALABLE = False

#: A drain makes everything late that it has fired.
whole = None
