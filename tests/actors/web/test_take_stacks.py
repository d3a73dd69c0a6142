"""`take_stacks` and answers of py-spy; a script replaces py-spy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.actors.web.inspections import take_stacks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of the PATH; no py-spy is beside Python."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    return tmp_path


def install(folder: Path, script: str) -> None:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def test_stacks_are_taken_of_the_process_for_so_long(folder: Path) -> None:
    said = 'echo "main (job.py:1);parse (job.py:7) 3"; echo "py-spy> Wrote data. Errors: 0"'
    install(folder, f'echo "$@" > {folder}/asked; {said}')
    assert take_stacks(4_711, 2.0) == (["main (job.py:1);parse (job.py:7) 3"], "")
    asked = (folder / "asked").read_text(encoding="utf-8")
    assert "--pid 4711" in asked
    assert "--duration 2" in asked
    assert "--nonblocking" in asked


BOTH = """case "$*" in
*--idle*) echo "thread (7): count[0];main (a.py:1);wait (a.py:2) 90"
  echo "thread (7): count[0];main (a.py:1) 10"
  echo "thread (8): upload_0;other (b.py:1) 99";;
*) echo "thread (7): count[0];main (a.py:1) 9";;
esac"""


def test_mixed_stacks_are_those_of_the_tasks_thread_whatever_it_does(folder: Path) -> None:
    install(folder, BOTH)
    assert take_stacks(1, 1.0, "mixed", "count[0]") == (
        ["main (a.py:1);wait (a.py:2) 90", "main (a.py:1) 10"],
        "",
    )


def test_off_cpu_stacks_are_those_that_do_not_run(folder: Path) -> None:
    install(folder, BOTH)
    assert take_stacks(1, 1.0, "off_cpu", "count[0]") == (
        ["main (a.py:1);wait (a.py:2) 90", "main (a.py:1) 1"],
        "",
    )


def test_a_thread_that_is_not_there_is_named(folder: Path) -> None:
    install(folder, BOTH)
    assert take_stacks(1, 1.0, "mixed", "count[1]") == ([], "py-spy saw no stacks of the thread count[1]")


def test_a_system_that_forbids_it_is_named_with_what_to_do(folder: Path) -> None:
    install(
        folder, 'echo "Error: Permission Denied: Try running again with elevated permissions" >&2; exit 1'
    )
    stacks, problem = take_stacks(1, 1.0)
    assert stacks == []
    assert "the system forbids py-spy" in problem
    assert "SYS_PTRACE" in problem
    assert problem.endswith(
        "py-spy said: Error: Permission Denied: Try running again with elevated permissions"
    )


def test_a_node_without_it_is_told_how_to_install_it(folder: Path) -> None:
    assert take_stacks(1, 1.0) == ([], "py-spy is not installed on its node: `pip install py-spy`")


def test_no_stack_at_all_is_no_flame_graph(folder: Path) -> None:
    install(folder, "exit 0")
    assert take_stacks(1, 1.0) == ([], "py-spy saw no stacks: the process may have ended")


def test_any_other_failure_is_said_in_its_words(folder: Path) -> None:
    install(folder, 'echo "Error: No such process (os error 3)" >&2; exit 1')
    assert take_stacks(1, 1.0) == ([], "Error: No such process (os error 3)")


def test_a_program_that_can_not_be_run_is_named(folder: Path) -> None:
    install(folder, "exit 0")
    (folder / "py-spy").write_text("#!/nowhere/interpreter\n", encoding="utf-8")
    stacks, problem = take_stacks(1, 1.0)
    assert stacks == []
    assert problem.startswith(f"{folder / 'py-spy'} can't be run: ")
