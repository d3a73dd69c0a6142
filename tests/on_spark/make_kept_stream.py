"""Makes the savepoint of a job that reads a streaming query, with the query's own checkpoint location.

    .venv/bin/python tests/on_spark/make_kept_stream.py FOLDER

Run a copy of this folder, and give /tmp/kept-for-compatibility: it stands in what is written. Copy the result
to `tests/compatibility/data`: once for each version, made with its own code.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import ray
from pipelines.jobs import eventually, finish
from pipelines.streams import arrive, stream_into_table, watched

from penstock.bridge.session.spark_options import find_java, use_java
from penstock.cluster import start_local
from penstock.spark import spark_session


def main(target: str) -> None:
    folder = Path(target) / "spark-stream"
    folder.mkdir(parents=True)
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    use_java(find_java(os.environ), os.environ)
    start_local(num_cpus=6)
    try:
        with spark_session("kept", executors=1, cores=1, memory="600m", start_timeout=280.0) as spark:
            arrive(folder, 0, 1)
            job, _ = stream_into_table(spark, folder, watched(spark, folder), parallelism=2)
            eventually("two micro-batches", (folder / "query" / "commits" / "1").exists)
            savepoint = Path(job.stop(folder / "saved"))
            finish(job)
            eventually("the end of the query", lambda: not spark.streams.active)
            savepoint.rename(folder / "savepoint")
    finally:
        ray.shutdown()
    shutil.rmtree(folder / "checkpoints")
    shutil.rmtree(folder / "saved")
    shutil.rmtree(folder / "incoming")
    for checksum in folder.rglob("*.crc"):  # of Spark's files, in which a test changes paths
        checksum.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
