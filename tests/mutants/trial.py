"""Runs tests against a mutant, in a process of its own that is forked from this one.

No file is changed: the child compiles the mutant where the import system asks for the module. The parent has
imported other people's libraries, but nothing of Penstock. A trial imports the tests, so it takes seconds;
`warm` is quicker, for the mutants that it can put in.

Limits are of processor time: a machine that is busy with something else kills no mutant. A mutant may also
make a test wait for what never comes, so a trial is ended when it stands still.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import Phase, settings

#: Most memory of a trial, in bytes: a mutant may collect without end.
MEMORY_LIMIT = 4 << 30
#: Arguments of pytest in every trial. A test's own time limit is of the clock on the wall, so there is none.
PYTEST_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--timeout=0")
#: Seconds between two looks at a trial, and of a standstill that ends it: no test waits so long.
LOOK, STANDSTILL = 0.25, 3.0
#: Ticks of processor time that a trial may use in a standstill: loops with pauses wait, too.
_HARDLY_ANY = 15
#: What tests of any room import.
_PRELOADED = (
    "hypothesis",
    "hypothesis.strategies",
    "msgpack",
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "xxhash",
)


class Outcome(Enum):
    """The outcome of a mutant."""

    #: A test failed.
    KILLED = "killed"
    #: It never ended, waited for what never came, or ate all memory.
    TIMED_OUT = "timed out"
    #: Every test passed.
    SURVIVED = "survived"


class GeneratedOnce:
    """A plugin of pytest: generated tests are the same in every trial, and a failure is not made smaller."""

    def pytest_sessionstart(self) -> None:
        """Set what the tests' own settings inherit."""
        settings.register_profile(
            "mutants", derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")


def preload() -> None:
    """Import what takes long, once for all trials."""
    for name in _PRELOADED:
        importlib.import_module(name)


def try_mutant(module: str, source: str, tests: Sequence[str], cpu_seconds: int) -> Outcome:
    """Run tests against a module with another source.

    Args:
        module: Path of the module, from the top folder.
        source: What to run in its place.
        tests: Files and folders, those first that are quick to fail.
        cpu_seconds: Seconds of processor time after which the mutant counts as one that never ends.

    Raises:
        RuntimeError: Pytest did not get as far as the tests, or another process ended the trial.
    """
    child = os.fork()
    if child == 0:
        _run(module, source, tests, cpu_seconds)
    status, stood_still = _end_of(child)
    if stood_still:
        return Outcome.TIMED_OUT
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGXCPU:
            return Outcome.TIMED_OUT
        msg = f"a trial of {module} was ended by signal {os.WTERMSIG(status)}"
        raise RuntimeError(msg)
    match os.WEXITSTATUS(status):
        case pytest.ExitCode.OK:
            return Outcome.SURVIVED
        case pytest.ExitCode.TESTS_FAILED | pytest.ExitCode.INTERRUPTED | pytest.ExitCode.USAGE_ERROR:
            return Outcome.KILLED  # interrupted: a module of tests can't be imported
        case code:
            msg = f"a trial of {module} ended with code {code}"
            raise RuntimeError(msg)


class Watch:
    """Looks whether a trial stands still: all its threads sleep, and it uses hardly any processor time.

    A thread that waits for a processor or for a disk does not sleep, so a busy machine stops no trial.

    Args:
        trial: Its process; those that it has started belong to it.
    """

    def __init__(self, trial: int) -> None:
        self._trial = trial
        self._ticks, self._since = 0, time.monotonic()

    def ended(self) -> bool:
        """Look once; whether the trial stood still for too long and was killed."""
        processes = self._processes()
        ticks = sum(ticks for _, ticks in processes.values())
        is_awake = any(state not in "SZ" for pid in processes for state in _states(pid))
        if is_awake or not self._ticks <= ticks <= self._ticks + _HARDLY_ANY:
            self._ticks, self._since = ticks, time.monotonic()
        if time.monotonic() - self._since < STANDSTILL:
            return False
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True

    def _processes(self) -> dict[int, tuple[int, int]]:
        """The trial and its descendants: parent and ticks of processor time by process id."""
        everybody = {
            int(path.name): (int(fields[1]), int(fields[11]) + int(fields[12]))
            for path in Path("/proc").glob("[0-9]*")
            if (fields := _stat(path))
        }
        found = {self._trial}
        while more := {pid for pid, (parent, _) in everybody.items() if parent in found} - found:
            found |= more
        return {pid: everybody[pid] for pid in found if pid in everybody}


def _states(pid: int) -> Iterator[str]:
    return (fields[0] for path in Path(f"/proc/{pid}/task").glob("*") if (fields := _stat(path)))


def _stat(path: Path) -> list[str]:
    """The kernel's fields of a process or a thread, behind its name; nothing when it is gone."""
    try:
        return (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _end_of(child: int) -> tuple[int, bool]:
    """Wait for the end of a trial; its status, and whether it stood still."""
    watch, stood_still = Watch(child), False
    while True:
        ended, status = os.waitpid(child, 0 if stood_still else os.WNOHANG)
        if ended:
            return status, stood_still
        time.sleep(LOOK)
        stood_still = watch.ended()


def silence() -> None:
    """Let this process read and write nothing, and let it end by signals."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _run(module: str, source: str, tests: Sequence[str], cpu_seconds: int) -> None:
    """Run the tests and end this process with their exit code."""
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 60))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        silence()
        _replace(module, source)
        code = int(pytest.main([*tests, *PYTEST_OPTIONS], plugins=[GeneratedOnce()]))
    finally:
        os._exit(code)


def _replace(module: str, source: str) -> None:
    """Give importers another source of one module; it must not have been imported yet."""
    name = "penstock." + module.removesuffix(".py").replace("/", ".")
    assert name not in sys.modules, f"{name} was imported before it could be mutated"
    original = SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if fullname == name:
            return compile(source, str(Path(module).resolve()), "exec", dont_inherit=True)
        return original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
