"""The calls that the operating system gets: content is synced before its name, and both before the answer."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.recovery import left_at_end, rebuild_store
from penstock.runtime.errors import StorageError, StorageTimeoutError
from penstock.runtime.io.posix_disk import PosixDisk
from penstock.runtime.io.storage import ObjectStorage, open_storage
from penstock.runtime.snapshot.paths import SnapshotPaths

PROGRAM = """
import os, sys
from penstock.runtime.io.storage import open_storage
storage = open_storage(sys.argv[1])
for name in ("j/log/0", "j/log/1"):
    os.write(2, f"begin {name}\\n".encode())
    storage.put(name, b"decision", create=True)
    os.write(2, b"acknowledged\\n")
os.write(2, b"begin j/shared/0\\n")
storage.put("j/shared/0", b"state")
os.write(2, b"acknowledged\\n")
"""


class Recorded:
    """Calls of the operating system in their order, without the ways to a folder; all are made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for name in ("open", "write", "fdatasync", "fsync", "link", "replace", "unlink"):
            patch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(target: Any, *arguments: Any, **more: Any) -> Any:
            folder = more.get("dir_fd", more.get("src_dir_fd"))
            what = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
            if folder is not None:
                what = os.readlink(f"/proc/self/fd/{folder}") + "/" + what
            result = call(target, *arguments, **more)
            if not (name == "open" and arguments[0] & os.O_DIRECTORY):
                self.calls.append(f"{name} {re.sub('#.*', '#', what)}")
            return result

        return recorded


def test_content_and_name_are_synced_before_a_create_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path))
    storage.put("j/log/0", b"", create=True)
    with monkeypatch.context() as patch:
        calls = Recorded(patch).calls
        storage.put("j/log/1", b"decision", create=True)
    staged, folder = f"{tmp_path}/j/log/1#", f"{tmp_path}/j/log"
    assert calls == [
        f"open {staged}",
        f"write {staged}",
        f"fdatasync {staged}",
        f"link {staged}",
        f"unlink {staged}",
        f"fsync {folder}",
    ]


def test_content_and_name_are_synced_before_a_write_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path))
    storage.put("j/shared/0", b"")
    with monkeypatch.context() as patch:
        calls = Recorded(patch).calls
        storage.put("j/shared/1", b"state")
    staged, folder = f"{tmp_path}/j/shared/1#", f"{tmp_path}/j/shared"
    assert calls[1:] == [f"write {staged}", f"fdatasync {staged}", f"replace {staged}", f"fsync {folder}"]


def test_the_name_of_a_new_folder_is_synced_in_the_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(str(tmp_path))
    with monkeypatch.context() as patch:
        calls = Recorded(patch).calls
        storage.put("j/chk-1-1/metadata", b"state")
    synced = [call for call in calls if call.startswith("fsync ")]
    assert synced[-3:] == [f"fsync {tmp_path}", f"fsync {tmp_path}/j", f"fsync {tmp_path}/j/chk-1-1"]


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def test_the_kernel_gets_the_syncs_before_the_answer(tmp_path: Path) -> None:
    if not can_trace():
        pytest.skip("strace is not here, or this user may not trace")
    trace = tmp_path / "trace"
    command = [
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=write,fsync,fdatasync,link,linkat,rename,renameat,renameat2",
    ]
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "storage")]
    subprocess.run([*command, "-o", str(trace), *program], check=True, capture_output=True)
    puts = trace.read_text().split('"begin ')[1:]
    assert len(puts) == 3
    for put in puts:
        before_the_answer = put.partition('"acknowledged')[0]
        name = put.partition("\\n")[0]
        folder = name.rpartition("/")[0]
        last = name.rpartition("/")[2]
        content, named = rf"fdatasync\(\d+<[^>]*{name}#", rf"(link|rename)[^\n]*{folder}>, \"{last}\""
        wanted = rf"{content}.*{named}.*fsync\(\d+<[^>]*/{folder}>"
        assert re.search(wanted, before_the_answer, re.DOTALL), before_the_answer


def test_a_file_system_that_knows_no_sync_of_folders_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    PosixDisk(tmp_path).open_folder("").sync()


def test_a_disk_that_fails_to_sync_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    storage = open_storage(str(tmp_path))
    storage.put("j/log/0", b"")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Exception, match=r"can't write .*/j/log/1: .*Input/output error"):
        storage.put("j/log/1", b"decision", create=True)
    assert os.listdir(tmp_path / "j" / "log") == ["0"]


def test_no_folder_that_was_removed_is_held_open(tmp_path: Path) -> None:
    """Such a folder keeps the file system from being made read-only, as an administrator may want to."""
    storage = open_storage(str(tmp_path))
    for number in range(3):
        storage.put(f"j/chk-{number}-1/metadata", b"a checkpoint", create=True)
        storage.delete([f"j/chk-{number}-1/metadata"])

    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    held = [os.readlink(link) for link in links if os.path.islink(link)]  # the listing's own is closed
    assert [path for path in held if str(tmp_path) in path and path.endswith("(deleted)")] == []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Another user's folder, beside the storage."""
    home = tmp_path / "home"
    (home / "documents").mkdir(parents=True)
    for path in (home / "1-1-x-0-0", home / "notes#draft", home / "documents" / "thesis.tex"):
        path.write_text("mine")
    return home


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def sweep(storage: ObjectStorage) -> None:
    """Delete what a new attempt takes for leftovers, and then what a job's end does."""
    paths = SnapshotPaths("j")
    view = DecisionLog(storage, paths).replay()
    storage.delete(rebuild_store(storage, paths, view, attempt=2, retained=1).orphans)
    storage.delete(left_at_end(storage, paths, view, keeps=False))


