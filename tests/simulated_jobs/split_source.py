"""A simulated source that assigns splits on request: the real `OnRequest`, with a watcher.

Its enumerator lives in the JobMaster, behind the valve of the source's coordinator. The watcher is notified
when the enumerator takes its snapshot and when it assigns a split, also while the valve is closed. It is also
notified when splits of a failed reader are given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.operators.coordinator_host import CoordinatorHost
from penstock.runtime.operators.coordinators import MasterHook
from penstock.runtime.operators.source import ConnectorContext, SplitEnumeratorContext
from penstock.runtime.operators.source_coordinator import OnRequest, OnRequestEnumerator, SourceCoordinator
from penstock.runtime.time.durations import Duration
from simulated_jobs.observer import ValveWatch
from simulated_jobs.operators import (
    CodeHooks,
    SimulatedReader,
    SimulatedSource,
    Split,
)
from simulated_jobs.records import ExternalSystem, Record

T = TypeVar("T")


class SplitsOnRequest(OnRequest[Record]):
    """Hands out the splits of a simulated source on request.

    Args:
        watcher: Hears what its enumerator does.
    """

    def __init__(self, source: SimulatedSource, watcher: ValveWatch) -> None:
        super().__init__(source)
        self._watcher = watcher

    def enumerator(self, context: SplitEnumeratorContext, state: Any | None) -> OnRequestEnumerator:
        """The real enumerator, watched."""
        self._watcher.enumerator_made(context.operator_id, _valve_of(context))
        watched = _WatchedContext(context, self._watcher)
        return _WatchedEnumerator(self._source, watched, state, self._watcher)


class _WatchedEnumerator(OnRequestEnumerator):
    """Says what it does."""

    def __init__(
        self, source: Any, context: SplitEnumeratorContext, state: Any | None, watcher: ValveWatch
    ) -> None:
        super().__init__(source, context, state)
        self._watcher = watcher

    def snapshot(self) -> tuple[bool, list[Any]]:
        state = super().snapshot()
        self._watcher.coordinator_snapshot(self._context.operator_id)
        return state

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        self._watcher.splits_given_back(self._context.operator_id, len(splits))
        super().add_splits_back(splits)


class _WatchedContext:
    """The enumerator's context; says when a split is assigned."""

    def __init__(self, context: SplitEnumeratorContext, watcher: ValveWatch) -> None:
        self._context = context
        self._watcher = watcher

    @property
    def operator_id(self) -> str:
        return self._context.operator_id

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        self._watcher.split_assigned(self.operator_id)
        self._context.assign(subtask, splits)

    def signal_no_more_splits(self, subtask: int) -> None:
        self._context.signal_no_more_splits(subtask)

    def run_in_background(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._context.run_in_background(work, on_result, on_error)

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        self._context.call_later(delay, callback)


def _valve_of(context: SplitEnumeratorContext) -> Callable[[], bool]:
    """Looks at the real valve, which only the watcher may do."""
    assert isinstance(context, SourceCoordinator), f"{context!r} is no coordinator of a source"
    host = context._context
    assert isinstance(host, CoordinatorHost), f"{host!r} hosts no coordinator"
    holder = host._context
    assert isinstance(holder, OperatorCoordinatorHolder), f"{holder!r} has no valve"
    return lambda: holder.is_shut


@dataclass(frozen=True, slots=True)
class JobPorts:
    """The parts of the simulation that the code of a simulated job calls.

    Attributes:
        hooks: Make it slow, fail it, let its process die.
        system: The external system behind sinks.
        watcher: Watches the enumerators.
        make_hook: Makes a master hook of this name.
    """

    hooks: CodeHooks
    system: ExternalSystem
    watcher: ValveWatch
    make_hook: Callable[[str], MasterHook]


class HookedSource:
    """A simulated source with a master hook."""

    def __init__(self, source: SimulatedSource, master_hook: Callable[[], MasterHook]) -> None:
        self._source = source
        self.master_hook = master_hook

    def splits(self, parallelism: int) -> Sequence[Split]:
        """The source's."""
        return self._source.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SimulatedReader:
        """The source's."""
        return self._source.reader(context, splits)


class HookedSplitsOnRequest(SplitsOnRequest):
    """A simulated source that assigns its splits on request and has a master hook.

    Args:
        watcher: Hears what its enumerator does.
    """

    def __init__(
        self, source: SimulatedSource, watcher: ValveWatch, master_hook: Callable[[], MasterHook]
    ) -> None:
        super().__init__(source, watcher)
        self.master_hook = master_hook
