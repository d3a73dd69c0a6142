"""Walks through the code: the files that a call passes, recorded from a real job on a local Ray cluster.

    python tools/walks.py

A walk crosses threads and processes, so it is a list of legs. A leg is the Python stack from one function to
another. The recorder in `walk_recorder` wraps the last function of each leg, in every process of the cluster.
A function that returns before the leg's end is on no recorded stack, so it does not count. `make house`
prints the walks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urldefrag

from aiohttp import ClientSession, CookieJar
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDER: Final = Path(__file__).resolve().parent / "walk_recorder"


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a walk within one thread.

    Attributes:
        end: `module:function` at which the leg ends.
        start: Qualified name of the function at which the leg starts; its outermost frame counts.
        type: Name of the type of one argument, if several kinds of calls pass `end`.
        via: Qualified name of a function between both, if several ways lead to `end`.
    """

    end: str
    start: str
    type: str = ""
    via: str = ""


@dataclass(frozen=True, slots=True)
class Walk:
    """A call that crosses several parts of the code.

    Attributes:
        aim: Intended maximum number of files.
        most: Current maximum number of files; it may only be lowered.
    """

    name: str
    aim: int
    most: int
    legs: tuple[Leg, ...]


_COORDINATOR: Final = "penstock.runtime.checkpoint.coordinator.coordinator"
_PROCESSES: Final = "penstock.actors.master.ray_processes:RayProcesses.control"
_POST: Final = "penstock.actors.subtask.attempt:TaskThread.post"
_SINKS: Final = "penstock.runtime.operators.sinks"
_OF_SUBTASK: Final = "penstock.runtime.checkpoint.subtask_checkpoint_coordinator"

WALKS: Final = (
    Walk(
        "completion, from the log's answer to the sink's writer",
        8,
        9,
        (
            Leg("penstock.runtime.checkpoint.log.decision_log:DecisionLog.complete", "DecisionLog.complete"),
            Leg(_PROCESSES, "CheckpointFinalizer._next.<locals>.ended", "NotifyComplete"),
            Leg(_POST, "SubtaskRunner.control"),
            Leg(
                "penstock.runtime.operators.sinks:SinkOperator.notify_checkpoint_complete", "TaskThread._run"
            ),
        ),
    ),
    Walk(
        "trigger, from the coordinator to the source's subtask",
        7,
        7,
        (
            Leg(_PROCESSES, "CheckpointStarts._trigger_sources", "TriggerCheckpoint"),
            Leg(_POST, "SubtaskRunner.control"),
            # A subtask that gets barriers triggers its checkpoint by another way.
            Leg(
                f"{_OF_SUBTASK}:SubtaskCheckpointCoordinator.trigger",
                "TaskThread._run",
                via="Subtask._take_requested",
            ),
        ),
    ),
    Walk(
        "acknowledgement, from the subtask to the pending checkpoint",
        6,
        6,
        (
            Leg(
                "penstock.actors.subtask.gateway:MasterLink.report",
                "SubtaskCheckpointCoordinator._acknowledge",
            ),
            Leg(
                "penstock.runtime.checkpoint.coordinator.pending_checkpoint:PendingCheckpoint.acknowledge",
                "JobMaster.report",
            ),
        ),
    ),
    Walk(
        "savepoint by REST, from the handler to the coordinator",
        10,
        9,
        (
            Leg("penstock.actors.web.server:WebServer.begin", "savepoint"),
            Leg("penstock.actors.shared.actor_calls:RepeatedCall._call", "savepoint.<locals>.take"),
            Leg(f"{_COORDINATOR}:CheckpointCoordinator.trigger", "JobMaster.savepoint"),
        ),
    ),
)


Frame = tuple[str, str, str]


def leg_of(records: Iterable[Mapping[str, Any]], leg: Leg) -> list[Frame]:
    """The frames of the first recorded stack that passed a leg.

    Raises:
        LookupError: No recorded stack passed the leg: a name in `WALKS` is outdated, or the job did not make
            this call.
    """
    for record in records:
        if record["of"] != leg.end or (leg.type and leg.type not in record["types"]):
            continue
        names = [name for _, _, name in record["stack"]]
        if leg.start in names and (not leg.via or leg.via in names):
            return [tuple(frame) for frame in record["stack"][names.index(leg.start) :]]
    seen = sorted({" > ".join(f[2] for f in r["stack"]) for r in records if r["of"] == leg.end})
    msg = f"no call of {leg.end} came from {leg.start}; the recorded calls are {seen or 'none'}"
    raise LookupError(msg)


