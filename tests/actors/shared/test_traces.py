"""Changes that a job leaves in its process: those that may stay, and those that end the process."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import leaks
import numpy as np
import pytest

from penstock.actors.shared.process_residue import ProcessResidue

LONG_AGO = 1_000_000_000


@pytest.fixture
def restored() -> Iterator[None]:
    """Restore the process after the test."""
    environment, folder, path, modules = dict(os.environ), os.getcwd(), list(sys.path), set(sys.modules)
    yield
    os.chdir(folder)
    sys.path[:] = path
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: None) -> Path:
    """The file of a module that can be imported as `of_the_user`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "of_the_user.py"
    file.write_text("answer = 1\n", encoding="utf-8")
    os.utime(file, (LONG_AGO, LONG_AGO))
    return file


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """The answer after each change, all from one program."""
    program = [sys.executable, leaks.__file__]
    return dict(json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout))


#: The value when the tests were collected.
_PRINT = print


@pytest.fixture(autouse=True)
def print_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray exchanges `print` in a process that has started it, as other tests may have done in this one."""
    monkeypatch.setattr(builtins, "print", _PRINT)


@pytest.mark.parametrize("deed", leaks.DEEDS)
def test_what_a_later_job_must_not_meet_is_named(deed: str, said: dict[str, str]) -> None:
    clean, _, why = said[deed].removeprefix("(").partition(", ")
    if deed == "processors" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("the machine has one processor")
    assert clean == "None"
    assert leaks.DEEDS[deed][1] in why


def test_random_numbers_of_one_role_say_nothing_about_those_of_the_next() -> None:
    traces, drawn = ProcessResidue(), []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        traces.role_taken()
        drawn.append((random.random(), np.random.random()))
    (first, first_of_numpy), (second, second_of_numpy) = drawn
    assert first != second
    assert first_of_numpy != second_of_numpy


def test_a_thread_that_still_runs_is_named_and_one_that_ends_is_waited_for() -> None:
    traces, release = ProcessResidue(), threading.Event()
    thread = threading.Thread(target=release.wait, daemon=True, name="of the user")
    thread.start()
    assert "'of the user'" in str(traces.left())
    release.set()
    thread.join()
    assert traces.left() is None


def test_a_working_directory_that_was_removed_is_one_too(tmp_path: Path, restored: None) -> None:
    os.chdir(tmp_path)
    tmp_path.rmdir()
    traces = ProcessResidue()
    assert traces.left() is None
    os.chdir("/")
    assert "working directory" in str(traces.left())


def test_threads_that_outlive_roles_do_not_count() -> None:
    traces, release = ProcessResidue(), threading.Event()
    thread = threading.Thread(target=release.wait, daemon=True, name="fsspecIO")
    thread.start()
    assert "fsspecIO" not in str(traces.left())  # a thread of another test may be left
    release.set()
    thread.join()


class Importing(str):
    """The name of a module; another thread imports a module whenever the name is compared."""

    imported = 0

    def _import(self) -> None:
        Importing.imported += 1
        sys.modules[f"imported_meanwhile_{Importing.imported}"] = ModuleType("imported_meanwhile")

    def __ne__(self, other: object) -> bool:
        self._import()
        return str.__ne__(self, other)

    def partition(self, sep: str) -> tuple[str, str, str]:
        self._import()
        return super().partition(sep)

    __hash__ = str.__hash__


def test_modules_that_other_threads_import_meanwhile_disturb_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    sys.modules[Importing("looked_at")] = ModuleType("looked_at")
    traces = ProcessResidue()
    sys.modules[Importing("looked_at_later")] = ModuleType("looked_at_later")
    assert "changed size" not in str(traces.left())
    assert Importing.imported > 1


def test_variables_that_other_threads_remove_meanwhile_disturb_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Shrinking(dict[str, str]):
        def __iter__(self) -> Iterator[str]:
            return iter(self.keys())

        def keys(self) -> Any:
            return ["REMOVED_MEANWHILE", *super().keys()]

    monkeypatch.setattr(os, "environ", Shrinking(os.environ))
    assert "variables" not in str(ProcessResidue().left())


def test_a_users_module_is_kept_while_its_file_stays_as_it_is(module: Path) -> None:
    traces = ProcessResidue()
    traces.role_taken()
    importlib.import_module("of_the_user")
    assert (traces.left(), traces.changed_module()) == (None, None)

    module.write_text("answer = 2\n", encoding="utf-8")

    assert str(module) in str(traces.changed_module())
    assert str(module) in str(traces.left())


def test_a_module_whose_file_was_written_after_the_role_was_taken_may_be_older_than_its_file(
    module: Path,
) -> None:
    traces = ProcessResidue()
    traces.role_taken()
    importlib.import_module("of_the_user")
    module.write_text("answer = 2\n", encoding="utf-8")
    assert "written while" in str(traces.left())


def test_a_module_whose_file_is_gone_is_not_used_again(module: Path) -> None:
    traces = ProcessResidue()
    importlib.import_module("of_the_user")
    assert traces.left() is None
    module.unlink()
    assert str(module) in str(traces.changed_module())


def test_a_module_that_was_loaded_before_the_role_was_taken_is_watched_from_then_on(module: Path) -> None:
    traces = ProcessResidue()
    traces.role_taken()
    importlib.import_module("of_the_user")
    traces.note_modules()
    assert traces.changed_module() is None
    module.write_text("answer = 2\n", encoding="utf-8")
    assert str(module) in str(traces.changed_module())


def test_a_module_that_was_written_while_it_was_loaded_counts_as_changed(module: Path) -> None:
    traces = ProcessResidue()
    traces.role_taken()
    importlib.import_module("of_the_user")
    module.write_text("answer = 2\n", encoding="utf-8")
    traces.note_modules()
    assert str(module) in str(traces.changed_module())
