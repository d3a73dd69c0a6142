"""The benchmark's jobs in Bytewax: one worker in this process, with a recovery store.

The program runs in Bytewax's own Python environment. Bytewax has no operators for aggregates that emit
changes, for rankings, or for joins without windows that emit each pair once. So only three groups of queries
are here: stateless queries, queries that a function with state per key can answer, and windows.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import python_queries as steps
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import (
    EventClock,
    SessionWindower,
    TumblingWindower,
    count_window,
    join_window,
)
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main
from python_queries import Row
from report import Ended, busy_seconds

_ALIGNED = datetime(2000, 1, 1, tzinfo=UTC)
_TEN = timedelta(seconds=10)


class Part(StatefulSourcePartition[Row, int]):
    """Reads all events in order."""

    def __init__(self, config: Any, count: int, resumed: int | None) -> None:
        self._next = resumed or 0
        self._blocks = steps.blocks(config, self._next, count)

    def next_batch(self) -> list[Row]:
        """The next block."""
        block = next(self._blocks)
        self._next += len(block)
        return block

    def snapshot(self) -> int:
        """The number of the next event."""
        return self._next


class Source(FixedPartitionedSource[Row, int]):
    """A source of events with one partition."""

    def __init__(self, config: Any, count: int) -> None:
        self._given = config, count

    def list_parts(self) -> list[str]:
        """The name of the only partition."""
        return ["events"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        """A reader of the only partition, from the resumed position."""
        return Part(*self._given, resume_state)


class Receiver(DynamicSink[Any], StatelessSinkPartition[Any]):
    """Keeps results, or drops them."""

    def __init__(self, kept: list[Any] | None) -> None:
        self._kept = kept

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Receiver:
        """Return this sink: the only worker needs no other writer."""
        return self

    def write_batch(self, items: list[Any]) -> None:
        """Take a batch."""
        if self._kept is not None:
            self._kept += items


def _clock() -> EventClock[Row, Any]:
    return EventClock(lambda event: event["dateTime"], wait_for_system_duration=timedelta(seconds=4))


def _bids(events: Any) -> Any:
    return op.map("bid", op.filter("bids", events, steps.is_bid), steps.bid_of)


def _q1(events: Any) -> Any:
    return op.map("q1", _bids(events), steps.q1)


def _q2(events: Any) -> Any:
    return op.map("q2", op.filter("chosen", _bids(events), steps.q2_chooses), steps.q2)


def _kept_of_q3(event: Row) -> tuple[str, Row] | None:
    if steps.is_person(event) and event["person"]["state"] in ("OR", "ID", "CA"):
        return str(event["person"]["id"]), event["person"]
    if steps.is_auction(event) and event["auction"]["category"] == 10:
        return str(event["auction"]["seller"]), event["auction"]
    return None


def _joined(state: tuple[Row | None, list[int]] | None, value: Row) -> tuple[Any, list[Row]]:
    person, waiting = state or (None, [])
    if "seller" not in value:
        person = {name: value[name] for name in ("name", "city", "state")}
        return (person, []), [{**person, "id": auction} for auction in waiting]
    if person is None:
        return (None, [*waiting, value["id"]]), []
    return (person, []), [{**person, "id": value["id"]}]


def _q3(events: Any) -> Any:
    keyed = op.filter_map("sellers", events, _kept_of_q3)
    return op.key_rm("rows", op.stateful_flat_map("q3", keyed, _joined))


def _q8(events: Any) -> Any:
    people = op.key_on(
        "by-id", op.filter("people", events, steps.is_person), lambda e: str(e["person"]["id"])
    )
    sold = op.key_on(
        "by-seller", op.filter("sold", events, steps.is_auction), lambda e: str(e["auction"]["seller"])
    )
    windows = TumblingWindower(length=_TEN, align_to=_ALIGNED)
    joined = join_window("q8", _clock(), windows, people, sold, insert_mode="last", emit_mode="final")

    def new_seller(item: Any) -> Row | None:
        _, (window, (person, auction)) = item
        if person is None or auction is None:
            return None
        chosen = {name: person["person"][name] for name in ("id", "name")}
        return {**chosen, "stime": _ALIGNED + window * _TEN}

    return op.filter_map("new-sellers", joined.down, new_seller)


def _q11(events: Any) -> Any:
    windows = SessionWindower(gap=_TEN)
    counted = count_window("q11", _bids(events), _clock(), windows, lambda bid: str(bid["bidder"]))
    return op.map("rows", counted.down, lambda item: {"bidder": int(item[0]), "bid_count": item[1][1]})


def _q17(events: Any) -> Any:
    keyed = op.key_on("auctions", _bids(events), steps.key_of_q17)

    def counted(before: Row | None, bid: Row) -> tuple[Row, Row]:
        row = steps.q17(before, bid)
        return row, row

    return op.key_rm("rows", op.stateful_map("q17", keyed, counted))


QUERIES: Mapping[str, Callable[[Any], Any]] = {
    "source": lambda events: events,
    "q0": lambda events: op.map("q0", _bids(events), steps.q0),
    "q1": _q1,
    "q2": _q2,
    "q3": _q3,
    "q8": _q8,
    "q11": _q11,
    "q17": _q17,
    "q22": lambda events: op.map("q22", _bids(events), steps.q22),
}


def main(given: dict[str, Any]) -> None:
    """Run the flows."""
    for query, count in given["jobs"]:
        kept: list[Any] | None = [] if given.get("collect") else None
        flow = Dataflow(query)
        config = steps.config_of(given["config"])
        results = QUERIES[query](op.input("events", flow, Source(config, count)))
        op.output("results", results, Receiver(kept))
        with tempfile.TemporaryDirectory(dir=given["folder"]) as store:
            begun, busy = time.monotonic(), busy_seconds()
            init_db_dir(Path(store), 1)
            recovery = RecoveryConfig(store, backup_interval=timedelta(0))
            every = timedelta(seconds=given["checkpoint_every"])
            cluster_main(flow, [], 0, recovery_config=recovery, epoch_interval=every)
            seconds, busy = time.monotonic() - begun, busy_seconds() - busy
        if kept is not None and query == "q17":
            kept = steps.newest(kept, ("auction", "day"))
        Ended(query, count, seconds, busy, kept).say()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
