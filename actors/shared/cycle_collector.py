"""Settings of Python's cycle collector for subtasks and JobMasters."""

from __future__ import annotations

import gc
from typing import Final

#: Thresholds of `gc`: new containers before a collection of the youngest generation, then collections of a
#: younger generation before one of the next older.
_COLLECT_AFTER: Final = (20_000, 10, 100)


def spare_loaded_modules() -> None:
    """Make the cycle collector run rarely, and never over objects that exist now.

    For a process that has loaded its modules and holds nothing of a job yet: what exists now is never
    collected. A batch is thousands of small containers that die together. By default each batch causes
    several collections, and now and then a walk over every module. That took half of the time of a chain of
    cheap operators.

    What a job makes later is walked after twenty million containers. A walk over a million values of state
    takes a quarter of a second or more, and no record is processed meanwhile. It is also walked when an
    attempt or a job has ended. A walk over the modules would take 65 ms more each time, and copy their pages
    in a process that was forked.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def collect_what_has_ended() -> None:
    """Collect what an attempt or a job has left, before the process goes on with another one."""
    gc.collect()
