"""A job of `tests/pipelines` in real processes.

A process is killed, the job is stopped midway with a savepoint, and another one goes on from there at another
parallelism. What both have written must be what is expected.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, assert_no_subtasks, finish, kill_subtask, wait_until
from jobs.held_sources import HeldEnvironment
from jobs.words import RESTART
from pipelines.harness.pipeline import load
from pipelines.harness.scenario import BACKENDS, MODES

from penstock.actors import RayCollector, RayJobHandle
from penstock.runtime import Checkpointing, CollectSink
from penstock.runtime.testing.simulation.user_graph.comparison import difference

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.mark.parametrize(
    ("name", "mode", "backend", "old", "new"), [("baskets", "unaligned", "rocksdb", 1, 2)]
)
def test_pipeline_gives_what_is_expected_though_killed_stopped_and_started_at_another_parallelism(
    tmp_path: Path, name: str, mode: str, backend: str, old: int, new: int
) -> None:
    pipeline, results = load(name), RayCollector()
    records = pipeline.make_input(7)

    def submit(parallelism: int, savepoint: str | None) -> RayJobHandle:
        checkpointing = Checkpointing(every=0.25, storage=str(tmp_path / "checkpoints"), **MODES[mode])
        env = HeldEnvironment(
            tmp_path / "go",
            name,
            parallelism=parallelism,
            checkpointing=checkpointing,
            restart=RESTART,
            **BACKENDS[backend],
        )
        (stream,) = pipeline.add_to(env, records, tmp_path, again=savepoint is not None).values()
        stream.sink("results", CollectSink(results))
        job = env.submit(restore_from=savepoint)
        assert isinstance(job, RayJobHandle)
        return job

    job = submit(old, None)
    after_checkpoints(job, 1)
    kill_subtask(job, job.processes()[-1].subtask.vertex)
    wait_until(job, "restart", lambda report: report.statistics.restarts >= 1)
    savepoint = job.stop()
    assert_no_subtasks(job)
    (tmp_path / "go").touch()
    finish(submit(new, savepoint))

    (wanted,), rows = pipeline.expected(records).values(), results.rows()
    assert difference(wanted, rows) is None, difference(wanted, rows)
