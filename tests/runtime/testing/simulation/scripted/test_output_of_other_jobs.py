"""Jobs that start one after the other into one folder of files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from memory_storages import MemoryPlaces
from savepoint_jobs import CONFIG, stop_with_savepoint
from simulated_jobs.scripted_job import ScriptedJob

from penstock import FileSink, GeneratorSource, StreamEnvironment
from penstock.runtime.errors import JobFailedError
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage

COUNT = 1_500


def writing(folder: Path, **options: Any) -> ExecutionGraph:
    env = StreamEnvironment("numbers", parallelism=2)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT))
    numbers.rebalance().sink("out", FileSink.json(folder, **options))
    return build_execution_graph(env.build())


def job_of(folder: Path, job_id: str, places: MemoryPlaces, **options: Any) -> ScriptedJob:
    start = {"restore_from": options.pop("restore_from", None)}
    graph = writing(folder, **options)
    return ScriptedJob(graph, CONFIG, MemoryStorage(), 1, job_id=job_id, open_location=places, **start)


def committed(folder: Path) -> Counter[int]:
    lines = [line for file in folder.glob("part-*") for line in file.read_text().splitlines()]
    return Counter(map(json.loads, lines))


def once() -> Counter[int]:
    return Counter(range(COUNT))


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_new_job_fails_before_it_writes_unless_it_appends_or_replaces(
    tmp_path: Path, places: MemoryPlaces
) -> None:
    job_of(tmp_path, "first", places).finish()
    before = names(tmp_path)
    with pytest.raises(JobFailedError, match=r"'out'.*output of another job: job first has committed part-"):
        job_of(tmp_path, "second", places)
    assert names(tmp_path) == before
    job_of(tmp_path, "third", places, if_exists="append").finish()
    assert committed(tmp_path) == once() + once()
    job_of(tmp_path, "fourth", places, if_exists="replace").finish()
    assert committed(tmp_path) == once()


def test_a_job_that_starts_from_a_snapshot_continues_the_output(tmp_path: Path, places: MemoryPlaces) -> None:
    job = job_of(tmp_path, "first", places)
    job.run(80)
    stop_with_savepoint(job, places, "/saved")
    assert 0 < committed(tmp_path).total() < COUNT
    job_of(tmp_path, "second", places, restore_from="/saved").finish()
    assert committed(tmp_path) == once()


def test_a_restart_before_the_first_checkpoint_continues_though_another_job_has_committed_meanwhile(
    tmp_path: Path, places: MemoryPlaces
) -> None:
    job = job_of(tmp_path, "first", places)
    job.run(50)
    job_of(tmp_path, "second", places).finish()
    job.crash(killed=SubtaskId("out", 0))
    job.finish()
    assert committed(tmp_path) == once() + once()


def test_a_new_job_master_without_a_checkpoint_checks_again(tmp_path: Path, places: MemoryPlaces) -> None:
    """It can't know whether its predecessor has."""
    job = job_of(tmp_path, "first", places)
    job.run(50)
    job_of(tmp_path, "second", places).finish()
    job.kill_master()
    with pytest.raises(JobFailedError, match="job second has committed"):
        job.until_it_runs()
