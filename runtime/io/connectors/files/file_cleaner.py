"""`FileCleaner`: deletes or archives files whose records a completed checkpoint covers.

Every step may be repeated: a restored job again cleans up the files that its checkpoint counts as read. A
newer file of the same name has another size or time, and stays. The marker of a file is deleted before the
file. A marker that is left behind would mark the next file of this name as complete too early.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.files.file_reader import base_of
from penstock.runtime.io.connectors.files.folder_watch import FolderWatch
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, Publication, WalksFiles
from penstock.runtime.trust.paths import check_declared

logger = logging.getLogger(__name__)


class FileCleaner:
    """Cleans up the files of one source.

    Args:
        trusts_paths: Whether files outside of the locations may be touched if a snapshot names them.

    Raises:
        ValueError: The settings don't allow files to be cleaned up.
    """

    def __init__(
        self,
        locations: Sequence[str],
        watch: FolderWatch,
        filesystem: Callable[[str], FileSystem],
        *,
        trusts_paths: bool,
    ) -> None:
        if watch.clean_source == "off":
            msg = 'clean_source is "off", so no file may be cleaned up'
            raise ValueError(msg)
        self._locations = locations
        self._watch = watch
        self._filesystem = filesystem
        self._trusts_paths = trusts_paths

    def check(self) -> None:
        """Refuse an archive to which no file can be moved; blocks.

        Raises:
            ConnectorError: The archive is on another disk than a location.
        """
        archive = self._watch.archive_dir
        if not isinstance(archive, str) or "://" in archive:
            return
        for location in self._locations:
            folder = location if os.path.exists(location) else os.path.dirname(location)
            if os.path.exists(folder) and _disk_of(folder) != _disk_of(archive):
                msg = (
                    f"archive_dir={archive!r} is on another disk than {folder}, so no file can be moved "
                    "there: give a folder on the same disk"
                )
                raise ConnectorError(msg)

    def clean(self, files: Sequence[FileInfo]) -> list[FileInfo]:
        """Clean some files, and return those that could not be cleaned; blocks.

        Raises:
            UntrustedPathError: A snapshot names a file that is not in the locations.
        """
        if not self._trusts_paths:
            for info in files:
                check_declared(info.path, self._locations)
        left: list[FileInfo] = []
        error: Exception | None = None
        for info in files:
            try:
                self._clean(info)
            except (OSError, ConnectorError) as cause:
                left.append(info)
                error = cause
        if error is not None:
            logger.warning(
                "%d file(s) were read but could not be cleaned up (clean_source=%r); they are tried again "
                "after the next checkpoint. The last is %s: %s",
                len(left),
                self._watch.clean_source,
                left[-1].path,
                error,
            )
        return left

    def _clean(self, info: FileInfo) -> None:
        filesystem = self._filesystem(info.path)
        if not _is_same(filesystem, info):
            return
        folder, _, name = info.path.rpartition("/")
        marker = self._watch.marker
        if marker is not None and marker.startswith("*"):
            filesystem.delete(folder, [name + marker[1:]])
        if self._watch.clean_source == "delete":
            filesystem.delete(folder, [name])
            return
        self._archive(filesystem, info)

    def _archive(self, filesystem: FileSystem, info: FileInfo) -> None:
        """Move a file to the archive; if its name is taken there, its time is added."""
        root = "/".join(info.path.split("/", 3)[:3]) if "://" in info.path else ""
        target = self._archived(info.path)
        for name in (target, f"{target}~{info.modified or 0}"):
            if _is_older(filesystem, name, info):
                continue
            outcome = filesystem.publish(root or "/", info.path[len(root) + 1 :], name[len(root) + 1 :])
            if outcome is not Publication.OCCUPIED:
                return
        msg = f"the archive has other files {target} and {name}: move them"
        raise ConnectorError(msg)

    def _archived(self, path: str) -> str:
        bases = [base for base in map(base_of, self._locations) if path.startswith(base)]
        below = path[len(min(bases, key=len)) :] if bases else path.rpartition("/")[2]
        return f"{self._watch.archive_dir}/{below}"


def _disk_of(path: str) -> int:
    """Device of a path, or of the nearest folder above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev


def _is_older(filesystem: FileSystem, name: str, info: FileInfo) -> bool:
    """Whether an object in the archive is older than a file, and so is not a copy of the file."""
    if "://" not in name or not isinstance(filesystem, WalksFiles):
        return False
    archived = filesystem.info(name)
    return archived is not None and _second(archived) < _second(info)


def _is_same(filesystem: FileSystem, info: FileInfo) -> bool:
    """Whether a file is still there, and is the one that was read."""
    if not isinstance(filesystem, WalksFiles):
        return filesystem.size(info.path) == info.size
    now = filesystem.info(info.path)
    if now is None or now.size != info.size:
        return False
    # A file system may know the time only for a single file, and not in a list.
    return now.modified is None or info.modified is None or _second(now) == _second(info)


def _second(info: FileInfo) -> int:
    """Time of a file in seconds: a store may know it more exactly in a list than for one object."""
    return (info.modified or 0) // 1_000_000
