"""Makes an archive of the classes that the JVMs of Spark tests load, so that they start in half the time.

    .venv/bin/python tests/on_spark/make_class_archive.py FILE

`make test` does it once and hands the file to each JVM (`-XX:SharedArchiveFile`). A JVM whose class path or
version is another one ignores it. The class path here is RayDP's, in its order.
"""

from __future__ import annotations

import glob
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyspark
import ray
import raydp
from pyspark.sql import SparkSession

from penstock.bridge.session.spark_options import JVM_OPTIONS, find_java, use_java

_RAYDP: Final = glob.glob(str(Path(raydp.__file__).parent / "jars" / "*"))
_RAY: Final = glob.glob(str(Path(ray.__file__).parent / "jars" / "*"))
#: Of Ray and RayDP.
_LOADED: Final = ("io/ray/api/", "io/ray/runtime/", "org/apache/spark/")
#: Seconds for the JVM to write the archive.
_PATIENCE: Final = 300
#: Rows that go through each kind of work once; their number does not matter.
_ROWS: Final = 1_000


def main(archive: str) -> None:
    use_java(find_java(os.environ), os.environ)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    unfinished = f"{archive}.{os.getpid()}"
    spark = _session(unfinished)
    with tempfile.TemporaryDirectory() as folder:
        _work(spark, folder)
    _load_classes(spark._jvm)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait(_PATIENCE) == 0 and Path(unfinished).exists():
        Path(unfinished).rename(archive)
    else:
        Path(archive).touch()  # this Java makes none: the tests run without


def _session(archive: str) -> SparkSession:
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.driver.extraClassPath": os.pathsep.join([*_RAYDP, jars, *_RAY]),
        "spark.driver.extraJavaOptions": " ".join([*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={archive}"]),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("classes")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _work(spark: SparkSession, folder: str) -> None:
    """A bit of all that the tests let Spark do."""
    df = spark.range(0, _ROWS, 1, 2).selectExpr("id", "concat('c', id % 10) AS c")
    df.mapInArrow(_unchanged, "id long, c string").groupBy("c").count().orderBy("c").collect()
    df.write.parquet(f"{folder}/rows")
    stream = spark.readStream.schema("id long").parquet(f"{folder}/rows")
    query = stream.writeStream.foreachBatch(lambda batch, number: None).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/query").start().awaitTermination()
    spark.createDataFrame([(1, "a")], "id int, s string").toPandas()


def _unchanged(batches: Any) -> Any:
    yield from batches


def _load_classes(jvm: Any) -> None:
    """Load the classes of Ray and RayDP, which have no part in the work here."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in _names([*_RAYDP, *_RAY]):
        try:
            jvm.java.lang.Class.forName(name, False, loader)
        except Exception:  # of a Spark of another version
            continue


def _names(jars: list[str]) -> Iterator[str]:
    for jar in jars:
        for name in zipfile.ZipFile(jar).namelist():
            if name.startswith(_LOADED) and name.endswith(".class"):
                yield name.removesuffix(".class").replace("/", ".")


if __name__ == "__main__":
    main(sys.argv[1])
