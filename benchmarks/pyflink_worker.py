"""PyFlink in a process of its own, watched the way a job is; in an environment of its own."""

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
#: Seconds between two looks at what it has told.
_LOOK = 0.2
#: Seconds until a job that tells nothing is taken for stuck.
_PATIENCE = 180.0


def prepare() -> None:
    """Make the environment unless it is there."""
    environments.prepare("flink")


def steady(scratch: Path, warm_up: float, seconds: float) -> Steady:
    """Run the process function and return its steady part.

    Args:
        warm_up: Seconds after the first record that are left out.

    Raises:
        TimeoutError: Nothing came for minutes; its output is in the message.
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
            raise TimeoutError(f"{late}; it said:\n{log.read_text()[-4_000:]}") from None
        finally:
            os.killpg(job.pid, signal.SIGTERM)  # its JVM and its Python workers are in the session
            job.wait()
    begins = samples[0].at + warm_up
    return Steady(tuple(sample for sample in samples if sample.at >= begins), 0)


def _wait_for(told: Path, seconds: float, job: subprocess.Popen[bytes]) -> list[Sample]:
    """The lines, once so many seconds lie between the first and the last one."""
    begun = time.monotonic()
    while True:
        whole = told.read_text().rpartition("\n")[0]
        samples = [_sample(line) for line in whole.splitlines()]
        if samples and samples[-1].at - samples[0].at >= seconds:
            return samples
        if job.poll() is not None or time.monotonic() - begun > seconds + _PATIENCE:
            raise TimeoutError("PyFlink's job ended or told too little")
        time.sleep(_LOOK)


def _sample(line: str) -> Sample:
    at, records = line.split()
    return Sample(float(at), int(records), 0.0, 0)
