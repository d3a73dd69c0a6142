"""Users' code in the JobMaster that fails in its callbacks: an enumerator's `on_error`, a hook's `close`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.pieces import Pieces

from penstock.connectors import ConnectorContext, OnRequest, Source, SourceReader, SplitEnumerator


class Uncatalogued(OnRequest[str]):
    """A source whose enumerator asks a catalogue that does not answer, and fails over that."""

    def __init__(self) -> None:
        super().__init__(Pieces(20, 2, attempt=0))

    def enumerator(self, context: Any, state: Any | None) -> SplitEnumerator:
        return UncataloguedEnumerator(context)


class UncataloguedEnumerator:
    """Its error handler has a bug."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def start(self) -> None:
        self._context.run_in_background(self._ask, self._take, self._on_error)

    def _ask(self) -> list[str]:
        msg = "the catalogue does not answer"
        raise TimeoutError(msg)

    def _take(self, names: list[str]) -> None:
        """Never called."""

    def _on_error(self, error: BaseException) -> None:
        retries: dict[str, int] = {}
        self._again(retries["left"])

    def _again(self, left: int) -> None:
        """Never called."""

    def handle_split_request(self, subtask: int) -> None:
        """There is nothing to hand out."""

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        """Nothing was handed out."""

    def snapshot(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is held."""


class Unsendable(OnRequest[str]):
    """A source whose enumerator assigns a split that can't be pickled."""

    def __init__(self) -> None:
        super().__init__(Pieces(20, 2, attempt=0))

    def enumerator(self, context: Any, state: Any | None) -> SplitEnumerator:
        return UnsendableEnumerator(context)


class UnsendableEnumerator(UncataloguedEnumerator):
    """Its split has a lock in it."""

    def start(self) -> None:
        self._context.assign(0, [(0, 10, threading.Lock())])


@dataclass(frozen=True)
class Unclosable:
    """A source that reads what another one does, with a hook that can't be closed."""

    inner: Source[str]

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[str]:
        return self.inner.reader(context, splits)

    def master_hook(self) -> UnclosableHook:
        return UnclosableHook()


class UnclosableHook:
    """Does its part of every checkpoint."""

    identifier = "outside"

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> int:
        return checkpoint_id

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """Nothing to do."""

    def reset(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        msg = "the connection is gone"
        raise ConnectionError(msg)
