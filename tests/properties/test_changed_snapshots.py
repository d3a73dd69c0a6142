"""A changed snapshot, with valid checksums, neither runs code nor touches files of others."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from changed_snapshots import changed, closed, harmful_pickle, opened, relocated
from deep import DEEP
from simulated_jobs.scripted_job import ScriptedJob
from strange_elements import NAME, LoadsPickles, put_in_flight

from penstock import (
    AdvancedConfig,
    Checkpointing,
    FileSink,
    FileSource,
    HeapState,
    JobConfig,
    KeyedProcessFunction,
    RocksDB,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.errors import PenstockError, StorageError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.snapshot.storage import MemoryStorage

pytestmark = pytest.mark.simulation

MUTANTS = 1_000 * DEEP
PARTS = 8
#: Changed are a checkpoint, one with data in flight, the note of a savepoint whose files are elsewhere, or a
#: checkpoint of RocksDB.
KINDS = ("aligned", "unaligned", "located", "rocksdb")
#: How many of the mutants have something strange in flight; RocksDB makes no difference there, and is slow.
IN_FLIGHT = {"aligned": 0.3, "unaligned": 0.5, "located": 0.0, "rocksdb": 0.0}


class Count(KeyedProcessFunction[int, str, dict[str, Any]]):
    """Numbers the lines of each length."""

    def open(self, ctx: RuntimeContext) -> None:
        self.seen: ValueState[int] = ctx.value_state("seen", default=0)

    def process(self, value: str, ctx: RuntimeContext) -> list[dict[str, Any]]:
        self.seen.update(self.seen.value() + 1)
        return [{"line": value, "number": self.seen.value()}]


class Place:
    """Folders of a job, and others that are none of its business."""

    def __init__(self, root: Path) -> None:
        self.root, self.lines, self.out = root, root / "in", root / "out"
        self.outside = root / "outside"
        for folder in (self.lines, self.out, self.outside):
            folder.mkdir()
        for name in ("a", "b"):
            (self.lines / name).write_text("".join(f"{name * (i % 7)}\n" for i in range(60)))
        (self.outside / "secret").write_text("keep\n")
        (self.outside / "_inprogress-scripted-out-0-1-0.jsonl").write_text("keep\n")

    def graph(self) -> ExecutionGraph:
        env = StreamEnvironment("lines", max_parallelism=8)
        lines = env.from_source("lines", FileSource.text(self.lines), parallelism=2)
        numbered = lines.key_by(len).process("count", Count(), parallelism=2)
        numbered.sink("out", FileSink.json(self.out), parallelism=2)
        return build_execution_graph(env.build())

    def backend(self, kind: str) -> StateBackend:
        """Path of its keyed state."""
        return RocksDB(8 * 1024 * 1024, str(self.root)) if kind == "rocksdb" else HeapState()

    def strings(self) -> list[str]:
        """Values that an attacker would write into a snapshot."""
        up = "../" * 3
        return [
            str(self.outside / "secret"),
            str(self.outside),
            f"{self.lines}/../outside/secret",
            f"{self.out}/../outside",
            "../outside/secret",
            "_inprogress-scripted-out-0-1-0.jsonl",
            f"{up}etc/passwd",
            "/etc/passwd",
            "file:///etc/passwd",
            f"memory:/{self.outside}",
            "os",
            "system",
            "builtins",
            "eval",
            "penstock",
            "PendingFile",
            "FileSplit",
            "\0",
            "\ud800",
            "OPTIONS-000007",
            "x" * 5_000,
        ]

    def folders(self, storage: str) -> list[str]:
        """Places that an attacker would give for a savepoint.

        Only the first ones are inside of the storage.
        """
        return [
            f"{storage}/saved",
            f"{storage}/elsewhere",
            f"{storage}/saved/..",
            f"{storage}/../else",
            f"{storage}else/saved",
            str(self.outside),
            f"file://{self.outside}",
            "s3://bucket/saved",
            "",
            "\0",
        ]


#: Folders that nothing may open while this is not empty.
forbidden: list[str] = []
touched: list[str] = []


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if forbidden and event in ("open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.listdir"):
        named = [str(each) for each in arguments]
        touched.extend(each for each in named for folder in forbidden if each.startswith(f"{folder}/"))


sys.addaudithook(watch)


@contextmanager
def nothing_touches(folder: Path) -> Iterator[None]:
    forbidden.append(str(folder))
    try:
        yield
    finally:
        forbidden.clear()


def snapshot_of(place: Place, kind: str) -> tuple[MemoryStorage, str, str]:
    """A storage with a snapshot, its URL, and the path of its metadata."""
    storage = MemoryStorage()
    checkpointing = Checkpointing(every=1, unaligned=kind == "unaligned")
    config = JobConfig(
        advanced=AdvancedConfig(credits=2, buffer_rows=2),
        checkpointing=checkpointing,
        allow_pickle="records",
        state_backend=place.backend(kind),
    )
    job = ScriptedJob(place.graph(), config, storage)
    job.run(150)
    if kind == "located":
        job.take_savepoint(f"{storage.url}/saved")
        url: str | None = f"{storage.url}/scripted"
    else:
        job.complete_checkpoint()
        url = job.newest_url
    assert url is not None
    job.abandon()
    [path] = [path for path in storage.list("scripted/") if path.endswith("/metadata")]
    return storage, url, path


@pytest.fixture(autouse=True)
def loads_pickles() -> Iterator[None]:
    """Workers know an Arrow type that loads pickles, as those that import Ray Data do."""
    pa.register_extension_type(LoadsPickles(pa.null()))
    yield
    pa.unregister_extension_type(NAME)


class Elsewhere:
    """Storages that the user has not named: nothing may open one."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, url: str, *, create: bool = False) -> MemoryStorage:
        self.opened.append(url)
        raise StorageError(url)


