"""Files in an object store, through obstore.

An object appears, complete, when its upload ends. A failed upload leaves nothing readable, and the store's
rule for incomplete uploads removes its parts. Publishing looks up the final name, copies without overwriting,
and deletes the source. In stores without such a copy, only the look-up prevents overwriting. That is enough
because only one subtask of one attempt uses a name.

Keys that obstore refuses are in `odd_keys.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, NotSupportedError
from obstore.store import ObjectStore, from_url

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.filesystem import FileInfo, InputFile, OutputFile, Publication
from penstock.runtime.io.connectors.odd_keys import (
    WHY_UNREADABLE,
    ArrowBucket,
    is_odd,
    is_unreadable,
    without_odd_parts,
)
from penstock.runtime.io.storage import delete_objects
from penstock.runtime.trust.paths import compile_glob, is_glob, literal_folder

if TYPE_CHECKING:
    from obstore import ObjectMeta

T = TypeVar("T")

#: Bytes of one read request; even a small request takes tens of milliseconds.
READ_AHEAD_BYTES: Final = 8 * 1024 * 1024

#: Settings of obstore's `ClientConfig`, which it takes separately from the settings of the store.
_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


_OF_STORE: Final = re.compile(r"^(aws|azure|google)_")
#: A duration as deltalake takes it.
_DURATION: Final = re.compile(r"(?P<number>[0-9]+) *(?:(?P<seconds>s|sec|seconds?)|m|min|minutes?)")


def object_file_system(location: str, storage_options: Mapping[str, str]) -> ObjectFileSystem:
    """Open the bucket of a URL such as `s3://bucket/folder/*.csv`.

    Raises:
        ConnectorError: The store can't be set up with these options.
    """
    parts = urlsplit(location)
    root = f"{parts.scheme}://{parts.netloc}"
    client: Any = {}
    config: Any = {}
    retry: Any = {}
    for name, value in storage_options.items():
        # Other libraries have `AWS_ALLOW_HTTP` for `allow_http`.
        plain = _OF_STORE.sub("", name.lower())
        if plain in _CLIENT_OPTIONS:
            client[plain] = value
        elif plain == "retry_timeout":
            retry[plain] = _duration(root, value)
        elif plain == "max_retries" and value.isdecimal():
            retry[plain] = int(value)
        else:
            config[name.lower()] = value
    try:
        store = from_url(root, config=config, client_options=client, retry_config=retry or None)
        return ObjectFileSystem(store, root)
    except (BaseError, ValueError) as error:
        reason = _first_line(error)
        msg = f"{root}: the object store can't be opened: {reason}. Check the URL and storage_options"
        raise ConnectorError(msg) from error


def _duration(root: str, text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        msg = f"{root}: retry_timeout={text!r} is no duration: give seconds or minutes, such as '30s' or '2m'"
        raise ConnectorError(msg)
    number = int(found["number"])
    return timedelta(seconds=number) if found["seconds"] else timedelta(minutes=number)


class ObjectInputFile:
    """An object read in large ranges."""

    closed = False

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._reader = obstore.open_reader(store, key, buffer_size=READ_AHEAD_BYTES)

    def read(self, size: int = -1, /) -> bytes:
        left = self._reader.size - self._reader.tell()
        if left <= 0:
            return b""
        return _as_os_error(lambda: bytes(self._reader.read(left if size < 0 else min(size, left))))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        self._reader.close()


class ObjectOutputFile:
    """An upload; the object appears when it is finished."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._writer = obstore.open_writer(store, key)

    def write(self, data: bytes) -> int:
        return _as_os_error(lambda: self._writer.write(data))

    def finish(self) -> None:
        _as_os_error(self._writer.close)

    def discard(self) -> None:
        del self._writer


