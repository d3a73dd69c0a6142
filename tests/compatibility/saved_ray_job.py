"""The job on Ray whose storage is kept: it has failed, was rescaled, and has compacted its log.

Its source assigns files on request and has a master hook, which gives every checkpoint a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from saved_jobs import ROOT, Counted, Placed, counted, record, write_small_files

from penstock import Checkpointing, FileSink, FileSource, FixedDelay, StreamEnvironment
from penstock.connectors import ConnectorContext, DeadLetter, OnRequest, Polled, Source, SourceReader
from penstock.runtime.checkpoint.log.decision_log import DecisionLog

#: This record fails the job, once.
FATAL: Final = 47
#: Records of all files.
RECORDS: Final = 240
#: Seconds between two records of a subtask, until the file `go` is there.
PAUSE: Final = 0.2
#: A log of this many records is compacted.
COMPACT_EVERY: Final = 5


@dataclass(frozen=True)
class Cut:
    """The master hook's state for a checkpoint."""

    checkpoint_id: int
    letter: DeadLetter


def cut_of(checkpoint_id: int) -> Cut:
    return Cut(checkpoint_id, DeadLetter(b"cut", "none", f"checkpoint {checkpoint_id}"))


class CutHook:
    """Gives a state for each checkpoint, and writes down what it is asked to restore."""

    identifier = "cuts"

    def __init__(self, folder: str, compacts: bool) -> None:
        self.restored = Path(folder, "restored")
        if compacts:
            compact_often()

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> Cut:
        return cut_of(checkpoint_id)

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        self.restored.write_text(f"{checkpoint_id}: {state!r}")

    def reset(self) -> None:
        self.restored.write_text("nothing")

    def close(self) -> None:
        """Nothing is held."""


def compact_often() -> None:
    """Let logs in this process be compacted after a few records: a real one takes hundreds."""
    append = DecisionLog._append

    def often(self: Any, record: Any) -> Any:
        self._compact_every = COMPACT_EVERY
        return append(self, record)

    DecisionLog._append = often  # type: ignore[method-assign]


class FilesWithCuts(OnRequest[Any]):
    """Small files on request, read slowly, with a master hook."""

    def __init__(self, folder: str, compacts: bool) -> None:
        super().__init__(Paced(folder))
        self.folder, self.compacts = folder, compacts

    def master_hook(self) -> CutHook:
        return CutHook(self.folder, self.compacts)


class Paced:
    def __init__(self, folder: str) -> None:
        self.go = Path(folder, "go")
        self.inner: Source[Any] = FileSource.json(f"{ROOT}/in/small-*.jsonl", filesystem=Placed(folder))

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> PacedReader:
        return PacedReader(self.inner.reader(context, splits), context, self.go)


class PacedReader:
    def __init__(self, reader: SourceReader[Any], context: ConnectorContext, go: Path) -> None:
        self.reader, self.clock, self.go = reader, context.clock, go
        self.snapshot, self.close = reader.snapshot, reader.close
        self.next_at = 0.0

    def poll(self, max_rows: int) -> Polled[Any]:
        if self.go.exists():
            return self.reader.poll(max_rows)
        now = self.clock.monotonic()
        if now < self.next_at:
            return Polled(ready_at=self.next_at)
        self.next_at = now + PAUSE
        return self.reader.poll(1)


class FailsOnce:
    def __init__(self, folder: str) -> None:
        self.failed = Path(folder, "failed")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == FATAL and not self.failed.exists():
            self.failed.touch()
            raise ValueError("this record fails once")
        return row


def environment(folder: Path, parallelism: int = 2, *, compacts: bool = False) -> StreamEnvironment:
    """The job, whose files and checkpoints are in a folder; its log is compacted often, if that is wanted."""
    env = StreamEnvironment(
        "kept",
        parallelism=parallelism,
        max_parallelism=8,
        checkpointing=Checkpointing(
            every=0.5, storage=str(folder / "checkpoints"), retain=2, keep_after="always"
        ),
        restart=FixedDelay(attempts=5, delay=0.1),
    )
    rows = env.from_source("files", FilesWithCuts(str(folder), compacts))
    keyed = rows.map(FailsOnce(str(folder)), id="fails-once").key_by(word_of)
    sink = FileSink.json(f"{ROOT}/out", filesystem=Placed(folder))
    keyed.process("counted", Counted(dict)).sink("out", sink)
    return env


def word_of(row: dict[str, Any]) -> str:
    return str(row["word"])


def write_input(folder: Path) -> None:
    (folder / "in").mkdir(parents=True)
    write_small_files(folder / "in")


def expected_rows() -> Iterable[Any]:
    return counted(map(record, range(RECORDS)), word_of)
