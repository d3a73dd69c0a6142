"""`make soak`: a job on three nodes for half an hour, in weather that a seed draws; its output must be exact.

    python tests/on_ray/soak.py --minutes 30 --seed 0
    python tests/on_ray/soak.py --minutes 30 --into delta

One fault follows the other, with some seconds between them. Subtasks and the JobMaster are killed or
frozen. Nodes die, or are cut off while their subtasks go on. The disk of the checkpoints is full. The job
is rescaled. After each fault the job must complete two more checkpoints without a person. At the end the
output is compared record by record. Memory, descriptors and files of each kind must stay under bounds.
`--results` writes the figures into `benchmarks/RESULTS.md`, also when a bound is exceeded.

*The bounds for files.* Files of state are those of three checkpoints: the newest complete one, the one that
runs, and the one that it builds on. A killed attempt may leave those of one more, which are swept when the
next attempt begins. The log keeps its records since the last but one compaction. Where a fault struck a
compaction, it keeps those of one compaction more. It also keeps the slot of each `AttemptBegun`, and
`decision_log` tells why. So the bound of the log alone grows, by one file an attempt.

*With `--into delta`* the output is a Delta table whose small files are compacted. At the end each version of
the table must show complete checkpoints alone: of each word the counts from 1 on, without a gap.

The full disk is a small file system in memory and needs root. It is skipped by name elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

_HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent), str(_HERE.parents[1] / "benchmarks")]

import psutil  # noqa: E402 (the path comes first)
import pyarrow as pa  # noqa: E402
from deltalake import DeltaTable  # noqa: E402
from jobs.all_windows import Numbers, Reading  # noqa: E402
from jobs.driving import submit  # noqa: E402
from jobs.nodes import Nodes, WorkerNode, three_nodes  # noqa: E402
from jobs.oracle import Updates, committed_updates, expected_updates, hidden_files  # noqa: E402
from jobs.words import add, as_update, line, with_one, word_of  # noqa: E402
from measure import machine, table, versions  # noqa: E402
from run_all import RESULTS, replace_part  # noqa: E402

from penstock import (  # noqa: E402
    Checkpointing,
    FileSink,
    FixedDelay,
    JobStatus,
    PenstockError,
    StreamEnvironment,
)
from penstock.actors.shared.job_report import JobMasterProcess, SubtaskProcess  # noqa: E402
from penstock.cluster import JobReport, RayJobHandle  # noqa: E402
from penstock.connectors import Sink  # noqa: E402
from penstock.delta import DeltaSink  # noqa: E402
from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY  # noqa: E402
from penstock.runtime.snapshot.storage import STAGED  # noqa: E402
from penstock.runtime.state.keyed_snapshot import CompactionPolicy  # noqa: E402

#: Lines a second: the rest of the machine is for restarts.
RATE: Final = 100.0
#: Seconds within which a job must be well again after one fault.
PATIENCE: Final = 240.0
#: Seconds that a frozen raylet or a full disk lasts.
LASTS: Final = 12.0
_POLL: Final = 0.5
_DISK: Final = 24 << 20
#: What `count` may be rescaled to.
_PARALLELISMS: Final = (1, 2, 3)
#: Resident bytes, and descriptors, of one process of the job.
_MOST_MEMORY: Final = 500 << 20
_MOST_DESCRIPTORS: Final = 400


def line_of(number: Reading) -> str:
    """A number of the source as a line of words."""
    return line(number[1])


def kind_of(path: str) -> str:
    """The purpose of a file in the checkpoint storage, by its path below the job's folder."""
    folder, _, name = path.partition("/")
    if STAGED in path:
        return "half-written"
    if folder.startswith("chk-"):
        return "metadata" if name == "metadata" else "in-flight data"
    return {"log": "log", "shared": "state", "ids": "notes of ids"}.get(folder, "other")


def files_by_kind(storage: Path) -> Counter[str]:
    """Numbers of files of each kind."""
    found: Counter[str] = Counter()
    for folder, _, names in os.walk(storage):  # it passes over folders that go away meanwhile
        below = Path(folder).relative_to(storage).parts[1:]
        found.update(kind_of("/".join((*below, name))) for name in names)
    return found


