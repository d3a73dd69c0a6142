"""State in RocksDB that does not fit the memory of its process: the job is killed, and continues."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from jobs.driving import eventually, kill_subtask, submit, wait_until, when_records_flow
from jobs.large_state import SIZE, Remember
from jobs.lasting import Lasting
from jobs.words import NEVER, environment

from penstock import CollectSink, FixedDelay, GeneratorSource, JobStatus, RocksDB
from penstock.actors.client.collect import RayCollector
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

MIB = 1024 * 1024
GIB = 1024 * MIB


class Peaks:
    """Samples the peak of the memory of the process that has the state, as the kernel counts it.

    The block cache and the write buffers of RocksDB are in it.
    """

    def __init__(self, job: RayJobHandle) -> None:
        self._job = job
        self.bytes: dict[int, int] = {}

    def sample(self) -> None:
        for process in self._job.processes():
            status = Path(f"/proc/{process.pid}/status")
            if process.subtask.vertex == "remember" and status.exists():
                peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
                self.bytes[process.pid] = int(peak.split()[1]) * 1024


@pytest.mark.parametrize(
    "size", [32 * MIB, pytest.param(4 * GIB, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_state_of_four_gigabytes_outlives_its_process_which_has_less_than_one(
    tmp_path: Path, size: int
) -> None:
    keys, results, patience = size // SIZE, RayCollector(), 90 + size / (4 * MIB)
    env = environment(tmp_path, every=1.0, timeout=patience, restart=FixedDelay(attempts=2, delay=0.1))
    # The last third are keys that are there already. It trickles until `go`.
    numbers = Lasting(GeneratorSource(int, count=keys * 3 // 2), NEVER, str(tmp_path / "go"))
    keyed = env.from_source("numbers", numbers).key_by(Remember.key_among(keys))
    found = keyed.process("remember", Remember(keys), state_backend=RocksDB(memory=256 * MIB))
    found.sink("results", CollectSink(results))
    job = submit(env)
    peaks = Peaks(job)

    def all_is_stored() -> bool:
        peaks.sample()
        seen = job.report().statistics.operators.get("remember")
        return seen is not None and seen.records_in > keys

    def completed() -> int:
        return job.report().statistics.completed_checkpoints

    eventually("all keys have a value", all_is_stored, patience)
    before = completed()
    # The next one may have begun in front of the last key.
    eventually("a checkpoint has it all", lambda: completed() >= before + 2, patience)
    peaks.sample()
    kill_subtask(job, "remember")
    wait_until(job, "restart", lambda report: report.statistics.restarts >= 1)
    when_records_flow(job, "remember")
    (tmp_path / "go").touch()

    def is_over() -> bool:
        peaks.sample()
        return job.report().status.is_terminal

    eventually("the end", is_over, patience)

    assert job.report().status is JobStatus.FINISHED
    assert Counter(results.rows()) == {"right": keys * 3 // 2 - keys}
    assert len(peaks.bytes) >= 2
    assert max(peaks.bytes.values()) < GIB, peaks.bytes
