"""One Ray cluster and one Spark session on it for all tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import ray
from lean_nodes import start_only_what_jobs_need

from penstock.bridge.session.spark_options import find_java, use_java
from penstock.cluster import start_local
from penstock.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tests import their helpers as `pipelines...`; the cluster's processes do too.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)
#: How much memory a piece of work takes is measured as the benchmarks do it.
_BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)
#: The blocks of the documents.
_DOCS = str(Path(__file__).parents[1] / "docs")
if _DOCS not in sys.path:
    sys.path.append(_DOCS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    inside = _HERE + os.sep  # with thousands of items, to compare paths takes seconds
    places = [number for number, item in enumerate(items) if str(item.path).startswith(inside)]
    for place in places:
        items[place].add_marker(pytest.mark.spark)
        # The first test's time holds the start of the session.
        items[place].add_marker(pytest.mark.timeout(600))
    # Programs with a session of their own come first, so that no shared one waits for them.
    ordered = sorted((items[place] for place in places), key=_uses_the_shared_session)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _uses_the_shared_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """Two executors of one core, which share the (nominal) CPUs of a local cluster with the jobs."""
    pytest.importorskip("raydp", reason="needs pip install 'penstock[spark]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((_HERE, _BENCHMARKS)), prepend=os.pathsep)
        for name in ("JAVA_HOME", "PATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
            patch.setenv(name, os.environ.get(name, ""))  # put back what the session sets
            if not os.environ[name]:
                del os.environ[name]
        patch.setenv("RAY_worker_register_timeout_seconds", "240")  # busy machines start JVMs slowly
        use_java(find_java(os.environ), os.environ)
        start_only_what_jobs_need(patch)
        start_local(num_cpus=6)
        try:
            with spark_session(
                "tests",
                executors=2,
                cores=1,
                memory="600m",
                start_timeout=280.0,
                configs={
                    "spark.sql.shuffle.partitions": 2,
                    "spark.driver.memory": "600m",
                    "spark.task.maxFailures": 3,
                    # Each kind of letter that a file of Java properties writes differently.
                    "spark.hadoop.fs.s3a.secret.key": "to=tell: nobody\\ #! ü",
                    # Small batches, so that rows do not wait for others on their way through a task or a job.
                    "spark.sql.execution.arrow.maxRecordsPerBatch": 2_048,
                },
            ) as session:
                yield session
        finally:
            ray.shutdown()


@pytest.fixture
def no_query_is_left(spark: SparkSession) -> Iterator[None]:
    """End the streaming queries that a test has left running."""
    from pipelines.streams import stop_queries

    yield
    stop_queries(spark)
