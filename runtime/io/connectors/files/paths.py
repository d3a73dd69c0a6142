"""Paths of files: the paths that a source reads, and those that a snapshot may name.

Patterns are resolved once, when a job starts without a snapshot (`list_files`).

**Paths in snapshots** must lie inside the locations that the job declares. A snapshot may come from a
stranger, or from a storage that others can write. Source state names the files that are left to read; sink
state names the files that a commit renames. Without a check, a changed snapshot could read and rename any
file that the workers may. So connectors check every path of a snapshot before they use it. Users can turn the
check off (`trust_paths=True`).

Paths are compared as texts. Links inside a declared folder are followed: a user who may create a link there
may also create files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.filesystems.filesystem import (
    FileInfo,
    FileSystem,
    compile_glob,
    is_glob,
    literal_folder,
)


def list_files(
    patterns: Sequence[str],
    filesystem: Callable[[str], FileSystem],
    warn: Callable[[str], None] = lambda warning: None,
) -> list[FileInfo]:
    """List the files of all patterns, each file once, in the order of the patterns and then by path.

    Names that begin with `_` or `.` are hidden, or files of running sinks. They are read only when the last
    part of a pattern begins with the same character.

    Raises:
        ConnectorError: A pattern matches no file, or the location can't be listed.
    """
    files: dict[str, FileInfo] = {}
    for pattern in patterns:
        try:
            found = filesystem(pattern).find(pattern)
        except OSError as error:
            msg = f"{pattern}: can't be listed: {error}. Check that every node may read it"
            raise ConnectorError(msg) from error
        unreadable = [info for info in found if info.unreadable]
        if unreadable:
            found = [info for info in found if not info.unreadable]
            count = "1 file is" if len(unreadable) == 1 else f"{len(unreadable)} files are"
            first = unreadable[0]
            warn(f"{pattern}: {count} left out; the first is {first.path!r}: {first.unreadable}")
        visible = [info for info in found if _is_visible(info.path, pattern)]
        if not visible:
            raise ConnectorError(_nothing_found(pattern, hidden=len(found)))
        if len(visible) < len(found):
            warn(_left_out(pattern, [info.path for info in found if not _is_visible(info.path, pattern)]))
        files.update((info.path, info) for info in visible)
    return list(files.values())


def _is_visible(path: str, pattern: str) -> bool:
    if path == pattern:
        return True
    below = path[len(literal_folder(pattern)) :] if is_glob(pattern) else path[len(pattern.rstrip("/")) + 1 :]
    written_out = set(pattern.split("/"))
    parts = below.split("/")
    wants_hidden = pattern.rsplit("/", 1)[-1][:1] in ("_", ".")
    signs, seen = (".", parts[:-1]) if wants_hidden else ("_.", parts)
    # `_name=value/` is a column, as Spark writes it.
    columns = [part for part in parts[:-1] if "=" in part and part[0] == "_"]
    return not any(
        part[:1] in tuple(signs) and part not in written_out and part not in columns for part in seen
    )


def _left_out(pattern: str, hidden: list[str]) -> str:
    first = min(hidden)
    begin = first.rsplit("/", 1)[-1][:1]
    folder = literal_folder(pattern).rstrip("/") if is_glob(pattern) else pattern.rstrip("/")
    pick = f"{folder}/{begin if begin in ('_', '.') else '_'}*"
    files = "1 file was" if len(hidden) == 1 else f"{len(hidden)} files were"
    return (
        f"{pattern}: {files} left out, because names that begin with '_' or '.' are hidden; the first is "
        f"{first}. A pattern whose last part begins so reads them, such as {pick!r}"
    )


def _nothing_found(pattern: str, *, hidden: int) -> str:
    searched = literal_folder(pattern).rstrip("/") or "/" if is_glob(pattern) else pattern
    left_out = f" ({hidden} files with names beginning with '_' or '.' were left out)" if hidden else ""
    return (
        f"no file matches {pattern!r}; searched in {searched!r}{left_out}. Check the spelling, and that the "
        "place is mounted at this path on every node of the cluster"
    )


class UntrustedPathError(ConnectorError):
    """A snapshot names a path that the job does not declare."""


def check_declared(path: object, declared: Iterable[str]) -> str:
    """Refuse a path that lies in none of the declared places.

    Args:
        path: A path from a snapshot: an absolute path or a URL, without `.` and `..`.
        declared: Absolute paths or URLs: files, folders (all below is declared), glob patterns.

    Returns:
        The path.

    Raises:
        UntrustedPathError: The path lies elsewhere or is malformed.

    Example:
        >>> check_declared("/data/in/2024/a.csv", ["/data/in"])
        '/data/in/2024/a.csv'
    """
    places = list(declared)
    if isinstance(path, str):
        if path in places:
            return path
        if _is_plain(path) and any(_holds(place, path) for place in places):
            return path
    raise _undeclared(path, f"not in {', '.join(places)}")


def check_directory(directory: object, declared: str) -> str:
    """Refuse any directory but the declared one; folders below it and patterns are refused too.

    Raises:
        UntrustedPathError: The directory is not the declared one.

    Example:
        >>> check_directory("/data/out[1]", "/data/out[1]")
        '/data/out[1]'
    """
    if isinstance(directory, str) and directory == declared:
        return directory
    raise _undeclared(directory, f"not {declared}")


def check_file_name(name: object) -> str:
    """Refuse names that are empty, `..` or contain separators.

    Raises:
        UntrustedPathError: The name is no file name.

    Example:
        >>> check_file_name("part-0.csv")
        'part-0.csv'
    """
    if isinstance(name, str) and name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0"):
        return name
    msg = f"the snapshot names the file {name!r}, which is no name in a folder: it was changed, or damaged"
    raise UntrustedPathError(msg)


def _undeclared(path: object, why: str) -> UntrustedPathError:
    return UntrustedPathError(
        f"the snapshot names {path!r}, which is {why}. Declare that place in the program, or say "
        "trust_paths=True if you trust whoever could write the snapshot"
    )


def _holds(place: str, path: str) -> bool:
    if path.startswith(place.rstrip("/") + "/"):
        return True
    return is_glob(place) and compile_glob(place).fullmatch(path) is not None


def _is_plain(path: str) -> bool:
    if "\0" in path:
        return False
    if path.startswith("/"):
        segments = path[1:].split("/")
    else:
        scheme, separator, rest = path.partition("://")
        segments = rest.split("/") if separator and scheme.isalnum() else [""]
    return all(segment not in ("", ".", "..") for segment in segments)
