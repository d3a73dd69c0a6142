"""The cost of one checkpoint for the coordinator of a job with many subtasks.

    python benchmarks/coordinator_scale.py --json coordinator_scale.json

Every step of a checkpoint goes through the coordinator. It prepares the location, counts acknowledgements,
writes the metadata and the record, and notifies the subtasks. So its cost must grow linearly with the number
of subtasks, and stay far below the checkpoint interval. The real job scheduler, coordinator, log and metadata
run. Subtasks are simulated: each acknowledges a file of keyed state and a list. Half of them are sources,
each with one receiver. Nothing waits, so processor time is measured, and other load on the machine does not
add to it.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measure import Figures, machine, middle, options, table, versions

from penstock.actors.shared.cycle_collector import spare_loaded_modules
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.graph.job_graph import (
    Partitioner,
    Partitioning,
)
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # manual runners; a graph without code

from manual_work import ManualAsyncRunner
from small_graphs import read_and_count

_SUBTASKS = (100, 1_000, 5_000)


class Subtasks:
    """The gateway of a job whose subtasks ignore all messages."""

    def __init__(self) -> None:
        self.checkpoint_id = -1
        self.told = 0

    def trigger_checkpoint(self, attempt: int, subtasks: Sequence[Any], barrier: Any) -> None:
        """Remember the checkpoint's id."""
        self.checkpoint_id = barrier.checkpoint_id

    def notify_checkpoint_complete(self, attempt: int, subtasks: Sequence[Any], checkpoint_id: int) -> None:
        """Count the notified subtasks."""
        self.told += len(subtasks)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def graph_of(subtasks: int) -> ExecutionGraph:
    """Sources and receivers, connected one to one."""
    half = subtasks // 2
    forward = Partitioner(Partitioning.FORWARD)
    return read_and_count(half, half, forward, keyed=True, max_parallelism=half)


class Job:
    """A running job with this many simulated subtasks."""

    def __init__(self, subtasks: int) -> None:
        self._graph = graph_of(subtasks)
        self._gateway = Subtasks()
        self._runner = ManualAsyncRunner()
        clock = ManualClock()
        config = JobConfig(checkpointing=Checkpointing(every=3600))
        gateway: Any = self._gateway
        self._scheduler = JobScheduler(
            "wide",
            CurrentGraph(self._graph),
            config,
            gateway,
            MemoryStorage(),
            clock,
            ManualTimers(clock),
            self._runner,
        )
        self._scheduler.start()
        self._runner.run_all()
        self._scheduler.on_deployed(1)
        self._scheduler.on_started(1)

    def checkpoint(self) -> None:
        """Take one checkpoint, from its trigger to its notifications."""
        before = self._gateway.told
        self._scheduler.trigger_checkpoint()
        self._runner.run_all()  # prepares the checkpoint's location; subtasks are triggered afterwards
        checkpoint_id = self._gateway.checkpoint_id
        for subtask in self._graph.subtasks:
            snapshot = snapshot_of(subtask.id.vertex, subtask.id.index, checkpoint_id)
            self._scheduler.acknowledge(1, subtask.id, checkpoint_id, snapshot, CheckpointMetrics(0.1, 0.1))
        self._runner.run_all()
        told = self._gateway.told - before
        assert told == len(self._graph.subtasks), f"checkpoint {checkpoint_id} is incomplete: {told} notified"


def snapshot_of(operator: str, index: int, checkpoint_id: int) -> SubtaskSnapshot:
    """A snapshot with a file of keyed state and a list."""
    file = FileHandle(f"wide/shared/1-{checkpoint_id}-{operator}-{index}-0", 1_000_000, "0" * 32)
    keyed = (KeyedStateHandle(KeyGroupRange(index, index), (file,), 10_000),)
    lists = (OperatorStateHandle("l", RedistributionMode.SPLIT_DISTRIBUTE, InlineHandle(b"x" * 64), 1),)
    return SubtaskSnapshot({operator: OperatorSubtaskState(keyed, lists)})


def seconds_of(job: Job, rounds: int) -> float:
    """Processor seconds of one checkpoint: the median of `rounds` checkpoints."""
    taken = []
    for _ in range(rounds):
        begun = time.thread_time()
        job.checkpoint()
        taken.append(time.thread_time() - begun)
    return middle(taken)


def peak_of(job: Job) -> int:
    """Peak bytes that Python allocates for a checkpoint."""
    tracemalloc.start()
    try:
        job.checkpoint()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, largest=max(_SUBTASKS), rounds=5).parse_args(arguments)
    figures, lines = Figures(), []
    cost: dict[int, float] = {}
    for subtasks in [count for count in _SUBTASKS if count <= given.largest]:
        spare_loaded_modules()  # as a JobMaster does
        job = Job(subtasks)
        job.checkpoint()
        cost[subtasks] = seconds_of(job, given.rounds)
        peak = peak_of(job)
        figures.seconds[f"{subtasks:,} subtasks"] = cost[subtasks]
        each = cost[subtasks] / subtasks
        lines.append(
            [f"{subtasks:,}", f"{cost[subtasks]:.3f} s", f"{each * 1e6:.0f} us", f"{peak / 1e6:.1f} MB"]
        )
    print(table(["subtasks", "one checkpoint", "each subtask", "memory"], lines), end="\n\n")
    smallest, largest = min(cost), max(cost)
    if smallest < largest:
        growth = (cost[largest] / largest) / (cost[smallest] / smallest)
        figures.ratios["cost_of_each_subtask_large_vs_small_job"] = growth
        print(f"Each of {largest:,} subtasks costs {growth:.2f} times what each of {smallest:,} costs.")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
