"""What the real process of a subtask has loaded, with all the handles that Ray gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs.loaded_modules import modules

from penstock.runtime import Checkpointing, FileSink, GeneratorSource, JobConfig, StreamEnvironment

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_subtask_that_writes_json_lines_has_loaded_no_coordinator_and_no_parquet(tmp_path: Path) -> None:
    storage = Checkpointing(every=0.2, storage=str(tmp_path / "checkpoints"))
    # A process that has served others has loaded what they needed.
    env = StreamEnvironment("imports", checkpointing=storage, config=JobConfig(reuse_processes=False))
    env.from_source("in", GeneratorSource(modules, count=60, rate=60.0)).sink(
        "out", FileSink.json(tmp_path / "out")
    )
    result = env.run(progress=False)

    lines = [line for file in (tmp_path / "out").iterdir() for line in file.read_text().splitlines()]
    assert result.statistics.completed_checkpoints >= 2
    loaded = {module for line in lines for module in json.loads(line)["loaded"]}
    assert {"penstock.actors.master.job_master", "penstock.runtime.task.subtask"} <= loaded
    of_others = ("penstock.actors.master.", "penstock.actors.client", "penstock.actors.command_line")
    assert {name for name in loaded if name.startswith(of_others)} == {"penstock.actors.master.job_master"}
    assert not {"penstock.runtime.job.scheduler", "penstock.runtime.graph.streams.data_stream"} & loaded
    assert not {"rich", "typer", "pandas", "pyarrow.parquet", "pyarrow.compute"} & loaded