class ObjectFileSystem:
    """A bucket of an object store; `root` is its URL without a trailing slash."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root
        #: Contents of objects that were fetched and not opened yet.
        self._fetched: dict[str, bytes] = {}

    def find(self, pattern: str) -> Sequence[FileInfo]:
        key = self._key(pattern)
        folder = literal_folder(key).rstrip("/") if is_glob(key) else key
        if folder and is_unreadable(folder):
            raise _unreadable(pattern)
        # A key may contain wildcard characters.
        size = self.size(pattern) if key and not is_unreadable(key) else None
        if size is not None:
            return [FileInfo(pattern, size)]
        if not is_glob(key):
            key = f"{key.rstrip('/')}/**/*".lstrip("/")
        matches = compile_glob(key).fullmatch
        found: list[FileInfo] = []
        empty: list[FileInfo] = []
        folders: set[str] = set()
        for name, size in self._list(literal_folder(key)):
            path = f"{self._root}/{name}"
            folders.add(path.rpartition("/")[0])
            if is_unreadable(name):
                if matches(without_odd_parts(name)):
                    found.append(FileInfo(path, size, WHY_UNREADABLE))
            elif matches(name):
                (found if size else empty).append(FileInfo(path, size))
        found.extend(info for info in empty if not self._is_folder(info.path, folders))
        return sorted(found, key=lambda info: info.path)

    def walk(self, pattern: str) -> Iterator[FileInfo]:
        """Yield matching objects with their times, page by page; some empty ones may stand for folders."""
        key = self._key(pattern)
        one = self.info(pattern) if key and not is_unreadable(key) else None
        if one is not None:
            yield one
            return
        if not is_glob(key):
            key = f"{key.rstrip('/')}/**/*".lstrip("/")
        matches = compile_glob(key).fullmatch
        for info in self._entries(literal_folder(key)):
            name = info.path[len(self._root) + 1 :]
            if is_unreadable(name):
                if matches(without_odd_parts(name)):
                    yield replace(info, unreadable=WHY_UNREADABLE)
            elif matches(name):
                yield info

    def _is_folder(self, path: str, folders: Set[str]) -> bool:
        """Whether an empty object marks a folder: obstore drops the slash at the end of its name."""
        if path in folders:
            return True
        return "." not in path.rpartition("/")[2] and self.size(path) is None

    def size(self, path: str) -> int | None:
        fetched = self._fetched.get(path)
        if fetched is not None:
            return len(fetched)
        found = self.info(path)
        return None if found is None else found.size

    def info(self, path: str) -> FileInfo | None:
        key = self._key(path)
        if is_unreadable(key):
            raise _unreadable(path)
        if is_odd(key):
            return self._guarded(path, lambda: self._arrow().info(key))
        try:
            return _info(path, obstore.head(self._store, key))
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise _unreachable(path, error) from error

    def fetch(self, paths: Sequence[str]) -> None:
        keys = {path: self._key(path) for path in paths}
        plain = {path: key for path, key in keys.items() if not is_odd(key) and not is_unreadable(key)}
        with ThreadPoolExecutor(len(paths)) as pool:
            found = zip(plain, pool.map(self._content, plain.values()), strict=True)
            self._fetched = {path: content for path, content in found if content is not None}

    def _content(self, key: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except (BaseError, OSError):
            return None

    def open_input(self, path: str) -> InputFile:
        fetched = self._fetched.pop(path, None)
        if fetched is not None:
            return BytesIO(fetched)
        key = self._key(path)
        if is_unreadable(key):
            raise _unreadable(path)
        if is_odd(key):
            return self._arrow().open_input(key)
        return self._guarded(path, lambda: ObjectInputFile(self._store, key))

    def make_directory(self, directory: str, probe: str) -> None:
        key = self._key(f"{directory}/{probe}")
        if is_odd(key):
            msg = "a part of the name is empty, '.' or '..', or has a control character in it"
            raise OSError(msg)
        _as_os_error(lambda: obstore.put(self._store, key, b""))
        _as_os_error(lambda: obstore.delete(self._store, [key]))

    def names(self, directory: str, prefix: str) -> Sequence[str]:
        folder = self._folder(directory)
        names = (key[len(folder) :] for key, _ in self._list(folder))
        return sorted(name for name in names if name.startswith(prefix) and "/" not in name)

    def partition_files(self, directory: str, most: int) -> Sequence[str]:
        folder = self._folder(directory)
        paths = [key[len(folder) :] for key, _ in self._list(folder, most)]
        return [path for path in paths if all("=" in part for part in path.split("/")[:-1])]

    def create(self, directory: str, name: str) -> OutputFile:
        return _as_os_error(lambda: ObjectOutputFile(self._store, self._folder(directory) + name))

    def publish(self, directory: str, name: str, final: str) -> Publication:
        source, target = self._folder(directory) + name, self._folder(directory) + final
        return self._guarded(f"{self._root}/{source}", lambda: self._publish(source, target))

    def delete(self, directory: str, names: Sequence[str]) -> None:
        folder = self._folder(directory)
        self._guarded(directory, lambda: delete_objects(self._store, [folder + name for name in names]))

    def _publish(self, source: str, target: str) -> Publication:
        size, published = self._size_of_key(source), self._size_of_key(target)
        if size is None:
            return Publication.MISSING if published is None else Publication.ALREADY_PUBLISHED
        if published is not None and published != size:
            return Publication.OCCUPIED
        if published is None:
            self._copy(source, target)
        obstore.delete(self._store, [source])
        return Publication.PUBLISHED if published is None else Publication.ALREADY_PUBLISHED

    def _copy(self, source: str, target: str) -> None:
        try:
            obstore.copy(self._store, source, target, overwrite=False)
        except (NotSupportedError, NotImplementedError):
            obstore.copy(self._store, source, target)
        except AlreadyExistsError as error:
            msg = f"{self._root}/{target} appeared while it was being committed: two jobs use the same job id"
            raise ConnectorError(msg) from error

    def _size_of_key(self, key: str) -> int | None:
        return self.size(f"{self._root}/{key}")

    def _list(self, folder: str, most: int | None = None) -> list[tuple[str, int]]:
        """List keys with their sizes; stops after `most`, and requests no page after that."""
        entries = islice(self._entries(folder), most)
        return list({info.path[len(self._root) + 1 :]: info.size for info in entries}.items())

    def _entries(self, folder: str) -> Iterator[FileInfo]:
        """Yield the objects of a folder, perhaps some of them twice."""
        below = folder.rstrip("/")
        place = f"{self._root}/{below}"
        found: Iterable[FileInfo]
        try:
            if not is_odd(below) and (below or not self._has_leading_slashes()):
                for page in obstore.list(self._store, prefix=below or None, chunk_size=1000):
                    yield from (_info(f"{self._root}/{entry['path']}", entry) for entry in page)
                return
            found = self._arrow().objects(below)
        except InvalidPathError as error:
            found = self._list_with_odd_keys(place, below, error)
        except (BaseError, OSError) as error:
            raise _unreachable(place, error) from error
        try:
            yield from found
        except OSError as error:
            raise _unreachable(place, error) from error

    def _has_leading_slashes(self) -> bool:
        """Whether a key begins with a slash; obstore's listing would drop the slash."""
        return "" in obstore.list_with_delimiter(self._store)["common_prefixes"]

    def _list_with_odd_keys(self, place: str, below: str, found: InvalidPathError) -> list[FileInfo]:
        try:
            return list(self._arrow().objects(below))
        except OSError as error:
            msg = (
                f"{place} has a key that obstore refuses ({_first_line(found)}), and Arrow can't list the "
                f"folder either: {_first_line(error)}. Copy the object to another key, or read a folder "
                "without it"
            )
            raise ConnectorError(msg) from error

    def _guarded(self, path: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except BaseError as error:
            raise _unreachable(path, error) from error

    def _arrow(self) -> ArrowBucket:
        return ArrowBucket(self._store, self._root)

    def _key(self, location: str) -> str:
        return location.removeprefix(self._root).removeprefix("/").rstrip("/")

    def _folder(self, directory: str) -> str:
        key = self._key(directory)
        return f"{key}/" if key else ""


def _info(path: str, found: ObjectMeta) -> FileInfo:
    return FileInfo(path, int(found["size"]), modified=round(found["last_modified"].timestamp() * 1e6))


def _as_os_error(work: Callable[[], T]) -> T:
    """Run `work`; errors of the store become `OSError`, as with local files."""
    try:
        return work()
    except (BaseError, FileNotFoundError) as error:
        raise OSError(_first_line(error)) from error


def _unreadable(path: str) -> ConnectorError:
    return ConnectorError(f"{path!r}: {WHY_UNREADABLE}")


def _unreachable(path: str, error: BaseException) -> ConnectorError:
    answer = f"{path}: the object store answered: {_first_line(error)}"
    msg = f"{answer}. Check the URL, the credentials and storage_options"
    return ConnectorError(msg)


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
