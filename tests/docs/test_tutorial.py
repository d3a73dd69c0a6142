"""The programs and commands of the tutorial, in its order, do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from program_here import run_here

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"

#: A program with the name under which it is saved.
_PROGRAM = re.compile(
    r"Save (?:this program )?as `(\w+\.py)`:\n\n^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
#: A command, and its output if the page shows it.
_COMMAND = re.compile(
    r"^<!-- runs in a test -->\n```sh\n(.*?)\n```(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
_CHANGE = re.compile(r"Delete the line `(.+)` in `job.py`")
#: Seconds for the death of a program on a busy machine.
_PATIENCE = 300

TEXT = TUTORIAL.read_text(encoding="utf-8")
PROGRAMS = dict(_PROGRAM.findall(TEXT))
COMMANDS = dict(_COMMAND.findall(TEXT))


def test_every_program_is_saved_and_run() -> None:
    assert TEXT.count("```python") == len(PROGRAMS)
    assert all(any(f"python {name}" in command for command in COMMANDS) for name in PROGRAMS)


@pytest.mark.ray
@pytest.mark.long
def test_the_tutorial_counts_each_reading_once(tmp_path: Path, ray_environment: dict[str, str]) -> None:
    for name, code in PROGRAMS.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    make, look, start, *of_a_running_job, restore, check = COMMANDS
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = ray_environment | {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}

    def begun(command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(command: str) -> None:
        with begun(command) as program:
            said, _ = program.communicate(timeout=_PATIENCE)
        assert program.returncode == 0, said
        assert COMMANDS[command] in said

    run(make)
    looked = run_here(tmp_path / look.removeprefix("python "), folder=tmp_path)
    assert looked.stdout == COMMANDS[look]
    with begun(start) as program:
        wait_for_results(tmp_path / "minutes", program)
        for command in of_a_running_job:
            run(command)
        said, _ = program.communicate(timeout=_PATIENCE)
        assert program.returncode == 0, said
    change(tmp_path / "job.py")
    run(restore)
    run(check)


def wait_for_results(folder: Path, program: subprocess.Popen[str]) -> None:
    """Wait until the sink has committed a file, at which the tutorial looks."""
    deadline = time.monotonic() + _PATIENCE
    while not list(folder.glob("part-*")):
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline, "no file was committed"
        time.sleep(0.1)


def change(program: Path) -> None:
    """Delete the line that the tutorial names."""
    (line,) = _CHANGE.findall(TEXT)
    code = program.read_text(encoding="utf-8")
    assert code.count(f"    {line}\n") == 1
    program.write_text(code.replace(f"    {line}\n", ""), encoding="utf-8")