def files_of(frames: Iterable[Frame]) -> list[str]:
    """Files in the order in which they are entered first, relative to the project."""
    paths = (Path(file).resolve() for file, _, _ in frames)
    return list(dict.fromkeys(str(path.relative_to(ROOT)) for path in paths if path.is_relative_to(ROOT)))


@contextmanager
def recording(watched: Iterable[str]) -> Iterator[Path]:
    """Yield a folder in which processes that start inside the `with` block record their stacks."""
    with tempfile.TemporaryDirectory(prefix="penstock-walks-") as folder:
        path = os.pathsep.join(filter(None, (str(RECORDER), os.environ.get("PYTHONPATH", ""))))
        before = {name: os.environ.get(name) for name in ("PENSTOCK_WALKS", "PYTHONPATH")}
        os.environ |= {"PENSTOCK_WALKS": ",".join((folder, *watched)), "PYTHONPATH": path}
        try:
            yield Path(folder)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def take_walks() -> list[dict[str, Any]]:
    """Run a job, take a checkpoint, and take a savepoint by REST; return the recorded stacks."""
    watched = dict.fromkeys(leg.end for walk in WALKS for leg in walk.legs)
    with recording(watched) as folder, tempfile.TemporaryDirectory(prefix="penstock-walks-") as data:
        _run_job(Path(data))
        return [
            json.loads(line)
            for path in sorted(folder.glob("*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]


def _run_job(data: Path) -> None:
    import ray

    from penstock import Checkpointing, FileSink, GeneratorSource, StreamEnvironment
    from penstock.cluster import start_local

    start_local(num_cpus=2)
    try:
        checkpointing = Checkpointing(every=600, storage=str(data / "checkpoints"))
        env = StreamEnvironment("walks", checkpointing=checkpointing)
        numbers = env.from_source("numbers", GeneratorSource(lambda number: {"n": number}, rate=1_000.0))
        last = numbers.key_by(lambda row: row["n"] % 4).reduce("last", lambda _, row: row)
        last.sink("out", FileSink.json(data / "out"))
        job = env.submit()
        job.checkpoint()
        asyncio.run(_savepoint_by_rest(job.ui(open_browser=False).login))
        job.cancel()
    finally:
        ray.shutdown()


async def _savepoint_by_rest(login: str) -> None:
    address, fragment = urldefrag(login)
    given = parse_qs(fragment)
    path = f"/v1/jobs/{given['job'][0]}"
    headers = {"X-Penstock": "1", "Origin": address.rstrip("/")}
    jar = CookieJar(unsafe=True)  # accepts cookies from IP addresses
    async with ClientSession(address, cookie_jar=jar, headers=headers, raise_for_status=True) as rest:
        await rest.post("/v1/session", json={"token": given["token"][0]})
        trigger = (await (await rest.post(f"{path}/savepoints", json={})).json())["request-id"]
        while (await (await rest.get(f"{path}/triggers/{trigger}")).json())["status"]["id"] != "COMPLETED":
            await asyncio.sleep(0.05)


def passed_files() -> Iterator[tuple[Walk, list[str]]]:
    """The files that each walk passes."""
    records = take_walks()
    for walk in WALKS:
        yield walk, files_of(frame for leg in walk.legs for frame in leg_of(records, leg))


def table_of(passed: Iterable[tuple[Walk, list[str]]]) -> Table:
    """The files of each walk, with its aim."""
    table = Table("walk", "files", "aim", "", show_lines=True)
    for walk, files in passed:
        table.add_row(walk.name, str(len(files)), str(walk.aim), "\n".join(files))
    return table


def main() -> int:
    """Print the walks; fail when one passes more files than its maximum."""
    passed = list(passed_files())
    Console(width=None if sys.stdout.isatty() else 140).print(table_of(passed))
    longer = [walk.name for walk, files in passed if len(files) > walk.most]
    if longer:
        print(f"walks that have become longer: {'; '.join(longer)}", file=sys.stderr)
    return 1 if longer else 0


if __name__ == "__main__":
    sys.exit(main())
