"""Runs a query of Spark Structured Streaming in a process of its own; see `spark_query.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from columnar.files import Files
from columnar.spark_query import Query


@dataclass(frozen=True, slots=True)
class SparkRun:
    """The outcome of a query.

    Attributes:
        rate: Rows per second in the steady part of the query.
        rows: Rows in the steady part.
        seconds: Duration of the steady part.
        batches: Micro-batches in the steady part.
        settings: Spark's settings.
    """

    rate: float
    rows: int
    seconds: float
    batches: int
    settings: Mapping[str, str]

    @property
    def in_words(self) -> str:
        """The settings, and how long a micro-batch took, for the table."""
        listed = ", ".join(f"`{name}={value}`" for name, value in self.settings.items())
        return f"Micro-batches of {self.seconds / max(1, self.batches):.2f} s. Settings: {listed}."


def run(query: Query, files: Files) -> SparkRun:
    """Run a query, and delete its checkpoints afterwards."""
    with tempfile.TemporaryDirectory(dir=query.folder, ignore_cleanup_errors=True) as folder:
        query = replace(query, files=str(files.folder), folder=folder)
        script = str(Path(__file__).with_name("spark_query.py"))
        command = [sys.executable, script, json.dumps(asdict(query))]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return SparkRun(**json.loads(said.splitlines()[-1]))


def write_results(work: str, files: Files, folder: Path, results: Path, files_per_trigger: int) -> None:
    """Let Spark write the sums of all files, one folder for each micro-batch."""
    shutil.rmtree(results, ignore_errors=True)
    run(Query(work, "", str(folder), files_per_trigger, results=str(results)), files)
