"""A JobMaster that dies while it writes a checkpoint's record, and the log and sinks afterwards.

A source's master hook is user code that runs in the JobMaster's process. This one wraps the put of every
record. The real storage writes the real file. Before the call returns, the process is killed, so no caller
learns the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jobs.faults import kill_this_process
from jobs.wrapped_sink import WrappedSink, WrappedWriter

from penstock.connectors import CommitPermit, ConnectorContext, SinkWriter, Source, SourceReader
from penstock.runtime.checkpoint.log.records import CheckpointCompleted, JobEnded, LogRecord, decode_record
from penstock.runtime.io.storage import ObjectStorage

BEFORE_RECORD: Final = "before the record"
AFTER_RECORD: Final = "after the record"
AFTER_END: Final = "after the record of the job's end"


@dataclass(frozen=True)
class KillsMaster:
    """A source that reads what another one does, and kills the JobMaster beside a record of its log.

    Attributes:
        inner: Reads.
        at: `BEFORE_RECORD` or `AFTER_RECORD` of a checkpoint, or `AFTER_END`.
        arm: The first such record that is written while this file exists kills, and takes the file away.
        deaths: Each death adds the id of the checkpoint, or the last state of the job, as a line.
    """

    inner: Source[str]
    at: str
    arm: str
    deaths: str

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[str]:
        return self.inner.reader(context, splits)

    def master_hook(self) -> KillingHook:
        return KillingHook(self)


class KillingHook:
    """Lives in the JobMaster; takes no part in checkpoints itself."""

    identifier = "kills"

    def __init__(self, source: KillsMaster) -> None:
        put = ObjectStorage.put

        def deadly_put(storage: ObjectStorage, path: str, data: bytes, *, create: bool = False) -> None:
            record = decode_record(data, path) if "/log/" in path else None
            if source.at != BEFORE_RECORD:
                put(storage, path, data, create=create)
            deadly = JobEnded if source.at == AFTER_END else CheckpointCompleted
            if isinstance(record, deadly) and Path(source.arm).exists():
                Path(source.arm).unlink()
                with Path(source.deaths).open("a") as file:
                    file.write(f"{getattr(record, 'checkpoint_id', None) or getattr(record, 'state', '')}\n")
                kill_this_process()
            if source.at == BEFORE_RECORD:
                put(storage, path, data, create=create)

        ObjectStorage.put = deadly_put  # type: ignore[method-assign]

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> None:
        """Nothing to do."""

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """Nothing to do."""

    def reset(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def records_of_log(storage: Path, job_id: str) -> list[LogRecord]:
    """All records of a log that was never compacted."""
    slots = sorted((storage / job_id / "log").iterdir())
    assert [int(slot.name) for slot in slots] == list(range(len(slots)))
    return [decode_record(slot.read_bytes(), str(slot)) for slot in slots]


# -- who committed what -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WitnessedSink(WrappedSink):
    """A file sink that writes down which attempt commits with which checkpoint.

    Attributes:
        journal: Each commit adds a line: attempt and checkpoint.
    """

    journal: str

    def writer(self, context: ConnectorContext) -> WitnessedWriter:
        return WitnessedWriter(self.inner.writer(context), context.attempt, Path(self.journal))


class WitnessedWriter(WrappedWriter):
    """Writes every commit down."""

    def __init__(self, inner: SinkWriter[Any], attempt: int, journal: Path) -> None:
        super().__init__(inner)
        self._attempt = attempt
        self._journal = journal

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        with self._journal.open("a") as file:
            file.write(f"{self._attempt} {permit.checkpoint_id}\n")
        super().commit(committables, permit)


def commits(journal: Path) -> set[tuple[int, int]]:
    """Attempt and checkpoint of every commit."""
    lines = journal.read_text().splitlines()
    return {(int(attempt), int(checkpoint)) for attempt, checkpoint in map(str.split, lines)}
