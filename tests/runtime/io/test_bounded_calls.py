"""A call that never returns is given up; a late answer disturbs no caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun
from penstock.runtime.checkpoint.log.slots import Fenced, OutcomeUnknownError
from penstock.runtime.errors import StorageTimeoutError
from penstock.runtime.io.posix_disk import PosixDisk
from penstock.runtime.io.storage import MOST_HANGING, SLOWEST, BoundedCalls, ObjectStorage, open_storage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import SyncedFiles

Use: TypeAlias = Callable[[ObjectStorage], object]

#: Seconds of the bound: calls that hang here never return before the test lets them.
BOUND = 0.02


class Gate:
    """Holds calls up until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.before = set(threading.enumerate())

    def hang(self) -> None:
        self.opened.wait()

    def open(self) -> None:
        """Let all calls return; also those that have not come here yet."""
        self.opened.set()
        for thread in set(threading.enumerate()) - self.before:
            if thread.name == "storage-call":
                thread.join()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def test_a_call_that_hangs_is_given_up_and_named(gate: Gate) -> None:
    with pytest.raises(
        StorageTimeoutError, match=r"can't read /a/b: no answer for 0.02 s \(storage_timeout\)"
    ):
        BoundedCalls(BOUND).run("read /a/b", lambda _: gate.hang())
    told = r"no answer for 0.03 s \(storage_timeout and time for its size\)"
    with pytest.raises(StorageTimeoutError, match=told):
        BoundedCalls(BOUND).run("write /a/b", lambda _: gate.hang(), size=SLOWEST // 100)


def test_a_call_that_makes_progress_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    waited_again = threading.Event()

    def waiting(calls: Sequence[Future[str]], seconds: float) -> object:
        waits.append(seconds)
        if len(waits) > 1:
            waited_again.set()
        return wait(calls, seconds)

    def make_progress(progress: Callable[[], None]) -> str:
        progress()
        waited_again.wait()
        return "done"

    monkeypatch.setattr("penstock.runtime.io.storage.wait", waiting)
    assert BoundedCalls(1.0).run("read", make_progress) == "done"


def test_what_a_call_raises_comes_out() -> None:
    def fail(_: Callable[[], None]) -> None:
        raise FileNotFoundError("nothing")

    with pytest.raises(FileNotFoundError, match="nothing"):
        BoundedCalls().run("read", fail)


def test_when_too_many_calls_hang_others_fail_at_once_until_one_returns(gate: Gate) -> None:
    calls = BoundedCalls(BOUND)
    for _ in range(MOST_HANGING):
        with pytest.raises(StorageTimeoutError, match="no answer"):
            calls.run("read", lambda _: gate.hang())
    with pytest.raises(StorageTimeoutError, match=f"{MOST_HANGING} earlier calls to this storage still hang"):
        calls.run("read", lambda _: 1)
    gate.open()
    calls._seconds = 60.0
    while calls._hanging:
        threading.Event().wait(0.001)
    assert calls.run("read", lambda _: 1) == 1


class HangingDisk(PosixDisk):
    """Hangs in one of its calls."""

    def __init__(self, root: Path, gate: Gate) -> None:
        super().__init__(root)
        self.gate = gate
        self.hangs = ""
        self.calls = BoundedCalls()

    def hang_in(self, call: str) -> None:
        """Hang in the next call of this name; no call is waited for until `wait_again`."""
        self.hangs = call
        self.calls._seconds = BOUND

    def wait_again(self) -> None:
        self.calls._seconds = 60.0

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        self._pass("write")
        super().write(path, data, sync=sync)

    def link(self, path: str, to: str) -> None:
        self._pass("link")
        super().link(path, to)

    def read(self, path: str, on_progress: Callable[[], None] = lambda: None) -> bytes:
        self._pass("read")
        return super().read(path, on_progress)

    def names(self, path: str) -> tuple[list[str], list[str]]:
        self._pass("names")
        return super().names(path)

    def remove(self, path: str) -> None:
        self._pass("remove")
        super().remove(path)

    def _pass(self, call: str) -> None:
        if self.hangs == call:
            self.hangs = ""
            self.gate.hang()


@pytest.fixture
def disk(tmp_path: Path, gate: Gate) -> HangingDisk:
    return HangingDisk(tmp_path, gate)


@pytest.fixture
def storage(disk: HangingDisk, tmp_path: Path) -> ObjectStorage:
    tokens = iter(range(1000))
    files = SyncedFiles(disk, lambda: str(next(tokens)))
    files.put("j/shared/a", b"1")
    return ObjectStorage(files, str(tmp_path), calls=disk.calls)


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("write", lambda storage: storage.put("j/shared/b", b"2")),
        ("link", lambda storage: storage.put("j/log/0", b"2", create=True)),
        ("read", lambda storage: storage.get("j/shared/a")),
        ("names", lambda storage: storage.list("j/")),
        ("remove", lambda storage: storage.delete(["j/shared/a"])),
        ("names", lambda storage: storage.delete_staged("j/", lambda path: True)),
    ],
)
def test_every_kind_of_call_has_the_bound(
    storage: ObjectStorage, disk: HangingDisk, call: str, use: Use
) -> None:
    disk.hang_in(call)
    with pytest.raises(StorageTimeoutError):
        use(storage)


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("write", lambda storage: storage.put("j/shared/b", b"2")),
        ("rmdir", lambda storage: storage.delete(["j/shared/a"])),
    ],
)
def test_folders_that_were_made_for_a_storage_are_removed_within_the_bound(
    disk: HangingDisk, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, call: str, use: Use
) -> None:
    files = SyncedFiles(disk, lambda: "token")
    files.put("j/shared/a", b"1")
    storage = ObjectStorage(files, str(tmp_path), [tmp_path], calls=disk.calls)
    hanging: list[Path] = []

    def hang(folder: Path) -> None:
        hanging.append(folder)
        gate.hang()

    monkeypatch.setattr(Path, "rmdir", hang)
    disk.hang_in(call)
    with pytest.raises(StorageTimeoutError):
        use(storage)
    gate.open()
    assert hanging == [tmp_path] * (call == "rmdir")


def test_a_record_that_comes_late_is_fenced_or_counts_and_nothing_in_between(
    storage: ObjectStorage, disk: HangingDisk, gate: Gate
) -> None:
    paths = SnapshotPaths("j")
    old, new = DecisionLog(storage, paths), DecisionLog(storage, paths)
    assert isinstance(old.begin_attempt(1.0), AttemptBegun)
    disk.hang_in("link")
    with pytest.raises(OutcomeUnknownError, match="no answer for"):
        old.end("finished", None, 2.0)
    disk.wait_again()
    begun = new.begin_attempt(3.0)
    gate.open()
    assert isinstance(begun, AttemptBegun)
    assert new.replay() == new.view, "the late record found its slot taken"
    assert old.end("finished", None, 2.0) == Fenced(2)


def test_staging_files_of_killed_writers_are_swept(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.put("j/shared/1-1-a-0-0", b"1")
    for name in ("1-1-a-0-1#9-abc", "2-3-a-0-1#9-abc"):
        (tmp_path / "j" / "shared" / name).write_bytes(b"half")
    assert storage.delete_staged("j/", lambda path: path.startswith("j/shared/1-")) == 1
    assert sorted(each.name for each in (tmp_path / "j" / "shared").iterdir()) == [
        "1-1-a-0-0",
        "2-3-a-0-1#9-abc",
    ]
