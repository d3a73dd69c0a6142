"""Scratch folders and spill files: private, and removed with their owner."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.runtime.errors import StorageError
from penstock.runtime.io.scratch import ScratchFolder, TemporarySpillFile, open_spill_file, remove_abandoned

LARGEST = 4096


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file of this process grows beyond `LARGEST` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


def test_bytes_come_back_in_order_in_pieces_of_any_size(tmp_path: Path) -> None:
    file = open_spill_file(tmp_path)
    parts = [bytes([n]) * size for n, size in enumerate((1, 700_000, 3, 2_500_000, 0, 40))]
    for part in parts:
        file.append(part)
    assert [file.read(len(part)) for part in parts] == parts
    assert file.read(10) == b""
    file.close()


def test_the_end_of_the_file_cuts_a_read_short(tmp_path: Path) -> None:
    file = open_spill_file(tmp_path)
    file.append(b"abcdef")
    assert (file.read(4), file.read(4), file.read(4)) == (b"abcd", b"ef", b"")


def test_nothing_in_the_folder_names_the_file(tmp_path: Path) -> None:
    file = open_spill_file(tmp_path)
    file.append(b"x" * 1000)
    assert list(tmp_path.iterdir()) == []
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from penstock.runtime.io.scratch import open_spill_file\n"
        "file = open_spill_file(pathlib.Path(sys.argv[1]))\n"
        "file.append(b'x' * 100_000)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_folder_of_the_node_is_where_files_are(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from penstock.runtime.io.scratch import open_spill_file\n"
        "file = open_spill_file()\n"
        "places = [os.readlink(entry.path) for entry in os.scandir('/proc/self/fd') if entry.is_symlink()]\n"
        "print(*places, sep='\\n')\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert str(tmp_path) in ended.stdout


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"could not be stored in .*gone.*TMPDIR"):
        open_spill_file(tmp_path / "gone")


@pytest.mark.usefixtures("no_room")
def test_a_write_without_room_takes_nothing_with_it(tmp_path: Path) -> None:
    file = open_spill_file(tmp_path)
    file.append(b"a" * 3000)
    with pytest.raises(StorageError, match=r"could not be written in .*larger alignment_memory"):
        file.append(b"b" * 3000)
    file.append(b"c" * 1000)
    assert file.read(10_000) == b"a" * 3000 + b"c" * 1000


def test_a_file_that_lost_bytes_is_not_read_as_if_it_were_whole(tmp_path: Path) -> None:
    with open(tmp_path / "named", "w+b", buffering=0) as named:
        file = TemporarySpillFile(named, tmp_path)
        file.append(b"x" * 100)
        os.truncate(tmp_path / "named", 50)
        with pytest.raises(StorageError, match=r"could not be read .*ends after 50 of 100 bytes.*Check the"):
            file.read(100)


def test_a_new_folder_is_not_taken_for_abandoned_before_its_owner_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def after_a_sweep(fd: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX:
            assert remove_abandoned(tmp_path) == 0
        lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", after_a_sweep)
    folder = ScratchFolder(tmp_path)
    assert folder.path.is_dir()
    folder.remove()
