"""The time zone of a Spark session, by a name that Python knows.

Spark accepts more names than Python, such as `GMT+2`, `Z`, `+5:30` and `PST`. Java tells what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_zone(session: SparkSession) -> str:
    """The session's time zone; Spark's own name where Python knows none."""
    name = str(session.conf.get("spark.sql.session.timeZone"))
    if is_known(name):
        return name
    java: Any = session.sparkContext._jvm
    plain = str(java.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name).normalized().getId())
    return "UTC" if plain == "Z" else plain


def is_known(zone: str) -> bool:
    """Whether Python can read times in this zone.

    Example:
        >>> [is_known(zone) for zone in ("UTC", "Asia/Kolkata", "+05:45", "GMT+2")]
        [True, True, True, False]
    """
    try:
        pa.scalar(0, pa.timestamp("us", zone)).as_py()
    except (KeyError, ValueError):
        return False
    return True
