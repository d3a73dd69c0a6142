"""`from_ray_dataset` and `to_ray_dataset`: Ray Data in and out of jobs; without Spark.

In: the dataset is computed, and its blocks, which stay in Ray's object store, are splits that readers request
(`dataset_source.py`).

Out: results are blocks in the object store (`blocks/`). Tasks make tables of them, and the driver sees none.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import ray

from penstock.actors.client.cluster import connect
from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.arrow.record_format import RecordFormat
from penstock.bridge.blocks.block_results import BlockResults
from penstock.bridge.blocks.bounded_results import results_of
from penstock.bridge.ray_data.dataset_source import DATASET_PREFIX, DatasetHolder, DatasetSource
from penstock.runtime.config.checks import Duration
from penstock.runtime.errors import GraphError, PenstockError
from penstock.runtime.graph.job_handle import JobHandle
from penstock.runtime.graph.streams.checked_call import checked_call
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.operator_options import OPTION_NAMES, OperatorOptions
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.misspelt_names import checked_keywords
from penstock.runtime.operators.sources.on_request import OnRequest

if TYPE_CHECKING:
    import ray.data


@checked_call(OPTION_NAMES)
def from_ray_dataset(
    env: StreamEnvironment,
    dataset: ray.data.Dataset,
    *,
    id: str = "from-ray-dataset",
    format: RecordFormat = "arrow",
    **options: Unpack[OperatorOptions],
) -> DataStream[Any]:
    """A stream of the rows of a Ray dataset, which is computed now.

    Its blocks belong to this program: keep it, and the job's handle or `env`, until the job has read them.

    Args:
        env: The environment of the job.
        dataset: The rows.
        id: Id of the source; give one when a job has several.
        format: `"arrow"` gives Arrow batches to `map_batches(batch_format="arrow")` (other operators see
            dicts), `"rows"` gives dicts.
        **options: See `OperatorOptions`.

    Raises:
        GraphError: An argument is invalid.
    """
    if format not in ("arrow", "rows"):
        msg = f"from_ray_dataset: format must be 'arrow' or 'rows', not {format!r}"
        raise GraphError(msg)
    if not hasattr(dataset, "to_arrow_refs"):
        msg = f"from_ray_dataset: {type(dataset).__name__} is no ray.data.Dataset"
        raise GraphError(msg)
    connect()
    computed = dataset.materialize()
    references = computed.to_arrow_refs()
    columns = getattr(computed.schema(), "base_schema", None)
    name = secrets.token_hex(6)
    actor: Any = ray.remote(DatasetHolder)
    options_of_actor = {"name": DATASET_PREFIX + name, "namespace": NAMESPACE, "num_cpus": 0}
    holder = actor.options(**options_of_actor).remote(references)
    source = DatasetSource(
        name, len(references), format, columns.remove_metadata() if isinstance(columns, pa.Schema) else None
    )
    stream: DataStream[Any] = env.from_source(id, OnRequest(source), **options)
    # The actor ends with its last handle, so the environment's graph must hold one.
    source.keep(holder)
    return stream


@checked_keywords
def to_ray_dataset(
    job_or_stream: JobHandle | DataStream[Any],
    *,
    id: str | None = None,
    schema: pa.Schema | None = None,
    timeout: Duration | None = None,
    progress: bool = False,
) -> ray.data.Dataset:
    """The results of a bounded job as a Ray dataset.

    Given a stream, this runs its job, with all of its sinks, and gives the stream's rows. Given a job that
    was submitted, it waits for its end and gives what its `SparkResults` sink holds.

    The rows stay in Ray's object store for as long as the dataset is used, and the program that made the sink
    lives. Their types are those of `SparkResults`.

    Args:
        job_or_stream: The stream, of dicts or Arrow batches; or the job.
        id: Id of the sink: `"to-ray-dataset"` by default for a stream, the only `SparkResults` for a job.
        schema: Arrow schema of a stream's rows; see `SparkResults`.
        timeout: Seconds for the job; `None` waits for ever.
        progress: Show a live line meanwhile.

    Raises:
        GraphError: The graph can't be built.
        JobFailedError: The job failed.
        JobTimeoutError: It has not ended after `timeout`, and goes on.
        PenstockError: There are no rows and no schema; or the job has no such sink.
    """
    return results_of(
        "to_ray_dataset",
        job_or_stream,
        id,
        "to-ray-dataset",
        BlockResults,
        schema,
        _dataset_of,
        timeout=timeout,
        progress=progress,
    )


def _dataset_of(results: BlockResults) -> ray.data.Dataset:
    import ray.data

    blocks = results.blocks()
    if blocks:
        as_table: Any = ray.remote(num_cpus=0)(_table_of)
        dataset: Any = ray.data.from_arrow_refs([as_table.remote(block.data) for block in blocks.values()])
    elif results.schema is not None:
        dataset = ray.data.from_arrow(results.schema.empty_table())
    else:
        msg = "the job has no result, so its columns are not known: give to_ray_dataset a schema="
        raise PenstockError(msg)
    # The blocks live as long as their holder, and the holder as long as this object.
    dataset._penstock_results = results
    results.let_go()
    return dataset  # type: ignore[no-any-return]


def _table_of(block: bytes) -> pa.Table:
    """A block as Ray Data's table, a view of the bytes; runs in a task where the bytes are."""
    with pa.ipc.open_stream(block) as reader:
        return reader.read_all()
