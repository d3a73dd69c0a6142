"""The calls that the operating system gets for files of a sink: what counts as done survives a power cut."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runtime.io.connectors.filesystem import Publication
from penstock.runtime.io.connectors.local_files import LocalFileSystem

PROGRAM = """
import os, sys
from penstock.runtime.io.connectors.local_files import LocalFileSystem
files, out = LocalFileSystem(), sys.argv[1]
os.write(2, b"begin directory\\n")
files.make_directory(out, "_probe")
os.write(2, b"begin pre-commit\\n")
file = files.create(out, "_a")
file.write(b"rows")
file.finish()
os.write(2, b"begin commit\\n")
files.publish(out, "_a", "a")
os.write(2, b"begin commit again\\n")
files.publish(out, "_a", "a")
os.write(2, b"done\\n")
"""


def synced_by(directory: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> list[str]:
    """Publish `_a` as `a`; the paths that were synced, in their order."""
    synced: list[str] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", recorded)
        outcome = LocalFileSystem().publish(str(directory), "_a", "a")
    assert outcome.name == work
    return synced


def test_a_name_that_somebody_else_has_given_is_durable_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that gave it may have died before its own sync."""
    (tmp_path / "a").write_text("rows")
    assert synced_by(tmp_path, monkeypatch, "ALREADY_PUBLISHED") == [str(tmp_path)]


def test_two_names_of_one_file_are_made_one_and_that_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_a").write_text("rows")
    os.link(tmp_path / "_a", tmp_path / "a")
    assert synced_by(tmp_path, monkeypatch, "ALREADY_PUBLISHED") == [str(tmp_path)]
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_nowhere_is_missing_also_with_its_directory(tmp_path: Path) -> None:
    files = LocalFileSystem()
    assert files.publish(str(tmp_path), "_a", "a") is Publication.MISSING
    assert files.publish(str(tmp_path / "gone"), "_a", "a") is Publication.MISSING


def test_the_names_of_new_directories_are_durable_before_a_file_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    LocalFileSystem().make_directory(str(tmp_path / "new" / "out"), "_probe")
    assert synced[:2] == [str(tmp_path / "new"), str(tmp_path)]
    assert synced[-1] == "/"


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def test_the_kernel_gets_the_syncs_before_output_counts(tmp_path: Path) -> None:
    if not can_trace():
        pytest.skip("strace is not here, or this user may not trace")
    trace, out = tmp_path / "trace", tmp_path / "new" / "out"
    calls = "trace=write,fsync,fdatasync,link,linkat,unlink,unlinkat,mkdir,mkdirat"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c", PROGRAM, str(out)]
    subprocess.run(command, check=True, capture_output=True)
    directory, pre_commit, commit, again = trace.read_text().split('"begin ')[1:]
    assert re.search(
        rf"mkdir[^\n]*{out}.*fsync\(\d+<{out.parent}>.*fsync\(\d+<{tmp_path}>", directory, re.DOTALL
    )
    assert re.search(rf"write\(\d+<{out}/_a>.*fsync\(\d+<{out}/_a>.*fsync\(\d+<{out}>", pre_commit, re.DOTALL)
    assert re.search(rf"link[^\n]*{out}/a.*unlink[^\n]*{out}/_a.*fsync\(\d+<{out}>", commit, re.DOTALL)
    assert re.search(rf"fsync\(\d+<{out}>", again)
