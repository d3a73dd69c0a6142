"""Acknowledged files are there after a power cut, whichever call of the disk it strikes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from penstock.runtime.snapshot.storage import SyncedFiles
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.testing.simulation.world.disks import ModelDisk

#: Each is played with this many disks after the cut.
DISKS = 12


class PowerCut(Exception):
    """Nothing happens any more."""


class CutDisk:
    """A disk whose power fails in front of one of its calls."""

    def __init__(self, disk: ModelDisk, calls: int) -> None:
        self._disk = disk
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._disk, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            self.spend()
            result = call(*arguments, **more)
            return CutFolder(result, self) if name == "open_folder" else result

        return counted

    def spend(self) -> None:
        if self._calls <= 0:
            raise PowerCut
        self._calls -= 1


class CutFolder:
    def __init__(self, folder: Any, disk: CutDisk) -> None:
        self._folder = folder
        self._disk = disk
        self.is_still_there = folder.is_still_there

    def sync(self) -> None:
        self._disk.spend()
        self._folder.sync()


def opened(disk: Any) -> SyncedFiles:
    tokens = count()
    return SyncedFiles(disk, lambda: f"{id(tokens)}-{next(tokens)}")


def content(files: SyncedFiles) -> dict[str, bytes]:
    return {path: files.get(path) for path in files.list("")}


def play(files: SyncedFiles, acknowledged: dict[str, bytes]) -> None:
    """Writes as a job does; what is in `acknowledged` has been answered."""
    for number in range(3):
        for path in (f"j/shared/{number}", f"j/chk-{number}-1/metadata", f"j/log/{number}"):
            data = b"%d of " % number + path.encode()
            files.put(path, data, create="log" in path)
            acknowledged[path] = data
    acknowledged.pop("j/chk-0-1/metadata")
    files.delete(["j/chk-0-1/metadata"])
    files.put("j/status", b"first")
    acknowledged["j/status"] = b"first"
    acknowledged["j/status"] = b"second or first"
    files.put("j/status", b"second")
    acknowledged["j/status"] = b"second"


def test_what_was_acknowledged_survives_a_power_cut_at_any_call() -> None:
    for calls in count():
        disk, acknowledged = ModelDisk(), dict[str, bytes]()
        try:
            play(opened(CutDisk(disk, calls)), acknowledged)
        except PowerCut:
            over = False
        else:
            over = True
        for seed in range(DISKS):
            after = content(opened(disk.after_power_cut(Draws(seed))))
            for path, data in acknowledged.items():
                assert path in after, f"{path} was lost by a cut after {calls} calls"
                assert after[path] in {data, *data.split(b" or ")}
            whole = {b"first", b"second"}
            assert all(data in whole or data.endswith(path.encode()) for path, data in after.items())
        if over:
            return


def test_whoever_is_told_that_an_object_exists_finds_it_after_a_power_cut() -> None:
    """Its writer died between the link and the sync of the folder."""
    refused = 0
    for calls in range(40):
        disk = ModelDisk()
        opened(disk).put("j/log/0", b"0", create=True)
        with suppress(PowerCut):
            opened(CutDisk(disk, calls)).put("j/log/1", b"killed", create=True)
        try:
            opened(disk).put("j/log/1", b"second", create=True)
        except FileExistsError:
            refused += 1
            for seed in range(DISKS):
                assert opened(disk.after_power_cut(Draws(seed))).get("j/log/1") == b"killed"
    assert refused


def test_the_folder_that_another_writer_has_made_and_not_synced_is_synced() -> None:
    disk = ModelDisk()
    disk.make_folder("j")
    disk.make_folder("j/shared")
    opened(disk).put("j/shared/a", b"1")
    for seed in range(DISKS):
        assert opened(disk.after_power_cut(Draws(seed))).get("j/shared/a") == b"1"


def test_a_folder_that_was_removed_and_made_again_by_others_is_synced_again() -> None:
    disk = ModelDisk()
    files = opened(disk)
    files.put("j/shared/a", b"1")
    opened(disk).delete(["j/shared/a"])
    disk.make_folder("j")
    disk.make_folder("j/shared")
    files.put("j/shared/b", b"2")
    for seed in range(DISKS):
        assert opened(disk.after_power_cut(Draws(seed))).get("j/shared/b") == b"2"


class Interrupted:
    """A disk on which something happens in front of the first write."""

    def __init__(self, disk: ModelDisk, happens: Callable[[], None]) -> None:
        self._disk = disk
        self._happens = [happens]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._disk, name)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        while self._happens:
            self._happens.pop()()
        self._disk.write(path, data, sync=sync)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_folder_that_others_remove_and_make_again_during_a_put_is_synced_again(
    create: bool, is_taken: bool
) -> None:
    disk = ModelDisk()
    opened(disk).put("j/shared/a", b"1")

    def meanwhile() -> None:
        opened(disk).delete(["j/shared/a"])
        disk.make_folder("j")
        disk.make_folder("j/shared")
        if is_taken:
            disk.write("j/shared/b", b"2", sync=True)

    try:
        opened(Interrupted(disk, meanwhile)).put("j/shared/b", b"2", create=create)
    except FileExistsError:
        assert (create, is_taken) == (True, True)
    for seed in range(DISKS):
        assert opened(disk.after_power_cut(Draws(seed))).get("j/shared/b") == b"2"


def test_a_later_deletion_never_survives_an_earlier_one() -> None:
    for calls in range(60):
        disk = ModelDisk()
        files = opened(disk)
        for number in range(4):
            files.put(f"log/{number}", b"x")
        cut = opened(CutDisk(disk, calls))
        with suppress(PowerCut):
            cut.delete(["log/0"])
            cut.delete(["log/1", "log/2"])
        for seed in range(DISKS):
            left = content(opened(disk.after_power_cut(Draws(seed))))
            assert "log/0" not in left or {"log/1", "log/2"} <= left.keys()


def test_the_staging_file_of_a_killed_put_is_listed_apart_and_can_be_deleted() -> None:
    disk = ModelDisk()
    files = opened(disk)
    files.put("j/shared/a", b"1")
    disk.write("j/shared/b#killed", b"half", sync=False)
    assert files.list("") == ["j/shared/a"]
    assert files.staged("j/") == ["j/shared/b#killed"]
    files.delete(files.staged("j/"))
    assert files.staged("") == []


def test_no_staging_file_is_left_by_a_put_that_is_refused_or_fails() -> None:
    disk = ModelDisk()
    files = opened(disk)
    files.put("a", b"1", create=True)
    with pytest.raises(FileExistsError):
        files.put("a", b"2", create=True)
    disk.make_folder("folder")
    with pytest.raises(IsADirectoryError):
        files.put("folder", b"2")
    assert files.staged("") == []
    assert files.get("a") == b"1"
