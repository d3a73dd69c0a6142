"""An operator with a coordinator: subtasks report counts, and the coordinator begins new batches.

Each subtask of `limited` adds the number of the current batch to its orders. It reports the number of orders
to its coordinator, which runs in the JobMaster. When all subtasks together have seen another `--every`
orders, the coordinator begins the next batch, and sends its number to every subtask.

Counts and batch numbers take effect exactly once, whichever process is killed. `--kill` kills a subtask after
the second checkpoint. The orders then come in parts, so that the job still runs at that time. The job would
fail if a subtask missed a batch number or got it twice.

    python examples/shared_limit.py --orders 4000 --every 500 --kill
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paced_source import PacedSource
from word_count import kill_one_subtask

from penstock import Checkpointing, FileSink, FixedDelay, GeneratorSource, StreamEnvironment
from penstock.connectors import Source
from penstock.operators import (
    CoordinatorAnswer,
    Operator,
    OperatorContext,
    OperatorCoordinator,
    OperatorCoordinatorContext,
    RowBatch,
)

#: Checkpoints before the kill.
KILL_AFTER = 2


class Limits(OperatorCoordinator):
    """Adds up the counts of the subtasks, and begins a new batch after every `every` orders."""

    def __init__(self, context: OperatorCoordinatorContext, every: int) -> None:
        self.context = context
        self.every = every
        self.total = 0
        self.batch = 0

    def handle_event(self, subtask: int, event: int) -> None:
        """Add the count of a subtask."""
        self.total += event
        while self.total >= (self.batch + 1) * self.every:
            self.batch += 1
            for receiver in range(self.context.parallelism):
                self.context.send_event(receiver, (self.batch, self.total))

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        """Both numbers are the state of the coordinator."""
        answer.complete((self.total, self.batch))

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        """Continue with the numbers of a checkpoint."""
        self.total, self.batch = state or (0, 0)


class Limited(Operator):
    """Adds the number of its batch to each order."""

    def __init__(self, every: int) -> None:
        self.every = every

    def coordinator(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        """Make the coordinator of all subtasks."""
        return Limits(context, self.every)

    def open(self, context: OperatorContext) -> None:
        """Restore the batch: all subtasks receive the same numbers, so the newest one is valid."""
        self.context = context
        self.saved = context.operator_list_state("batch", "union")
        self.batch = max(self.saved.get(), default=0)

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        """Report the orders, and pass them on."""
        self.context.send_event(len(batch))
        yield RowBatch([{"order": order, "batch": self.batch} for order in batch.rows])

    def handle_event(self, event: tuple[int, int]) -> None:
        """Begin the next batch; a missing or repeated number is an error."""
        batch, total = event
        if batch != self.batch + 1:
            msg = f"batch {batch} (after {total} orders) came after batch {self.batch}"
            raise ValueError(msg)
        self.batch = batch

    def snapshot(self, checkpoint_id: int) -> None:
        """The batch number is the state of every subtask."""
        self.saved.update([self.batch])


def build(folder: Path, source: Source[int], every: int, parallelism: int = 2) -> StreamEnvironment:
    """The whole job; it commits to the folder `out`."""
    env = StreamEnvironment(
        "shared-limit",
        parallelism=parallelism,
        checkpointing=Checkpointing(every=0.25, storage=str(folder / "checkpoints"), keep_after="always"),
        restart=FixedDelay(attempts=5, delay=0.1),
    )
    limited = env.from_source("orders", source).rebalance().transform("limited", Limited(every))
    limited.sink("out", FileSink.json(folder / "out"))
    return env


def main() -> None:
    """Run the job, and check the committed orders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--orders", type=int, default=4_000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--rate", type=float, default=2_000.0)
    parser.add_argument("--kill", action="store_true", help="kill a subtask after the second checkpoint")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        orders: Source[int] = GeneratorSource(int, count=arguments.orders, rate=arguments.rate)
        if arguments.kill:
            orders = PacedSource(orders, arguments.orders / (KILL_AFTER + 3))
        job = build(Path(name), orders, arguments.every).submit()
        if arguments.kill:
            kill_one_subtask(job, "limited", KILL_AFTER)
        result = job.wait(progress=False)
        rows = [json.loads(line) for file in Path(name, "out").glob("part-*") for line in file.open()]
        assert sorted(row["order"] for row in rows) == list(range(arguments.orders))
        print(f"{len(rows)} orders, each once, in batches up to {max(row['batch'] for row in rows)}")
        print(f"restarts: {result.statistics.restarts}")


if __name__ == "__main__":
    main()
