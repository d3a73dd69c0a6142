"""The source of Nexmark gives each event once, at any parallelism and after a restore."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nexmark_columns import QUERIES
from nexmark_events import NexmarkConfig, events
from nexmark_source import NexmarkSource, add_events

from penstock import DiscardSink, StreamEnvironment
from penstock.testing import SourceHarness

CONFIG = NexmarkConfig(seed=3, event_rate=10)


def all_events(count: int) -> list[dict[str, Any]]:
    return events(CONFIG, np.arange(count)).to_pylist()


def by_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["dateTime"])


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_splits_give_each_event_once(batch_format: Any, parallelism: int) -> None:
    source = NexmarkSource(CONFIG, count=250, batch_format=batch_format, block=8)
    rows = [
        row
        for subtask in range(parallelism)
        for row in SourceHarness(source, subtask=subtask, parallelism=parallelism).read_all()
    ]
    assert by_time(rows) == by_time(all_events(250))


def test_restored_reader_gives_the_rest() -> None:
    source = NexmarkSource(CONFIG, count=250, block=8)
    harness = SourceHarness(source)
    before = harness.poll(max_rows=100)
    after = SourceHarness(source, restored=[harness.snapshot()]).read_all()
    assert 0 < len(before) < 250
    assert by_time([*before, *after]) == by_time(all_events(250))


def test_source_makes_only_the_fields_that_a_query_reads() -> None:
    env = StreamEnvironment("job")
    stream = add_events(env, NexmarkSource(CONFIG, count=10, batch_format="arrow"))
    QUERIES["q11"](stream, CONFIG).sink("out", DiscardSink())
    sources = (each.source for vertex in env.build().vertices for each in vertex.operators)
    source: Any = next(each for each in sources if each is not None)
    assert set(source.fields) == {("event_type",), ("bid", "bidder"), ("dateTime",)}
    rows = SourceHarness(source).read_all()
    assert [[*row] for row in rows] == 10 * [["event_type", "bid", "dateTime"]]
    assert {name for row in rows for name in row["bid"] or ()} == {"bidder"}
