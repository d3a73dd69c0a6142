"""`read_state` and `write_state` with the broadcast state of a function beside rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from simulated_jobs.scripted_job import ScriptedJob

from penstock import CollectSink, FunctionContext, GeneratorSource, StreamEnvironment
from penstock.connected import BroadcastProcessFunction, BroadcastState
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.io.storage import open_location
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.state import read_state, write_state

#: Rules that some subtask has processed.
PROCESSED: list[str] = []


class Limits(BroadcastProcessFunction[int, tuple[str, int], dict[str, int]]):
    """Emits the limits for each number."""

    limits = BroadcastState(str, int)

    def process_element(self, value: int, ctx: FunctionContext) -> Iterator[dict[str, int]]:
        yield dict(self.limits)

    def process_broadcast_element(self, value: tuple[str, int], ctx: FunctionContext) -> None:
        self.limits[value[0]] = value[1]
        PROCESSED.append(value[0])


def job(rules: list[tuple[str, int]], start: str | None = None) -> tuple[ScriptedJob, InMemoryCollector]:
    out, env = InMemoryCollector(), StreamEnvironment("limits", parallelism=2)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=1_000)).rebalance()
    limits = env.from_collection("rules", rules).broadcast()
    numbers.connect(limits).process("limits", Limits()).sink("out", CollectSink(out))
    config = JobConfig(checkpointing=Checkpointing(every=1))
    graph = build_execution_graph(env.build())
    return ScriptedJob(
        graph, config, MemoryStorage(), 3, restore_from=start, open_location=open_location
    ), out


def entry(pair: tuple[str, int]) -> dict[str, Any]:
    return {"limit": pair[0], "amount": pair[1]}


def test_broadcast_state_is_read_once_as_pairs(tmp_path: Path) -> None:
    PROCESSED.clear()
    running, _ = job([("a", 1), ("b", 2)])
    running.until(lambda: len(PROCESSED) == 4, "both subtasks have both rules")
    saved = running.take_savepoint(str(tmp_path / "saved"))
    rows = read_state(saved, "limits", "limits", value=entry)["value"].to_pylist()
    assert sorted(rows, key=str) == [{"limit": "a", "amount": 1}, {"limit": "b", "amount": 2}]


def test_job_starts_from_written_broadcast_state(tmp_path: Path) -> None:
    rules = pa.table({"value": [{"limit": "a", "amount": 7}]})
    start = write_state(
        rules,
        tmp_path / "start",
        "limits",
        "limits",
        kind="broadcast",
        parallelism=3,
        value=lambda row: (row["limit"], row["amount"]),
    )
    running, out = job([], start)
    running.until(lambda: len(out.rows()) == 1_000, "all numbers have come")
    assert out.rows() == [{"a": 7}] * 1_000
