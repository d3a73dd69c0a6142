"""The common parts of benchmarks: sampling a running job, machine and versions, tables and JSON."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

from penstock import StreamEnvironment
from penstock.cluster import RayJobHandle, start_local

_POLL = 0.25
_START_TIMEOUT = 90.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A running job at one moment.

    Attributes:
        at: Monotonic seconds.
        records: Input records of the measured operator.
        busy: Processor seconds that the processes of all subtasks have used.
        memory: Resident bytes of the processes of all subtasks, without shared pages.
    """

    at: float
    records: int
    busy: float
    memory: int


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of a job's run.

    Attributes:
        samples: Samples after start-up and warm-up, oldest first.
        checkpoints: Checkpoints that completed meanwhile.
    """

    samples: tuple[Sample, ...]
    checkpoints: int

    @property
    def rate(self) -> float:
        """Records per second."""
        first, last = self.samples[0], self.samples[-1]
        return (last.records - first.records) / (last.at - first.at)

    @property
    def effort(self) -> float:
        """Processor seconds per record, of all processes together."""
        first, last = self.samples[0], self.samples[-1]
        return (last.busy - first.busy) / max(1, last.records - first.records)


@dataclass(slots=True)
class Figures:
    """The content of a benchmark's JSON file.

    Attributes:
        ratios: Ratios of two figures.
        rates: Records per second.
        seconds: Durations.
        details: Other values that explain the figures.
    """

    ratios: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def write(self, path: str | None, versions: Mapping[str, str]) -> None:
        """Write the figures to a file; does nothing without a path."""
        if path is None:
            return
        record = {
            "ratios": self.ratios,
            "rates": self.rates,
            "seconds": self.seconds,
            "details": self.details,
            "versions": dict(versions),
            "machine": asdict(machine()),
        }
        Path(path).write_text(json.dumps(record, indent=2) + "\n")


def options(description: str | None, **defaults: float) -> argparse.ArgumentParser:
    """The command line of a benchmark: `--json` and one option for each default."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    for name, default in defaults.items():
        parser.add_argument(
            f"--{name.replace(chr(95), chr(45))}",
            type=type(default),
            default=default,
            help=f"default {default:g}",
        )
    return parser


def compare(
    figures: Figures, ratios: Iterable[tuple[str, str, str, str]], rates: Mapping[str, Sequence[float]]
) -> list[list[str]]:
    """Compare the rates of contenders round by round; keep the medians, and return lines for a table.

    Args:
        figures: Receives ratios and rates.
        ratios: Name of each ratio, its numerator, its denominator and its target. A ratio is left
            out if one of its contenders did not run.
        rates: The rates of each contender, one rate per round.
    """
    figures.rates |= {name: middle(each) for name, each in rates.items()}
    figures.details.setdefault("rates", {}).update({name: list(each) for name, each in rates.items()})
    lines = []
    for name, above, below, target in ratios:
        if above in rates and below in rates:
            rounds = [a / b for a, b in zip(rates[above], rates[below], strict=True)]
            figures.ratios[name] = middle(rounds)
            lines.append([name, f"{middle(rounds):.2f}", target, spread(rounds)])
    return lines


