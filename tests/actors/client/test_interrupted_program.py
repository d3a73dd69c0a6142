"""The end of a program with Ctrl-C: one line that says what is saved, and how to continue."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from penstock import JobStatus
from penstock.actors.client.job_handle import ends_with_program
from penstock.actors.client.program import PROGRAM, is_interactive, own_program, run_program
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.graph.executor import JobStatistics

INTERRUPTED = """
import sys
from penstock.actors.client.interrupts import name_job

shown = []
sys.excepthook = lambda *error: shown.append(error) or print("a traceback", file=sys.stderr)
error = {error}
name_job(error, "words-1", "keeps running")
raise error
"""
NOTE = "job words-1 keeps running: `penstock cancel words-1`, or penstock.job('words-1').cancel(), ends it"


def shown_by(error: str, *options: str) -> tuple[int, list[str]]:
    """The exit code and the lines of a program that ends with an error."""
    command = [sys.executable, *options, "-c", INTERRUPTED.format(error=error)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60
    )
    return done.returncode, done.stderr.splitlines()


def test_an_interrupt_that_names_a_job_is_one_line_and_other_errors_keep_their_traceback() -> None:
    assert shown_by("KeyboardInterrupt()") == (128 + signal.SIGINT, [NOTE])
    assert shown_by("ValueError()") == (1, ["a traceback"])


def test_an_interrupt_does_not_end_a_program_that_stays_for_its_user() -> None:
    """`python -i` shows a prompt after the program, and here its input ends at once."""
    _, (note, *prompt) = shown_by("KeyboardInterrupt()", "-i")
    assert note == NOTE
    assert "".join(prompt).strip() == ">>>"


def test_the_line_of_a_local_job_names_what_is_saved_and_the_command() -> None:
    statistics = JobStatistics(JobStatus.RUNNING, last_checkpoint_id=7)
    report = JobReport("words-1", "words", JobStatus.RUNNING, 0.0, 1.0, statistics, storage="/kept")
    assert ends_with_program("words-1", report).startswith(
        "job words-1 ends with this program; checkpoint 7 is saved. "
        "To continue: penstock restore /kept/words-1 "
    )
    new = replace(report, statistics=JobStatistics(JobStatus.RUNNING))
    nothing = "job words-1 ends with this program; nothing is saved, because "
    assert ends_with_program("words-1", new) == nothing + "it has completed no checkpoint"
    assert ends_with_program("words-1", replace(new, storage=None)) == nothing + "it takes no checkpoints"
    again = ends_with_program("words-1", replace(new, settings={"restore_from": "/saved/1"}))
    assert ". To start again: penstock restore /saved/1 " in again


def test_the_command_of_a_program_is_shown_unless_it_holds_a_secret() -> None:
    assert own_program(["python", "-m", "words", "a b"]) == "python -m words 'a b'"
    assert own_program(["python", "job.py", "--password=hunter2"]) == PROGRAM
    assert own_program(["python", "-m", "ipykernel_launcher", "-f", "x.json"]) == PROGRAM


def test_a_shell_that_continues_after_ctrl_c_is_interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_interactive()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert is_interactive()


def test_ctrl_c_leaves_the_end_of_a_program_to_the_program() -> None:
    slow = (
        "import os, signal, sys, threading\n"
        "try:\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    threading.Event().wait(60)\n"
        "except KeyboardInterrupt:\n"
        "    threading.Event().wait(0.5)\n"
        "    sys.exit(7)\n"
    )
    assert run_program([sys.executable, "-c", slow], {}) == 7
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert run_program([sys.executable, "-c", killed], {}) == 128 + 15
