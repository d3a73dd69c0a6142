"""A program on a host: submits the word count, or finds it again, and writes down how it is until it ends.

    python on_host.py FOLDER [JOB]

The report goes to `FOLDER/report.json`, replaced five times a second. A test reads it from outside: the
network of the host is none of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ray
from jobs.words import NEVER, add, as_update, environment, paced_lines, with_one, word_of

from penstock import FileSink, FixedDelay, job
from penstock.actors.client.cluster import join_existing
from penstock.cluster import RayJobHandle

REPORT = "report.json"
JOB_ID = "job-id"


def submitted(folder: Path) -> RayJobHandle:
    """A new job; how it is made stands in `settings.json` in the folder."""
    given: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    count, rate, num_cpus = given.pop("count"), given.pop("rate"), given.pop("num_cpus")
    source = paced_lines(count, rate, attempt=NEVER, release=folder / "go")
    env = environment(folder, restart=FixedDelay(attempts=1_000, delay=0.5), **given)
    pairs = env.from_source("lines", source).flat_map(str.split).map(with_one).key_by(word_of)
    counts = pairs.reduce("count", add, num_cpus=num_cpus).map(as_update)
    counts.sink("updates", FileSink.json(folder / "out"))
    handle = env.submit()
    assert isinstance(handle, RayJobHandle)
    return handle


def main() -> int:
    """Submit or find, then write until the job has ended."""
    folder = Path(sys.argv[1])
    join_existing()
    handle = job(sys.argv[2]) if len(sys.argv) > 2 else submitted(folder)
    (folder / JOB_ID).write_text(handle.job_id)
    while True:
        report = handle.report()
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        alive = sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
        written = {"report": report.to_dict(), "nodes": nodes, "alive": alive, "at": time.monotonic()}
        temporary = folder / f"{REPORT}.{os.getpid()}"
        temporary.write_text(json.dumps(written))
        temporary.replace(folder / REPORT)
        if report.status.is_terminal:
            return 0
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
