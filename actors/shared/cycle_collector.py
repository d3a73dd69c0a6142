"""Python's cycle collector in the processes of a job: when it runs, and what it traverses.

Objects that refer to each other in a cycle are freed only by a collection. Every other object is freed when
its last reference goes. Records and state hardly ever have cycles, and users' functions make a few.

**Young objects.** A batch consists of thousands of small containers that die together. By default each batch
causes several collections, some of which traverse every module. That took half of the time of a chain of
cheap operators. So a process collects after 20,000 new containers, and never traverses its modules.

**All objects.** A full collection traverses all state: 0.7 s for a million lists. No record is processed
meanwhile. Python starts one when enough objects have become old, and a checkpoint makes them old
(`dirty_entries.py`). So Python's own full collections stopped the task most often during a checkpoint. A
process of a subtask therefore has none. `FullCollections` makes them, between two steps of the task:

* when `_DUE` younger collections have happened, the subtask has nothing to do, and takes no checkpoint;
* with `_LATE` of them, also while it is busy;
* with `_LATEST` of them, also during a checkpoint, because another one may always be running.

So every cycle is collected in the end, however busy the task is. The share of time is bounded, too: after a
full collection there is none for twenty times as long as it took.

Full collections can't be left out. A cycle that has become old, such as a user's client that was replaced,
is freed by nothing else. `gc.freeze` would exempt restored state from them, but also each old cycle, and the
objects of the attempt itself. An ended attempt would then keep its state in memory.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

#: Thresholds of `gc`. The first is the number of new containers before a collection of generation 0. The
#: others are the numbers of collections of one generation before the next older one is collected.
_COLLECT_AFTER: Final = (20_000, 10, 100)
#: Threshold of full collections that no process reaches.
_NEVER: Final = 1 << 30

#: Numbers of collections of generation 1 after which a full collection may stop the task.
_DUE, _LATE, _LATEST = 100, 400, 1600
#: Minimum pause after a full collection, as a multiple of its duration.
_REST: Final = 20


def spare_loaded_modules(*, collects_fully: bool = True) -> None:
    """Make the cycle collector run rarely, and never traverse objects that exist now.

    Call it in a process that has loaded its modules and holds no object of a job yet. Traversing the modules
    would add 65 ms to each full collection, and copy their pages in a forked process.

    Args:
        collects_fully: Whether Python starts full collections; otherwise `FullCollections` must make them.
    """
    gc.freeze()
    young, middle, full = _COLLECT_AFTER
    gc.set_threshold(young, middle, full if collects_fully else _NEVER)


def collect_what_has_ended() -> None:
    """Collect the garbage of an ended attempt or job, before the process takes another one."""
    gc.collect()


class FullCollections:
    """Makes the full collections of a process that runs a task.

    Args:
        monotonic: Returns the time in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._rest_until = 0.0

    def collect_if_due(self, *, is_idle: bool, is_taking_checkpoint: bool) -> None:
        """Collect all cycles if that is due; called by the task's thread, between two steps.

        Args:
            is_idle: Whether the subtask has nothing to do.
        """
        younger = gc.get_count()[2]
        if younger < _DUE:
            return
        limit = _LATEST if is_taking_checkpoint else _DUE if is_idle else _LATE
        begun = self._monotonic()
        if younger < limit or begun < self._rest_until:
            return
        gc.collect()
        ended = self._monotonic()
        self._rest_until = ended + _REST * (ended - begun)
