"""Says in a sentence or two what went wrong in Spark, instead of a Java trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penstock.bridge.session.session import is_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST: Final = 600
#: The last line of a Python traceback: an exception's class and text. Excludes Java's exceptions.
_PYTHON_ERROR: Final = re.compile(
    r"^(?!org\.|java|py4j\.|scala\.)(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$"
)
_JAVA_ERROR: Final = re.compile(r"^(?:Caused by: |: )?(?!py4j\.)[\w.$]+\.(\w+(?:Exception|Error)): (.+)$")


def spark_error_text(error: BaseException, session: SparkSession) -> str:
    """The cause of a failed Spark job, in plain words.

    The last Python error in Spark's report is what a user's function raised. Without one the first line
    counts.
    """
    if not is_alive(session):
        return (
            "the Spark session was stopped before all partitions were transferred; keep it until "
            "wait_for_transfer(job) returns, and start the job again"
        )
    return f"Spark failed: {shortened(str(error))}"


def shortened(text: str) -> str:
    r"""The line of a long report that says what happened.

    Example:
        >>> shortened("org.apache.spark.SparkException: aborted\n  File x\nValueError: no number: 'x'\n at y")
        "ValueError: no number: 'x'"
        >>> shortened("An error occurred\norg.apache.spark.SparkException: it broke\n\tat a.b.c")
        'SparkException: it broke'
        >>> shortened("py4j.protocol.Py4JJavaError: oh\n: org.apache.spark.SparkException: no such file")
        'SparkException: no such file'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_PYTHON_ERROR, _JAVA_ERROR):
        for line in lines:
            found = pattern.match(line)
            if found is not None:
                return ": ".join(found.groups())[:_LONGEST]
    return (lines[0] if lines else "no reason was given")[:_LONGEST]
