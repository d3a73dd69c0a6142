"""Runs the file of a program in this process, on the cluster that this process has joined.

A process of its own would import everything again, and its jobs would find no warm processes.
"""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest


def run_here(program: Path, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it as `python program arguments` in a folder would; `stdout` has all that it said.

    Args:
        folder: The current folder meanwhile.
    """
    words = [str(program), *map(str, arguments)]
    said, code = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.chdir(folder)
        patch.setattr(sys, "argv", words)
        try:
            runpy.run_path(str(program), run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
    return subprocess.CompletedProcess(words, code, said.getvalue())
