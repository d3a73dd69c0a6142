"""What the real process of a subtask has loaded, with all the handles that Ray gives it.

Its cluster forks no workers from a template: a forked one begins with all that the template has loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

from penstock.actors import start_local
from penstock.runtime import Checkpointing, FileSink, GeneratorSource, StreamEnvironment


def modules(_):
    import sys

    return {"loaded": sorted(sys.modules)}


start_local(num_cpus=2, fork_workers=False)
env = StreamEnvironment("imports", checkpointing=Checkpointing(every=0.2, storage="checkpoints"))
env.from_source("in", GeneratorSource(modules, count=60, rate=60.0)).sink("out", FileSink.json("out"))
result = env.run(progress=False)
print(result.statistics.completed_checkpoints)
"""


def test_a_subtask_that_writes_json_lines_has_loaded_no_coordinator_and_no_parquet(tmp_path: Path) -> None:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=mine,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert program.returncode == 0, program.stderr
    assert int(program.stdout.splitlines()[-1]) >= 2
    lines = [line for file in (tmp_path / "out").iterdir() for line in file.read_text().splitlines()]
    loaded = {module for line in lines for module in json.loads(line)["loaded"]}
    assert {"penstock.actors.master.job_master", "penstock.runtime.task.subtask"} <= loaded
    of_others = ("penstock.actors.master.", "penstock.actors.client", "penstock.actors.command_line")
    assert {name for name in loaded if name.startswith(of_others)} == {"penstock.actors.master.job_master"}
    assert not {"penstock.runtime.job.scheduler", "penstock.runtime.graph.streams.data_stream"} & loaded
    assert not {"rich", "typer", "pandas", "pyarrow.parquet", "pyarrow.compute"} & loaded
