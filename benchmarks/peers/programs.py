"""Runs the programs of other systems, each in a process and an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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

_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "PyFlink SQL": flink_queries.SETTINGS,
    "Spark": {
        **spark_queries.SETTINGS,
        "maxFilesPerTrigger": f"{FILES_PER_TRIGGER} of {ROWS_OF_FILE:,} rows",
    },
    "Bytewax": {"workers": "1 with a recovery store", "events of a batch": "4,096"},
    "Klein": {"interval-records": "none, in place of 512"},
}


def settings_of(system: str) -> str:
    """The settings of a system, for people."""
    listed = ", ".join(f"`{name}={value}`" for name, value in _SETTINGS[system].items())
    return f"Settings of {system}: {listed}."


def run_flink(given: Mapping[str, Any], folder: Path, checkpoint_every: float) -> list[Ended]:
    """Run `flink_job.py`."""
    python = environments.prepare("flink")
    every = {"checkpoint_every": checkpoint_every, "folder": str(folder / "flink-checkpoints")}
    # PyFlink starts the Python and the Java that it finds first.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return run(python, "flink_job.py", {**given, **every}, PATH=path)


def run_spark(given: Mapping[str, Any], folders: Mapping[int, Path]) -> list[Ended]:
    """Run `spark_job.py`."""
    places = {str(count): str(folder) for count, folder in folders.items()}
    more = {"folders": places, "files_per_trigger": FILES_PER_TRIGGER}
    return run(Path(sys.executable), "spark_job.py", {**given, **more})


def run(python: Path, program: str, given: Mapping[str, Any], **environment: str) -> list[Ended]:
    """Run a peer's program.

    Raises:
        RuntimeError: It failed; the end of what it printed is in the message.
    """
    path = os.pathsep.join(map(str, (_HERE, _EXAMPLE)))
    done = subprocess.run(
        [str(python), str(_HERE / program), json.dumps(given)],
        capture_output=True,
        text=True,
        check=False,
        # A cluster of Penstock's leaves variables that another Ray would follow.
        env={**_without_ray(os.environ), "PYTHONPATH": path, "TZ": "UTC", **environment},
    )
    if done.returncode:
        msg = f"{program} ended with {done.returncode}; it printed:\n{done.stderr[-4_000:]}"
        raise RuntimeError(msg)
    return list(said(done.stdout))


def _without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("RAY_") or name == "RAY_worker_niceness"
    }


def write_file(folder: Path, number: int, batch: pa.RecordBatch) -> None:
    """Write a Parquet file; Spark reads files in the order of their times."""
    pq.write_table(pa.Table.from_batches([batch]), folder / f"part-{number:07}.parquet")
