"""What the users' code of a simulated job is built into, and the sources that have a master hook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.operators.coordinators.master_hook import MasterHook
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.testing.simulation.jobs.external_system import ExternalSystem
from penstock.runtime.testing.simulation.jobs.operators import (
    CodeHooks,
    SimulatedReader,
    SimulatedSource,
    Split,
)
from penstock.runtime.testing.simulation.jobs.split_source import SplitsOnRequest, SplitWatcher


@dataclass(frozen=True, slots=True)
class Around:
    """What users' code meets.

    Attributes:
        hooks: Make it slow, fail it, let its process die.
        system: The external system behind sinks.
        watcher: Hears what enumerators do.
        make_hook: Makes a master hook of this name.
    """

    hooks: CodeHooks
    system: ExternalSystem
    watcher: SplitWatcher
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
        self, source: SimulatedSource, watcher: SplitWatcher, master_hook: Callable[[], MasterHook]
    ) -> None:
        super().__init__(source, watcher)
        self.master_hook = master_hook
