"""`SparkResults`: a sink whose committed rows Spark reads straight from Ray's object store.

results = SparkResults()
stream.sink("out", results)
env.run()
df = results.to_dataframe(spark)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.bridge.blocks.block_results import BlockResults
from penstock.bridge.results_out.block_dataframe import dataframe_of_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkResults(BlockResults):
    """A sink on Ray whose committed rows Spark reads; a context manager that releases them at its end.

    Making one joins the cluster, or starts a local one. The blocks live until `unpersist()`, the end of the
    `with` block, or the end of this program. For results that must live longer use `SparkTable`.

    Args:
        schema: The rows' Arrow schema. Needed for dicts whose first batch may not show all types, and when
            there may be no rows. Only columns that it declares as `not null` stay so.

    Raises:
        BadRecordError: The schema has a type that Spark does not read.
    """

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The rows of the newest job that are committed by now, one partition per block.

        None passes through this program. Rows of earlier jobs with this sink are left out.

        Raises:
            PenstockError: There are no rows and no schema, or blocks have different schemas, or they have
                been released.
        """
        frame: Any = dataframe_of_blocks(spark, self.blocks(), self.schema, self._name)
        self.stay()
        return frame  # type: ignore[no-any-return]
