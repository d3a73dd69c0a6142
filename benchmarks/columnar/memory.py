"""The memory of a job over columns while it reads many rows: resident bytes of its subtasks' processes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from columnar import files, jobs
from columnar.work import Work
from measure import Figures, Sample, running, sample, table

#: Seconds between two samples.
_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Samples of a job's memory, oldest first."""

    samples: tuple[Sample, ...]

    def at(self, share: float) -> Sample:
        """The median of the five samples nearest to a share of all rows."""
        wanted = share * self.samples[-1].records
        near = sorted(self.samples, key=lambda each: abs(each.records - wanted))[:5]
        return sorted(near, key=lambda each: each.memory)[len(near) // 2]

    @property
    def growth(self) -> float:
        """Memory at the end, relative to that after 15 % of the rows, when all keys and buffers exist."""
        return self.at(1.0).memory / self.at(0.15).memory

    def lines(self) -> list[list[str]]:
        """Lines of a table: the memory after some shares of the rows."""
        return [
            [f"{seen.records / 1e6:,.0f} M", f"{seen.memory / 1e6:,.0f} MB"]
            for seen in map(self.at, (0.0, 0.1, 0.25, 0.5, 0.75, 1.0))
        ]


class Memory(Work):
    """A keyed sum over a million keys; runs only in the first round."""

    def prepare(self) -> None:
        """Write the files."""
        rows = self.scale.memory_rows
        self.all = files.numbers(
            self.folder / "files",
            keys=min(1_000_000, rows // 20),
            rows=rows,
            each=min(2_000_000, rows // 10),
            different=8,
        )

    def run_round(self, number: int) -> None:
        """Watch one job from its first row to its last."""
        if number:
            return
        seen = []
        with running(jobs.keyed_sum(jobs.environment(self.storage, 2), self.all), "sums-combine") as job:
            while not job.status().is_terminal:
                found = sample(job, "sums-combine")
                if found.memory and found.records:
                    seen.append(found)
                if found.records >= self.all.rows:
                    break
                time.sleep(_EVERY)
        self.curve = MemoryCurve(tuple(seen))

    def show(self, name: str, figures: Figures) -> None:
        """Print the curve and keep it."""
        curve = self.curve
        rows = curve.samples[-1].records
        print(table(["rows", "memory of all subtasks"], curve.lines()), end="\n\n")
        print(f"After {rows:,} rows, the memory is {curve.growth:.2f} times what it was after 15 % of them.")
        print()
        figures.ratios["memory_growth"] = curve.growth
        figures.details[name] = [[seen.records, seen.memory] for seen in curve.samples]