@pytest.mark.parametrize("link", ["j/shared/1-1-x", "j/shared/1-1-x-0-0", "j/chk-1-1", "j/x", "j/x#1-a"])
def test_a_new_attempt_deletes_nothing_behind_a_link(tmp_path: Path, home: Path, link: str) -> None:
    storage = open_storage(str(tmp_path / "storage"))
    at = tmp_path / "storage" / link
    at.parent.mkdir(parents=True)
    at.symlink_to(home)
    sweep(storage)
    assert files_below(home) == ["1-1-x-0-0", "notes#draft", "thesis.tex"]


def test_a_job_whose_folder_of_state_is_a_link_says_so_and_deletes_nothing(
    tmp_path: Path, home: Path
) -> None:
    storage = open_storage(str(tmp_path))
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "shared").symlink_to(home)
    refused = pytest.raises(
        StorageError, match=f"{tmp_path}/j/shared/.*symbolic link, and links in a storage"
    )
    with refused:
        storage.list("j/shared/")
    for call in (storage.get, lambda path: storage.put(path, b"1"), lambda path: storage.delete([path])):
        with refused:
            call("j/shared/1-1-x-0-0")
    sweep(storage)
    assert files_below(home) == ["1-1-x-0-0", "notes#draft", "thesis.tex"]


def test_files_that_others_put_into_a_jobs_folder_stay(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for path in ("shared/1-1-x/thesis.tex", "chk-1-1/notes/thesis.tex", "notes#draft/thesis.tex"):
        (tmp_path / "j" / path).parent.mkdir(parents=True)
        (tmp_path / "j" / path).write_text("mine")
    sweep(storage)
    assert files_below(tmp_path / "j") == ["thesis.tex"] * 3


def test_a_storage_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    storage = open_storage(str(tmp_path / "link"))
    storage.put("j/log/0", b"decision", create=True)
    assert (storage.get("j/log/0"), storage.list("j/")) == (b"decision", ["j/log/0"])
    storage.delete(["j/log/0"])
    assert os.listdir(tmp_path / "disk") == [".penstock"]


def test_a_file_that_is_a_link_is_not_read(tmp_path: Path, home: Path) -> None:
    storage = open_storage(str(tmp_path))
    (tmp_path / "metadata").symlink_to(home / "1-1-x-0-0")
    with pytest.raises(StorageError, match=f"can't read {tmp_path}/metadata: .*symbolic link"):
        storage.get("metadata")


def test_only_plain_files_are_read_and_nothing_else_is_waited_for(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for, and one with a writer has no end."""
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "open-pipe")
    both_ends = os.open(tmp_path / "open-pipe", os.O_RDWR | os.O_NONBLOCK)
    (tmp_path / "folder").mkdir()
    names = ["pipe", "open-pipe", "folder", "socket"]
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
        names.append("device")
    for name in names:
        with pytest.raises(StorageError, match="not a regular file") as raised:
            open_storage(str(tmp_path)).get(name)
        assert not isinstance(raised.value, StorageTimeoutError)
    os.close(both_ends)


def open_below(folder: Path) -> list[str]:
    """Files that this process has open there.

    Other tests of the process may open and close files elsewhere.
    """
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if path.startswith(str(folder)))


def test_the_folders_on_the_way_to_a_file_are_closed_again(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.put("j/log/0", b"decision")
    (tmp_path / "j" / "link").symlink_to(tmp_path)
    before = open_below(tmp_path)
    for _ in range(3):
        storage.put("j/log/0", b"decision")
        storage.get("j/log/0")
        storage.list("")
        for missing in ("j/link/0", "j/log/1", "k/log/0", "j/log", "j/log/0/x", "j/link"):
            with pytest.raises(StorageError):
                storage.get(missing)
    assert open_below(tmp_path) == before


def test_a_large_file_is_read_as_it_is_and_progress_is_reported(tmp_path: Path) -> None:
    content = bytes(range(256)) * (30 * 4096)
    (tmp_path / "state").write_bytes(content)
    reports: list[None] = []

    read = PosixDisk(tmp_path).read("state", lambda: reports.append(None))

    assert type(read) is bytes
    assert read == content
    assert 2 <= len(reports) <= 4, "the calls read 8 MB or more"


@pytest.mark.parametrize("after", [9, 20, 0])
def test_a_file_that_changes_its_size_while_it_is_read_is_read_to_its_end(tmp_path: Path, after: int) -> None:
    path, whole = tmp_path / "state", bytes(range(256)) * (20 * 4096)
    path.write_bytes(whole[: 10 << 20])

    def change() -> None:
        if path.stat().st_size == 10 << 20:
            path.write_bytes(whole[: after << 20])

    read = PosixDisk(tmp_path).read("state", change)

    assert read == whole[: max(after, 8) << 20]
