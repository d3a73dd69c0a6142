"""A job of `tests/pipelines` in real processes.

A process is killed, the job is stopped midway with a savepoint, and another one continues from there at
another parallelism. What both have written must be what is expected.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, assert_no_subtasks, finish, kill_subtask, wait_until
from jobs.held_sources import HeldEnvironment
from jobs.words import RESTART
from pipelines.harness.pipeline import load
from pipelines.harness.scenario import BACKENDS, MODES

from penstock import Checkpointing, CollectSink
from penstock.actors.client.collect import RayCollector
from penstock.cluster import RayJobHandle
from penstock.runtime.testing.simulation.run.report import difference

pytestmark = pytest.mark.usefixtures("ray_cluster")


#: The first one runs always; each of the others takes about ten seconds.
CHOSEN = [
    ("baskets", "unaligned", "rocksdb", 1, 2),
    *(
        pytest.param(*one, marks=pytest.mark.long)
        for one in [
            ("aligned_sources", "aligned", "heap", 2, 1),
            ("charged_accounts", "unaligned", "rocksdb", 1, 2),
            ("column_totals", "with-timeout", "heap", 1, 2),
            ("count_windows", "stored", "rocksdb", 2, 1),
            ("deadlines", "unaligned", "rocksdb", 2, 1),
            ("early_results", "two-at-a-time", "heap", 1, 2),
            ("late_records", "with-timeout", "rocksdb", 2, 1),
            ("column_sessions", "unaligned", "heap", 2, 1),
            ("paid_orders", "unaligned", "rocksdb", 2, 1),
            ("changing_rules", "with-timeout", "heap", 1, 2),
            ("renamed_state", "stored", "rocksdb", 1, 2),
        ]
    ),
]


@pytest.mark.parametrize(("name", "mode", "backend", "old", "new"), CHOSEN)
def test_pipeline_gives_what_is_expected_though_killed_stopped_and_started_at_another_parallelism(
    tmp_path: Path, name: str, mode: str, backend: str, old: int, new: int
) -> None:
    pipeline = load(name)
    records = pipeline.make_input(7)
    wanted = pipeline.expected(records)
    results = {stream: RayCollector() for stream in wanted}

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
        streams = pipeline.add_to(env, records, tmp_path, again=savepoint is not None)
        for each, stream in streams.items():
            stream.sink(f"results-{each}", CollectSink(results[each]))
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

    found = pipeline.comparable({each: collector.rows() for each, collector in results.items()})
    for each, rows in wanted.items():
        differs = difference(rows, found[each])
        assert differs is None, f"{each}: {differs}"
