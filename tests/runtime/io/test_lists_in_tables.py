"""`read_state`, `write_state` and the inspection of snapshots with lists of functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulated_jobs.scripted_job import ScriptedJob

from penstock import CollectSink, FunctionContext, ProcessFunction, StreamEnvironment
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import StateHandle
from penstock.runtime.snapshot.metadata import read_state as read_file
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state_processor.inspection import StateSummary, inspect_snapshot
from penstock.state import OperatorListState, read_state, write_state

#: Numbers that some subtask has taken.
TAKEN: list[int] = []


class Lists(ProcessFunction[int, tuple[int, list[int], list[str]]]):
    """Emits with each number what its lists held when its subtask opened."""

    waiting = OperatorListState(int)
    rules = OperatorListState(str, mode="union")
    unused = OperatorListState()

    def open(self, ctx: FunctionContext) -> None:
        self.found = ctx.subtask, self.waiting.get(), self.rules.get()
        self.rules.update([f"of {ctx.subtask}"])
        self.seen = ctx.operator_list_state("seen", "broadcast")

    def process(self, value: int, ctx: FunctionContext) -> Iterator[tuple[int, list[int], list[str]]]:
        TAKEN.append(value)
        self.waiting.add(value)
        self.seen.update([True])
        yield self.found


def started(from_: str | None = None, *, parallelism: int = 2) -> tuple[ScriptedJob, InMemoryCollector]:
    out = InMemoryCollector()
    env = StreamEnvironment("lists", parallelism=parallelism)
    numbers = env.from_collection("numbers", range(1_000)).rebalance()
    numbers.process("lists", Lists()).sink("out", CollectSink(out))
    config = JobConfig(checkpointing=Checkpointing(every=1))
    graph = build_execution_graph(env.build())
    job = ScriptedJob(graph, config, MemoryStorage(), 3, restore_from=from_, open_location=open_location)
    return job, out


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A savepoint of two subtasks that have taken some of the numbers."""
    TAKEN.clear()
    job, _ = started()
    job.until(lambda: len(TAKEN) >= 10, "some numbers have come")
    return job.take_savepoint(str(tmp_path_factory.mktemp("lists") / "saved"))


def test_lists_are_read_subtask_by_subtask_and_broadcast_ones_once(saved: str) -> None:
    waiting = read_state(saved, "lists", "waiting")
    values = waiting["value"].to_pylist()
    assert set(waiting["subtask"].to_pylist()) == {0, 1}
    assert len(values) == len(set(values)) >= 10
    assert set(values) <= set(TAKEN)
    assert read_state(saved, "lists", "rules").to_pydict() == {"subtask": [0, 1], "value": ["of 0", "of 1"]}
    assert read_state(saved, "lists", "seen").to_pydict() == {"subtask": [0], "value": [True]}
    assert read_state(saved, "lists", "unused").num_rows == 0


def test_inspection_tells_mode_type_and_declaration_of_each_list(saved: str) -> None:
    opened = open_snapshot(saved, open_location)

    def read(handle: StateHandle) -> bytes:
        return read_file(opened.storage, handle)

    summary = inspect_snapshot(opened.checkpoint, read, ValueCodec(allow_pickle=False))
    (lists,) = (each for each in summary.operators if each.operator_id == "lists")
    waiting = read_state(saved, "lists", "waiting").num_rows
    assert lists.states == (
        StateSummary("rules", "union", 2, of_type="str", is_declared=True),
        StateSummary("seen", "broadcast", 2),
        StateSummary("unused", "split_distribute", 0, is_declared=True),
        StateSummary("waiting", "split_distribute", waiting, of_type="int", is_declared=True),
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_lists_that_are_written_are_those_that_a_function_finds(tmp_path: Path, parallelism: int) -> None:
    rules, waiting = pa.table({"value": ["a", "b"]}), pa.table({"value": [70, 80, 90]})
    one = write_state(rules, tmp_path / "1", "lists", "rules", kind="union")
    both = write_state(waiting, tmp_path / "2", "lists", "waiting", kind="split_distribute", base=one)
    job, out = started(both, parallelism=parallelism)
    job.finish()
    found: dict[int, Any] = {subtask: lists for subtask, *lists in out.rows()}
    assert [rules for _, rules in found.values()] == [["a", "b"]] * parallelism
    assert sorted(value for waiting, _ in found.values() for value in waiting) == [70, 80, 90]


def test_list_that_was_written_in_another_mode_or_type_is_refused(tmp_path: Path) -> None:
    waiting = pa.table({"value": [70]})
    union = write_state(waiting, tmp_path / "1", "lists", "waiting", kind="union")
    with pytest.raises(PenstockError, match=r"waiting.*union"):
        started(union)[0].finish()
    text = write_state(
        pa.table({"value": ["x"]}), tmp_path / "2", "lists", "waiting", kind="split_distribute"
    )
    with pytest.raises(PenstockError, match=r"state 'waiting' is declared as int, .* holds str"):
        started(text)[0].finish()
