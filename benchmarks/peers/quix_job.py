"""Program for Quix's Python environment: sums by user and second in Quix Streams.

Its argument is JSON: `servers`, a `folder` for state, `guarantee`, `settings` of the consumer, and `jobs`
with a name and a number of orders. A job reads `orders-COUNT` and writes `NAME-COUNT`. The windows are
grouped by the records' key, so no record is written to another topic first.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

from quixstreams import Application
from report import Ended, busy_seconds


def at(value: Any, headers: Any, timestamp: float, kind: Any) -> int:
    """The time of an order in milliseconds."""
    moment: int = value["at"] // 1000
    return moment


def run(given: dict[str, Any], name: str, count: int) -> Ended:
    """Read `count` orders, and write their sums."""
    begun, busy = time.monotonic(), busy_seconds()
    left = count

    def processed(topic: str, partition: int, offset: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            app.stop()

    with tempfile.TemporaryDirectory(dir=given["folder"], ignore_cleanup_errors=True) as state:
        app = Application(
            broker_address=given["servers"],
            consumer_group=f"{name}-{count}",
            auto_offset_reset="earliest",
            commit_interval=given["commit_interval"],
            processing_guarantee=given["guarantee"],
            consumer_extra_config=given["settings"],
            state_dir=state,
            on_message_processed=processed,
            loglevel="WARNING",
        )
        orders = app.topic(
            f"orders-{count}", value_deserializer="json", key_deserializer="str", timestamp_extractor=at
        )
        sums = app.topic(f"{name}-{count}", value_serializer="json", key_serializer="str")
        frame = app.dataframe(orders).apply(lambda order: order["amount"])
        totals = frame.tumbling_window(timedelta(seconds=1)).sum().final(closing_strategy="partition")
        rows = totals.apply(
            lambda window, key, _, __: {
                "user": key,
                "second": window["start"] // 1000,
                "total": window["value"],
            },
            metadata=True,
        )
        rows.to_topic(sums)
        app.run()
    return Ended(name, count, time.monotonic() - begun, busy_seconds() - busy)


if __name__ == "__main__":
    argument = json.loads(sys.argv[1])
    for job in argument["jobs"]:
        run(argument, *job).say()
