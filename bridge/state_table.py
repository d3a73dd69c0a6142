"""`state_table`: the keyed state of a running job as a DataFrame that is read again by every action.

All tasks of an action must read the same checkpoint, also those that Spark repeats. So the first task asks an
actor of the program (`NewestCheckpoints`), which finds the newest checkpoint and names it to all tasks of the
action. Tasks know their action by its number in Spark. Distributing the choice by a shuffle is wrong, because
Spark keeps the output of a shuffle for the next action.

Views and DataFrames that are made of the table behave like the table.

The job does not wait for readers. If it deletes a checkpoint that is being read, the action fails.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import ray

from penstock.actors.client.cluster import connect, join_existing
from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall
from penstock.actors.shared.registry import find_actor, start_actor
from penstock.bridge.arrow import readable_schema, spark_schema_of
from penstock.bridge.from_spark import job_on_ray
from penstock.bridge.state import schema_of_state
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.errors import (
    ConfigurationError,
    CorruptSnapshotError,
    ObjectNotFoundError,
    RestoreError,
)
from penstock.runtime.graph.executor import JobHandle
from penstock.runtime.io.state_parts import Conversion, Convert, StateQuery, table_of, url_of
from penstock.runtime.io.storage import open_location
from penstock.runtime.names import checked_keywords
from penstock.runtime.operators.functions.keyed_folds import REDUCE_STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Column with the id of the checkpoint that a row was read from.
CHECKPOINT: Final = "checkpoint"

#: Spark's property with the number of an action.
_ACTION: Final = "spark.sql.execution.id"
#: Actions whose checkpoints are remembered; more are never in progress.
_REMEMBERED: Final = 1_000
#: Maximum rows of a batch for Spark.
_BATCH_ROWS: Final = 10_000

Batches = Iterable[pa.RecordBatch]


class NewestCheckpoints:
    """Names one checkpoint for each action: the one that is the newest when the action first asks."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str], tuple[str, int]] = OrderedDict()

    def of_action(self, action: str, folder: str) -> tuple[str, int]:
        """The URL and id of the checkpoint of the job with this folder. Idempotent."""
        key = action, folder
        if key not in self._found:
            self._found[key] = newest_checkpoint(folder)
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return self._found[key]


def newest_checkpoint(folder: str) -> tuple[str, int]:
    opened = open_snapshot(folder, open_location)
    return url_of(opened), opened.checkpoint.checkpoint_id


@dataclass(frozen=True, slots=True)
class ReadNewest:
    """Reads the parts of the newest checkpoint that one task reads; a function for `DataFrame.mapInArrow`.

    Attributes:
        query: The state; its snapshot is the job's folder.
        tasks: Number of tasks that share the parts.
        actor: Name of the actor that names the checkpoint of an action.
        session: Id of Spark's session, whose actions have numbers of its own.
    """

    query: StateQuery
    schema: pa.Schema
    tasks: int
    address: str
    actor: str
    session: str

    def __call__(self, places: Batches) -> Iterator[pa.RecordBatch]:
        url, checkpoint_id = self._named()
        for batch in places:
            for place in batch.column(0).to_pylist():
                yield from self.rows(url, checkpoint_id, place)

    def rows(self, url: str, checkpoint_id: int, place: int) -> Iterator[pa.RecordBatch]:
        """The rows of one task, from the checkpoint that was named."""
        try:
            opened = replace(self.query, snapshot=url).open()
            for part in opened.parts()[place :: self.tasks]:
                columns = opened.columns(part)
                if columns is not None:
                    columns[CHECKPOINT] = [checkpoint_id] * len(columns["key"])
                    yield from table_of(columns, self.schema).to_batches(_BATCH_ROWS)
        except (RestoreError, CorruptSnapshotError, ObjectNotFoundError) as error:
            newest, _ = newest_checkpoint(self.query.snapshot)
            if newest == url:
                raise
            msg = (
                f"the job has deleted {url} while it was read, because {newest} is newer. Keep more "
                "checkpoints with Checkpointing(retain=...), or take them less often"
            )
            raise RestoreError(msg) from error

    def _named(self) -> tuple[str, int]:
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        number = task.getLocalProperty(_ACTION)
        # Jobs of RDDs have no action; all attempts of their stage have its number.
        action = f"stage {task.stageId()}" if number is None else number
        join_existing(self.address)
        try:
            actor = find_actor(self.actor)
        except ValueError as error:
            msg = "the program that made this table of state has ended; call state_table again"
            raise RestoreError(msg) from error
        call = RepeatedCall[tuple[str, int]](
            lambda: actor.of_action.remote(f"{self.session} {action}", self.query.snapshot),
            "the process that names the newest checkpoint",
        )
        return call.answer(ANSWER)


#: Name and handle of the actor of this program, by the cluster's address and the program's id there. Each
#: cluster counts its programs from one. Without a handle the actor would end.
_actors: Final[dict[tuple[str, str], tuple[str, Any]]] = {}


def _own_actor() -> str:
    """The name of this program's actor, which all its tables share."""
    context = ray.get_runtime_context()
    program = context.gcs_address, context.get_job_id()
    if program not in _actors:
        name = f"state-tables-{secrets.token_hex(6)}"
        _actors[program] = name, start_actor(NewestCheckpoints, name, num_cpus=0)
    return _actors[program][0]


@checked_keywords
def state_table(
    spark: SparkSession,
    job: JobHandle,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
    schema: pa.Schema | None = None,
) -> DataFrame:
    """The keyed state of a job's operator, as the newest completed checkpoint has it.

    Each action reads the checkpoint that is the newest when the action begins; the job may run meanwhile. The
    columns are those of `read_state`, and `checkpoint`, the id of the checkpoint. Other arguments are as in
    `penstock.state.read_state`. The executors must be able to read the job's checkpoint storage.

    Args:
        spark: The session whose executors read the state.
        job: A job on Ray that takes checkpoints. An ended job must have kept one (`keep_after=`).
        schema: Arrow types of all columns but `checkpoint`; by default those of the newest checkpoint.

    Raises:
        RestoreError: The job has completed no checkpoint.
        ConfigurationError: The job takes no checkpoints, the checkpoint has no such operator or state, or the
            state is empty and `schema` is not given.
        BadRecordError: Spark has no type for a column.
    """
    handle = job_on_ray(job)
    connect()
    storage = handle.report(fresh=False).storage
    if storage is None:
        msg = (
            f"job {handle.job_id} takes no checkpoints, so it has no state to read: give its "
            "StreamEnvironment checkpointing=Checkpointing(...)"
        )
        raise ConfigurationError(msg)
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    query = StateQuery(f"{storage.rstrip('/')}/{handle.job_id}", operator, state, conversion)
    url, _ = newest_checkpoint(query.snapshot)
    now = replace(query, snapshot=url)
    opened = now.open()
    if not opened.is_keyed:
        msg = f"state {state!r} of {operator!r} is not keyed; read_state reads it from a checkpoint"
        raise ConfigurationError(msg)
    if schema is None:
        schema = schema_of_state(spark, now, opened)
    schema = readable_schema(schema.append(pa.field(CHECKPOINT, pa.int64())))
    tasks = len(opened.parts())
    address: str = ray.get_runtime_context().gcs_address
    read = ReadNewest(query, schema, tasks, address, _own_actor(), spark.sparkContext.applicationId)
    return spark.range(0, tasks, 1, tasks).mapInArrow(read, spark_schema_of(schema))
