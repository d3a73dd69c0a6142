"""Ray Data in and out of jobs: nothing lost, nothing twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from jobs.driving import after_checkpoints, finish, kill_subtask, submit, when_records_flow
from jobs.held import Held
from jobs.held_records import HeldAtEachRecord
from jobs.oracle import committed_rows
from jobs.words import environment

from penstock import FileSink, GraphError, JobFailedError, JobTimeoutError, PenstockError, job
from penstock.bridge.bounded_results import results_of_job
from penstock.ray_data import from_ray_dataset, to_ray_dataset
from penstock.spark import SparkResults

pytestmark = pytest.mark.usefixtures("ray_cluster")

ray_data = pytest.importorskip("ray.data", reason="needs pip install 'ray[data]'")

COUNT = 10_000


def test_rows_go_from_ray_data_into_a_job_and_back(tmp_path: Path) -> None:
    dataset = ray_data.range(COUNT, override_num_blocks=7).map(lambda row: {**row, "word": str(row["id"])})
    env = environment(tmp_path, parallelism=2)
    stream = from_ray_dataset(env, dataset, batch_format="rows")
    back = to_ray_dataset(stream.map(lambda row: {"n": row["id"], "of": len(row["word"])}))
    rows = back.take_all()
    assert Counter(row["n"] for row in rows) == Counter(range(COUNT))
    assert all(row["of"] == len(str(row["n"])) for row in rows)
    assert back.count() == COUNT


def test_blocks_are_read_again_from_where_the_checkpoint_was(tmp_path: Path) -> None:
    """The reader dies in the middle of a block."""
    dataset = ray_data.range(COUNT, override_num_blocks=3)
    env = environment(tmp_path, parallelism=2)
    stream = from_ray_dataset(env, dataset, id="rows", batch_format="rows")
    held = stream.map(Held(100, tmp_path / "go"))
    held.sink("out", FileSink.json(tmp_path / "out"))
    running = submit(env)
    when_records_flow(running, "rows", COUNT // 20)
    after_checkpoints(running, 2)
    kill_subtask(running, "rows", 0)
    (tmp_path / "go").touch()

    assert finish(running).statistics.restarts == 1
    assert Counter(row["id"] for row in committed_rows(tmp_path / "out")) == Counter(range(COUNT))


@pytest.mark.long
def test_arrow_batches_and_datasets_without_rows(tmp_path: Path) -> None:
    env = environment(tmp_path)
    batches = from_ray_dataset(env, ray_data.from_arrow(pa.table({"a": [1, 2, 3]})))
    doubled = batches.map_batches(
        lambda b: pa.record_batch([pa.array([x * 2 for x in b["a"].to_pylist()])], ["a"]), "arrow"
    )
    assert sorted(row["a"] for row in to_ray_dataset(doubled).take_all()) == [2, 4, 6]

    schema = pa.schema({"a": pa.int64()})
    env = environment(tmp_path / "empty")
    none = from_ray_dataset(env, ray_data.from_arrow(schema.empty_table()))
    assert to_ray_dataset(none, schema=schema).count() == 0
    env = environment(tmp_path / "unknown")
    none = from_ray_dataset(env, ray_data.from_arrow(schema.empty_table()), batch_format="rows")
    with pytest.raises(PenstockError, match="give to_ray_dataset a schema="):
        to_ray_dataset(none)


@pytest.mark.long
def test_results_of_a_submitted_job_are_found_by_its_handle(tmp_path: Path) -> None:
    env = environment(tmp_path)
    numbers = env.from_collection("numbers", [{"n": n} for n in range(10)])
    both, large = SparkResults(), SparkResults(pa.schema({"n": pa.int64()}))
    numbers.filter(lambda row: row["n"] % 2 == 0).sink("even", both)
    numbers.filter(lambda row: row["n"] % 2 == 1).sink("odd", both)
    numbers.filter(lambda row: row["n"] > 99).sink("large", large)
    running = submit(env)
    del env, numbers, both, large  # only the job has them
    with pytest.raises(PenstockError, match=r"sinks: 'even', 'large', 'odd'\. Name one with id="):
        to_ray_dataset(running)
    assert sorted(row["n"] for row in to_ray_dataset(running, id="even").take_all()) == [0, 2, 4, 6, 8]
    empty = to_ray_dataset(running, id="large")
    assert (empty.count(), empty.schema().names) == (0, ["n"])

    for released in ("even", "large"):
        results_of_job(running.job_id, released, SparkResults).unpersist()
    assert sorted(row["n"] for row in to_ray_dataset(running).take_all()) == [1, 3, 5, 7, 9]
    results_of_job(running.job_id, None, SparkResults).unpersist()
    with pytest.raises(PenstockError, match="holds no results: give it a sink"):
        to_ray_dataset(running)
    with pytest.raises(GraphError, match="give a stream or a submitted job, not StreamEnvironment"):
        to_ray_dataset(environment(tmp_path))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_wait_for_results_that_ends_too_early_costs_nothing(tmp_path: Path) -> None:
    rows = environment(tmp_path).from_collection("rows", [{"n": n} for n in range(10)])
    held = rows.map(HeldAtEachRecord(str(tmp_path / "go")))
    with pytest.raises(JobTimeoutError) as late:
        to_ray_dataset(held, timeout=1.0)
    (tmp_path / "go").touch()
    (job_id,) = re.findall(r"job = penstock\.job\('(.+)'\)", "".join(late.value.__notes__))
    assert sorted(row["n"] for row in to_ray_dataset(job(job_id)).take_all()) == list(range(10))
    assert to_ray_dataset(held).count() == 10, "the environment can be used again"


@pytest.mark.long
def test_a_job_whose_results_are_released_fails_without_restarts(tmp_path: Path) -> None:
    env = environment(tmp_path)
    rows = env.from_collection("rows", [{"n": n} for n in range(5_000)])
    with SparkResults() as results:
        rows.map(Held(100, tmp_path / "go")).sink("out", results)
        running = submit(env)
        when_records_flow(running, "rows", 100)
    (tmp_path / "go").touch()
    with pytest.raises(JobFailedError, match=r"operator 'out'.*has ended, so committed rows are lost"):
        finish(running)
    assert running.statistics().restarts == 0


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    with pytest.raises(GraphError, match=r"list is not a ray\.data\.Dataset"):
        from_ray_dataset(env, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="must be 'arrow' or 'rows', not 'pandas'"):
        from_ray_dataset(env, ray_data.range(1), batch_format="pandas")  # type: ignore[arg-type]
