"""Windows that are kept for ten seconds after their end: each late record corrects the sum.

Records that are later than that go to a tag of the user's own. A record marks how far time has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from pipelines.late_records import SECOND, OneByOne, Record, add, moment_of_mark

from penstock import DataStream, OutputTag, StreamEnvironment, WatermarkStrategy
from penstock.windows import TumblingEventTimeWindows

TOO_LATE = OutputTag[Record]("too-late")


def make_input(random: Random) -> list[Record]:
    return [
        (max(0, n + random.randrange(-30, 5)), random.randrange(100), random.random() < 0.3)
        for n in range(70)
    ]


def build(env: StreamEnvironment, records: list[Record]) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_punctuated(moment_of_mark)
    strategy = strategy.with_timestamp_assigner(lambda record: record[0] * SECOND)
    timed = env.from_source("records", OneByOne(records), watermarks=strategy, parallelism=1)
    windows = timed.key_by(lambda record: record[1] % 3).window(TumblingEventTimeWindows(10))
    sums = windows.allowed_lateness(10).side_output_late_data(TOO_LATE).reduce("sums", add)
    return {"sums": sums.map(lambda record: record[1]), "late": sums.side_output(TOO_LATE)}


def expected(records: list[Record]) -> Mapping[str, list[Any]]:
    sums: dict[tuple[int, int], int] = {}
    rows, late, complete = [], [], 0
    for second, value, is_mark in [*records, (10**6, 0, True)]:
        of, end = (value % 3, second // 10), second // 10 * 10 + 10
        if end + 10 <= complete:
            late.append((second, value, is_mark))
        elif second < 10**6:
            sums[of] = sums.get(of, 0) + value
            if end <= complete:
                rows.append(sums[of])
        if is_mark and second > complete:
            rows += [held for (_, ten), held in sums.items() if complete < ten * 10 + 10 <= second]
            complete = second
    return {"sums": rows, "late": late}


#: A drain makes everything late that it has fired.
whole = None
