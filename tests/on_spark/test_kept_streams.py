"""Streaming queries go on from the savepoints that older versions have left."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipelines.jobs import eventually, finish
from pipelines.streams import ROWS, arrive, ids, stream_into_table, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("no_query_is_left")

DATA = Path(__file__).parents[1] / "compatibility" / "data"
#: Where the query was when it ran.
MADE_IN = "/tmp/kept-for-compatibility/spark-stream"
VERSIONS = sorted(path.parent.name for path in DATA.glob("*/spark-stream"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_query_and_its_job_go_on_behind_the_micro_batches_of_an_older_version(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    """Its two readers have passed the second micro-batch; the third one is new."""
    folder = tmp_path / "kept"
    shutil.copytree(DATA / version / "spark-stream", folder)
    for listed in (folder / "query" / "sources" / "0").iterdir():  # Spark's own, with the paths of files
        listed.write_text(listed.read_text().replace(MADE_IN, str(folder)))
    arrive(folder, 0, 1, 2)
    savepoint = str(folder / "savepoint")
    job, table = stream_into_table(
        spark, folder, watched(spark, folder), parallelism=2, restore_from=savepoint
    )
    eventually("the third micro-batch", (folder / "query" / "commits" / "2").exists)
    job.stop()
    assert finish(job).statistics.restarts == 0
    assert ids(table, spark) == Counter(range(3 * ROWS))
