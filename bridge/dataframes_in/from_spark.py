"""`from_spark`: a DataFrame as a bounded source of a job.

The program that has the Spark session starts one Spark job when the readers of the job are up; its tasks push
their partitions straight to the depots of the readers. The program itself sees only one line per partition.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Unpack

from penstock.actors.client.cluster import connect
from penstock.bridge.arrow.dataframe_schemas import arrow_schema_of
from penstock.bridge.arrow.record_format import RecordFormat
from penstock.bridge.dataframes_in.spark_source import SparkSource
from penstock.bridge.receive_buffer.receive_buffer import DEFAULT_WINDOW
from penstock.bridge.session.session import is_alive
from penstock.bridge.session.spark_errors import spark_error_text
from penstock.bridge.transfer.transfer_service import Depots, HandOver
from penstock.runtime.errors import GraphError
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.operator_options import OperatorOptions
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


def from_spark(
    env: StreamEnvironment,
    df: DataFrame,
    *,
    id: str = "from-spark",
    format: RecordFormat = "arrow",
    window: int = DEFAULT_WINDOW,
    **options: Unpack[OperatorOptions],
) -> DataStream[Any]:
    """A stream of the rows of a DataFrame, handed over by the Spark executors.

    A partition goes to the reader that has the least to do when its Spark task begins. Nothing is computed
    before the job runs. Keep the program and its Spark session until `wait_for_hand_over(job)` returns; from
    then on the job needs neither.

    Each call keeps a process of about 80 MB in the cluster until the session ends, where jobs ask for the
    rows. A program that hands over many DataFrames, job after job, ends its session now and then.

    Args:
        env: The environment of the job.
        df: The rows. Spark may have to compute a partition again; see the docs if that could give other rows.
        id: Id of the source; give one when a job has several.
        format: `"arrow"` gives Arrow batches to `map_batches(batch_format="arrow")` (other operators see
            dicts), `"rows"` gives dicts.
        window: Bytes that may wait for each reader before Spark has to wait.
        **options: See `OperatorOptions`.

    Raises:
        GraphError: A column has a type that can't travel, or an argument can't be meant.
    """
    check_arguments("from_spark", df, format, window)
    if df.isStreaming:
        msg = "from_spark: this DataFrame is a stream; use from_structured_streaming"
        raise GraphError(msg)
    connect()
    hand_over = HandOver(df.sparkSession, arrow_schema_of(df), lambda depots: _serve(df, depots))
    source = SparkSource(hand_over.id, format, window)
    stream: DataStream[Any] = env.from_source(id, source, **options)
    hand_over.start()
    return stream


def check_arguments(what: str, df: DataFrame, format: str, window: int) -> None:
    """Refuse what can't be meant.

    Raises:
        GraphError: Always with what to do.
    """
    if format not in ("arrow", "rows"):
        msg = f"{what}: format must be 'arrow' or 'rows', not {format!r}"
        raise GraphError(msg)
    if window < 1:
        msg = f"{what}: window={window} is not allowed: it is a number of bytes from 1"
        raise GraphError(msg)
    if not is_alive(df.sparkSession):
        msg = f"{what}: the DataFrame's Spark session is stopped; start one and make the DataFrame again"
        raise GraphError(msg)


def _serve(df: DataFrame, depots: Depots) -> None:
    session = df.sparkSession
    try:
        session.sparkContext.setJobDescription(f"rows for Penstock's job {depots.job_id}")
        depots.hand_over(df, 0)
        depots.finish()
    except Exception as error:  # Spark's and Py4J's many kinds; the depots are told
        reason = spark_error_text(error, session)
        logger.error("rows could not be handed over to job %s: %s", depots.job_id, reason)
        depots.fail(reason)
