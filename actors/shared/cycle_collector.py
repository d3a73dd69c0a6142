"""Settings of Python's cycle collector for subtasks and JobMasters."""

from __future__ import annotations

import gc
from typing import Final

#: Thresholds of `gc`: new containers before a collection of the youngest generation, then collections of a
#: younger generation before one of the next older.
_COLLECT_AFTER: Final = (20_000, 10, 10)


def spare_long_lived_objects() -> None:
    """Make the cycle collector run rarely, and never over objects that exist now.

    A batch is thousands of small containers that die together. By default each batch causes several
    collections, and now and then a walk over every module and all state. That took half of the time of a
    chain of cheap operators. It also took a third of a JobMaster's time in a checkpoint of 5,000 subtasks.
    Cycles that are made later are still found.

    A call for another attempt first collects what the attempt before has left. A new process has nothing to
    collect, and walking its 80,000 objects would take 65 ms of its start.
    """
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def collect_ended_role() -> None:
    """Collect what a role has left, while the process waits for another one."""
    gc.unfreeze()
    gc.collect()