def try_mutants(place: Place, seeds: range, kind: str) -> Counter[str]:
    """Start a job from each changed snapshot; returns how often what came of it."""
    storage, url, path = snapshot_of(place, kind)
    files = {each: storage.get(each) for each in storage.list("")}
    tree = opened(files[path])
    assert closed(tree) == files[path]
    mark = place.root / "marked"
    code, strings = harmful_pickle(str(mark)), place.strings()
    name = f"savepoint-{path.split('/')[0]}-{path.split('/')[1].removeprefix('savepoint-')}"
    places = [f"{folder}/{name}" for folder in place.folders(storage.url)] + strings
    [edge] = {channel.edge for subtask in place.graph().subtasks for channel in subtask.inputs}
    before = {each: each.read_text() for each in place.outside.iterdir()}
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        mutant, random = MemoryStorage(), Random(seed)
        for each, data in files.items():
            mutant.put(each, data)
        if random.random() < IN_FLIGHT[kind]:
            strange = put_in_flight(tree, random, edge, ("lines", "count"), strings, code)
            new = changed(strange, random, strings, code) if random.random() < 0.2 else closed(strange)
        else:
            new = changed(tree, random, strings, code)
        if kind == "located" and random.random() < 0.5:
            new = relocated(random.choice([files[path], new]), random, places)
        mutant.put(path, new)
        elsewhere = Elsewhere()
        with nothing_touches(place.outside):
            outcomes[outcome_of(place, kind, mutant, url, seed, elsewhere)] += 1
        assert not mark.exists(), f"mutant {seed} ran code"
        assert not touched, f"mutant {seed} touched {touched}"
        assert not elsewhere.opened, f"mutant {seed} opened {elsewhere.opened}"
    assert {each: each.read_text() for each in place.outside.iterdir()} == before
    return outcomes


def outcome_of(
    place: Place, kind: str, storage: MemoryStorage, url: str, seed: int, elsewhere: Elsewhere
) -> str:
    """`started`, or the name of the error. One that has no name of ours is raised."""
    checkpointing = Checkpointing(every=1, unaligned=seed % 3 == 0)
    config = JobConfig(checkpointing=checkpointing, allow_pickle="records", state_backend=place.backend(kind))
    try:
        job = ScriptedJob(
            place.graph(),
            config,
            storage,
            seed,
            job_id=f"job-{seed}",
            restore_from=url,
            open_location=elsewhere,
        )
        job.run(60)
        job.abandon()
    except PenstockError as error:
        return type(error).__name__
    except AssertionError as error:  # the simulation itself damages nothing, so it says so
        if not isinstance(error.__cause__, PenstockError):
            raise
        return type(error.__cause__).__name__
    return "started"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_changed_snapshot_runs_no_code_and_touches_no_file_of_others(part: int, tmp_path: Path) -> None:
    outcomes = try_mutants(Place(tmp_path), range(part, MUTANTS, PARTS), KINDS[part % 4])
    print(dict(outcomes))
    assert outcomes.total() == MUTANTS // PARTS
    assert {"started", "JobFailedError"} <= set(outcomes)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_changed_snapshots(part: int, tmp_path: Path) -> None:
    first = 100_000 + part * 5_000
    print(dict(try_mutants(Place(tmp_path), range(first, first + 5_000), KINDS[part % 4])))
