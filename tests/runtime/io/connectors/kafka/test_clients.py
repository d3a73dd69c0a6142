"""The thread of a fetcher runs its step again when the step wants it, and when it is woken."""

from __future__ import annotations

import threading
from math import inf

from topics import PATIENCE

from penstock.runtime.io.connectors.kafka.clients import ENDED, WorkerThread


def test_a_worker_rests_for_as_long_as_its_step_says() -> None:
    rests = [0.0, 0.01, ENDED]
    worker = WorkerThread(lambda: rests.pop(0))
    assert worker.join(PATIENCE)
    assert rests == []


def test_a_worker_that_is_woken_during_a_step_runs_again() -> None:
    runs, is_woken = threading.Event(), threading.Event()
    rests = [inf, ENDED]

    def step() -> float:
        runs.set()
        is_woken.wait(PATIENCE)
        return rests.pop(0)

    worker = WorkerThread(step)
    runs.wait(PATIENCE)
    worker.wake()
    is_woken.set()
    assert worker.join(PATIENCE)
    assert rests == []
