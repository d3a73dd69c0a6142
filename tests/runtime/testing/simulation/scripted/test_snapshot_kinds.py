"""The table in docs/savepoints.md: each cell is tried, and the document must say what came out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from memory_storages import MemoryPlaces
from savepoint_jobs import found_at, take_savepoint
from simulated_jobs.scripted_job import ScriptedJob

from penstock import KeyedProcessFunction, RuntimeContext
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import JobFailedError, OperatorError, RestoreError, StorageError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import SlidingEventTimeWindows

DOCUMENT = Path(__file__).resolve().parents[5] / "docs" / "savepoints.md"
COUNT, KEYS = 900, 60


#: What the state of the largest pair is declared as, by how the graph differs.
TYPES: dict[str, type] = {"another type": list, "a wider type": Sequence}
#: Every how many seconds windows begin, by how the graph differs.
SLIDES = {"windows": 10, "another slide": 5}
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda p: p[0])


class Largest(KeyedProcessFunction[int, tuple[int, int], tuple[int, int]]):
    """The largest pair of each key so far; they only grow."""

    def __init__(self, of_type: type) -> None:
        self.of_type = of_type

    def open(self, ctx: RuntimeContext) -> None:
        self.largest = ctx.value_state("largest", default=(0, 0), of_type=self.of_type)

    def process(self, value: tuple[int, int], ctx: RuntimeContext) -> Iterable[tuple[int, int]]:
        self.largest.update(max(value, self.largest.value()))
        return [self.largest.value()]


def graph(
    target: InMemoryCollector, parallelism: int = 2, max_parallelism: int = 16, what: str = "same"
) -> ExecutionGraph:
    """Numbers -> counts by key -> counts of counts -> sink; `what` says how it differs from that."""
    env = StreamEnvironment("kinds", parallelism=parallelism, max_parallelism=max_parallelism)
    stream = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT, rate=20_000.0))
    pairs = stream.map(lambda i: (i % KEYS, 1), id="pair")
    counts = pairs.key_by(lambda p: p[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
    if what in ("same", "with one more", *SLIDES, *TYPES):
        counts = counts.key_by(lambda p: -p[0]).process("largest", Largest(TYPES.get(what, tuple)))
    if what == "with one more":
        pairs.key_by(lambda p: p[0]).reduce("more", max).sink("nowhere", CollectSink(InMemoryCollector()))
    if what in SLIDES:  # windows that are open until all has been read
        stamped = pairs.assign_timestamps_and_watermarks(MONOTONOUS).key_by(lambda p: p[0])
        windows = stamped.window(SlidingEventTimeWindows(10, SLIDES[what]))
        windows.reduce("window", max).sink("windows", CollectSink(InMemoryCollector()))
    out = "largest" if what == "another kind" else "out"
    counts.sink(out, CollectSink(target))
    return build_execution_graph(env.build())


EXPECTED = Counter((key, n + 1) for key in range(KEYS) for n in range(len(range(key, COUNT, KEYS))))


@dataclass
class Taken:
    """A snapshot of some kind, and the job that it was taken of."""

    kind: str
    seed: int
    what: str = "same"

    def __post_init__(self) -> None:
        self.places, self.target = MemoryPlaces(), InMemoryCollector()
        self.storage = self.places("/data", create=True)
        self.config = JobConfig(
            checkpointing=Checkpointing(every=1, unaligned=self.kind == "unaligned checkpoint"),
            advanced=AdvancedConfig(buffer_rows=4, credits=3),
        )
        self.job = ScriptedJob(
            graph(self.target, what=self.what),
            self.config,
            self.storage,
            self.seed,
            open_location=self.places,
        )
        self.job.run(150)
        self.base = self.another_checkpoint(0)
        self.job.run(4)
        if self.kind == "savepoint":
            take_savepoint(self.job, self.places, "/saved")
            self.url = "/saved"
            self.snapshot = found_at(self.places, self.url)
        else:
            self.snapshot = self.another_checkpoint(0)
            assert self.job.newest_url is not None
            self.url = self.job.newest_url

    @property
    def has_in_flight(self) -> bool:
        states = self.snapshot.operators.values()
        return any(s.channels is not None for state in states for s in state.subtasks.values())

    def another_checkpoint(self, moves: int = 4) -> CompletedCheckpoint:
        """The job's next checkpoint, after this many moves."""
        self.job.run(moves)
        self.job.complete_checkpoint()
        assert self.job.newest is not None
        return self.job.newest

    def starts(self, *, exactly: bool = True, allow: bool = False, **changes: object) -> bool:
        """Whether a job of this graph starts from it and comes to its end, with the right results."""
        target = self.target if exactly else InMemoryCollector()
        try:
            job = ScriptedJob(
                graph(target, **changes),  # type: ignore[arg-type]
                self.config,
                MemoryStorage(),
                job_id="another",
                restore_from=self.url,
                allow_non_restored_state=allow,
                open_location=self.places,
            )
        except (RestoreError, StorageError, JobFailedError):
            return False
        except OperatorError as error:
            if isinstance(error.__cause__, RestoreError):
                return False
            raise
        job.finish()
        assert not exactly or Counter(target.rows()) == EXPECTED
        return True

    def starts_when_moved(self, old: str, new: str) -> bool:
        if old in self.places.storages:
            self.places.move(old, new)
        else:  # a folder within a storage
            within = old.removeprefix("/data/") + "/"
            moved = self.places(new, create=True)
            for path in self.storage.list(within):
                moved.put(path.removeprefix(within), self.storage.get(path))
                self.storage.delete([path])
        self.url = self.url.replace(old, new, 1)
        return self.starts()


