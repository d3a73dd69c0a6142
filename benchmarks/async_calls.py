"""Asynchronous calls in one subtask: 5,000 concurrent calls of 100 ms, compared with a bare asyncio loop.

    python benchmarks/async_calls.py --json async_calls.json

Each call sleeps for 100 ms, like a call to a slow service. So 5,000 concurrent calls can process at most
50,000 records per second. The bare loop has 5,000 workers. It keeps no order and no timestamps, takes no
checkpoints and has no channels. The job makes all calls in one subtask. It takes a checkpoint every second,
with up to 5,000 records in flight.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import (
    Figures,
    call,
    cluster,
    compare,
    machine,
    options,
    rows_a_second,
    scratch,
    spread,
    steady,
    table,
    versions,
)

from penstock import Checkpointing, DiscardSink, GeneratorSource, StreamEnvironment

BARE = "bare asyncio"
ORDERED, UNORDERED = "penstock, in order", "penstock, in any order"
BATCHES = "penstock, batches of 32"

#: Name of each ratio, its numerator, its denominator and its target.
RATIOS = [
    ("async_ordered_vs_bare_asyncio", ORDERED, BARE, ""),
    ("async_unordered_vs_bare_asyncio", UNORDERED, BARE, ""),
]

SECONDS = 0.1


async def answered(number: int) -> int:
    """The answer of a service after a tenth of a second."""
    await asyncio.sleep(SECONDS)
    return number


async def answered_together(numbers: list[int]) -> list[int]:
    """The answers of a model to a batch, after a tenth of a second."""
    await asyncio.sleep(SECONDS)
    return numbers


def bare(count: int, calls: int) -> None:
    """Process `count` records with `calls` workers on a bare event loop."""

    async def work() -> None:
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                await answered(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(calls):
                group.create_task(worker())

    asyncio.run(work())


def job(folder: Path, calls: int, *, ordered: bool = True, batch: int | None = None) -> StreamEnvironment:
    """A job with a source and all calls in one subtask."""
    storage = str(folder / "checkpoints")
    env = StreamEnvironment("async-calls", checkpointing=Checkpointing(every=1.0, storage=storage))
    source = env.from_source("numbers", GeneratorSource(lambda i: i))
    if batch is None:
        called = source.map_async(answered, id="calls", capacity=calls, ordered=ordered)
    else:
        called = source.map_async(answered_together, id="calls", capacity=calls // batch, batch=batch)
    called.sink("discard", DiscardSink())
    return env


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, seconds=8.0, warm_up=3.0, rounds=3, calls=5_000)
    given = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {}
    efforts: dict[str, list[float]] = {}
    settings: dict[str, dict[str, Any]] = {ORDERED: {}, UNORDERED: {"ordered": False}, BATCHES: {"batch": 32}}
    with scratch() as folder, cluster():
        for number in range(given.rounds):
            count = int(given.calls / SECONDS * given.seconds)
            contenders = {BARE: call(count, lambda count: bare(count, given.calls))}
            for name, chosen in settings.items():
                env = job(folder / f"{number} {name}", given.calls, **chosen)
                contenders[name] = steady(env, "calls", given.warm_up, given.seconds)
            for name, found in contenders.items():
                rates.setdefault(name, []).append(found.rate)
                efforts.setdefault(name, []).append(found.effort)
    figures = Figures()
    ratios = compare(figures, RATIOS, rates)
    lines = [
        [
            name,
            rows_a_second(figures.rates[name]),
            spread([rate / 1e3 for rate in each]),
            f"{1e6 * min(efforts[name]):.0f}",
        ]
        for name, each in rates.items()
    ]
    headings = ["contender", "calls/s", "thousands, of all rounds", "processor us a call"]
    print(table(headings, lines), end="\n\n")
    print(table(["ratio", "middle", "target", "of all rounds"], ratios), end="\n\n")
    print(f"{given.calls:,} calls of {SECONDS:g} s at once: at most {given.calls / SECONDS:,.0f} a second.")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
