"""Window operators to try, whose windows are a few microseconds long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ListedContents, ReducedContents
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowAssigner,
)

TEN = TumblingEventTimeWindows(1e-5)  # ten microseconds: timestamps in these tests are small numbers
SLIDING = SlidingEventTimeWindows(size=1e-5, slide=5e-6)
UNEVEN = SlidingEventTimeWindows(size=1e-5, slide=3e-6)


def first(pair: Any) -> Any:
    return pair[0]


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def summed(windows: WindowAssigner = TEN) -> WindowOperator:
    return WindowOperator(first, windows, partial(ReducedContents, add))


def applied(function: Callable[..., Any], windows: WindowAssigner = TEN) -> WindowOperator:
    return WindowOperator(first, windows, partial(ListedContents, function))


def tell(key: str, window: TimeWindow, records: list[tuple[str, int]]) -> list[Any]:
    return [(key, window.start_timestamp, [value for _, value in records])]


def pushed(harness: OperatorHarness, *records: tuple[str, int, int]) -> list[Any]:
    """Push records of key, value and timestamp."""
    return harness.push([(key, value) for key, value, _ in records], [stamp for *_, stamp in records])
