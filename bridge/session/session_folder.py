"""`SessionFolder`: the files of a Spark session, on each node and for its user alone.

Spark makes its folders for spilled and shuffled data by the umask, so usually other users can read them. The
folder around them has mode 0700. It also holds the credentials of the session. It has one path on all nodes,
because Spark has one setting for all its processes.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import ray

from penstock.actors.shared.node_processes import own_node, task_on_node
from penstock.runtime.errors import DeploymentError, StorageError
from penstock.runtime.io.scratch import ScratchFolder

logger = logging.getLogger(__name__)

_CREDENTIALS: Final = "credentials"
_REMEDY: Final = 'Let TMPDIR or configs={"spark.local.dir": ...} name a folder that all nodes can write'


class SessionFolder:
    """Folders of one session, until `remove`; the first has the credentials.

    Args:
        places: Parents of the folders, as in `spark.local.dir`; none for the temporary folder.
        credentials: Content of the file `credentials` on all nodes.

    Raises:
        DeploymentError: A node can't make the folders.
    """

    def __init__(self, places: Iterable[str], credentials: bytes) -> None:
        roots = [Path(place) for place in places] or [Path(tempfile.gettempdir())]
        self._scratch: list[ScratchFolder] = []
        try:
            for root in roots:
                self._scratch.append(ScratchFolder(root, kind="spark", remedy=_REMEDY))
            self.paths = [scratch.path for scratch in self._scratch]
            write_here(self.paths, credentials)
            self._write_elsewhere(credentials)
        except StorageError as error:
            self._remove_here()
            raise DeploymentError(str(error)) from error
        except BaseException:
            self.remove()
            raise

    @property
    def credentials(self) -> Path:
        return self.paths[0] / _CREDENTIALS

    def remove(self) -> None:
        """Delete the folders on all nodes that answer; idempotent."""
        if ray.is_initialized():
            removals = {node: task_on_node(node, remove_here, self.paths) for node in _other_nodes()}
            for node, removal in removals.items():
                try:
                    ray.get(removal, timeout=_PATIENCE)
                except ray.exceptions.RayError as error:
                    logger.warning("node %s keeps %s: %s", node[:8], self.paths, error)
        self._remove_here()

    def _remove_here(self) -> None:
        for scratch in self._scratch:
            scratch.remove()

    def _write_elsewhere(self, credentials: bytes) -> None:
        begun = {node: task_on_node(node, write_here, self.paths, credentials) for node in _other_nodes()}
        for node, written in begun.items():
            try:
                ray.get(written, timeout=_PATIENCE)
            except ray.exceptions.RayError as error:
                msg = f"node {node[:8]} has no place for the files of a Spark session: {error}. {_REMEDY}"
                raise DeploymentError(msg) from error


#: Seconds for a node to start a process and answer.
_PATIENCE: Final = 120.0


def _other_nodes() -> list[str]:
    here = own_node()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["NodeID"] for node in nodes if node["Alive"] and node["NodeID"] != here]


def write_here(paths: list[Path], credentials: bytes) -> None:
    """Make the folders on this node, and write the credentials into the first.

    A folder that exists may be the same one: nodes may share a disk. Then it must be this user's alone.

    Raises:
        OSError: A folder can't be made, or another user may write into it.
    """
    for path in paths:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            there = path.lstat()
            private = stat.S_ISDIR(there.st_mode) and stat.S_IMODE(there.st_mode) == 0o700
            if not private or there.st_uid != os.geteuid():
                msg = f"{path} is there, and is no folder of this user alone"
                raise PermissionError(msg) from None
    unfinished = paths[0] / f"{_CREDENTIALS}.{os.getpid()}"
    file = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as written:
        written.write(credentials)
    unfinished.replace(paths[0] / _CREDENTIALS)


def remove_here(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
