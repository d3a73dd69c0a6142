"""Runs the programs of other systems, each in its own process.

Each system has its own Python environment (`environments.py`), except Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from . import environments, flink_queries, spark_queries
from .report import Ended, said

_HERE: Final = Path(__file__).resolve().parent
_EXAMPLE: Final = _HERE.parents[1] / "examples" / "nexmark"

#: A query and a number of events or rows.
Job = tuple[str, int]

#: Events of a Parquet file. Two files are a micro-batch, one for each core.
ROWS_OF_FILE: Final = 250_000
FILES_PER_TRIGGER: Final = 2

#: Seconds that a job of a peer may take.
PATIENCE: Final = 300.0

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "PyFlink SQL": flink_queries.SETTINGS,
    "Spark": {
        **spark_queries.SETTINGS,
        "maxFilesPerTrigger": f"{FILES_PER_TRIGGER} of {ROWS_OF_FILE:,} rows",
    },
    "Bytewax": {"workers": "1 with a recovery store", "events of a batch": "4,096"},
    "Klein": {"interval-records": "none, instead of 512"},
}


def settings_of(system: str) -> str:
    """The settings of a system, as a sentence."""
    listed = ", ".join(f"`{name}={value}`" for name, value in _SETTINGS[system].items())
    return f"Settings of {system}: {listed}."


def run_flink(given: Mapping[str, Any], folder: Path, checkpoint_every: float) -> list[Ended]:
    """Run `flink_job.py`."""
    python = environments.prepare("flink")
    every = {"checkpoint_every": checkpoint_every, "folder": str(folder / "flink-checkpoints")}
    # PyFlink starts the first Python and Java that it finds on the path.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return run(python, "flink_job.py", {**given, **every}, PATH=path)


def run_spark(given: Mapping[str, Any], folders: Mapping[int, Path]) -> list[Ended]:
    """Run `spark_job.py`."""
    places = {str(count): str(folder) for count, folder in folders.items()}
    more = {"folders": places, "files_per_trigger": FILES_PER_TRIGGER}
    return run(Path(sys.executable), "spark_job.py", {**given, **more})


def run(python: Path, program: str, given: Mapping[str, Any], **environment: str) -> list[Ended]:
    """Run the jobs of `given` with a peer's program.

    A job that ends the program, or takes longer than `PATIENCE`, is reported as one that the peer can't run.
    The remaining jobs of its query are skipped. Jobs of other queries then run in a new process.

    Raises:
        RuntimeError: The program ended, or took longer than `PATIENCE`, before its first report. The message
            has the end of its standard error.
    """
    ended: list[Ended] = []
    left: list[Job] = [(query, count) for query, count in given["jobs"]]
    while left:
        reported, failure = _run_once(python, program, {**given, "jobs": left}, environment)
        ended += reported
        left = left[len(reported) :]
        if failure is not None:
            if not ended:
                raise RuntimeError(failure)
            print(failure, file=sys.stderr, flush=True)
            for query, count in left[:1]:
                ended.append(Ended(query, count, failure=failure[-500:]))
                left = [job for job in left if job[0] != query]
    return ended


def _run_once(
    python: Path, program: str, given: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[Ended], str | None]:
    """Run the program once; return the ended jobs, and the reason why others have not ended, if any."""
    path = os.pathsep.join(map(str, (_HERE, _EXAMPLE)))
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [str(python), str(_HERE / program), json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # A Penstock cluster leaves environment variables that another Ray would obey.
            env={**_without_ray(os.environ), "PYTHONPATH": path, "TZ": "UTC", **environment},
            start_new_session=True,  # to end it with the processes that it has started
        )
        assert process.stdout is not None
        ended: list[Ended] = []
        patience = _patience(process)
        try:
            for line in process.stdout:
                for each in said(line):
                    patience.cancel()
                    patience = _patience(process)
                    ended.append(each)
                    shown = f"{each.seconds:.1f} s" if each.failure is None else "failed"
                    print(f"{program}: {each.query}, {each.count:,}: {shown}", file=sys.stderr, flush=True)
            is_done = process.wait() == 0
        finally:
            is_over = not patience.is_alive()
            patience.cancel()
            _kill(process)
        if is_done:
            return ended, None
        errors.seek(0)
        why = f"reported nothing for {PATIENCE:.0f} s" if is_over else f"ended with {process.returncode}"
        return ended, f"{program} {why}; it printed:\n{errors.read()[-4_000:]}"


def _patience(process: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(PATIENCE, _kill, [process])
    timer.daemon = True
    timer.start()
    return timer


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)


def _without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("RAY_") or name == "RAY_worker_niceness"
    }


def write_file(folder: Path, number: int, batch: pa.RecordBatch) -> None:
    """Write a Parquet file; Spark reads files in the order of their modification times."""
    pq.write_table(pa.Table.from_batches([batch]), folder / f"part-{number:07}.parquet")
