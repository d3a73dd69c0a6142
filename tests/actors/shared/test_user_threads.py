"""Users' code in a JobMaster: a call that hangs blocks no other call, nor the end of the process."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading

from penstock.actors.shared.system_ports import UserThreads

HANGS = """
import threading
from penstock.actors.shared.system_ports import UserThreads
UserThreads("user-code").submit(threading.Event().wait)
"""


def test_a_call_that_hangs_does_not_delay_others() -> None:
    threads, release, done = UserThreads("user-code"), threading.Event(), threading.Event()
    for _ in range(50):
        threads.submit(lambda: release.wait(30))
    threads.submit(done.set)
    assert done.wait(30)
    release.set()


def test_the_threads_of_calls_are_numbered_daemons() -> None:
    threads, made = UserThreads("user-code"), queue.SimpleQueue[threading.Thread]()
    for number in (1, 2):
        threads.submit(lambda: made.put(threading.current_thread()))
        thread = made.get(timeout=30)
        assert (thread.name, thread.daemon) == (f"user-code-{number}", True)


def test_a_process_ends_while_a_call_hangs() -> None:
    assert subprocess.run([sys.executable, "-c", HANGS], timeout=300, check=False).returncode == 0
