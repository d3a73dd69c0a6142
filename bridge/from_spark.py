"""`from_spark`: a DataFrame as a bounded source of a job.

The program that has the Spark session starts one Spark job when the readers of the job are up; its tasks push
their partitions straight to the depots of the readers. The program itself sees only one line per partition.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final, Unpack

import ray

from penstock.actors.cluster import connect
from penstock.actors.names import NAMESPACE
from penstock.bridge.arrow_types import arrow_schema
from penstock.bridge.depot import DEFAULT_WINDOW
from penstock.bridge.depot_actor import depot_name
from penstock.bridge.hand_over_desk import Order, open_desk
from penstock.bridge.session import is_alive
from penstock.bridge.spark_errors import spark_error_text
from penstock.bridge.spark_push import SUMMARY, PushOrder
from penstock.bridge.spark_reader import RecordFormat, SparkSource
from penstock.runtime.errors import GraphError
from penstock.runtime.graph.data_stream import DataStream
from penstock.runtime.graph.operator_options import OperatorOptions
from penstock.runtime.graph.stream_environment import StreamEnvironment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

#: Seconds between two looks for orders. Nothing waits inside of Ray here: a thread that is in a call when the
#: program leaves its cluster would take the program down.
_POLL: Final = 0.1
#: Seconds for a depot to answer the end of a hand-over.
_ANSWER: Final = 60.0

_program_ends: Final = threading.Event()
atexit.register(_program_ends.set)


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

    Partition `p` goes to reader `p % parallelism`. Nothing is computed before the job runs. Keep the program
    and its Spark session until `wait_for_hand_over(job)` returns; from then on the job needs neither.

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
    if format not in ("arrow", "rows"):
        msg = f"from_spark: format must be 'arrow' or 'rows', not {format!r}"
        raise GraphError(msg)
    if window < 1:
        msg = f"from_spark: window={window} is not allowed: it is a number of bytes from 1"
        raise GraphError(msg)
    session = df.sparkSession
    if not is_alive(session):
        msg = "from_spark: the DataFrame's Spark session is stopped; start one and make the DataFrame again"
        raise GraphError(msg)
    schema = arrow_schema(df.schema, str(session.conf.get("spark.sql.session.timeZone")))
    connect()
    hand_over = HandOver(df, schema)
    stream: DataStream[Any] = env.from_source(id, SparkSource(hand_over.id, format, window), **options)
    hand_over.start()
    return stream


class HandOver:
    """Serves the jobs that read one DataFrame, in a thread of the program that has it.

    Args:
        df: The DataFrame.
        schema: Its Arrow schema.
    """

    def __init__(self, df: DataFrame, schema: Any) -> None:
        self.id = secrets.token_hex(6)
        self._df = df
        self._schema: bytes = schema.serialize().to_pybytes()
        self._desk = open_desk(self.id)
        self._address: str = ray.get_runtime_context().gcs_address
        self._thread = threading.Thread(target=self._serve, name=f"hand-over-{self.id}", daemon=True)

    def start(self) -> None:
        """Begin to take orders."""
        self._thread.start()

    def _serve(self) -> None:
        try:
            while not _program_ends.wait(_POLL) and ray.is_initialized():
                if not is_alive(self._df.sparkSession):
                    ray.kill(self._desk)
                    return
                order: Order | None = ray.get(self._desk.next_order.remote())
                if order is not None:
                    self._hand_over(order)
        except Exception as error:
            # Ray or Spark went away under it, mostly because the program ends; the depots see the desk go.
            logger.debug("hand-over %s ends: %s", self.id, error)

    def _hand_over(self, order: Order) -> None:
        names = tuple(depot_name(order.job_id, self.id, i) for i in range(order.depots))
        push = PushOrder(self._address, names, self._schema)
        depots = [ray.get_actor(name, namespace=NAMESPACE) for name in names]
        try:
            session = self._df.sparkSession
            session.sparkContext.setJobDescription(f"rows for Penstock's job {order.job_id}")
            summaries = self._df.mapInArrow(push, SUMMARY).collect()
        except Exception as error:
            reason = spark_error_text(error, self._df.sparkSession)
            logger.error("rows could not be handed over to job %s: %s", order.job_id, reason)
            for depot in depots:
                depot.fail.remote(reason)
            return
        self._complete(depots, summaries)

    def _complete(self, depots: list[Any], summaries: list[Any]) -> None:
        expected: list[dict[int, tuple[int, int]]] = [{} for _ in depots]
        for each in summaries:
            expected[each.partition % len(depots)][each.partition] = (each.frames, each.rows)
        answers = [depot.complete.remote(e) for depot, e in zip(depots, expected, strict=True)]
        try:
            problems = [p for p in ray.get(answers, timeout=_ANSWER) if p is not None]
        except ray.exceptions.RayActorError as error:
            logger.warning("a job ended before its rows were handed over: %s", error)
            return
        if problems:
            logger.error("a hand-over does not add up: %s", "; ".join(problems))
