"""Runs Klein's pipelines, one after another, on a cluster of the Ray version in Klein's environment.

Klein runs three queries without state, and one running aggregate by key as a process function. Its windows
can only reduce, and its joins and SQL accept no streams of changes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import python_queries as steps
import ray
import ray.klein as klein
from python_queries import Row
from ray.klein.state.value_state_descriptor import ValueStateDescriptor
from report import Ended, busy_seconds, plain


class Source(klein.SourceFunction):
    """All events in order."""

    def __init__(self, settings: Mapping[str, Any], count: int) -> None:
        self._settings, self._count = settings, count
        self._next = 0
        self._is_cancelled = False

    def run(self, context: Any) -> None:
        """Emit the events."""
        for block in steps.blocks(steps.config_of(self._settings), self._next, self._count):
            if self._is_cancelled:
                return
            self._next += len(block)
            context.collect_many(block)

    def cancel(self) -> None:
        """End the loop."""
        self._is_cancelled = True

    def snapshot_state(self, checkpoint_id: int) -> int:
        """The number of the next event."""
        return self._next

    def restore_state(self, state: int) -> None:
        """Continue at this event."""
        self._next = state


class Receiver(klein.SinkFunction):
    """Writes results to a file, or drops them."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)

    def write(self, value: Row) -> None:
        """Write or drop a result."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(dict(value), default=plain) + "\n")


class RunningPrices(klein.KeyedProcessFunction):
    """Counts and price statistics of an auction's bids on a day."""

    def process(self, value: Row, context: Any) -> Row:
        """Emit the updated counts and statistics."""
        state = context.state(ValueStateDescriptor("prices"))
        row = steps.q17(state.value, value)
        state.value = row
        return row


def _bids(events: Any) -> Any:
    return events.filter(steps.is_bid).map(steps.bid_of)


QUERIES: Mapping[str, Callable[[Any], Any]] = {
    "source": lambda events: events,
    "q0": lambda events: _bids(events).map(steps.q0),
    "q1": lambda events: _bids(events).map(steps.q1),
    "q2": lambda events: _bids(events).filter(steps.q2_chooses).map(steps.q2),
    "q17": lambda events: _bids(events).key_by(steps.key_of_q17).process(RunningPrices()),
}


def main(given: dict[str, Any]) -> None:
    """Run the pipelines."""
    ray.init(num_cpus=16, include_dashboard=False, logging_level="ERROR")
    settings = {
        "execution.checkpointing.trigger.interval-duration": timedelta(seconds=given["checkpoint_every"]),
        # The default is a checkpoint every 512 records.
        "execution.checkpointing.trigger.interval-records": 1 << 30,
        "execution.checkpointing.dir": str(Path(given["folder"]) / "klein-checkpoints"),
    }

    def counts(command: str) -> bool:
        return command.startswith("ray::")

    for query, count in given["jobs"]:
        path = Path(given["folder"]) / f"klein-{query}-{count}"
        begun, busy = time.monotonic(), busy_seconds(counts)
        try:
            events = klein.pipeline(settings, name=f"{query}-{count}").source(
                Source, fn_constructor_args=[given["config"], count], bounded=True
            )
            job = QUERIES[query](events).write(
                Receiver, fn_constructor_args=[str(path) if given.get("collect") else None]
            )
            job.wait()
        except Exception as error:  # a query that a peer can't run is also a result
            Ended(query, count, failure=str(error)[:500]).say()
            continue
        seconds, busy = time.monotonic() - begun, busy_seconds(counts) - busy
        rows = None
        if given.get("collect"):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            if query == "q17":
                rows = steps.newest(rows, ("auction", "day"))
        Ended(query, count, seconds, busy, rows).say()
    ray.shutdown()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
