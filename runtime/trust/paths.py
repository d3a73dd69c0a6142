"""Paths that a snapshot names: trusted only inside the places that the job or the user has named.

**Files of sources and sinks.** Source state names the files that are left to read. Sink state names the files
that a commit renames. Without a check, a changed snapshot could read and rename any file that the workers can
access. So connectors check every path of a snapshot first, unless the user sets `trust_paths=True`. A place
is a file, a folder, or a glob pattern. Paths are compared as strings. Links inside a declared folder are
followed: a user who may create a link there may also create files.

**Folders of savepoints.** A savepoint may be in a folder of its own, outside of the checkpoint storage. A
note in the storage then names that folder. A user who can write the storage, or hands over a snapshot, can
change the note. Without a check, workers would then open any folder or bucket. So two rules hold.

- A note must name the folder that Penstock itself would have made: `.../savepoint-<job>-<id>-<attempt>`, with
  the job, id and attempt of the note. A job that restarts from its own savepoint needs no other check,
  because its own user chose the place.
- For a snapshot that a user names, the folder must also be inside of the storage that the user has named. A
  savepoint elsewhere is opened when the user names its folder, and thereby trusts it.

A location is compared as a text, and opened as a URL. So its text must be unambiguous. `%2e%2e` is a step up,
`?` and `#` cut a URL off, and a tab in it is dropped. The first part of a location is the user's choice,
perhaps with `%20` in it. The rest, below the storage that a user names, must pass `check_path`.

**Patterns** over keys of an object store have the meaning of Python's `glob` on disk. `*` and `?` stay inside
one folder; `**` as a whole segment crosses any number of folders. A wildcard at the start of a segment does
not match a leading dot.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from penstock.runtime.errors import ConnectorError, RestoreError, StorageError


class UntrustedPathError(ConnectorError):
    """A snapshot names a path that the job does not declare."""


def check_declared(path: object, declared: Iterable[str]) -> str:
    """Refuse a path that lies in none of the declared places; return the path.

    Args:
        path: A path from a snapshot: an absolute path or a URL, without `.` and `..`.
        declared: Absolute paths or URLs: files, folders (with everything below them), glob patterns.

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
    """
    if isinstance(directory, str) and directory == declared:
        return directory
    raise _undeclared(directory, f"not {declared}")


def check_file_name(name: object) -> str:
    """Refuse names that are empty, `.` or `..`, or contain a separator or NUL.

    Raises:
        UntrustedPathError: The name is not a file name.
    """
    if isinstance(name, str) and name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0"):
        return name
    msg = f"the snapshot names the file {name!r}, which is not a file name: it was changed, or damaged"
    raise UntrustedPathError(msg)


def _undeclared(path: object, why: str) -> UntrustedPathError:
    return UntrustedPathError(
        f"the snapshot names {path!r}, which is {why}. Declare that place in the program, or set "
        "trust_paths=True if you trust everyone who can write the snapshot"
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


_PATH: Final = re.compile(r"[A-Za-z0-9._=~-]+(?:/[A-Za-z0-9._=~-]+)*")
#: A segment for the same folder or the one above, plain and as a URL may encode it.
_STEP: Final = re.compile(r"\.\.?")
_STEP_OF_URL: Final = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: Text that ends the path of a URL, is dropped from it, or separates folders without being a slash.
_MISLEADS: Final = re.compile(r"[?#\\\x00-\x1f\x7f]|%2f|%5c|%[01][0-9a-f]|%7f", re.IGNORECASE)


def check_path(path: str) -> str:
    """Return the path of a file in a storage; raises `StorageError` unless every storage accepts it."""
    if _PATH.fullmatch(path) is None or any(set(segment) == {"."} for segment in path.split("/")):
        msg = (
            f"{path!r} can't be a path in a storage: it must be relative, without '.', '..' and empty parts, "
            "and have only letters, digits and . _ = ~ -"
        )
        raise StorageError(msg)
    return path


def is_own_location(location: str, folder: str) -> bool:
    """Return whether a location is a folder of this name, anywhere, and its text is unambiguous."""
    return location.endswith(f"/{folder}") and _leads_down(location)


def check_named_location(location: str, root: str, job_id: str) -> None:
    """Refuse a location outside of the storage at the URL `root`, which a user has named."""
    if inside_of(root, location) is None:
        msg = (
            f"the newest snapshot of job {job_id} in {root} is a savepoint, and its files are in {location}. "
            "It is not in the storage that you have named, or its text is ambiguous: names of folders there "
            "have only letters from A to Z, digits and . _ = ~ -. Name that folder to start from it, "
            "if you trust everyone who can write there"
        )
        raise RestoreError(msg)


def inside_of(root: str, location: str) -> str | None:
    """The path of a location in a storage; `None` if it lies elsewhere or its text is ambiguous.

    Example:
        >>> inside_of("s3://bucket/data", "s3://bucket/data/%2e%2e/other/savepoint-j-1-1")
    """
    above = root.rstrip("/") + "/"
    try:
        return check_path(location.removeprefix(above)) if location.startswith(above) else None
    except StorageError:
        return None


def _leads_down(location: str) -> bool:
    """Whether opening a location goes down through the folders of its text, and never up."""
    step, misleading = (_STEP_OF_URL, _MISLEADS) if "://" in location else (_STEP, _CONTROL)
    return misleading.search(location) is None and not any(map(step.fullmatch, location.split("/")))


_MAGIC: Final = re.compile(r"[*?\[]")
#: A set of characters; a leading `]` belongs to the set.
_BRACKET: Final = re.compile(r"\[!?+\]?+[^\]]*\]")

_END_OF_TEXT: Final = fnmatch.translate("").removeprefix("(?s:)")


def is_glob(pattern: str) -> bool:
    return _MAGIC.search(pattern) is not None


def literal_folder(pattern: str) -> str:
    """Return the folders before the first wildcard, with a trailing slash."""
    magic = _MAGIC.search(pattern)
    head = pattern if magic is None else pattern[: magic.start()]
    return head[: head.rfind("/") + 1]


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob into a regular expression for `fullmatch`."""
    segments = pattern.split("/")
    parts = []
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        if segment == "**":
            parts.append(r"(?:[^./][^/]*/)*" + (r"(?!\.)[^/]+" if last else ""))
        else:
            parts.append(_segment(segment) + ("" if last else "/"))
    return re.compile("".join(parts), re.DOTALL)


def _segment(segment: str) -> str:
    out = [r"(?!\.)"] if segment[:1] in ("*", "?", "[") else []
    at = 0
    while at < len(segment):
        bracket = _BRACKET.match(segment, at)
        if bracket is not None:
            out.append(f"(?!/){fnmatch.translate(bracket[0]).removesuffix(_END_OF_TEXT)}")
            at = bracket.end()
            continue
        character = segment[at]
        out.append({"*": "[^/]*", "?": "[^/]"}.get(character) or re.escape(character))
        at += 1
    return "".join(out)
