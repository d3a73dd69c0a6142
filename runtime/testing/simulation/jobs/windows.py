"""Event-time windows in simulated jobs, and the check of their output.

A record's timestamp is its position in its split. A window emits each of its records with one more step in
the route: the key, the window's start and its number of records. So the rule for every sink (each record
once) also covers windows. This module only checks that each window is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from penstock.runtime.operators.event_time.timestamps_and_watermarks import TimestampsAndWatermarksOperator
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ListedContents
from penstock.runtime.testing.simulation.jobs.records import Identity, Key, Origin, Record
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.time.windows import TimeWindow, TumblingEventTimeWindows

#: Microseconds from one position of a split to the next one.
UNIT: Final = 1000

#: Key and start of a window.
KeyedWindow: TypeAlias = tuple[Key, int]


def timestamps(behind: int) -> TimestampsAndWatermarksOperator:
    """The operator that gives records their moments.

    Args:
        behind: By so many positions a record may be older than the newest one before it.
    """
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(microseconds=behind * UNIT))
    return TimestampsAndWatermarksOperator(strategy.with_timestamp_assigner(_moment))


def windows(number: int, select: Callable[[Record], Key], length: int) -> WindowOperator:
    """The operator with windows.

    Args:
        length: Positions of a split in one window.
    """

    def tell(key: Key, window: TimeWindow, records: list[Record]) -> list[Record]:
        # The key stands where other steps have the subtask: windows of two keys keep no order between them.
        step = (number, key, 0, window.start, len(records))
        return [(origin, (*route, step)) for origin, route in records]

    return WindowOperator(select, _assigner(length), partial(ListedContents, tell))


def whole_windows(
    identities: Iterable[Identity], key_of: Callable[[Origin], Key], length: int
) -> Counter[KeyedWindow]:
    """How many records each window must have held."""
    starts = _assigner(length).starts
    return Counter((key_of(origin), starts(origin[2] * UNIT)[0]) for origin, _ in identities)


def unfinished_windows(
    number: int, records: Iterable[Record], whole: Mapping[KeyedWindow, int]
) -> Iterator[str]:
    """Violations in the windows that an operator emitted, according to the output."""
    told: dict[KeyedWindow, set[int]] = {}
    for _, route in records:
        for step in route:
            if step[0] == number:
                told.setdefault((step[1], step[3]), set()).add(step[4])
    for (key, start), held in sorted(told.items(), key=str):
        expected = whole.get((key, start), 0)
        if held != {expected}:
            times = ", then ".join(map(str, sorted(held)))
            yield (
                f"operator {number}, key {key!r}: the window at {start} came out with {times} "
                f"of its {expected} records"
            )


def _moment(record: Record) -> int:
    return record[0][2] * UNIT


def _assigner(length: int) -> TumblingEventTimeWindows:
    return TumblingEventTimeWindows(timedelta(microseconds=length * UNIT))
