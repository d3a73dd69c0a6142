"""A program that is interrupted with Ctrl-C while it begins a job or waits for one, at many moments.

`python interrupted.py CALL SEED MOMENTS LONGEST`: after each interrupt it prints a line of JSON with the
interrupt's notes, and the jobs that still run a moment later. Its cluster is that of `RAY_ADDRESS`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock import CollectSink, GeneratorSource, JobConfig, StreamEnvironment
from penstock.actors.client.jobs import known_jobs
from penstock.cluster import RayJobHandle

#: Seconds for a job that is cancelled to end.
PATIENCE = 90.0


def number(i: int) -> int:
    return i


def call(what: str, env: StreamEnvironment) -> Callable[[], Any]:
    stream = env.from_source("in", GeneratorSource(number, count=None, rate=1.0)).filter(lambda n: n < 0)
    if what in ("run", "submit"):
        stream.sink("out", CollectSink())
        return (lambda: env.run(progress=False)) if what == "run" else env.submit
    return {
        "take": lambda: stream.take(1),
        "collect": stream.collect,
        "show": lambda: stream.show(1),
        "to_pandas": stream.to_pandas,
    }[what]


def running(name: str) -> list[RayJobHandle]:
    return [job.handle() for job in known_jobs() if job.is_running and job.report.name.startswith(name)]


def lost(name: str, told: str) -> list[str]:
    """The jobs of this name that run on and were not named; one that is being cancelled is given time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        ids = [job.job_id for job in running(name)]
        found = [job_id for job_id in ids if f"penstock cancel {job_id}" not in told]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def main(what: str, seed: int, moments: int, longest: float) -> None:
    draws = random.Random(seed)
    call(what, StreamEnvironment("warm"))  # imports
    known_jobs()
    for index in range(moments):
        name = f"interrupted-{what}-{seed}-{index}"
        env = StreamEnvironment(name, config=JobConfig(reuse_processes=draws.random() < 0.5))
        begin = call(what, env)
        at = draws.uniform(0.0, longest)
        twice = draws.random() < 0.3
        timers = [interrupt_after(at)]
        if twice:
            timers.append(interrupt_after(at + draws.uniform(0.0, 0.1)))
        notes: list[str] = []
        handle = None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                handle = begin()
            for timer in timers:
                timer.join()
        except KeyboardInterrupt as stop:
            notes = getattr(stop, "__notes__", [])
        while any(timer.is_alive() for timer in timers):
            with contextlib.suppress(KeyboardInterrupt):
                for timer in timers:
                    timer.join()
        told = " ".join(notes) if handle is None else f"penstock cancel {handle.job_id}"
        answer = {"at": at, "twice": twice, "told": told, "lost": lost(name, told)}
        print(json.dumps(answer), flush=True)
        for job in running(name):
            job.cancel()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