def take(kind: str) -> Taken:
    """A snapshot; an unaligned one with data in flight."""
    for seed in range(50):
        taken = Taken(kind, seed)
        if kind != "unaligned checkpoint" or taken.has_in_flight:
            return taken
    raise AssertionError("nothing was in flight in any of them")


def files(checkpoint: CompletedCheckpoint) -> set[str]:
    return {handle.path for handle in replace(checkpoint, metadata=None).files()}


def is_whole(taken: Taken) -> bool:
    folder = f"{taken.url.removeprefix('/data/')}/"
    if taken.kind == "savepoint":
        return files(taken.snapshot) <= set(taken.places(taken.url).list(""))
    return all(path.startswith(folder) for path in files(taken.snapshot))


def several(taken: Taken) -> list[Taken]:
    """It and others of its kind: whether two snapshots share files depends on how much has changed."""
    return [taken, *(Taken(taken.kind, seed) for seed in range(1, 9))]


def names_earlier_files(taken: Taken) -> bool:
    return any(files(each.snapshot) & files(each.base) for each in several(taken))


def is_built_upon(taken: Taken) -> bool:
    """Whether a later checkpoint names a file of it."""
    return any(files(each.another_checkpoint()) & files(each.snapshot) for each in several(taken))


def moves(taken: Taken, *, whole_storage: bool) -> bool:
    if not whole_storage:
        return taken.starts_when_moved(taken.url, "/elsewhere")
    return taken.starts_when_moved("/saved" if taken.kind == "savepoint" else "/data", "/other")


def goes_on_with_other_windows(taken: Taken) -> bool:
    with_windows = Taken(taken.kind, taken.seed, "windows")
    assert with_windows.starts(what="windows", exactly=False)
    return with_windows.starts(what="another slide", exactly=False)


CHECKS: dict[str, Callable[[Taken], bool]] = {
    "start another job from it": lambda t: t.starts(),
    "at another parallelism": lambda t: t.starts(parallelism=3),
    "with another `max_parallelism` of keyed state": lambda t: t.starts(max_parallelism=32),
    "with an additional stateful operator": lambda t: t.starts(what="with one more"),
    "without one of its stateful operators (`allow_non_restored_state`)": lambda t: t.starts(
        what="without", allow=True, exactly=False
    ),
    "with an id given to another kind of operator": lambda t: t.starts(
        what="another kind", allow=True, exactly=False
    ),
    "with another `of_type` of a state": lambda t: t.starts(what="another type"),
    "with a wider `of_type` of a state, such as a base class": lambda t: t.starts(what="a wider type"),
    "with another size, slide, offset or kind of windows, while some are open": goes_on_with_other_windows,
    "complete in its own folder": is_whole,
    "its folder can be moved": partial(moves, whole_storage=False),
    "its whole storage can be moved": partial(moves, whole_storage=True),
    "refers to files of earlier snapshots (incremental)": names_earlier_files,
    "later snapshots may refer to its files": is_built_upon,
}


def table() -> dict[tuple[str, str], str]:
    """The cells of the document's table, by row and column."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(
        r"^\| operation or property \| (checkpoint \|.*)\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    assert found is not None
    kinds = [cell.strip() for cell in found[1].strip("| ").split("|")]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in found[2].splitlines()]
    return {(row[0], kind): cell for row in rows for kind, cell in zip(kinds, row[1:], strict=True)}


CELLS = table()


def test_every_row_of_the_table_is_tried() -> None:
    assert {row for row, _ in CELLS} == set(CHECKS)
    assert {kind for _, kind in CELLS} == {"checkpoint", "unaligned checkpoint", "savepoint"}
    assert set(CELLS.values()) == {"yes", "no"}


@pytest.mark.parametrize(("row", "kind"), CELLS)
def test_a_cell_says_what_is_so(row: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "INLINE_LIMIT", 20)
    assert CHECKS[row](take(kind)) == (CELLS[row, kind] == "yes")
