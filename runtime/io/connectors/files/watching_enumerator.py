"""`WatchingEnumerator`: finds new files of a folder while the job runs (Flink's `monitorContinuously`).

A listing compares the folder with the known files (`known_files.py`). Complete new files (`folder_lister.py`)
wait in a queue. Some of them at a time are divided into splits. Idle readers get one split each, or several
small ones. Listing, dividing and deleting block, so they run in the background, and their results change the
state in one step.

**Exactly once.** The step that adds files to the queue also makes them known. So a checkpoint either has both
or neither. In a checkpoint each file is unknown, in the queue, divided into splits, or read. Each split that
is left waits, or belongs to one reader. A restored job lists again, and finds exactly the unknown files.

**Bounds.** A listing returns at most 10,000 new files. The next one waits while the queue holds more than
5,000. So the queue never holds more than 15,000 paths. Each known file takes 20 bytes in memory and 12 in the
state. The walk keeps no list of the folder, except for patterns with wildcards on disk.

**Schemas.** Columns that must be inferred, and the types of folder columns, are learned from the first files
that show them. They are kept in the state and apply to all later files.

**Errors.** The first listing fails the job if the folder can't be listed. A later failure is logged, and the
listing is repeated. A folder that can't be listed is not an empty one: no file counts as missing.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypedDict

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.files.file_cleaner import FileCleaner
from penstock.runtime.io.connectors.files.files_in_reading import FilesInReading
from penstock.runtime.io.connectors.files.folder_lister import FolderLister, Listing, Resting
from penstock.runtime.io.connectors.files.folder_watch import FolderWatch
from penstock.runtime.io.connectors.files.known_files import KnownFiles, KnownState
from penstock.runtime.io.connectors.files.learned_columns import Learned
from penstock.runtime.io.connectors.filesystem import FileInfo
from penstock.runtime.operators.source import SplitEnumeratorContext
from penstock.runtime.time.durations import as_seconds

logger = logging.getLogger(__name__)

#: Path, size and modification time of a file.
_SavedFile = tuple[str, int, int | None]

#: Number of files that are divided into splits at once.
_FILES_AT_ONCE: Final = 64

#: Maximum number of splits, and of their bytes, that a reader gets at once.
_SPLITS_AT_ONCE: Final = 16
_BYTES_AT_ONCE: Final = 1024 * 1024

#: Maximum number of files that could not be cleaned up and are tried again, so that the state stays bounded.
MOST_LEFT_FILES: Final = 10_000


class WatchState(TypedDict):
    """State in a checkpoint.

    Attributes:
        queue: Files that are known, but not divided into splits.
        splits: Splits that no reader has.
        unread: Files with splits that may not be read to their end; empty if files are not cleaned up.
        read: Files to clean up once this checkpoint is complete.
    """

    known: KnownState
    is_listed: bool
    has_ended: bool
    queue: list[_SavedFile]
    splits: list[Any]
    unread: list[_SavedFile]
    read: list[_SavedFile]
    schema: bytes
    folders: bytes


class DividesFiles(Protocol):
    def divide(
        self, files: Sequence[FileInfo], parallelism: int, learned: Learned
    ) -> tuple[Sequence[Any], Learned, Sequence[str]]:
        """Return the splits of some files, what is learned now, and warnings; blocks."""
        ...


class WatchingEnumerator:
    """Assigns the splits of new files; a reader has one split, or several small ones.

    Args:
        cleaner: Cleans up covered files. `None` leaves all files, even those that the state counts as read.
    """

    def __init__(
        self,
        watch: FolderWatch,
        folder: FolderLister,
        source: DividesFiles,
        cleaner: FileCleaner | None,
        context: SplitEnumeratorContext,
        state: WatchState | None,
    ) -> None:
        self._watch = watch
        self._folder = folder
        self._source = source
        self._cleaner = cleaner
        self._context = context
        self._every = as_seconds(watch.every)
        self._known = KnownFiles.empty() if state is None else KnownFiles.restored(state["known"])
        self._is_listed = state is not None and state["is_listed"]
        self._has_ended = state is not None and state["has_ended"]
        self._queue = deque(_files(() if state is None else state["queue"]))
        self._splits = deque[Any](() if state is None else state["splits"])
        self._learned = Learned() if state is None else Learned(state["schema"], state["folders"])
        self._reading = FilesInReading()
        #: Files to be cleaned up, and those that are being cleaned up now.
        self._to_clean: list[FileInfo] = []
        self._cleaning: list[FileInfo] = []
        if state is not None and cleaner is not None:
            self._to_clean = _files(state["read"])
            waiting = [split.path for split in self._splits]
            self._reading.restored(_files(state["unread"]), waiting, range(context.parallelism))
        self._resting: Mapping[str, Resting] = {}
        self._waiting: dict[int, None] = {}
        #: Seconds since all files were read; `None` before.
        self._idle: float | None = None
        self._is_dividing = False
        self._is_held = False
        #: Files that were cleaned up while a listing ran.
        self._cleaned: list[str] = []
        self._notes: Sequence[str] = ()

    # -- calls of the coordinator -------------------------------------------------------------------------

    def start(self) -> None:
        if self._cleaner is not None:
            self._context.run_in_background(self._cleaner.check, lambda _: self._clean())
        self._divide()
        if not self._has_ended:
            self._list(waited=0.0)

    def handle_split_request(self, subtask: int) -> None:
        self._reading.reader_asks(subtask)
        self._waiting[subtask] = None
        self._serve()

    def reader_failed(self, subtask: int) -> None:
        self._waiting.pop(subtask, None)
        self._reading.reader_failed(subtask)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        for split in splits:
            self._reading.given_back(split.path)
        self._splits.extendleft(reversed(splits))
        self._serve()

    def snapshot(self) -> WatchState:
        return {
            "known": self._known.state(),
            "is_listed": self._is_listed,
            "has_ended": self._has_ended,
            "queue": _saved(self._queue),
            "splits": list(self._splits),
            "unread": _saved(self._reading.unread()),
            "read": _saved([*self._to_clean, *self._cleaning, *self._reading.read()]),
            "schema": self._learned.schema,
            "folders": self._learned.folders,
        }

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """Note that the last snapshot belongs to this checkpoint."""
        self._reading.snapshot_taken(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Clean up the files that this checkpoint covers."""
        self._to_clean += self._reading.covered(checkpoint_id)
        self._clean()

    def close(self) -> None:
        """Do nothing."""

    # -- new files ----------------------------------------------------------------------------------------

    def _list(self, waited: float) -> None:
        """List the folder in the background, `waited` seconds after the previous listing."""
        self._cleaned = []
        work = partial(self._folder.look, self._known, self._resting, waited)
        self._context.run_in_background(work, partial(self._listed, waited), self._unlisted)

    def _list_later(self) -> None:
        self._context.call_later(self._every, partial(self._list, self._every))

    def _listed(self, waited: float, listing: Listing) -> None:
        self._is_listed = True
        self._known = listing.known.without(self._cleaned)
        self._resting = listing.resting
        self._queue.extend(listing.new)
        self._log(listing.notes)
        self._note_idle(waited, has_new=bool(listing.new or listing.resting))
        self._divide()
        if self._has_ended:
            return
        if len(self._queue) > self._folder.most // 2:
            self._is_held = True
        elif listing.has_more and listing.new:
            self._list(waited=0.0)
        else:
            self._list_later()

    def _unlisted(self, error: BaseException) -> None:
        """Fail the job if the first listing fails; log a later failure and list again."""
        if not isinstance(error, OSError | ConnectorError):
            raise error
        if not self._is_listed:
            msg = (
                f"the watched folder can't be listed: {error}. Check the path, and that the node of the "
                "JobMaster can read it"
            )
            raise ConnectorError(msg) from error
        logger.warning("%s: the watched folder can't be listed: %s", self._context.operator_id, error)
        self._list_later()

    def _note_idle(self, waited: float, *, has_new: bool) -> None:
        """End the source after the idle timeout; a listing counts if it began when all files were read."""
        timeout = self._watch.idle_timeout
        if has_new or self._queue or self._splits or len(self._waiting) < self._context.parallelism:
            self._idle = None
        elif self._idle is None:
            self._idle = 0.0
        else:
            self._idle += waited
            if timeout is not None and self._idle >= as_seconds(timeout):
                self._has_ended = True
                self._serve()

    def _log(self, notes: Sequence[str]) -> None:
        for note in notes:
            if note not in self._notes:
                logger.warning("%s: %s", self._context.operator_id, note)
        self._notes = notes

    # -- splits -------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """Divide the next files in the background if few splits are left."""
        few = 2 * self._context.parallelism
        if self._queue and not self._is_dividing and len(self._splits) < few:
            self._is_dividing = True
            files = [self._queue[index] for index in range(min(_FILES_AT_ONCE, len(self._queue)))]
            work = partial(self._source.divide, files, self._context.parallelism, self._learned)
            self._context.run_in_background(work, partial(self._divided, files))

    def _divided(
        self, files: Sequence[FileInfo], divided: tuple[Sequence[Any], Learned, Sequence[str]]
    ) -> None:
        self._is_dividing = False
        splits, self._learned, warnings = divided
        for warning in warnings:
            logger.warning("%s: %s", self._context.operator_id, warning)
        for _ in files:
            self._queue.popleft()
        self._splits.extend(splits)
        if self._cleaner is not None:
            counts = Counter(split.path for split in splits)
            for info in files:
                self._reading.add(info, counts[info.path])
        self._serve()
        if self._is_held and len(self._queue) <= self._folder.most // 2:
            self._is_held = False
            self._list(waited=0.0)

    def _serve(self) -> None:
        while self._waiting and (self._splits or self._has_ended):
            subtask = next(iter(self._waiting))
            del self._waiting[subtask]
            if self._splits:
                splits = self._next_splits()
                for split in splits:
                    self._reading.assigned(subtask, split.path)
                self._context.assign(subtask, splits)
            else:
                self._context.signal_no_more_splits(subtask)
        self._divide()

    def _next_splits(self) -> list[Any]:
        """Take the next splits for one reader: several if they are small, to save requests."""
        share = min(_SPLITS_AT_ONCE, len(self._splits) // self._context.parallelism)
        taken = [self._splits.popleft()]
        size = taken[0].bytes_left
        while len(taken) < share and size is not None:
            more = self._splits[0].bytes_left
            if more is None or size + more > _BYTES_AT_ONCE:
                break
            taken.append(self._splits.popleft())
            size += more
        return taken

    # -- files that are read ------------------------------------------------------------------------------

    def _clean(self) -> None:
        if self._cleaner is not None and self._to_clean and not self._cleaning:
            self._cleaning, self._to_clean = self._to_clean, []
            work = partial(self._cleaner.clean, self._cleaning)
            self._context.run_in_background(work, self._files_cleaned)

    def _files_cleaned(self, left: Sequence[FileInfo]) -> None:
        """Forget the files that are gone; those that are left are tried again after the next checkpoint.

        If too many are left, the first ones stay in the folder for good. They stay known, so they are not
        read again.
        """
        kept = {info.path for info in left}
        gone = [info.path for info in self._cleaning if info.path not in kept]
        self._known = self._known.without(gone)
        self._cleaned += gone
        if len(left) > MOST_LEFT_FILES:
            logger.warning(
                "%s: %d file(s) could not be cleaned up and stay in the folder: at most %d are tried again",
                self._context.operator_id,
                len(left) - MOST_LEFT_FILES,
                MOST_LEFT_FILES,
            )
        self._to_clean = [*left[-MOST_LEFT_FILES:], *self._to_clean]
        self._cleaning = []


def _saved(files: Sequence[FileInfo] | deque[FileInfo]) -> list[_SavedFile]:
    return [(info.path, info.size, info.modified) for info in files]


def _files(saved: Sequence[_SavedFile]) -> list[FileInfo]:
    return [FileInfo(path, size, modified=modified) for path, size, modified in saved]
