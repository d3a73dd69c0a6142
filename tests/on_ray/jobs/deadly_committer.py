"""A table's sink whose committer kills its process before and after a commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.faults import first_time, kill_this_process

from penstock.connectors import CommitPermit, SinkContext, SinkWriter
from penstock.operators import Batch


@dataclass(frozen=True)
class DeadlyTable:
    """A sink whose committer kills its process before its first commit, and after its second one."""

    inner: Any
    folder: str

    def writer(self, context: SinkContext) -> Any:
        return self.inner.writer(context)

    def committer(self, context: SinkContext) -> SinkWriter[Any]:
        return DeadlyCommitter(self.inner.committer(context), Path(self.folder))


class DeadlyCommitter:
    def __init__(self, inner: SinkWriter[Any], folder: Path) -> None:
        self._inner, self._folder = inner, folder

    def write(self, batch: Batch) -> None:
        self._inner.write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        return self._inner.prepare_commit()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        if first_time(str(self._folder / "before")):
            kill_this_process()
        self._inner.commit(committables, permit)
        if first_time(str(self._folder / "after")):
            kill_this_process()

    def close(self) -> None:
        self._inner.close()
