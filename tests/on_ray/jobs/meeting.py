"""A source that feeds a fast branch and a count, where it meets a slow branch; the slow one can be held up.

    numbers -> fast
    numbers -> count -> updates
    ticks -> slow -> count

While a file exists, `slow` lets a record through now and then. So a barrier that waits in front of it keeps
the alignment of `count` open for as long as a test wants.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobs.backpressure import taken_by
from jobs.driving import eventually, submit, subtask_statistics, wait_until
from jobs.oracle import committed_rows, committed_updates, expected_updates
from jobs.words import add, as_update, environment, line, with_one, word_of

from penstock import AdvancedConfig, FileSink, FixedDelay, GeneratorSource, JobConfig, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle
from penstock.connectors import Sink
from penstock.runtime.config.job_config import ALIGNMENT_MEMORY
from penstock.runtime.network.buffer_storage import BufferStorageStatistics
from penstock.runtime.snapshot.ids import SubtaskId

#: Small buffers and few of them: what may be on the way on a channel without credits.
CONFIG = JobConfig(advanced=AdvancedConfig(buffer_rows=20, credits=2))
ON_THE_WAY = 2 * 20
COUNT = SubtaskId("count", 0)
#: Seconds that the slow branch takes for a record while it is held up.
_HELD = 1.0


def number(i: int) -> dict[str, int]:
    return {"n": i}


@dataclass(frozen=True)
class Words:
    """A map function from numbers to the words of their lines."""

    line: Callable[[int], str]

    def __call__(self, record: dict[str, int]) -> list[str]:
        return self.line(record["n"]).split()


def tick(i: int) -> str:
    return f"tick t{i % 7}"


@dataclass(frozen=True)
class HeldUp:
    """A map function that lets a record through now and then while a file exists."""

    shut: str

    def __call__(self, record: Any) -> Any:
        shut, until = Path(self.shut), time.monotonic() + _HELD
        while shut.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return record


@dataclass(frozen=True)
class Meeting:
    """The job, in a folder of its own.

    Attributes:
        folder: Has the two folders that it commits to.
        line: Makes the lines whose words meet the slow branch.
    """

    folder: Path
    line: Callable[[int], str] = line

    @property
    def shut(self) -> Path:
        """While this file exists, the slow branch is held up."""
        return self.folder / "shut"

    def environment(
        self,
        updates: Sink[Any] | None = None,
        alignment_memory: int = ALIGNMENT_MEMORY,
        **checkpointing: Any,
    ) -> StreamEnvironment:
        """The graph; its alignments store."""
        advanced = replace(CONFIG.advanced, alignment_memory=alignment_memory)
        env = environment(
            self.folder,
            every=0.2,
            config=replace(CONFIG, advanced=advanced),
            buffer_timeout=0.1,
            restart=FixedDelay(attempts=100, delay=0.05),
            alignment="store",
            retain=50,
            **checkpointing,
        )
        numbers = env.from_source("numbers", GeneratorSource(number, rate=500))
        numbers.rebalance().sink("fast", FileSink.json(self.folder / "fast"))
        ticks = env.from_source("ticks", GeneratorSource(tick, rate=200))
        slow = ticks.rebalance().map(HeldUp(str(self.shut)), id="slow").flat_map(str.split).map(with_one)
        met = numbers.flat_map(Words(self.line)).map(with_one).union(slow)
        met.key_by(word_of).reduce("count", add).map(as_update).sink(
            "updates", updates or FileSink.json(self.folder / "met")
        )
        return env

    def submit(self, **checkpointing: Any) -> RayJobHandle:
        """Start it."""
        return submit(self.environment(**checkpointing))

    def hold_up(self, job: RayJobHandle, stored_bytes: int) -> BufferStorageStatistics:
        """Hold the slow branch up until the count has stored so much for the alignment that runs."""
        self.shut.touch()
        found: list[BufferStorageStatistics] = []

        def has_stored() -> bool:
            counters = subtask_statistics(job).get(COUNT)
            if counters is not None and counters.stored is not None:
                found.append(counters.stored)
            return bool(found) and found[-1].pending_bytes >= stored_bytes

        eventually(f"{stored_bytes} stored bytes", has_stored)
        return found[-1]

    def let_go(self) -> None:
        """Let the slow branch work on."""
        self.shut.unlink()

    def assert_exactly_once(self) -> None:
        """After a stop: both branches have each record of the sources exactly once."""
        numbers = Counter(row["n"] for row in committed_rows(self.folder / "fast"))
        assert numbers == Counter(range(len(numbers))), "the fast branch"
        updates = committed_updates(self.folder / "met")
        ticks = max(n for word, n in updates if word == "tick")
        lines = [*map(self.line, range(len(numbers))), *map(tick, range(ticks))]
        expected = expected_updates(lines)
        missing, surplus = expected - updates, updates - expected
        assert not missing, f"{missing.total()} updates lost: {missing.most_common(5)}"
        assert not surplus, f"{surplus.total()} updates too many: {surplus.most_common(5)}"


def more_than_on_the_way(job: RayJobHandle, operator: str) -> JobReport:
    """Wait until an operator has taken more records than fit on its channel: its sender was not held."""
    before = taken_by(job.report(), operator)
    return wait_until(
        job, f"records in {operator}", lambda report: taken_by(report, operator) > before + 5 * ON_THE_WAY
    )