def most_files(attempts: int) -> dict[str, int]:
    """Limits for every moment of a run; the module's docstring gives the reasons."""
    checkpoints, subtasks = 3 + 1, max(_PARALLELISMS)
    return {
        # With the newest compaction and the hint.
        "log": 3 * COMPACT_EVERY + 2 + attempts,
        "metadata": checkpoints,
        # A chain of keyed state, and the change that makes it longer.
        "state": checkpoints * subtasks * (CompactionPolicy().max_files + 1),
        "in-flight data": checkpoints * (2 * subtasks + 1),
        # The newest, the one that follows it, and the same of an attempt that was killed.
        "notes of ids": 4,
        # Each process of the job may be killed while it writes, and so may the next one in its place.
        "half-written": 2 * (2 * subtasks + 2),
        # The proof that all nodes see this storage, the probe of one that is opened, the report of the end.
        "other": 3,
    }


class Output(Protocol):
    """The destination of the updates of the job."""

    @property
    def sink(self) -> Sink[Any]: ...

    def committed(self) -> Updates: ...

    def check(self) -> None:
        """Look at what a finished job has left."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    """JSON files in a folder."""

    folder: Path

    @property
    def sink(self) -> Sink[Any]:
        return FileSink.json(self.folder)

    def committed(self) -> Updates:
        return committed_updates(self.folder)

    def check(self) -> None:
        assert hidden_files(self.folder) == [], "files of transactions are left"


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """A Delta table whose small files are joined."""

    folder: Path

    @property
    def sink(self) -> Sink[Any]:
        schema = pa.schema({"word": pa.string(), "count": pa.int64()})
        return DeltaSink(self.folder, schema, compact_below=64 << 20, compact_at=8)

    def committed(self) -> Updates:
        rows = DeltaTable(self.folder).to_pyarrow_table().to_pylist()
        return Counter((row["word"], row["count"]) for row in rows)

    def check(self) -> None:
        log = DeltaTable(self.folder).history()
        compactions = sum(entry["operation"] == "OPTIMIZE" for entry in log)
        assert compactions > 0, "no files were joined"
        before: Counter[str] = Counter()
        for version in range(len(log)):
            now = self._newest_counts(version)
            assert now >= before, f"version {version} lacks {before - now}"
            before = now
        _say(f"{len(log)} versions of the table, {compactions} compactions")

    def _newest_counts(self, version: int) -> Counter[str]:
        """The count of each word in a version; all smaller ones must be there once, too."""
        rows = DeltaTable(self.folder, version=version).to_pyarrow_table()
        looks = ["max", "count", "count_distinct"]
        of_words = rows.group_by("word").aggregate([("count", look) for look in looks]).to_pylist()
        for word in of_words:
            assert len({word[f"count_{look}"] for look in looks}) == 1, f"version {version}: {word}"
        return Counter({word["word"]: word["count_max"] for word in of_words})


OUTPUTS: Final[dict[str, Callable[[Path], Output]]] = {"files": Files, "delta": CompactedTable}


@dataclass
class Figures:
    """The observations; of memory, descriptors and each kind of files the most at one moment."""

    faults: Counter[str] = field(default_factory=Counter)
    well_after: dict[str, list[float]] = field(default_factory=dict)
    memory: int = 0
    descriptors: int = 0
    files: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def look(self, report: JobReport, storage: Path) -> None:
        """Take the largest values."""
        for process in [*report.processes, *([] if report.master is None else [report.master])]:
            with contextlib.suppress(psutil.Error):
                seen = psutil.Process(process.pid)
                self.memory = max(self.memory, seen.memory_info().rss)
                self.descriptors = max(self.descriptors, seen.num_fds())
        now = files_by_kind(storage)
        self.files = max(self.files, now.total())
        self.kinds |= now

    def exceeded(self, attempts: int) -> list[str]:
        """The bounds that were exceeded, in words."""
        most = {"memory": _MOST_MEMORY, "descriptors": _MOST_DESCRIPTORS, **most_files(attempts)}
        seen = {"memory": self.memory, "descriptors": self.descriptors, **self.kinds}
        return [f"{name}: {n:,} is more than {most[name]:,}" for name, n in seen.items() if n > most[name]]


class Soak:
    """One job and the weather around it."""

    def __init__(
        self, nodes: Nodes, folder: Path, storage: Path, output: Output, seed: int, can_fill: bool
    ) -> None:
        self._nodes = nodes
        self._output = output
        self._storage = storage
        #: Before it exists, the source keeps its rate; then it makes up for the time that the weather took.
        self._go = folder / "go"
        self._chance = random.Random(seed)
        self.figures = Figures()
        self._faults: dict[str, Callable[[JobReport], None]] = {
            "subtask killed": self._kill_subtask,
            "JobMaster killed": self._kill_master,
            "subtask frozen": self._freeze_subtask,
            "JobMaster frozen": self._freeze_master,
            "node died": self._kill_node,
            "node cut off": self._cut_node,
            "rescaled": self._rescale,
        }
        if can_fill:
            self._faults["disk full"] = self._fill_disk
        self._job: RayJobHandle

    def run(self, minutes: float) -> JobReport:
        """Submit, bring about faults until the time is over, and wait for the end."""
        count = int(minutes * 60 * RATE)
        self._job = submit(self._environment(count))
        until = time.monotonic() + minutes * 60
        self._well(0, "start")
        while time.monotonic() < until and not self._report().status.is_terminal:
            # Each kind comes before one comes again.
            fewest = min(self.figures.faults[name] for name in self._faults)
            names = [name for name in self._faults if self.figures.faults[name] == fewest]
            name = self._chance.choice(names)
            before = self._report()
            if before.status.is_terminal:
                break
            files = _listed(files_by_kind(self._storage))
            _say(f"{name} (attempt {before.statistics.attempt}; {files})")
            began = time.monotonic()
            self._faults[name](before)
            self.figures.faults[name] += 1
            self._well(self._completed(), name, began)
            time.sleep(self._chance.uniform(1.0, 5.0))
        _say("the weather is over")
        self._go.touch()
        return self._end(count)

    def _environment(self, count: int) -> StreamEnvironment:
        env = StreamEnvironment(
            "soak",
            parallelism=2,
            checkpointing=Checkpointing(
                every=1.0, timeout=30.0, storage=str(self._storage), tolerable_failures=3
            ),
            restart=FixedDelay(attempts=100_000, delay=0.2),
        )
        numbers = env.from_source("numbers", Numbers(count, RATE, str(self._go)), parallelism=1)
        lines = numbers.map(line_of, parallelism=1)
        pairs = lines.flat_map(str.split).map(with_one).key_by(word_of)
        counts = pairs.reduce("count", add, num_cpus=0.5).map(as_update)
        counts.sink("updates", self._output.sink)
        return env

    # -- faults ---------------------------------------------------------------------------------------------

    def _kill_subtask(self, report: JobReport) -> None:
        self._kill(self._chance.choice(report.processes))

    def _kill_master(self, report: JobReport) -> None:
        assert report.master is not None
        self._kill(report.master)

    def _kill(self, process: SubtaskProcess | JobMasterProcess) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

    def _freeze_subtask(self, report: JobReport) -> None:
        self._freeze(self._chance.choice(report.processes))

    def _freeze_master(self, report: JobReport) -> None:
        assert report.master is not None
        self._freeze(report.master)

    def _freeze(self, process: SubtaskProcess | JobMasterProcess) -> None:
        """For good, or for a while: then it wakes when another one has its place, or has it no more."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        if self._chance.random() < 0.5:
            time.sleep(self._chance.uniform(1.0, LASTS))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    def _kill_node(self, report: JobReport) -> None:
        self._chance.choice(self._living()).kill()
        self._nodes.refill()

    def _cut_node(self, report: JobReport) -> None:
        victim = self._chance.choice(self._living())
        victim.freeze()
        try:
            deadline = time.monotonic() + PATIENCE
            while victim.is_alive() and time.monotonic() < deadline:
                time.sleep(_POLL)
            time.sleep(self._chance.uniform(0.0, LASTS))
        finally:
            victim.thaw()
        deadline = time.monotonic() + PATIENCE
        while not victim.has_left():
            assert time.monotonic() < deadline, "a node that was cut off has not left"
            time.sleep(_POLL)
        self._nodes.refill()

    def _living(self) -> list[WorkerNode]:
        return [worker for worker in self._nodes.workers if worker.is_alive()]

    def _rescale(self, report: JobReport) -> None:
        with contextlib.suppress(PenstockError):  # the job is restarting and may not be rescaled now
            self._job.rescale({"count": self._chance.choice(_PARALLELISMS)}, timeout=PATIENCE)

    def _fill_disk(self, report: JobReport) -> None:
        filler = self._storage.parent / "filler"
        try:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            time.sleep(LASTS / 2)
        finally:
            filler.unlink()

    # -- how it is ------------------------------------------------------------------------------------------

    def _report(self) -> JobReport:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                report = self._job.report()
            except PenstockError:  # its JobMaster hangs, or is being replaced
                assert time.monotonic() < deadline, "the JobMaster does not answer"
                continue
            self.figures.look(report, self._storage)
            return report

    def _completed(self) -> int:
        return self._report().statistics.completed_checkpoints

    def _well(self, completed: int, what: str, began: float | None = None) -> None:
        """Wait until two more checkpoints are complete."""
        deadline = time.monotonic() + PATIENCE
        while True:
            report = self._report()
            if report.status.is_terminal or report.statistics.completed_checkpoints >= completed + 2:
                break
            seen = f"{report.status.value}: {report.failure}"
            assert time.monotonic() < deadline, f"not well {PATIENCE:g} s after {what}: {seen}"
            time.sleep(_POLL)
        if began is not None:
            self.figures.well_after.setdefault(what, []).append(time.monotonic() - began)

    def _end(self, count: int) -> JobReport:
        deadline = time.monotonic() + PATIENCE + count / RATE
        while not (report := self._report()).status.is_terminal:
            assert time.monotonic() < deadline, "the job does not end"
            time.sleep(_POLL)
        assert report.status is JobStatus.FINISHED, report.failures[-3:]
        expected = expected_updates(map(line, range(count)))
        committed = self._output.committed()
        missing, surplus = expected - committed, committed - expected
        assert not missing, f"{missing.total()} of {expected.total()} lost: {missing.most_common(5)}"
        assert not surplus, f"{surplus.total()} too many: {surplus.most_common(5)}"
        self._output.check()
        return report


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system with little room at `folder`, if this process may mount one; whether it could."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "penstock-soak", str(folder)]
    mounted = shutil.which("mount") is not None and subprocess.run(words, capture_output=True).returncode == 0
    if not mounted:
        _say("the disk is never full: this process may not mount a small one (root may)")
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def shown(figures: Figures, report: JobReport, rows: int, minutes: float) -> str:
    """The figures for RESULTS.md."""
    lines = [
        [name, figures.faults[name], f"{sorted(taken)[len(taken) // 2]:.0f} s", f"{max(taken):.0f} s"]
        for name, taken in sorted(figures.well_after.items())
    ]
    faults = table(["fault", "times", "two checkpoints later, middle", "at most"], lines)
    statistics = report.statistics
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    return "\n\n".join(
        [
            faults,
            f"{minutes:g} minutes, {figures.faults.total()} faults, {statistics.attempt} attempts, "
            f"{statistics.completed_checkpoints} checkpoints; {rows:,} records compared, each is there once.",
            f"At most: {figures.memory / 1e6:.0f} MB and {figures.descriptors} descriptors in one process, "
            f"{figures.files} files in the checkpoint storage. "
            f"Of each kind at most: {_listed(figures.kinds)}.",
            f"{datetime.now(UTC):%d %B %Y}. {machine().in_words()} {named}.",
        ]
    )


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Soak, compare, write."""
    parser = argparse.ArgumentParser(description="A job in hostile weather on three nodes of this machine.")
    parser.add_argument("--minutes", type=float, default=30.0, help="default 30")
    parser.add_argument("--seed", type=int, default=0, help="draws the faults; default 0")
    parser.add_argument("--into", choices=OUTPUTS, default="files", help="what the job writes; default files")
    parser.add_argument("--results", metavar="FILE", help=f"where the figures go, such as {RESULTS.name}")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        can_fill = stack.enter_context(small_disk(folder / "disk"))
        nodes = stack.enter_context(three_nodes(health_check_timeout_ms=3_000))
        output = OUTPUTS[given.into](folder / "out")
        soak = Soak(nodes, folder, folder / "disk" / "checkpoints", output, given.seed, can_fill)
        report = soak.run(given.minutes)
        rows = output.committed().total()
    said = shown(soak.figures, report, rows, given.minutes)
    print(said)
    if given.results is not None:
        results = Path(given.results)
        part = "soak" if given.into == "files" else f"soak into {given.into}"
        results.write_text(replace_part(results.read_text(), part, said))
    exceeded = soak.figures.exceeded(report.statistics.attempt)
    for each in exceeded:
        _say(each)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
