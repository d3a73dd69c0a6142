"""Runs of one seed and of many: what is printed, and what it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.runtime.testing.simulation.jobs.scenario import draw_scenario
from penstock.runtime.testing.simulation.simulation import Simulation, SimulationResult
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind

#: How a failing seed is run again.
REPLAY: Final = "python -m penstock.runtime.testing.simulation --seed {seed} --trace"

#: The deaths of processes.
_KILLS: Final = (
    FaultKind.CRASH,
    FaultKind.CRASH_IN_STEP,
    FaultKind.CRASH_IN_UPLOAD,
    FaultKind.CRASH_AFTER_END,
    FaultKind.MASTER_CRASH,
)

#: So much of an error's text stands in a summary.
_MOST_TEXT: Final = 2000


def run_seed(seed: int, write: Callable[[str], None] | None = None) -> SimulationResult:
    """Run one seed; an error that nobody had injected is a problem of the result.

    Args:
        write: Takes the lines of the trace; `None` for no trace.

    Example:
        >>> run_seed(3).passed
        True
    """
    simulation = Simulation(draw_scenario(seed), write)
    try:
        return simulation.run()
    except Exception as error:  # a bug of any kind is the run's result
        problem = f"{type(error).__name__}: {error}"
        if error.__cause__ is not None:
            problem += f"\n  because of {type(error.__cause__).__name__}: {error.__cause__}"
        counts = simulation.world.counts.by_kind()
        return SimulationResult(seed, (problem,), counts, moves=simulation.world.trace.moves)


@dataclass(slots=True)
class Summary:
    """What many runs came to.

    Attributes:
        passed: Seeds without a problem.
        failed: The other ones.
        moves: Moves of all runs.
        captured: Parts of checkpoints that were acknowledged with data in flight.
        restored: Subtasks that began with data in flight.
        stored: Parts of checkpoints whose alignment stored elements.
        spilled: Those of them whose alignment needed the disk.
        counts: Failures that really happened.
        kills: Processes that died, by mode and meaning of the end of a channel.
    """

    passed: int = 0
    failed: list[int] = field(default_factory=list)
    moves: int = 0
    captured: int = 0
    restored: int = 0
    stored: int = 0
    spilled: int = 0
    counts: FaultCounts = field(default_factory=FaultCounts)
    kills: Counter[str] = field(default_factory=Counter)

    def add(self, result: SimulationResult) -> None:
        """Take one run in."""
        if result.passed:
            self.passed += 1
        else:
            self.failed.append(result.seed)
        self.moves += result.moves
        self.captured += result.captured
        self.restored += result.restored
        self.stored += result.stored
        self.spilled += result.spilled
        self.counts.add(result.happened)
        if result.barriers:
            self.kills[result.barriers] += sum(result.happened.get(kind, 0) for kind in _KILLS)

    @property
    def missing_kinds(self) -> list[FaultKind]:
        """Kinds of failures that never happened."""
        return [kind for kind in FaultKind if not self.counts.by_kind().get(kind)]

    def lines(self) -> list[str]:
        """In words, for the end of a run."""
        return [
            f"{self.moves} moves; subtasks that put data in flight into a checkpoint: {self.captured}, "
            f"that began with such data: {self.restored}; whose alignment stored elements: {self.stored}, "
            f"on disk: {self.spilled}",
            f"failures injected that really happened: {self.counts.total} ({self.counts})",
            f"processes killed: {self.kills.total()}",
            *(f"  {settings}: {kills}" for settings, kills in sorted(self.kills.items())),
            f"{self.passed} passed, {len(self.failed)} failed",
        ]


def describe_failure(result: SimulationResult) -> list[str]:
    """What went wrong with a seed, and how to see it again."""
    problems = [f"  {problem[:_MOST_TEXT]}" for problem in result.problems]
    return [
        f"seed {result.seed} FAILED after {result.moves} moves:",
        *problems,
        f"  see it again: {REPLAY.format(seed=result.seed)}",
    ]


def run_seeds(seeds: Iterable[int], write: Callable[[str], None] = lambda line: None) -> Summary:
    """Run many seeds, one after the other.

    Args:
        write: Takes a line for each failure.

    Example:
        >>> run_seeds(range(3)).lines()[-1]
        '3 passed, 0 failed'
    """
    return summarise(map(run_seed, seeds), write)


def summarise(results: Iterable[SimulationResult], write: Callable[[str], None]) -> Summary:
    """The totals of several runs."""
    summary = Summary()
    for result in results:
        summary.add(result)
        if not result.passed:
            for line in describe_failure(result):
                write(line)
    return summary
