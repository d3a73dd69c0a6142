"""Wrappers of a file sink: all of the inner sink's methods are reached.

Such a sink may be around another one of its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock import FileSink
from penstock.connectors import CommitPermit, ConnectorContext, SinkWriter
from penstock.operators import Batch


@dataclass(frozen=True)
class WrappedSink(ABC):
    """A sink around a file sink.

    Attributes:
        inner: Does the work.
    """

    inner: FileSink | WrappedSink

    @abstractmethod
    def writer(self, context: ConnectorContext) -> SinkWriter[Any]:
        """One around the writer of the inner sink."""

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        self.inner.remove_uncovered(job_id, operator_id, covered)


class WrappedWriter:
    """Hands everything on to the writer of the inner sink."""

    def __init__(self, inner: SinkWriter[Any]) -> None:
        self._inner = inner

    def write(self, batch: Batch) -> None:
        self._inner.write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        return self._inner.prepare_commit()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        self._inner.commit(committables, permit)

    def remove_leftovers(self, permit: CommitPermit) -> None:
        self._inner.remove_leftovers(permit)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._inner.close()
