"""A Spark session whose executors are on two hosts, in which two attempts of a task run at the same time.

Spark starts a speculative copy only on another host than the first attempt's. So there are two Ray nodes
here, with two loopback addresses, which are two hosts for Spark. See sessions.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from pipelines.jobs import PATIENCE, Slowed, assert_each_once, buffers, copied, eventually, finish
from ray._private.node import Node
from ray._private.parameter import RayParams

from penstock.actors.client.cluster import _as_single_machine
from penstock.spark import spark_session, wait_for_transfer

#: Rows of 4 kB: each of the two partitions is ten batches, and each batch about a frame.
COUNT = 20_000
STOP_AT = 6
#: Of each node, for Ray's counting. A node starts as many processes before any job, and where the machine has
#: two cores Ray warns of 16.
CPUS = 12

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": 0.5,
    "spark.speculation.multiplier": 1.1,
    "spark.sql.execution.arrow.maxRecordsPerBatch": 1_000,
    # Room for one executor on each node, and for the subtasks of three jobs.
    "spark.ray.raydp_spark_executor.actor.resource.cpu": CPUS // 2 + 1,
}


class Raced:
    """The first attempt of the last partition and its copy both stop in their middle until they may go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, batches: Any) -> Any:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        attempt = task.attemptNumber()
        for number, batch in enumerate(batches):
            if task.partitionId() == 1 and attempt in (0, 1) and number == STOP_AT:
                (Path(self.folder) / f"attempt {attempt}").touch()
                eventually("the word to go on", (Path(self.folder) / "both").exists)
            yield batch


@contextmanager
def two_nodes() -> Iterator[None]:
    """A second node of another address, beside that of the local cluster."""
    with _as_single_machine():
        head: Any = ray._private.worker._global_node
        params = RayParams(
            gcs_address=ray.get_runtime_context().gcs_address,
            session_name=head.session_name,
            temp_dir=head.get_temp_dir_path(),
            node_ip_address="127.0.0.2",
            num_cpus=CPUS,
            include_log_monitor=False,
        )
        second = Node(params, head=False, shutdown_at_exit=True, spawn_reaper=True)
    try:
        eventually("the second node", lambda: len(ray.nodes()) == 2)
        yield
    finally:
        ray.shutdown()
        second.kill_all_processes(check_alive=False, allow_graceful=True)


def session_on_two_hosts() -> Any:
    return spark_session("two-hosts", executors=2, memory="600m", configs=SPECULATION, start_timeout=250)


def raced_attempts(folder: Path, spark: Any) -> None:
    """Run a job whose last partition is pushed by two attempts."""
    wide = spark.range(0, COUNT, 1, 2).selectExpr(
        "id", "concat(cast(id AS string), repeat('-', 4000)) AS text"
    )
    raced = wide.mapInArrow(Raced(folder), "id long, text string")
    job = copied(folder, raced, slow=Slowed(100, folder / "go"), parallelism=1, window=1 << 30)
    eventually("frames of both attempts", lambda: sum(d.attempts for d in buffers(job)) == 3)
    eventually("both in their middle", lambda: all((folder / f"attempt {a}").exists() for a in (0, 1)))
    print("both push at the same time")
    (folder / "both").touch()
    (seen,) = wait_for_transfer(job, PATIENCE)
    print("attempts:", seen.attempts, "duplicates:", seen.duplicates, "rows:", seen.rows)
    (folder / "go").touch()
    result = finish(job)
    assert_each_once(folder, COUNT)
    print("each row once, restarts:", result.statistics.restarts)
