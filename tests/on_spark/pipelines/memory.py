"""The memory of the program that has the Spark session, which rows are not to go through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from grown_memory import Grown, grown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes that the program may take for a job that moves several times as much. The first work of a session
#: takes 130 MB, whatever it is.
LITTLE: Final = 200 << 20


@contextmanager
def driver_memory(spark: SparkSession) -> Iterator[Grown]:
    """Watch what this process and the JVM of its session take beyond what they have now."""
    gateway: Any = spark.sparkContext._gateway
    gateway.jvm.System.gc()
    with grown([os.getpid(), gateway.proc.pid]) as memory:
        yield memory
