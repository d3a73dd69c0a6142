"""A job on hosts with networks of their own, as the program `on_host.py` on one of them sees it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs import on_host
from jobs.hosts import Network
from jobs.oracle import assert_exactly_once
from jobs.words import lines

from penstock import JobStatus
from penstock.cluster import JobReport

PROGRAM: Final = Path(on_host.__file__)
COUNT: Final = 6_000
#: Seconds for anything that a test waits for.
PATIENCE: Final = 180.0
SETTINGS: Final = {"count": COUNT, "rate": 2_000.0, "num_cpus": 1, "parallelism": 2, "every": 0.5}


@dataclass(frozen=True)
class Seen:
    """The last output of the program on a host."""

    report: JobReport
    nodes: Mapping[str, str]
    alive: frozenset[str]

    def addresses(self, vertex: str | None = None) -> set[str]:
        """Nodes of the subtasks of a vertex, or of all the job's processes."""
        named = [p for p in self.report.processes if vertex is None or p.subtask.vertex == vertex]
        found = {self.nodes[process.node_id] for process in named}
        if vertex is None and self.report.master is not None:
            found.add(self.nodes[self.report.master.node_id])
        return found


@dataclass
class WatchedJob:
    """A job on the hosts, as the program that watches it sees it."""

    network: Network
    folder: Path
    program: subprocess.Popen[bytes]

    @classmethod
    def submitted(cls, network: Network, folder: Path, **more: Any) -> WatchedJob:
        (folder / "settings.json").write_text(json.dumps(SETTINGS | more))
        return cls(network, folder, cls._program(network, folder))

    @staticmethod
    def _program(network: Network, *arguments: object) -> subprocess.Popen[bytes]:
        script = "import os, sys; os.environ['RAY_ADDRESS'] = sys.argv.pop(1); import runpy; "
        script += "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
        return network.head.start(sys.executable, "-c", script, network.address, PROGRAM, *arguments)

    def watch_again(self) -> None:
        """Start another program that watches, as the one before has lost its cluster."""
        self.program.kill()
        self.program.wait()
        (self.folder / on_host.REPORT).unlink(missing_ok=True)
        job_id = (self.folder / on_host.JOB_ID).read_text()
        self.program = self._program(self.network, self.folder, job_id)

    def seen(self) -> Seen | None:
        try:
            written = json.loads((self.folder / on_host.REPORT).read_text())
        except FileNotFoundError:
            return None
        return Seen(JobReport.from_dict(written["report"]), written["nodes"], frozenset(written["alive"]))

    def until(self, what: str, condition: Callable[[Seen], bool], patience: float = PATIENCE) -> Seen:
        deadline = time.monotonic() + patience
        while True:
            seen = self.seen()
            if seen is not None and condition(seen):
                return seen
            assert seen is None or not seen.report.status.is_terminal, f"ended before {what}: {seen.report}"
            said = "" if self.program.poll() is None else self.network.head.said()
            assert time.monotonic() < deadline, f"no {what} within {patience:g} s: {seen}\n{said}"
            time.sleep(0.1)

    def after_checkpoints(self, count: int) -> Seen:
        return self.until(
            f"{count} checkpoint(s)", lambda s: s.report.statistics.completed_checkpoints >= count
        )

    def running_without(self, address: str, attempt: int) -> Seen:
        return self.until(
            f"an attempt without {address}",
            lambda s: (
                s.report.statistics.attempt > attempt
                and s.report.status is JobStatus.RUNNING
                and s.addresses() != set()
                and address not in s.addresses()
            ),
        )

    def finish_exactly(self, count: int = COUNT) -> JobReport:
        (self.folder / "go").touch()
        seen = self.until("end", lambda s: s.report.status.is_terminal)
        assert seen.report.status is JobStatus.FINISHED, seen.report.failures
        assert_exactly_once(self.folder / "out", lines(count))
        return seen.report
