"""A subtask is a process, and a restart waits for its imports: it loads what a subtask needs, and no more."""

from __future__ import annotations

import subprocess
import sys


def test_a_subtask_loads_nothing_of_the_job_master_of_programs_or_of_the_command_line() -> None:
    show = "import sys; print(*sys.modules)"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import penstock.actors.subtask.subtask_actor, penstock.actors.subtask.attempt\n{show}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert "penstock.runtime.task.subtask" in loaded
    assert "penstock.runtime.execution.processes" in loaded
    of_others = ("penstock.actors.master", "penstock.actors.client", "penstock.actors.command_line")
    assert not [name for name in loaded if name.startswith(of_others)]
    assert not {"penstock.runtime.job.scheduler", "penstock.runtime.graph.streams.data_stream"} & loaded
    assert not {"rich", "typer", "pandas", "pyarrow.parquet", "pyarrow.compute"} & loaded
