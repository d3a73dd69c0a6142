"""`FolderWatch`: the settings of a `FileSource` that reads new files while the job runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.files.file_reader import base_of
from penstock.runtime.io.connectors.filesystem import absolute
from penstock.runtime.names import NearestNames
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in

#: The order of new files that are found at the same time.
FileOrder: TypeAlias = Literal["modified", "name"]

#: What happens to a file when a completed checkpoint covers all its records (Spark's `cleanSource`).
CleanSource: TypeAlias = Literal["off", "delete", "archive"]


@dataclass(frozen=True)
class FolderWatch(metaclass=NearestNames):
    """Settings of a `FileSource` that reads new files as they come.

    A name identifies a file. A file that changes after it was read is not read again; a warning is logged.
    Empty files are read when they have content.

    Attributes:
        every: Time from the end of one listing to the next.
        order: Order of new files that one listing finds: by modification time and then by name, or by name.
            A file that is found later comes later, whatever its time.
        rest: Time for which the size and the modification time of a file must stay the same before it is
            read. By default `every` on disks and 0 in object stores, whose objects appear complete.
        marker: Name of the files that mark other files as complete; only marked files are read. `"*.done"`:
            the file `a.csv` is complete when `a.csv.done` exists. `"_SUCCESS"`: a folder's files are complete
            when this file is in the same folder.
        clean_source: What happens to a file when a completed checkpoint covers its records: `"off"` leaves
            it, `"delete"` deletes it, `"archive"` moves it to `archive_dir`.
        archive_dir: Folder on the same disk or in the same bucket, outside of the watched locations. Files
            keep their path below the watched folder.
        forget_after: Time after which a missing file is forgotten. A file that returns later is read again.
        idle_timeout: The source ends when all files are read and no new file has come for this time; `None`
            watches for ever.

    Raises:
        ConfigurationError: A setting has a value that is not allowed.

    Example:
        >>> FolderWatch(timedelta(seconds=10), marker="*.done", clean_source="delete").every
        10.0
    """

    every: Duration
    _: KW_ONLY
    order: FileOrder = "modified"
    rest: Duration | None = None
    marker: str | None = None
    clean_source: CleanSource = "off"
    archive_dir: Location | None = None
    forget_after: Duration = timedelta(days=7)
    idle_timeout: Duration | None = None

    def __post_init__(self) -> None:
        self._set("every", seconds_in("every", self.every, above=0.0))
        checked_setting("order", self.order, ("modified", "name"))
        if self.rest is not None:
            self._set("rest", seconds_in("rest", self.rest))
        if self.marker is not None:
            _check_marker(self.marker)
        checked_setting("clean_source", self.clean_source, ("off", "delete", "archive"))
        if (self.clean_source == "archive") != (self.archive_dir is not None):
            msg = 'archive_dir= and clean_source="archive" need each other'
            raise ConfigurationError(msg)
        if self.archive_dir is not None:
            self._set("archive_dir", absolute("archive_dir", self.archive_dir).rstrip("/"))
        self._set("forget_after", seconds_in("forget_after", self.forget_after))
        if self.idle_timeout is not None:
            self._set("idle_timeout", seconds_in("idle_timeout", self.idle_timeout))

    def rest_of(self, location: str) -> float:
        """Seconds for which a file of this location must rest."""
        if self.rest is not None:
            return as_seconds(self.rest)
        return 0.0 if "://" in location else as_seconds(self.every)

    def check_archive(self, locations: Sequence[str]) -> None:
        """Refuse an archive whose files would be read again, or that is in another store."""
        archive = self.archive_dir
        if not isinstance(archive, str):
            return
        for location in locations:
            if _store_of(location) != _store_of(archive):
                msg = f"archive_dir={archive!r} must be on the disk or in the bucket of {location}"
                raise ConfigurationError(msg)
            if f"{archive}/".startswith(base_of(location)):
                msg = f"archive_dir={archive!r} lies in {location}, so its files would be read again"
                raise ConfigurationError(msg)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def checked_watch(watch: FolderWatch | Duration | None) -> FolderWatch | None:
    """Return the settings; a duration is the time between two listings."""
    if watch is None or isinstance(watch, FolderWatch):
        return watch
    return FolderWatch(seconds_in("watch", watch, above=0.0))


def _store_of(location: str) -> str:
    return "/".join(location.split("/", 3)[:3]) if "://" in location else ""


def _check_marker(marker: object) -> None:
    is_name = isinstance(marker, str) and marker.strip("*") != "" and "/" not in marker
    if not is_name or "*" in str(marker)[1:]:
        msg = (
            f"marker={marker!r} is not allowed: give '*' and an ending, such as '*.done', or the name of one "
            "file in each folder, such as '_SUCCESS'"
        )
        raise ConfigurationError(msg)
