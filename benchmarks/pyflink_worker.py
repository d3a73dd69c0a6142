"""Runs PyFlink in its own process and environment, and samples it like a job."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from measure import Sample, Steady
from peers import environments

VERSION = environments.version_of("flink")
_HERE = Path(__file__).resolve().parent
_PYTHON = environments.python_of("flink")
#: Seconds between two reads of the file with the job's counts.
_LOOK = 0.2
#: Seconds beyond its run time after which the job counts as stuck.
_PATIENCE = 180.0


def prepare() -> None:
    """Make the environment if it does not exist."""
    environments.prepare("flink")


def steady(scratch: Path, warm_up: float, seconds: float) -> Steady:
    """Run the process function and return its steady part.

    Args:
        warm_up: Seconds after the first record that are left out.

    Raises:
        TimeoutError: The job ended, or wrote too few counts; the message has the end of its output.
    """
    told, log = scratch / "pyflink-told", scratch / "pyflink-log"
    told.write_text("")
    with log.open("w") as output:
        job = subprocess.Popen(
            [str(_PYTHON), "pyflink_flow.py"],
            cwd=_HERE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "PATH": f"{_PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
                "PENSTOCK_BENCH_PYTHON": str(_PYTHON),
                "PENSTOCK_BENCH_OUT": str(told),
                "PENSTOCK_BENCH_CHECKPOINTS": (scratch / "pyflink-checkpoints").as_uri(),
            },
        )
        try:
            samples = _wait_for(told, warm_up + seconds, job)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; it printed:\n{log.read_text()[-4_000:]}") from None
        finally:
            os.killpg(job.pid, signal.SIGTERM)  # its JVM and its Python workers are in the session
            job.wait()
    begins = samples[0].at + warm_up
    return Steady(tuple(sample for sample in samples if sample.at >= begins), 0)


def _wait_for(told: Path, seconds: float, job: subprocess.Popen[bytes]) -> list[Sample]:
    """Wait until the samples cover `seconds`; return them."""
    begun = time.monotonic()
    while True:
        whole = told.read_text().rpartition("\n")[0]
        samples = [_sample(line) for line in whole.splitlines()]
        if samples and samples[-1].at - samples[0].at >= seconds:
            return samples
        if job.poll() is not None or time.monotonic() - begun > seconds + _PATIENCE:
            raise TimeoutError("PyFlink's job ended, or wrote too few counts")
        time.sleep(_LOOK)


def _sample(line: str) -> Sample:
    at, records = line.split()
    return Sample(float(at), int(records), 0.0, 0)
