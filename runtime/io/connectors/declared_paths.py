"""What a snapshot may name: paths inside of what the job declares.

A snapshot may come from somebody else, or through a storage that others can write. State of a source names
the files that are left to read; state of a sink names the files that a commit renames. If that is believed,
whoever has changed a snapshot reads and renames any file that the workers may. So connectors ask here before
they touch a path that may come from a snapshot. The user can say that they trust it (`trust_paths=True`).

The comparison is one of texts. A link inside of a declared folder is followed: whoever may put one there may
put files there, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.filesystems.glob_pattern import compile_glob, is_glob


class UntrustedPathError(ConnectorError):
    """A snapshot names a path that the job does not declare."""


def check_declared(path: object, declared: Iterable[str]) -> str:
    """Refuse a path that lies in none of the declared places.

    Args:
        path: Of a snapshot: should be an absolute path or a URL, without `.` and `..`.
        declared: Absolute paths or URLs: files, folders (all below is declared), glob patterns.

    Returns:
        The path.

    Raises:
        UntrustedPathError: It lies elsewhere, or is no such path.

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
    """Refuse any directory but the declared one: not one below it either, and no pattern is looked for in it.

    Raises:
        UntrustedPathError: It is another one.

    Example:
        >>> check_directory("/data/out[1]", "/data/out[1]")
        '/data/out[1]'
    """
    if isinstance(directory, str) and directory == declared:
        return directory
    raise _undeclared(directory, f"not {declared}")


def check_file_name(name: object) -> str:
    """Refuse what is no name of a file in a folder: a text with separators, `..`, or nothing.

    Raises:
        UntrustedPathError: It is no such name.

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
    """Whether a path means what its text says: it is absolute, and no segment is empty, `.` or `..`."""
    if "\0" in path:
        return False
    if path.startswith("/"):
        segments = path[1:].split("/")
    else:
        scheme, separator, rest = path.partition("://")
        segments = rest.split("/") if separator and scheme.isalnum() else [""]
    return all(segment not in ("", ".", "..") for segment in segments)