@contextmanager
def cluster(cpus: int | None = None) -> Iterator[None]:
    """Start a local cluster, unless this process is already in one.

    Ray gives its workers a low priority (nice 15). Here they get the normal priority, so that other programs
    on the machine disturb all contenders equally.

    Args:
        cpus: CPUs that Ray may assign, by default all. Subtasks need none.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_worker_niceness", "0")
    start_local(num_cpus=cpus or os.cpu_count())
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for checkpoints and results that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def running(env: StreamEnvironment, operator: str) -> Iterator[RayJobHandle]:
    """Submit a job and wait for its first record; cancel the job after the block."""
    job = env.submit()
    assert isinstance(job, RayJobHandle)
    try:
        deadline = time.monotonic() + _START_TIMEOUT
        while sample(job, operator).records == 0:
            report = job.report()
            if report.status.is_terminal or time.monotonic() > deadline:
                msg = f"{env.name} is {report.status.value} and has no records yet: {report.failures}"
                raise RuntimeError(msg)
            time.sleep(0.1)
        yield job
    finally:
        job.cancel()
        while not job.status().is_terminal:
            time.sleep(0.05)


def watch(
    job: RayJobHandle,
    operator: str,
    warm_up: float,
    seconds: float,
    rows: float = math.inf,
    warm_rows: int = 0,
) -> Steady:
    """Sample a running job for `seconds` seconds, after a warm-up.

    Args:
        operator: The operator whose input records are counted.
        warm_up: Minimum seconds of the warm-up.
        seconds: Length of the steady part.
        rows: Rows of the whole input; the steady part ends before the input does.
        warm_rows: Minimum records of the warm-up.

    Raises:
        RuntimeError: The input ended before half of the steady part.
    """
    time.sleep(warm_up)
    samples = [sample(job, operator)]
    while samples[0].records < min(warm_rows, rows):
        time.sleep(_POLL)
        samples = [sample(job, operator)]
    before = completed = job.statistics().completed_checkpoints
    while samples[-1].at - samples[0].at < seconds:
        time.sleep(_POLL)
        seen = sample(job, operator)
        if seen.records >= rows or seen.records < samples[-1].records:
            break
        samples.append(seen)
        completed = job.statistics().completed_checkpoints
    if samples[-1].at - samples[0].at < seconds / 2:
        msg = f"the input ended after {samples[-1].records:,} rows"
        raise RuntimeError(f"{msg}, before {operator} was watched for {seconds:g} s: use more rows")
    return Steady(tuple(samples), completed - before)


def steady(
    env: StreamEnvironment,
    operator: str,
    warm_up: float,
    seconds: float,
    rows: float = math.inf,
    warm_rows: int = 0,
) -> Steady:
    """Run a job and return its steady part; see `watch`."""
    with running(env, operator) as job:
        return watch(job, operator, warm_up, seconds, rows, warm_rows)


def sample(job: RayJobHandle, operator: str) -> Sample:
    """Sample a job now."""
    asked = time.monotonic()
    report = job.report()
    at = (asked + time.monotonic()) / 2
    counters = report.statistics.operators.get(operator)
    records = 0 if counters is None else counters.records_in
    pids = [process.pid for process in report.processes]
    return Sample(at, records, sum(map(busy_seconds, pids)), sum(map(resident_bytes, pids)))


def busy_seconds(pid: int) -> float:
    """The processor seconds that a process has used; 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if unknown.

    Shared pages do not count: those of Ray's object store count as resident once a process has touched them.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def call(count: int, work: Callable[[int], object]) -> Steady:
    """Run `work(count)`, and return it as a run of `count` records."""
    first = Sample(time.monotonic(), 0, time.process_time(), 0)
    work(count)
    return Steady((first, Sample(time.monotonic(), count, time.process_time(), 0)), 0)


def middle(values: Iterable[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """Smallest and largest, for a table."""
    return f"{min(values):.2f} to {max(values):.2f}"


def median_interval(values: Sequence[float], share: float = 0.95, draws: int = 4_000) -> tuple[float, float]:
    """The bootstrap confidence interval of a median.

    Args:
        values: The measurements; the same measurements always give the same interval.
        share: Share of the resampled medians that lies in the interval.
        draws: Number of samples that are drawn, with replacement; each is as large as `values`.

    Example:
        >>> median_interval([1.0] * 9), median_interval([0.9, 1.0, 1.1])
        ((1.0, 1.0), (0.9, 1.1))
    """
    chance = random.Random(0)
    medians = sorted(middle(chance.choices(values, k=len(values))) for _ in range(draws))
    return quantile(medians, (1 - share) / 2), quantile(medians, (1 + share) / 2)


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def versions(**more: str) -> dict[str, str]:
    """Versions of Python and of the measured packages."""
    named = {name: version(name) for name in ("penstock", "ray", "msgpack", "pyarrow", "numpy")}
    return {"python": platform.python_version(), **named, **more}


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a benchmark, and its load.

    Attributes:
        cpus: Number of processors.
        processor: Model of the processors.
        system: Operating system and its version.
        load_average: The system's load averages over the last 1, 5 and 15 minutes, including the benchmark.
    """

    cpus: int
    processor: str
    system: str
    load_average: tuple[float, ...]

    def in_words(self) -> str:
        """The machine as a sentence."""
        load = " / ".join(f"{value:.1f}" for value in self.load_average)
        return f"On {self.cpus} CPUs ({self.processor}), {self.system}; load average {load}."


def machine() -> Machine:
    """The machine, with its current load."""
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return Machine(os.cpu_count() or 1, _processor(), system, os.getloadavg())


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table that also reads well as plain text.

    Example:
        >>> print(table(["what", "rows/s"], [["loop", 12]]))
        | what | rows/s |
        | :--- | -----: |
        | loop |     12 |
    """
    texts = [list(map(str, headings)), *(list(map(str, row)) for row in rows)]
    widths = [max(4, *(len(row[column]) for row in texts)) for column in range(len(headings))]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [texts[0], rule, *texts[1:]]
    return "\n".join(
        "| "
        + " | ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in lines
    )


def rows_a_second(rate: float) -> str:
    """A rate for a table."""
    return f"{rate / 1e6:.2f} M" if rate >= 1e5 else f"{rate:,.0f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
