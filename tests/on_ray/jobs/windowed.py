"""Numbers in windows of event time: each window says which of them it held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.lasting import Lasting
from jobs.oracle import committed_rows

from penstock import FileSink, GeneratorSource, StreamEnvironment, WatermarkStrategy
from penstock.connectors import Sink
from penstock.windows import TimeWindow, TumblingEventTimeWindows

KEYS = 3

#: Numbers, and with them milliseconds of event time, in one window.
LONG = 200

#: A window as it was committed: its key and its first number, then what it held.
Window = tuple[int, ...]


def number(i: int) -> int:
    return i


def moment(i: int) -> int:
    return i * 1000


def key_of(i: int) -> int:
    return i % KEYS


def held(key: int, window: TimeWindow, numbers: list[int]) -> list[list[int]]:
    return [[key, window.start_timestamp // 1000, *sorted(numbers)]]


def add_windows(
    env: StreamEnvironment,
    out: Path | Sink[Any],
    count: int,
    rate: float,
    *,
    attempt: int,
    release: Path,
    long: int = LONG,
) -> None:
    """Add numbers and their windows to a job: two subtasks make the numbers, however many window them.

    Args:
        out: The folder of the windows, written where they fire; or a sink in a subtask of its own.
        long: Numbers in one window.
    """
    source = Lasting(GeneratorSource(number, count=count, rate=rate), attempt, str(release))
    numbers = env.from_source("numbers", source, parallelism=2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(moment)
    timed = numbers.assign_timestamps_and_watermarks(strategy, parallelism=2)
    windows = timed.key_by(key_of).window(TumblingEventTimeWindows(long / 1000))
    results = windows.apply("windows", held)
    if isinstance(out, Path):
        results.sink("windows-out", FileSink.json(out))
    else:
        results.rebalance().sink("windows-out", out, parallelism=1)


def committed_windows(folder: Path) -> list[Window]:
    """The output of the windows."""
    return [tuple(row) for row in committed_rows(folder)]


def expected_windows(count: int, long: int = LONG) -> list[Window]:
    """Each key's windows, whole."""
    return sorted(
        (key, start, *(i for i in range(start, min(start + long, count)) if i % KEYS == key))
        for start in range(0, count, long)
        for key in range(KEYS)
    )


def numbers_in(windows: Sequence[Window]) -> list[Any]:
    """All numbers of some windows."""
    return sorted(i for _, _, *numbers in windows for i in numbers)
