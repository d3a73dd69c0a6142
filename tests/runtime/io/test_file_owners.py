"""Files of a job are its user's alone: a second user of the node can neither read nor replace them."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.actors.shared.output_capture import LogFile
from penstock.runtime.errors import StorageError
from penstock.runtime.io.scratch import ScratchFolder, open_spill_file, remove_abandoned
from penstock.runtime.io.storage import open_location, open_storage

STRANGER = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder as `/tmp` is, on a way that every user may go."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        folder = Path(name, "tmp")
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0)
    os.umask(before)
    yield lambda mask: void(os.umask(mask))
    os.umask(before)


def void(_: object) -> None:
    """Drop a value."""


def as_stranger(deed: Callable[[], object]) -> bool:
    """Whether another user of the machine can do something."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(STRANGER, STRANGER, STRANGER)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            deed()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def modes(root: Path) -> dict[str, int]:
    return {
        str(each.relative_to(root.parent)): stat.S_IMODE(each.lstat().st_mode)
        for each in (root, *root.rglob("*"))
    }


@needs_root
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_scratch_space_is_not_put_where_another_user_waits_for_it(everybodys: Path, kind: str) -> None:
    trap = everybodys / f"penstock-state-{os.geteuid()}"
    catch = everybodys / "catch"

    def lay() -> None:
        catch.mkdir(0o777)
        if kind == "link":
            trap.symlink_to(catch)
        else:
            trap.mkdir(0o777)

    assert as_stranger(lay)
    scratch = ScratchFolder(everybodys)
    (scratch.path / "000001.sst").write_bytes(b"state")
    assert list(trap.iterdir()) == list(catch.iterdir()) == []
    assert not as_stranger(lambda: list(scratch.path.iterdir()))
    assert not as_stranger(lambda: (scratch.path / "000002.sst").write_bytes(b"another's"))
    assert not as_stranger(lambda: scratch.path.rename(everybodys / "moved"))
    scratch.remove()


@needs_root
def test_what_looks_like_scratch_space_of_another_user_is_left_alone(everybodys: Path) -> None:
    name = f"penstock-state-{os.geteuid()}"
    precious = everybodys / "precious"
    precious.mkdir(0o700)
    (precious / "owner").touch()

    def lay() -> None:
        folder = everybodys / f"{name}-1-theirs"
        folder.mkdir()
        (folder / "owner").symlink_to(precious / "owner")
        (everybodys / f"{name}-1-link").symlink_to(precious)

    assert as_stranger(lay)
    assert remove_abandoned(everybodys) == 0
    assert (precious / "owner").exists()
    assert (everybodys / f"{name}-1-theirs").exists()


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_files_of_a_job_are_for_their_owner_whatever_the_umask_is(
    tmp_path: Path, umask: Callable[[int], None], mask: int
) -> None:
    umask(mask)
    storage = open_storage(str(tmp_path / "storage"))
    storage.put("job/chk-1/state", b"state")
    storage.put("job/log/1", b"log", create=True)
    open_location(str(tmp_path / "savepoint"), create=True).put("_metadata", b"metadata")
    LogFile(tmp_path / "storage" / "job.log", {}).close()
    scratch = ScratchFolder(tmp_path / "scratch")
    found = modes(tmp_path / "storage") | modes(tmp_path / "savepoint") | modes(tmp_path / "scratch")
    assert len(found) > 8
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
    spilled = open_spill_file(tmp_path)
    assert os.fstat(spilled._file.fileno()).st_mode & 0o077 == 0
    spilled.close()
    scratch.remove()


@needs_root
def test_a_storage_whose_folder_the_group_may_write_is_shared_by_the_group(everybodys: Path) -> None:
    shared = everybodys / "shared"
    shared.mkdir()
    os.chown(shared, 0, STRANGER)
    shared.chmod(0o2770)
    storage = open_storage(str(shared))
    storage.put("job/log/1", b"1", create=True)

    def work() -> None:
        theirs = open_storage(str(shared))
        assert theirs.get("job/log/1") == b"1"
        theirs.put("job/log/2", b"2", create=True)
        theirs.put("other/log/1", b"1", create=True)
        theirs.delete(["job/log/1"])

    assert as_stranger(work)
    assert storage.get("job/log/2") == b"2"
    assert {oct(mode) for mode in modes(shared).values()} == {"0o660", "0o2770"}


@needs_root
def test_a_storage_of_another_user_is_refused_by_name(everybodys: Path) -> None:
    open_storage(str(everybodys / "storage")).put("job/state", b"state")

    def read() -> None:
        with pytest.raises(StorageError, match=r"storage can't be opened|denied"):
            open_storage(str(everybodys / "storage"), create=False).get("job/state")

    assert as_stranger(read)


@needs_root
def test_a_log_that_another_user_has_begun_is_not_written(everybodys: Path) -> None:
    everybodys.chmod(0o777)  # as the folder of Ray's logs
    log = everybodys / "job.log"
    assert as_stranger(log.touch)
    with pytest.raises(PermissionError):
        LogFile(log, {})
    assert log.read_bytes() == b""
