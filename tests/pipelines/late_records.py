"""Late records go to a side output: windows of ten seconds, and records that are older than all before them.

A record marks how far time has come, so what is late is in the input itself. The source gives one record at a
time: the watermark of a mark is known before the next record comes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from penstock.connectors import ConnectorContext, Polled
from penstock.operators import RowBatch
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000

#: Second, value, and whether everything before this second has come.
Record = tuple[int, int, bool]


class OneByOne:
    """A source of one split that gives each record in a batch of its own."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def reader(self, context: ConnectorContext, splits: Sequence[int]) -> OneReader:
        return OneReader(self.records, splits[0] if splits else len(self.records))


class OneReader:
    """Continues at a position."""

    def __init__(self, records: Sequence[Record], position: int) -> None:
        self.records, self.position = records, position

    def poll(self, max_rows: int) -> Polled[Record]:
        if self.position == len(self.records):
            return Polled(finished=True)
        self.position += 1
        return Polled(RowBatch([self.records[self.position - 1]]))

    def snapshot(self) -> Sequence[int]:
        return [self.position] if self.position < len(self.records) else []

    def close(self) -> None:
        pass


def moment_of_mark(record: Record, timestamp: int) -> int | None:
    return record[0] * SECOND - 1 if record[2] else None


def add(one: Record, other: Record) -> Record:
    return one[0], one[1] + other[1], False


def make_input(random: Random) -> list[Record]:
    return [
        (max(0, n + random.randrange(-15, 5)), random.randrange(100), random.random() < 0.3)
        for n in range(60)
    ]


def build(env: StreamEnvironment, records: list[Record]) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_punctuated(moment_of_mark)
    strategy = strategy.with_timestamp_assigner(lambda record: record[0] * SECOND)
    timed = env.from_source("records", OneByOne(records), watermarks=strategy, parallelism=1)
    sums = timed.key_by(lambda record: record[1] % 3).window(TumblingEventTimeWindows(10)).reduce("sums", add)
    return {"sums": sums.map(lambda record: record[1]), "late": sums.side_output("late_records")}


def expected(records: list[Record]) -> Mapping[str, list[Any]]:
    sums: dict[tuple[int, int], int] = defaultdict(int)
    late, complete = [], 0
    for second, value, is_mark in records:
        if second // 10 * 10 + 10 > complete:
            sums[value % 3, second // 10] += value
        else:
            late.append((second, value, is_mark))
        complete = max(complete, second) if is_mark else complete
    return {"sums": list(sums.values()), "late": late}


#: At another parallelism a watermark in flight is dropped, so a record behind it may be on time.
RESCALABLE_IN_FLIGHT = False

#: A drain makes everything late that it has fired.
whole = None
