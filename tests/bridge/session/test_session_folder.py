"""Files of a Spark session are for its user alone, on each node."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from penstock.actors.shared import node_processes
from penstock.bridge.session import security
from penstock.bridge.session.security import SessionFolder, remove_here, write_here
from penstock.runtime.io.scratch import ScratchFolder
from penstock.testing import ManualClock


@pytest.fixture
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_another_node_gets_the_folders_for_its_user_alone(tmp_path: Path) -> None:
    paths = [tmp_path / "first" / "session", tmp_path / "second" / "session"]
    write_here(paths, b"secret")
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (file,) = paths[0].iterdir()
    assert (file.name, file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (
        "credentials",
        b"secret",
        0o600,
    )
    write_here(paths, b"secret")  # another node, which shares the disk
    remove_here(paths)
    assert not any(path.exists() for path in paths)


@pytest.mark.parametrize("trap", ["folder", "link", "file"])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, trap: str) -> None:
    path = tmp_path / "session"
    if trap == "folder":
        path.mkdir()
        path.chmod(0o777)
    elif trap == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.touch(mode=0o700)
    with pytest.raises(PermissionError, match="is not a folder that only this user can read"):
        write_here([path], b"secret")
    assert not list(tmp_path.rglob("credentials*"))


def test_a_session_leaves_folders_of_other_kinds_alone(tmp_path: Path) -> None:
    state = ScratchFolder(tmp_path)
    left = tmp_path / state.path.name.replace("state", "spark")
    state.path.rename(left)  # as if its owner had died
    state.remove()
    (left / "owner").touch(mode=0o600)
    ScratchFolder(tmp_path).remove()
    assert left.exists()
    session = ScratchFolder(tmp_path, kind="spark")
    assert not left.exists()
    session.remove()


def test_an_interrupt_between_two_folders_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(root: Path, **settings: str) -> ScratchFolder:
        if root.name == "second":
            raise KeyboardInterrupt
        return ScratchFolder(root, **settings)

    monkeypatch.setattr(security, "ScratchFolder", interrupted)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(security, "_failures_elsewhere", lambda *call: iter(()))
    with pytest.raises(KeyboardInterrupt):
        SessionFolder([str(tmp_path / "first"), str(tmp_path / "second")], b"secret")
    assert not list((tmp_path / "first").iterdir())


def test_nodes_that_do_not_answer_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waits = ManualClock(), []

    def get(call: str, timeout: float) -> None:
        waits.append(timeout)
        clock.advance(timeout)
        raise ray.exceptions.GetTimeoutError

    monkeypatch.setattr(node_processes, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(security, "own_node", lambda: "here")
    monkeypatch.setattr(node_processes, "task_on_node", lambda node, *call: node)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": n, "Alive": True} for n in ("here", "a", "b")])
    monkeypatch.setattr(ray, "get", get)
    assert [node for node, _ in security._failures_elsewhere(remove_here, [])] == ["a", "b"]
    assert waits == [security._PATIENCE, 0.0]
