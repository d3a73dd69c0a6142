"""Glob patterns over keys of an object store, with the meaning that Python's `glob` gives them on disk.

`*` and `?` stay inside one folder; `**` as a whole segment crosses any number of folders. A wildcard at the
start of a segment does not match a leading dot.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import Final

_MAGIC: Final = re.compile(r"[*?\[]")
#: A set of characters: a `]` at its beginning is one of them.
_BRACKET: Final = re.compile(r"\[!?+\]?+[^\]]*\]")
_END_OF_TEXT: Final = fnmatch.translate("").removeprefix("(?s:)")


def is_glob(pattern: str) -> bool:
    """Whether a pattern holds a wildcard.

    Example:
        >>> is_glob("a/*.txt"), is_glob("a/b.txt")
        (True, False)
    """
    return _MAGIC.search(pattern) is not None


def literal_folder(pattern: str) -> str:
    """The folders in front of the first wildcard, with the slash at their end.

    Example:
        >>> literal_folder("in/2024/*/a.txt"), literal_folder("*.txt")
        ('in/2024/', '')
    """
    magic = _MAGIC.search(pattern)
    head = pattern if magic is None else pattern[: magic.start()]
    return head[: head.rfind("/") + 1]


@lru_cache(maxsize=256)
def compile_glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob into a regular expression for `fullmatch`.

    Example:
        >>> matches = compile_glob("in/**/*.txt").fullmatch
        >>> [bool(matches(key)) for key in ("in/a.txt", "in/b/c/d.txt", "in/a.csv")]
        [True, True, False]
    """
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
