"""The command line in this process, or several commands in one program of their own.

A command that is a program of its own starts for seconds; few tests are about that.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from typing import NamedTuple

from jobs.driving import PATIENCE

from penstock.actors.command_line.app import main


class Done(NamedTuple):
    """The exit code and the output of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_here(*words: str) -> Done:
    """Run a command with the entry point of `penstock`; this process stays in its cluster."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    before, sys.argv = sys.argv, ["penstock", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    assert isinstance(code, int), code
    return Done(code, out.getvalue(), err.getvalue())


def run_in_a_program(*commands: tuple[str, ...], address: str) -> list[Done]:
    """Run commands one after the other in one new program, for which `RAY_ADDRESS` names the cluster."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "jobs.commands", json.dumps(commands)],
        env={**clean, "RAY_ADDRESS": address, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return [Done(*each) for each in json.loads(done.stdout)]


if __name__ == "__main__":
    # `python -m jobs.commands JSON`: a list of commands; prints a list of how each has ended.
    print(json.dumps([run_here(*words) for words in json.loads(sys.argv[1])]))
