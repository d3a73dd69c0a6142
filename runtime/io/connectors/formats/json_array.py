"""Recognises files that are one JSON array, where JSON lines are expected.

Such a file over several lines has no line that is a value, so it is refused. On one line it is a valid file
of JSON lines, with a single record that is a list. If that list holds objects, a warning says how it is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem
from penstock.runtime.io.connectors.formats.samples import head_of, some_of

_decode_from = json.JSONDecoder().raw_decode
_ADVICE = "Write each element on a line of its own, as `jq -c '.[]'` does"


def warnings_of_arrays(
    files: Sequence[FileInfo],
    filesystem: FileSystem,
    encoding: str,
    stored_as: str | None,
    *,
    refuse: bool,
) -> list[str]:
    """Look at the first lines of some of the files.

    Args:
        stored_as: Encoding of the files, if they are recoded to UTF-8.
        refuse: An array of objects on one line is an error, too.

    Returns:
        A warning for each file that has an array of objects as its only line.

    Raises:
        ConnectorError: A file is one JSON array over several lines.
    """
    warnings = []
    for info in some_of(files):
        head, is_all = head_of(info, filesystem, encoding, stored_as=stored_as)
        text = head.decode(encoding, "replace").lstrip()
        if not text.startswith("["):
            continue
        line, _, following = text.partition("\n")
        if _is_array_across_lines(text, len(line)):
            msg = f"{info.path} is one JSON array over several lines, and not JSON lines. {_ADVICE}"
            raise ConnectorError(msg)
        if is_all and not following.strip() and _is_list_of_objects(line):
            what = f"{info.path} is one JSON array on one line"
            if refuse:
                msg = f"{what}, and not JSON lines. {_ADVICE}"
                raise ConnectorError(msg)
            warnings.append(f"{what}: it is read as one record, which is a list. {_ADVICE}")
    return warnings


def _is_array_across_lines(text: str, line_end: int) -> bool:
    """Whether the array that begins the text goes on behind the first line, as valid JSON."""
    at = 1
    while True:
        at = _behind_space(text, at)
        if at >= len(text) or text[at] == "]":
            return line_end < at < len(text)
        try:
            _, at = _decode_from(text, at)
        except (ValueError, RecursionError):
            # An element that the sample cuts, or an object that is itself written over several lines.
            return at > line_end and text[at] in '{["'
        at = _behind_space(text, at)
        if at >= len(text) or text[at] not in ",]":
            return False
        if at > line_end:
            return True
        if text[at] == "]":
            return False
        at += 1
        if at >= line_end and _behind_space(text, at) > line_end:
            return (
                _behind_space(text, at) < len(text) and text[_behind_space(text, at)] in '{["-0123456789tfn'
            )


def _behind_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _is_list_of_objects(line: str) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)
