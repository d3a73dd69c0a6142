"""Purging and continuous triggers: what a meter has used, every ten seconds of event time within a minute.

A record marks how far time has come, and is known before the next one comes. One output is the sum of the
minute so far. The other one forgets what it has emitted, so that each record is in one of its sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from pipelines.late_records import SECOND, OneByOne, Record, moment_of_mark

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import ContinuousEventTimeTrigger, PurgingTrigger, TimeWindow, TumblingEventTimeWindows

#: Meter, minute, and what was used.
Row = tuple[int, int, int]

TEN, MINUTE = 10, 60


def meter_of(record: Record) -> int:
    return record[1] % 3


def used(meter: int, window: TimeWindow, records: list[Record]) -> Iterator[Row]:
    yield meter, window.start_timestamp // SECOND // MINUTE, sum(value for _, value, _ in records)


def make_input(random: Random) -> list[Record]:
    return [(3 * n, random.randrange(100), random.random() < 0.4) for n in range(70)]


def build(env: StreamEnvironment, records: list[Record]) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_punctuated(moment_of_mark)
    strategy = strategy.with_timestamp_assigner(lambda record: record[0] * SECOND)
    timed = env.from_source("readings", OneByOne(records), watermarks=strategy, parallelism=1)
    minutes = timed.key_by(meter_of).window(TumblingEventTimeWindows(MINUTE))
    often = ContinuousEventTimeTrigger(TEN)
    return {
        "so-far": minutes.trigger(often).apply("sums-so-far", used),
        "parts": minutes.trigger(PurgingTrigger(often)).apply("sums-of-parts", used),
    }


def expected(records: list[Record]) -> Mapping[str, list[Row]]:
    """At a mark a window emits what is new if ten seconds are over, and all of it when its minute is over."""
    so_far: list[Row] = []
    parts: list[Row] = []
    held: dict[tuple[int, int], list[int]] = defaultdict(list)
    fresh: dict[tuple[int, int], list[int]] = defaultdict(list)
    awaited: dict[tuple[int, int], int] = {}
    for second, value, is_mark in [*records, (10**6, 0, True)]:
        if second < 10**6:
            of = value % 3, second // MINUTE
            held[of].append(value)
            fresh[of].append(value)
            awaited.setdefault(of, second // TEN * TEN + TEN)
        for of in list(held) if is_mark else []:
            end = (of[1] + 1) * MINUTE
            if awaited.get(of, end) <= min(second, end - 1):
                del awaited[of]
                so_far.append((*of, sum(held[of])))
                parts.append((*of, sum(fresh.pop(of))))
            if end <= second:
                so_far.append((*of, sum(held.pop(of))))
                parts += [(*of, sum(fresh.pop(of)))] if of in fresh else []
    return {"so-far": so_far, "parts": parts}


#: A drain emits a part of a minute.
whole = None

#: At another parallelism a watermark in flight is known later, when all old channels have had it. So a sum
#: that is emitted on the way may have records that came behind its mark.
RESCALABLE_IN_FLIGHT = False
