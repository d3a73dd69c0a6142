"""Runs tests against a mutant, in a process of its own that is forked from this one.

No file is changed: the child compiles the mutant where the import system asks for the module. The parent has
imported other people's libraries, so a trial begins within a few hundred milliseconds.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
from collections.abc import Sequence
from enum import Enum
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

#: Most memory of a trial, in bytes: a mutant may collect without end.
MEMORY_LIMIT = 4 << 30
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
    """What became of a mutant."""

    #: A test failed.
    KILLED = "killed"
    #: It never ended, or ate all memory.
    TIMED_OUT = "timed out"
    #: Every test passed.
    SURVIVED = "survived"


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
    """
    child = os.fork()
    if child == 0:
        _run(module, source, tests, cpu_seconds)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Outcome.TIMED_OUT
    return Outcome.SURVIVED if os.WEXITSTATUS(status) == 0 else Outcome.KILLED


def _run(module: str, source: str, tests: Sequence[str], cpu_seconds: int) -> None:
    """Run the tests and end this process with their exit code."""
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        _replace(module, source)
        code = int(
            pytest.main([*tests, "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"])
        )
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
