"""An actor that stands for the process of a subtask with a `BlockWriter`."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import ray

from penstock.actors.shared.system_ports import SystemClock
from penstock.bridge.blocks import BlockWriter, TransactionKey
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.spark import SparkResults


@ray.remote(num_cpus=0)
class BlockTask:
    """One attempt; its writer works in threads, as it does in a subtask."""

    def __init__(self, results: SparkResults, attempt: int) -> None:
        self._results = results
        self._of = ConnectorContext("job", "job", "out", 0, 1, attempt, SystemClock())
        self._permit = permit_of_completed_checkpoint(1, attempt)

    async def start(self) -> None:
        self._writer: BlockWriter = await asyncio.to_thread(self._results.writer, self._of)

    async def write(self, first: int, rows: int, width: int) -> list[TransactionKey]:
        """Write rows with ids from `first`, and prepare their commit."""
        batch = pa.record_batch({"id": range(first, first + rows), "text": ["x" * width] * rows})

        def write() -> list[TransactionKey]:
            self._writer.write(ArrowBatch(batch))
            return list(self._writer.prepare_commit())

        return await asyncio.to_thread(write)

    async def commit(self, keys: list[TransactionKey]) -> None:
        await asyncio.to_thread(self._writer.commit, keys, self._permit)
        await asyncio.to_thread(self._writer.remove_leftovers, self._permit)


def block_task(results: SparkResults, attempt: int, **options: Any) -> Any:
    """Start an attempt; the options are those of its actor."""
    task: Any = BlockTask.options(**options).remote(results, attempt)
    ray.get(task.start.remote())
    return task


def makers(results: SparkResults) -> set[ray.ActorID]:
    """The actors that have written the committed blocks into the object store."""
    return {block.data.task_id().actor_id() for block in results.blocks().values()}


def ids(results: SparkResults) -> list[int]:
    """The ids of all committed rows, in order."""
    blocks = ray.get([block.data for block in results.blocks().values()])
    return [row for block in blocks for row in pa.ipc.open_stream(block).read_all()["id"].to_pylist()]
