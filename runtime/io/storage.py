"""`open_storage` opens the checkpoint storage of a URL: a local disk, or S3, GCS or Azure through obstore.

All durable decisions of Penstock depend on two properties of the storage. First, if several writers create
the same object, exactly one succeeds. Some stores that speak S3 accept the condition and ignore it, so
`open_storage` tests it. Second, acknowledged writes survive a power cut. obstore's own local store never
syncs, so `SyncedFiles` writes files on a local disk.

**Calls end in time** (`BoundedCalls`). A call to the operating system or to a store can hang for ever, and
can't be interrupted. So it runs in a thread of its own, and the caller stops waiting after a while. The
thread stays until the call returns. If too many calls hang, further calls fail immediately: they would only
add threads and keep their data in memory. The bound applies to *progress*. A large object may take long, but
the time from one chunk to the next must stay within the bound. For calls that don't report chunks, the bound
grows with the size.

An abandoned call may still take effect, at any later time. This is harmless:

- *put of a new object*: names contain the attempt and the checkpoint, so no other process writes or reads
  them. The checkpoint was abandoned, and the next attempt sweeps its files as orphans.
- *put over an object*: the report of an ended job, the proof that nodes see one storage, and the hint of the
  decision log (`log/compaction`). The first two never change their content. The hint may be old (see
  `log/reader.py`).
- *conditional create*: a slot of the decision log is in doubt, and the next record contends for it (see
  `log/decision_log.py`). The id of a checkpoint is used up, and never assigned twice (see
  `coordinator/location.py`).
- *get and list*: no caller uses the answer.
- *delete*: the objects were abandoned before, and their names are not used again. The exception is the trial
  file of a folder, which no job reads.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from penstock.runtime.config.checks import Location, location
from penstock.runtime.errors import (
    FolderNotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageTimeoutError,
)
from penstock.runtime.io.posix_disk import PosixDisk
from penstock.runtime.names import nearest_name
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.redaction import has_password
from penstock.runtime.snapshot.paths import check_folder
from penstock.runtime.snapshot.storage import STAGED, SyncedFiles
from penstock.runtime.trust.paths import check_path

T = TypeVar("T")

#: Default seconds without progress after which a call is given up.
STORAGE_TIMEOUT: Final = 60.0
#: Maximum number of calls of one storage that may hang at the same time.
MOST_HANGING: Final = 16
#: Minimum bytes per second that a storage must transfer.
SLOWEST: Final = 1024 * 1024


class BoundedCalls:
    """Makes the calls of one storage; may be used from several threads."""

    def __init__(self, seconds: float = STORAGE_TIMEOUT) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._hanging = 0

    def run(self, what: str, call: Callable[[Callable[[], None]], T], *, size: int = 0) -> T:
        """Make a call, and wait for it while it makes progress; raises the errors of the call.

        Args:
            size: Bytes that the call moves without reporting progress.

        Raises:
            StorageTimeoutError: The call made no progress for too long, or too many earlier calls still hang.
        """
        return self.start(what, call, size=size)()

    def start(self, what: str, call: Callable[[Callable[[], None]], T], *, size: int = 0) -> Callable[[], T]:
        """Start a call as `run` does, and return a function that waits for it."""
        if self._hanging >= MOST_HANGING:
            msg = f"can't {what}: {self._hanging} earlier calls to this storage still hang"
            raise StorageTimeoutError(msg)
        returned: Future[T] = Future()
        progress = threading.Event()
        work = partial(_make, call, progress.set, returned)
        threading.Thread(target=work, name="storage-call", daemon=True).start()
        return partial(self._wait, what, returned, progress, size)

    def _wait(self, what: str, returned: Future[T], progress: threading.Event, size: int) -> T:
        patience = self._seconds + size / SLOWEST
        while not wait([returned], patience).done:
            if progress.is_set():
                progress.clear()
                continue
            with self._lock:
                self._hanging += 1
            returned.add_done_callback(self._end_hanging)
            more = " and time for its size" if size else ""
            bound = f"{patience:.4g} s (storage_timeout{more})"
            msg = f"can't {what}: no answer for {bound}. The call may still take effect later"
            raise StorageTimeoutError(msg)
        return returned.result()

    def _end_hanging(self, returned: Future[Any]) -> None:
        with self._lock:
            self._hanging -= 1


def _make(call: Callable[[Callable[[], None]], T], progress: Callable[[], None], returned: Future[T]) -> None:
    try:
        returned.set_result(call(progress))
    except BaseException as error:  # raised again in the waiting caller
        returned.set_exception(error)


#: Bytes of a chunk of a large object; each counts as progress.
_CHUNK: Final = 8 * 1024 * 1024

_REMOTE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
#: Characters that end the path of a URL.
_CUTS: Final = re.compile("[?#]")
#: Characters that logs, JSON and terminals can't show.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_KNOWN: Final = "an absolute path, file:///path, s3://bucket/path, gs://bucket/path or az://container/path"

_KEYS: Final = "give keys in environment variables, as for the cloud's own tools"

#: Object in the root of every storage; the store must refuse to create it a second time.
PROBE: Final = ".penstock"

_PROBE_TEXT: Final = b"Checkpoints of Penstock jobs. This file proves that nothing here is overwritten.\n"


def open_storage(url: str, *, create: bool = True, timeout: float = STORAGE_TIMEOUT) -> ObjectStorage:
    """Open a checkpoint storage; blocks.

    Args:
        url: An absolute path, `file:///path`, `s3://bucket/path`, `gs://bucket/path` or
            `az://container/path`. Keys and regions come from the environment, as for each cloud's own tools.
        create: Make a missing local folder and test that the store can be written. With `False` this call
            writes nothing.
        timeout: Seconds without progress after which a call is given up, including this call.

    Raises:
        StorageError: The storage does not exist, can't be written, or has no atomic put-if-absent; the
            message names the place and the remedy.
    """
    calls = BoundedCalls(timeout)
    store = calls.run(f"open {url}", lambda _: _open(url, create, []))
    storage = ObjectStorage(store, _shown(url), calls=calls)
    if create:
        _require_conditional_put(storage)
    return storage


def open_location(
    url: str, *, create: bool = False, timeout: float = STORAGE_TIMEOUT, max_bytes: int | None = None
) -> ObjectStorage:
    """Open the folder of one snapshot, or another job's storage; blocks.

    No decision of a job depends on the first writer there, so conditional writes are not tested. Local
    folders made by this call are removed when the first write fails, or when everything written is deleted.

    Args:
        max_bytes: Maximum bytes read of an object, because an untrusted user may have written it.
    """
    made: list[Path] = []
    calls = BoundedCalls(timeout)
    store = calls.run(f"open {url}", lambda _: _open(url, create, made))
    return ObjectStorage(store, _shown(url), made, calls=calls, max_bytes=max_bytes)


def absolute_location(name: str, place: Location) -> str:
    """Make a path absolute from the working directory; a URL only loses its trailing slashes.

    Raises:
        ConfigurationError: The argument of this name is neither a path nor a URL.
    """
    text = location(name, place)
    return text.rstrip("/") if "://" in text else str(Path(text).expanduser().absolute())


class ObjectStorage:
    """The `SnapshotStorage` over a disk or an object store; may be used from several threads.

    Args:
        made: Local folders that were made for this storage, outermost first; removed when empty again.
        max_bytes: Maximum bytes read of an object, exceeded by at most two chunks; `None` for no bound.
    """

    def __init__(
        self,
        store: SyncedFiles | RemoteObjects,
        url: str,
        made: Sequence[Path] = (),
        *,
        calls: BoundedCalls | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._calls = BoundedCalls() if calls is None else calls
        self._store = store
        self.url = url
        self._made = made

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data` durably; with `create` atomically, and only if the object does not exist."""
        check_path(path)
        with self._described("write", path):
            self._run("write", path, lambda _: self._put(path, data, create), size=len(data))

    def get(self, path: str) -> bytes:
        return self.start_get(path)()

    def start_get(self, path: str) -> Callable[[], bytes]:
        """Start to read an object; the returned function waits for it."""
        with self._described("read", check_path(path)):
            wait_for = self._calls.start(
                f"read {self.url}/{path}",
                lambda progress: self._store.get(path, _bounded(progress, self._max_bytes)),
            )

        def content() -> bytes:
            with self._described("read", path):
                return wait_for()

        return content

    def list(self, prefix: str) -> list[str]:
        with self._described("list", check_folder(prefix)):
            found = self._run("list", prefix, lambda progress: self._store.list(prefix, progress))
        return sorted(path for path in found if path.startswith(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        doomed = [check_path(path) for path in paths]
        if not doomed:
            return
        with self._described("delete", doomed[0]):
            self._run("delete", doomed[0], lambda _: self._delete(doomed))

    def delete_staged(self, prefix: str, is_past: Callable[[str], bool]) -> int:
        """Delete unfinished files of killed writers; return the number of files."""
        with self._described("sweep", prefix):
            staged = self._run("sweep", prefix, lambda _: self._store.staged(prefix))
            doomed = [path for path in staged if is_past(path.partition(STAGED)[0])]
            self._run("sweep", prefix, lambda _: self._store.delete(doomed))
        return len(doomed)

    def _put(self, path: str, data: bytes, create: bool) -> None:
        try:
            self._store.put(path, data, create=create)
        except (BaseError, OSError, ValueError):
            _remove_if_empty(self._made)
            raise

    def _delete(self, doomed: Sequence[str]) -> None:
        self._store.delete(doomed)
        _remove_if_empty(self._made)

    def _run(self, what: str, path: str, call: Callable[[Callable[[], None]], T], *, size: int = 0) -> T:
        return self._calls.run(f"{what} {self.url}/{path}", call, size=size)

    @contextmanager
    def _described(self, what: str, path: str) -> Iterator[None]:
        where = f"{self.url}/{path}"
        try:
            yield
        except FileNotFoundError as error:
            msg = f"{where} does not exist"
            raise ObjectNotFoundError(msg) from error
        except (AlreadyExistsError, FileExistsError) as error:
            msg = f"{where} exists already"
            raise ObjectExistsError(msg) from error
        except (BaseError, OSError, ValueError) as error:
            msg = f"can't {what} {where}: {_short(error)}"
            raise StorageError(msg) from error


class RemoteObjects:
    """Objects behind a network, with the methods of `SyncedFiles`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def put(self, path: str, data: bytes, *, create: bool) -> None:
        try:
            obstore.put(self._store, path, data, mode="create" if create else None)
        except AlreadyExistsError as refused:
            # Some stores also answer 409 while another create is in progress, and that create may fail.
            try:
                obstore.head(self._store, path)
            except FileNotFoundError:
                msg = (
                    "the store says that the object exists, but it is missing; another writer may have failed"
                )
                raise OSError(msg) from refused
            raise

    def get(self, path: str, on_progress: Callable[[], None]) -> bytes:
        chunks = []
        for chunk in obstore.get(self._store, path).stream(min_chunk_size=_CHUNK):
            on_progress()
            chunks.append(bytes(chunk))
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def list(self, prefix: str, on_progress: Callable[[], None]) -> Sequence[str]:
        found: list[str] = []
        for chunk in obstore.list(self._store, prefix=prefix.rstrip("/") or None):
            on_progress()
            found += [entry["path"] for entry in chunk]
        return found

    def staged(self, prefix: str) -> Sequence[str]:
        return ()  # an object store lists no unfinished upload

    def folders(self) -> Sequence[str]:
        prefixes = obstore.list_with_delimiter(self._store)["common_prefixes"]
        return [prefix.rstrip("/") for prefix in prefixes]

    def delete(self, paths: Sequence[str]) -> None:
        delete_objects(self._store, paths)


def _bounded(progress: Callable[[], None], max_bytes: int | None) -> Callable[[], None]:
    """Make a callback for each chunk that raises an `OSError` after `max_bytes` bytes."""
    if max_bytes is None:
        return progress
    left = max_bytes // _CHUNK + 1

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes")
        progress()

    return count


def delete_objects(store: ObjectStore, doomed: Sequence[str]) -> None:
    """Delete objects; a missing object is not an error."""
    try:
        obstore.delete(store, doomed)
    except FileNotFoundError:
        # Stores without a bulk delete stop at the first missing object.
        for path in doomed:
            with suppress(FileNotFoundError):
                obstore.delete(store, path)


def list_folders(url: str) -> Sequence[str]:
    """Names of the folders at the top of a storage, sorted, without listing their content; blocks."""
    try:
        return BoundedCalls().run(
            f"list {url}", lambda _: sorted(_open(url, create=False, made=[]).folders())
        )
    except (BaseError, OSError, ValueError) as error:
        msg = f"can't list {url}: {_short(error)}"
        raise StorageError(msg) from error


def write_proof(storage: SnapshotStorage, path: str, token: str) -> None:
    """Write a token that every node must read, to prove that all nodes see one storage; blocks."""
    storage.put(path, token.encode())


def check_proof(storage: SnapshotStorage, path: str, token: str, node: str) -> None:
    """Check that this node reads the token that `write_proof` wrote in the JobMaster; blocks."""
    try:
        found = storage.get(path)
    except ObjectNotFoundError:
        found = b""
    if found != token.encode():
        msg = (
            f"node {node} does not see the same {storage.url} as the JobMaster: {path} is "
            f"{'not what the JobMaster wrote' if found else 'missing'} there. Use a storage that all nodes "
            "share (an object store, or a network file system mounted everywhere at the same path)"
        )
        raise StorageError(msg)


def _open(url: str, create: bool, made: list[Path]) -> SyncedFiles | RemoteObjects:
    """Open a store; local folders that had to be made are added to `made`, outermost first."""
    if unfit := _UNFIT.search(unquote(url) if "://" in url else url):
        msg = (
            f"{url!r} contains the character U+{ord(unfit[0]):04X}, which logs, JSON and terminals can't "
            "show; name a folder without control characters, in UTF-8"
        )
        raise StorageError(msg)
    scheme = urlsplit(url).scheme if "://" in url else ""
    if not scheme and url.startswith("/"):
        return _open_local(url, url, create, made)
    if (scheme == "file" or scheme in _REMOTE_SCHEMES) and (sign := _CUTS.search(url)):
        msg = (
            f"{url!r} contains {sign[0]!r}, which ends the path of a URL; write a folder's name with %3F "
            "for a question mark and %23 for #"
        )
        raise StorageError(msg)
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            msg = f"{url} names the host {parts.netloc!r}; write a local folder as file:///path"
            raise StorageError(msg)
        return _open_local(url, unquote(parts.path), create, made)
    if has_password(url):
        msg = f"{url} contains a password or token, which snapshots and web pages would show; {_KEYS}"
        raise StorageError(msg)
    if scheme in _REMOTE_SCHEMES:
        try:
            return RemoteObjects(from_url(url))
        except (BaseError, OSError, ValueError) as error:
            msg = f"{url} can't be opened: {_short(error)}. Check the URL and the keys in the environment"
            raise StorageError(msg) from error
    if scheme == "memory" or url.startswith("memory:"):
        msg = f"{url} would be a separate, empty storage in every process; give {_KNOWN}"
    elif not scheme:
        msg = f"{url!r} is a relative path, which names a different folder on every node; give {_KNOWN}"
    else:
        msg = f"{url} has the unknown scheme {scheme!r}; give {_KNOWN}"
    raise StorageError(msg)


def _meant(path: Path) -> str:
    """A hint for the name of a folder that is misspelt or cut short."""
    try:
        known = [each.name for each in path.parent.iterdir() if each.is_dir()]
    except OSError:
        return ""
    longer = [name for name in known if name.startswith(path.name)]
    return f"; did you mean {longer[0]!r}?" if len(longer) == 1 else nearest_name(path.name, known)


def _open_local(url: str, name: str, create: bool, made: list[Path]) -> SyncedFiles:
    path = Path(name)
    try:
        if create:
            made += reversed([folder for folder in (path, *path.parents) if not folder.exists()])
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not path.is_dir():
            msg = f"{url} is not a folder; check the path{_meant(path)}"
            raise FolderNotFoundError(msg)
        return SyncedFiles(PosixDisk(path), _new_token)
    except (FileExistsError, NotADirectoryError) as error:
        msg = f"{url} can't be a checkpoint storage: it, or a part of its path, is a file; name a folder"
        raise StorageError(msg) from error
    except OSError as error:
        _remove_if_empty(made)
        msg = f"{url} can't be opened: {_short(error)}. Name a folder that may be written"
        raise StorageError(msg) from error


def _remove_if_empty(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):  # it is not empty, or another process has removed it
            folder.rmdir()


def _require_conditional_put(storage: ObjectStorage) -> None:
    try:
        storage.put(PROBE, _PROBE_TEXT, create=True)
        storage.put(PROBE, _PROBE_TEXT, create=True)
    except ObjectExistsError:
        return
    except StorageError as error:
        msg = (
            f"{storage.url} can't be a checkpoint storage: {error}. It must be writable and must support "
            "conditional writes (If-None-Match; hard links on a local disk)"
        )
        raise StorageError(msg) from error
    msg = (
        f"{storage.url} can't be a checkpoint storage: it overwrites an object that a writer may only "
        "create, so two attempts of a job could both become its owner. Use a storage with conditional "
        "writes: AWS S3, Google Cloud Storage, Azure Blob Storage, MinIO 2024 or newer, or a file system"
    )
    raise StorageError(msg)


def _shown(url: str) -> str:
    return url.rstrip("/") if url != "/" else url


def _new_token() -> str:
    return f"{os.getpid()}-{secrets.token_hex(6)}"


def _short(error: Exception) -> str:
    return str(error).split("\n\nDebug source", 1)[0].strip() or type(error).__name__
