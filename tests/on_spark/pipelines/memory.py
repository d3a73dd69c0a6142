"""The memory of the program that has the Spark session, which rows are not to go through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from grown_memory import Grown, grown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes that the program may take for a job that moves many times as much.
LITTLE: Final = 100 << 20


@contextmanager
def driver_memory(spark: SparkSession) -> Iterator[Grown]:
    """Watch what this process and the JVM of its session take beyond what they have now."""
    gateway: Any = spark.sparkContext._gateway
    gateway.jvm.System.gc()
    with grown([os.getpid(), gateway.proc.pid]) as memory:
        yield memory
