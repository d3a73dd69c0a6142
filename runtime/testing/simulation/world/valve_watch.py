"""`ValveWatch`: counts what happens around the valves of a run's operator coordinators."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind, Moment


class ValveWatch:
    """The `SplitWatcher` of a run.

    Args:
        counts: What really happened.
        on_moment: Called when a coordinator has given its snapshot.
    """

    def __init__(self, counts: FaultCounts, on_moment: Callable[[Moment], None]) -> None:
        self._counts = counts
        self._on_moment = on_moment
        self._is_shut: dict[str, Callable[[], bool]] = {}

    def enumerator_made(self, operator: str, is_shut: Callable[[], bool]) -> None:
        """A JobMaster has made the enumerator of an operator; `is_shut` tells of the valve in front of it."""
        self._is_shut[operator] = is_shut

    def coordinator_snapshot(self, operator: str) -> None:
        """The enumerator has given its snapshot; what comes next are the barriers."""
        self._on_moment(Moment.COORDINATED)

    def split_assigned(self, operator: str) -> None:
        """A split is assigned."""
        is_shut = self._is_shut.get(operator)  # none in a JobMaster that was believed to be dead
        self._counts.happened(FaultKind.SPLIT_HELD, int(is_shut is not None and is_shut()))

    def splits_given_back(self, operator: str, splits: int) -> None:
        """A reader has failed and gives splits back."""
        self._counts.happened(FaultKind.SPLITS_GIVEN_BACK, splits)

    def somebody_dies(self) -> None:
        """A process of the job, or its JobMaster."""
        any_shut = any(is_shut() for is_shut in self._is_shut.values())
        self._counts.happened(FaultKind.CRASH_AT_VALVE, int(any_shut))

    def master_is_gone(self) -> None:
        """The valves are gone with their JobMaster."""
        self._is_shut.clear()
