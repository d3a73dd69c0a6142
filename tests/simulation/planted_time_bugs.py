"""Bugs to plant in what jobs know of time: sessions, timers, state that expires, idle and aligned sources."""

from __future__ import annotations

from typing import Any, Final

import pytest

from penstock.runtime.job.job_operators import AlignmentGroups
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.source_operator import SPLITS, SourceOperator
from penstock.runtime.operators.timers import FunctionTimers, TimerQueue
from penstock.runtime.operators.windows.triggered_window import TriggeredWindowOperator
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.time_to_live import Lifetime
from penstock.runtime.time.watermarks import WatermarkValve


class _Deaf:
    """Takes no note of changes."""

    def add(self, entry: Any) -> None:
        """Not for the next snapshot."""

    remove = add


def bring_merged_windows_back(patch: pytest.MonkeyPatch) -> None:
    merge = TriggeredWindowOperator._merge

    def in_memory(self: TriggeredWindowOperator, key: Any, overlapping: Any, merged: Any) -> None:
        windows: Any = self._windows
        noted, windows._changed = windows._changed, _Deaf()
        merge(self, key, overlapping, merged)
        windows._changed = noted

    patch.setattr(TriggeredWindowOperator, "_merge", in_memory)


def fire_timers_that_were_deleted_before_a_restore(patch: pytest.MonkeyPatch) -> None:
    delete = TimerQueue.delete

    def in_memory(self: TimerQueue, key: Any, at: int) -> None:
        table: Any = self._table
        noted, table._changed = table._changed, _Deaf()
        delete(self, key, at)
        table._changed = noted

    patch.setattr(TimerQueue, "delete", in_memory)


def forget_restored_timers_of_processing_time(patch: pytest.MonkeyPatch) -> None:
    make = FunctionTimers.__init__

    def forget(self: FunctionTimers, *arguments: Any) -> None:
        make(self, *arguments)
        self._processing._heap.clear()

    patch.setattr(FunctionTimers, "__init__", forget)


def let_restored_state_begin_its_life_again(patch: pytest.MonkeyPatch) -> None:
    give = StateTable.add_stamps

    def anew(self: StateTable, lifetime: Lifetime, *, has_stamps: bool) -> None:
        if has_stamps:
            for entry, cell in self.cells():
                self.put(entry, (None, cell[1]))
        give(self, lifetime, has_stamps=has_stamps)

    patch.setattr(StateTable, "add_stamps", anew)


def wait_for_idle_channels(patch: pytest.MonkeyPatch) -> None:
    def never(self: WatermarkValve, *arguments: Any) -> tuple[None, None]:
        return None, None

    patch.setattr(WatermarkValve, "status", never)


def restored_splits_are_never_idle(patch: pytest.MonkeyPatch) -> None:
    open_operator = SourceOperator.open

    def without_timers(
        self: SourceOperator, context: OperatorContext, splits: Any = (), send_event: Any = None
    ) -> None:
        open_operator(self, context, splits, send_event)
        if SPLITS in context.restored and self._watermarks is not None:
            for split in self._watermarks._splits.values():
                split._timer = None

    patch.setattr(SourceOperator, "open", without_timers)


def wait_for_splits_of_subtasks_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    def keep(self: AlignmentGroups, *subtask: Any) -> None:
        """Earlier reports still count."""

    patch.setattr(AlignmentGroups, "forget", keep)
    patch.setattr(AlignmentGroups, "forget_all", keep)


#: All of them.
PLANTED_IN_TIME: Final = (
    bring_merged_windows_back,
    fire_timers_that_were_deleted_before_a_restore,
    forget_restored_timers_of_processing_time,
    let_restored_state_begin_its_life_again,
    wait_for_idle_channels,
    restored_splits_are_never_idle,
    wait_for_splits_of_subtasks_that_are_gone,
)
