"""A decision log on a storage that fails when told."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.checkpoint.log.decision_log import (
    DecisionLog,
)
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    CheckpointCompleted,
)
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")
SLOT = "job/log/0000000000000000000"


class Flaky(MemoryStorage):
    """Fails when told; `happens` says whether a failing put is done all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.working_puts = 0
        self.failing_puts = 0
        self.failing_gets = 0
        self.gets = 0
        self.happens = False
        self.before_put: Callable[[], None] | None = None
        self.answer_lost: Callable[[], None] | None = None
        self._interrupted: tuple[str, Callable[[str, bytes], None], bool] | None = None

    def interrupt(self, path: str, do: Callable[[str, bytes], None], *, fails: bool) -> None:
        """Call `do` between the next put to `path` and its answer, which is an error if it `fails`."""
        self._interrupted = path, do, fails

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        before, self.before_put = self.before_put, None
        if before is not None:
            before()
        if self.working_puts:
            self.working_puts -= 1
        elif self.failing_puts:
            self.failing_puts -= 1
            if self.happens:
                super().put(path, data, create=create)
            raise StorageError("no answer")
        super().put(path, data, create=create)
        lost, self.answer_lost = self.answer_lost, None
        if lost is not None:
            lost()
            raise StorageError("no answer")
        if self._interrupted is not None and self._interrupted[0] == path:
            (_, do, fails), self._interrupted = self._interrupted, None
            do(path, data)
            if fails:
                raise StorageError("no answer")

    def get(self, path: str) -> bytes:
        if self.failing_gets:
            self.failing_gets -= 1
            raise StorageError("no answer")
        self.gets += 1
        return super().get(path)


def completed(checkpoint_id: int, attempt: int = 1, **more: tuple[int, ...]) -> CheckpointCompleted:
    path = PATHS.metadata(SnapshotKind.CHECKPOINT, checkpoint_id, attempt)
    return CheckpointCompleted(
        checkpoint_id, attempt, SnapshotKind.CHECKPOINT, FileHandle(path, 1, "c"), 5.0, **more
    )


def begun(storage: Flaky, compact_every: int = 200) -> DecisionLog:
    log = DecisionLog(storage, PATHS, compact_every=compact_every)
    assert isinstance(log.begin_attempt(1.0), AttemptBegun)
    return log
