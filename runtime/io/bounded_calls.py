"""`BoundedCalls`: calls to a storage that end in time, also when the storage never answers.

A call of the operating system or of a store can hang for ever. The server of a network file system is gone,
or a connection is cut off. Such a call can't be interrupted. So it runs in a thread of its own, and the
caller stops waiting after a while. The thread stays until the call returns. When too many hang, further
calls fail at once: they would only add threads and keep their data in memory.

The bound applies to *progress*. A large object may take long, but the time from one chunk to the next must
stay within the bound. For calls that don't report chunks, the bound grows with the size.

A call that was given up may still be done, at any later time. Why that is harmless, by kind of call:

- *put of a new object*: names hold the attempt and the checkpoint, so no other process writes or reads them.
  The checkpoint was given up. Its files are orphans, which the next attempt sweeps.
- *put over an object*: the report of an ended job, the proof that nodes see one storage, and the hint of the
  decision log. The first two have the same content at any time. The hint may be old (see `log.reader`).
- *conditional create*: a slot of the decision log is in doubt, and the next record contends for it (see
  `log.decision_log`). The id of a checkpoint is taken, and never given twice (see `coordinator.place`).
- *get and list*: no caller takes the answer.
- *delete*: what is deleted was given up before, and its name does not come back. The trial file of a folder
  is the exception, and no job reads that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Final, TypeVar

from penstock.runtime.errors import StorageTimeoutError

T = TypeVar("T")

#: Seconds without progress after which a call is given up, unless the job says otherwise.
STORAGE_TIMEOUT: Final = 60.0
#: Calls of one storage that may hang at a time.
MOST_HANGING: Final = 16
#: Bytes a second that a storage must move at least.
SLOWEST: Final = 1024 * 1024


class BoundedCalls:
    """Makes the calls of one storage; may be used from several threads."""

    def __init__(self, seconds: float = STORAGE_TIMEOUT) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._hanging = 0

    def run(self, what: str, call: Callable[[Callable[[], None]], T], *, size: int = 0) -> T:
        """Make a call, and wait for it while it makes progress; raises what the call raises.

        Args:
            size: Bytes that the call moves without reporting progress.

        Raises:
            StorageTimeoutError: The call made no progress for too long, or too many earlier calls still hang.
        """
        if self._hanging >= MOST_HANGING:
            msg = f"can't {what}: {self._hanging} earlier calls to this storage still hang"
            raise StorageTimeoutError(msg)
        returned: Future[T] = Future()
        progress = threading.Event()
        work = partial(_make, call, progress.set, returned)
        threading.Thread(target=work, name="storage-call", daemon=True).start()
        while not wait([returned], self._seconds + size / SLOWEST).done:
            if progress.is_set():
                progress.clear()
                continue
            with self._lock:
                self._hanging += 1
            returned.add_done_callback(self._end_hanging)
            bound = f"{self._seconds:g} s (storage_timeout)"
            msg = f"can't {what}: no answer for {bound}. It may still be done later"
            raise StorageTimeoutError(msg)
        return returned.result()

    def _end_hanging(self, returned: Future[Any]) -> None:
        with self._lock:
            self._hanging -= 1


def _make(call: Callable[[Callable[[], None]], T], progress: Callable[[], None], returned: Future[T]) -> None:
    try:
        returned.set_result(call(progress))
    except BaseException as error:  # raised again in the waiting caller
        returned.set_exception(error)
