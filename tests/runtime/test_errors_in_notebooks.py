"""A failed cell of a notebook shows the cause first, then the lines of the user."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import StreamEnvironment
from penstock.runtime.errors import PenstockError

CELL = """
def make(env):
    return env.from_collection("", [1])

make(env)
"""

SHOWN = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("from penstock import StreamEnvironment\\nStreamEnvironment('')")
"""


def test_the_lines_of_libraries_are_left_out() -> None:
    cell = compile(CELL, "/tmp/ipykernel_7/1234.py", "exec")
    with pytest.raises(PenstockError) as caught:
        exec(cell, {"env": StreamEnvironment("words"), "__name__": "__main__"})
    caught.value.add_note("a note")
    first, *rest = caught.value._render_traceback_()
    assert first == f"{type(caught.value).__name__}: {caught.value}"
    assert rest[0] == "a note"
    lines = [line for line in rest if line.startswith("  at line ") and "the cell" in line]
    assert lines == ["  at line 5 of the cell, in <module>", "  at line 3 of the cell, in make"]
    assert not [line for line in rest if "penstock/runtime" in line]
    assert rest[-1].endswith("IPython: `traceback.print_exception(sys.last_value)` shows them)")


def test_ipython_shows_these_lines() -> None:
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert lines[0].startswith("GraphError: notebook cell In[1]:2 in main program")
    assert len(lines) == 3
