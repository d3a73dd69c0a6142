"""`UserThreads`: threads for users' code in a JobMaster, which may block for ever.

Each call gets a thread of its own. One that hangs takes no thread from another call, nor from the pool that
writes checkpoints and the log. They are daemons: a call that hangs does not keep an ended job's process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count


class UserThreads:
    """Runs each call in a new thread.

    Args:
        name: Begins the names of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = count(1)

    def submit(self, call: Callable[[], None], /) -> None:
        """Run a call, which must not raise, in a new thread."""
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=call, name=name, daemon=True).start()
