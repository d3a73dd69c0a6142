"""Spark cleans and joins, a job enriches with state for each customer, Spark aggregates.

    pip install 'penstock[spark]'
    python examples/spark_in_out.py

Orders and customers are generated. Spark drops broken orders and joins the customers. The rows go straight
from its executors to the job. The job numbers each customer's orders and keeps a running total: state that
Spark's batch queries do not have. The result goes straight back, and Spark sums it up. Then everything is
computed again in plain Python and compared. `--kill` kills a subtask in the middle: the result is the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import (
    Checkpointing,
    DataStream,
    KeyedProcessFunction,
    PenstockError,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)
from penstock.cluster import RayJobHandle
from penstock.spark import SparkResults, from_spark, spark_session
from penstock.testing import kill_process

CUSTOMERS = 97
COUNTRIES = ("Chile", "Ghana", "Japan", "Norway")
_WHOLE = pa.int64()
NUMBERED = pa.schema(
    {"customer": _WHOLE, "country": pa.string(), "number": _WHOLE, "cents": _WHOLE, "total": _WHOLE}
)


class Loyalty(KeyedProcessFunction[int, dict[str, Any], dict[str, Any]]):
    """Numbers the orders of each customer and adds them up."""

    def open(self, ctx: RuntimeContext) -> None:
        """Bind the state."""
        self._so_far: ValueState = ctx.value_state("so far", default=(0, 0))

    def process(self, value: dict[str, Any], ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """Process one order of the customer that is the current key."""
        number, total = self._so_far.value()
        number, total = number + 1, total + value["cents"]
        self._so_far.update((number, total))
        yield {
            "customer": value["customer"],
            "country": value["country"],
            "number": number,
            "cents": value["cents"],
            "total": total,
        }


def make_orders(spark: SparkSession, count: int) -> DataFrame:
    """Generate orders; every tenth one has no cents."""
    return spark.range(0, count, 1, 6).select(
        F.col("id").alias("order"),
        (F.col("id") * 31 % CUSTOMERS).alias("customer"),
        F.when(F.col("id") % 10 == 0, None).otherwise(F.col("id") * 7 % 5_000).alias("cents"),
    )


def clean_and_join(spark: SparkSession, orders: DataFrame) -> DataFrame:
    """Drop orders without cents, and add the country of each customer."""
    countries = F.array(*map(F.lit, COUNTRIES))
    customers = spark.range(CUSTOMERS).select(
        F.col("id").alias("customer"),
        F.element_at(countries, (F.col("id") % len(COUNTRIES) + 1).cast("int")).alias("country"),
    )
    return orders.where("cents IS NOT NULL").join(F.broadcast(customers), "customer")


def expected(count: int) -> dict[str, tuple[int, int, int]]:
    """Compute the orders, cents and largest customer total of each country, without Spark or Penstock."""
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    of_customer: Counter[int] = Counter()
    largest: dict[str, int] = defaultdict(int)
    for order in (i for i in range(count) if i % 10):
        customer = order * 31 % CUSTOMERS
        country = COUNTRIES[customer % len(COUNTRIES)]
        orders[country] += 1
        cents[country] += order * 7 % 5_000
        of_customer[customer] += order * 7 % 5_000
        largest[country] = max(largest[country], of_customer[customer])
    return {country: (orders[country], cents[country], largest[country]) for country in orders}


def kill_in_the_middle(job: RayJobHandle) -> None:
    """Kill a reading subtask once a checkpoint is complete and rows flow."""
    while True:
        seen = job.report()
        read = seen.statistics.operators.get("orders")
        if read is not None and read.records_out > 0 and seen.statistics.completed_checkpoints > 0:
            break
        if seen.status.is_terminal:
            print("the job ended before the kill")
            return
        time.sleep(0.02)
    victim = next(process for process in job.processes() if process.subtask.vertex == "orders")
    kill_process(victim)
    print(f"killed {victim.subtask} (pid {victim.pid})")


def run(spark: SparkSession, count: int, storage: str, kill: bool) -> dict[str, tuple[int, int, int]]:
    """Run Spark's queries and the job; return the numbers of each country."""
    env = StreamEnvironment("loyalty", parallelism=2, checkpointing=Checkpointing(every=0.5, storage=storage))
    orders: DataStream[dict[str, Any]] = from_spark(
        env,
        clean_and_join(spark, make_orders(spark, count)),
        id="orders",
        batch_format="rows",
        window=1 << 18,
    )
    numbered = orders.key_by(lambda order: order["customer"]).process("loyalty", Loyalty())
    with SparkResults(NUMBERED) as results:
        numbered.sink("numbered", results)
        job = env.submit()
        assert isinstance(job, RayJobHandle)
        if kill:
            kill_in_the_middle(job)
        finished = job.wait(progress=True)
        print(f"the job took {finished.duration:.1f} s with {finished.statistics.restarts} restart(s)")
        summed = (
            results.to_dataframe(spark)
            .groupBy("country")
            .agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"), F.max("total").alias("largest"))
            .orderBy("country")
        )
        summed.show()
        return {row.country: (row.orders, row.cents, row.largest) for row in summed.collect()}


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def main() -> int:
    """Run the example, and compare its result with the expected one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--orders", type=positive, default=200_000, metavar="N", help="number of orders (default: 200000)"
    )
    parser.add_argument("--kill", action="store_true", help="kill a subtask in the middle")
    options = parser.parse_args()
    share = {"spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="spark-in-out-") as storage,
            spark_session("spark-in-out", executors=1, cores=2, memory="600m", configs=share) as spark,
        ):
            found = run(spark, options.orders, storage, options.kill)
    except PenstockError as error:
        print(f"spark_in_out: {error}", file=sys.stderr)
        return 1
    correct = found == expected(options.orders)
    print("every order was counted once" if correct else f"WRONG: {found} is not {expected(options.orders)}")
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
