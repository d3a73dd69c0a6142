"""`SimulationReport`: the runs of a simulation, what happened in them, and the first one that went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from penstock.runtime.misspelt_names import NearestEnumMembers, NearestMembers
from penstock.runtime.testing.simulation.user_graph.comparison import Difference
from penstock.runtime.testing.simulation.user_graph.uncontrolled import Uncontrolled

#: Last lines of a trace that stand in a message.
_LAST_LINES: Final = 25

#: Marks in a trace of what went wrong and of what the job did about it.
_EVENTS: Final = ("!!", "**", "==")


class Finding(Enum, metaclass=NearestEnumMembers):
    """Which kind of mistake was found."""

    LOST_OR_REPEATED = "the output differs from that of runs without failures"
    DEPENDS_ON_ORDER = "the output differs between runs without any failure"
    DID_NOT_FINISH = "the job did not finish"


class SimulationFailedError(AssertionError):
    """A simulated job went wrong; the message says how, and how to see it again.

    Attributes:
        report: All that is known about it.
    """

    def __init__(self, report: SimulationReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The first run that went wrong.

    Attributes:
        finding: What kind of mistake it shows.
        difference: What is different in its output; `None` when the job did not finish.
        problem: Why the job did not finish; empty when it did.
        failures: Failures that really happened in it, by kind.
        trace: Every line of its replay.
        is_repeatable: Whether the replay went the same way; otherwise something is not under control.
    """

    seed: int
    finding: Finding
    difference: Difference | None = None
    problem: str = ""
    failures: Mapping[str, int] = field(default_factory=dict)
    trace: tuple[str, ...] = ()
    is_repeatable: bool = True


@dataclass(frozen=True, slots=True)
class SimulationReport(NearestMembers):
    """How a simulation went.

    Attributes:
        interleavings: Runs without failures.
        seeds: Runs with failures, up to the first one that went wrong.
        failures: Failures that really happened in all runs, by kind.
        checkpoints: Checkpoints completed in all runs.
        restarts: Restarts in all runs.
        uncontrolled: What was seen in users' code that differs from run to run.
        failed: The first run that went wrong; `None` when none did.
    """

    interleavings: int
    seeds: int
    failures: Mapping[str, int] = field(default_factory=dict)
    checkpoints: int = 0
    restarts: int = 0
    uncontrolled: tuple[Uncontrolled, ...] = ()
    failed: FailedRun | None = None

    @property
    def passed(self) -> bool:
        """Whether every run went well."""
        return self.failed is None

    @property
    def failing_seed(self) -> int | None:
        """The seed of the first run that went wrong."""
        return None if self.failed is None else self.failed.seed

    @property
    def difference(self) -> Difference | None:
        """What is different in the output of that run."""
        return None if self.failed is None else self.failed.difference

    @property
    def trace(self) -> tuple[str, ...]:
        """Every line of the replay of that run."""
        return () if self.failed is None else self.failed.trace

    def raise_if_failed(self) -> None:
        """Fail the test when a run went wrong.

        Raises:
            SimulationFailedError: It did; an `AssertionError`.
        """
        if self.failed is not None:
            raise SimulationFailedError(self)

    def __str__(self) -> str:
        lines = [] if self.failed is None else _describe(self.failed)
        lines.append(
            f"{self.interleavings} interleavings without failures and {self.seeds} seeds with failures, "
            f"{self.checkpoints} checkpoints, {self.restarts} restarts"
        )
        lines.append("failures that really happened: " + _counted(self.failures))
        lines += [f"not under control: {each}" for each in self.uncontrolled]
        return "\n".join(lines)


def _describe(failed: FailedRun) -> list[str]:
    lines = [f"seed {failed.seed}: {failed.finding.value}"]
    if failed.problem:
        lines.append(f"  {failed.problem}")
    if failed.difference is not None:
        lines += [f"  {line}" for line in failed.difference.lines()]
    lines.append(f"failures in this run: {_counted(failed.failures)}")
    events = [line for line in failed.trace if line.split(maxsplit=3)[2:3] and line.split()[2] in _EVENTS]
    lines += ["what struck the job, and what it did:", *(f"  {line}" for line in events[-_LAST_LINES:])]
    lines += ["the last lines of the trace:", *(f"  {line}" for line in failed.trace[-_LAST_LINES:])]
    if failed.finding is Finding.DEPENDS_ON_ORDER:
        lines.append("if such differences are meant, say which outputs are equal: simulate(..., equal=...)")
    if not failed.is_repeatable:
        lines.append("the replay went another way: something in the job differs from run to run")
    lines.append(f"see it again: simulate(build, output=output, seeds=[{failed.seed}])")
    return lines


def _counted(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in failures.items()) or "none"
