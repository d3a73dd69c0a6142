"""`Nexmark`: runs queries of Nexmark in other systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from nexmark_events import EVENT_SCHEMA, NexmarkConfig, events, texts

from . import environments, flink_queries, spark_queries
from .programs import ROWS_OF_FILE, Job, run, run_flink, run_spark, write_file
from .report import Ended


class Nexmark:
    """Runs queries over the events of one configuration; keeps files for the peers in a folder."""

    def __init__(self, config: NexmarkConfig, folder: Path, checkpoint_every: float) -> None:
        self._config = config
        self._folder = folder
        self._checkpoint_every = checkpoint_every

    def flink(self, jobs: Sequence[Job], *, collect: bool = False) -> list[Ended]:
        """Run jobs of Flink's SQL."""
        pools = self._folder / "pools"
        pools.mkdir(exist_ok=True)
        for name, values in texts().items():
            (pools / name).write_text("\n".join(values) + "\n")
        options = {name: str(value) for name, value in self._settings().items()}
        given = {"options": {**options, "pools": str(pools)}, "jobs": jobs, "collect": collect}
        return run_flink(given, self._folder, self._checkpoint_every)

    def spark(self, jobs: Sequence[Job], *, collect: bool = False) -> list[Ended]:
        """Run jobs of Structured Streaming over Parquet files."""
        folders = {}
        for count in sorted({count for _, count in jobs}):
            folders[count] = folder = self._folder / f"parquet-{count}"
            folder.mkdir(exist_ok=True)
            for start in range(0, count, ROWS_OF_FILE):
                numbers = np.arange(start, min(count, start + ROWS_OF_FILE), dtype=np.int64)
                write_file(folder, start // ROWS_OF_FILE, events(self._config, numbers))
            if collect:
                write_file(folder, -1 + 10**6, _far_ahead())
        return run_spark({"jobs": jobs, "collect": collect}, folders)

    def bytewax(self, jobs: Sequence[Job], *, collect: bool = False) -> list[Ended]:
        """Run flows of Bytewax, each in a process of its own, as is usual for Bytewax."""
        ended = []
        for job in jobs:
            given: dict[str, Any] = {"config": self._settings(), "jobs": [job], "collect": collect}
            given |= {"folder": str(self._folder), "checkpoint_every": self._checkpoint_every}
            python = environments.prepare("bytewax")
            ended += run(python, "bytewax_job.py", given)
        return ended

    def klein(self, jobs: Sequence[Job], *, collect: bool = False) -> list[Ended]:
        """Run pipelines of Klein, on a cluster of the Ray version in Klein's environment."""
        given = {"config": self._settings(), "jobs": jobs, "collect": collect}
        given |= {"folder": str(self._folder), "checkpoint_every": self._checkpoint_every}
        return run(environments.prepare("klein"), "klein_job.py", given)

    def _settings(self) -> dict[str, Any]:
        base = round(self._config.base_time.timestamp() * 1000)
        return {**asdict(self._config), "base_time": base}


#: The systems that run queries of Nexmark, by name.
SYSTEMS: Final[Mapping[str, Callable[..., list[Ended]]]] = {
    "PyFlink SQL": Nexmark.flink,
    "Spark": Nexmark.spark,
    "Bytewax": Nexmark.bytewax,
    "Klein": Nexmark.klein,
}

#: The queries that run in each system; `source` is the first.
QUERIES: Final[Mapping[str, Sequence[str]]] = {
    "PyFlink SQL": [*flink_queries.NEXMARK],
    "Spark": [*spark_queries.NEXMARK],
    "Bytewax": ["source", "q0", "q1", "q2", "q3", "q8", "q11", "q17", "q22"],
    "Klein": ["source", "q0", "q1", "q2", "q17"],
}


def _far_ahead() -> pa.RecordBatch:
    """An event of each kind in the year 2100, with ids of -1; they end all windows."""
    batch = events(NexmarkConfig(persons=1, auctions=1, bids=1), np.arange(3, dtype=np.int64))
    rows = batch.to_pylist()
    for row in rows:
        row["dateTime"] = row["dateTime"].replace(year=2100)
        for kind in ("person", "auction", "bid"):
            for name in row[kind] or ():
                if name in ("id", "seller", "auction", "bidder"):
                    row[kind][name] = -1
    return pa.RecordBatch.from_pylist(rows, schema=EVENT_SCHEMA)
