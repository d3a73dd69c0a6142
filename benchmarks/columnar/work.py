"""`Work`: a workload that several contenders run in each round, and the ratios of their rates."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from measure import Figures, Steady, compare, rows_a_second, steady, table

from penstock import StreamEnvironment


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes and durations of the work.

    Attributes:
        rows: Maximum rows of a workload's files; some workloads repeat one file by hard links.
        seconds: Length of a steady part.
        warm_up: Seconds at the start of a job that do not count.
        spark_warm_up: Seconds of Spark's first batches that do not count.
        round_trip_rows: Rows of the DataFrame that goes out of Spark and back.
        memory_rows: Rows of the job whose memory is sampled.
        with_spark: Whether Spark takes part.
    """

    rows: int
    seconds: float
    warm_up: float
    spark_warm_up: float
    round_trip_rows: int
    memory_rows: int
    with_spark: bool


class Work(ABC):
    """A workload of the benchmark, with its own tables.

    Args:
        folder: Folder for files and checkpoints.
        scale: Sizes and durations.
        closing: Closes what the workload has started.

    Attributes:
        ratios: Name of each ratio, its numerator, its denominator and its target.
        rates: Rows per second of each contender, one rate per round.
        notes: Remarks for the reader of the table.
    """

    ratios: ClassVar[Sequence[tuple[str, str, str, str]]] = ()

    def __init__(self, folder: Path, scale: Scale, closing: ExitStack) -> None:
        self.closing = closing
        self.folder = folder
        self.storage = folder / "checkpoints"
        self.scale = scale
        self.rates: dict[str, list[float]] = {}
        self.notes: dict[str, str] = {}
        self.checkpoints: dict[str, int] = {}

    @abstractmethod
    def prepare(self) -> None:
        """Prepare the data; a workload with Spark also compares the results of its contenders exactly.

        Raises:
            RuntimeError: The results differ.
        """

    @abstractmethod
    def run_round(self, number: int) -> None:
        """Run every contender once."""

    def show(self, name: str, figures: Figures) -> None:
        """Print the tables, and keep the figures under the name of the workload."""
        own = Figures()
        ratios = compare(own, self.ratios, self.rates)
        rates = [[contender, rows_a_second(rate)] for contender, rate in own.rates.items()]
        print(table(["contender", "rows/s"], rates), end="\n\n")
        print(table(["ratio", "middle", "target", "all rounds"], ratios), end="\n\n")
        for what, note in self.notes.items():
            print(f"*{what}*: {note}", end="\n\n")
        figures.ratios |= own.ratios
        figures.rates |= {f"{name}: {contender}": rate for contender, rate in own.rates.items()}
        figures.details[name] = {**own.details, "notes": self.notes, "checkpoints": self.checkpoints}

    def add(self, name: str, rate: float) -> None:
        """Keep a contender's rate."""
        self.rates.setdefault(name, []).append(rate)
        print(f"{name}: {rows_a_second(rate)} rows/s", file=sys.stderr, flush=True)

    def run_job(
        self, name: str, env: StreamEnvironment, operator: str, rows: int, warm_rows: int = 0
    ) -> Steady:
        """Run a job of Penstock and keep its rate."""
        run = steady(env, operator, self.scale.warm_up, self.scale.seconds, rows, warm_rows)
        self.add(name, run.rate)
        self.checkpoints[name] = self.checkpoints.get(name, 0) + run.checkpoints
        return run
