"""JSON lines: one JSON value per line.

One call parses a slice of lines. The lines are joined into one JSON array with `-Infinity` between them,
which parses to a marker object. If the markers are at exactly every second position, each line held one
complete value. A line like `1, 2` or `[1` would shift or swallow a marker. Other slices, and text that
contains `-Infinity`, are parsed line by line. This is twice as fast as a call per line.

Python's parser keeps the last of two fields with the same name, and turns `1e400` into infinity. Such lines
are bad. Hooks that detect this take three times as long, so they are used only on suspicious lines. A slice
has no lost field when it has as many colons behind a quote or a blank as parsed fields.

**Files that are one JSON array** are recognised. An array over several lines is refused. An array on one line
is valid JSON lines, with a single record that is a list. If that list holds objects, a warning explains how
the file is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar, Final

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecords
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem
from penstock.runtime.io.connectors.formats.line_blocks import head_of, some_of
from penstock.runtime.io.connectors.formats.lines import LineFormat, LineReader, line_splits
from penstock.runtime.io.connectors.formats.splitting import FileSplit
from penstock.runtime.operators.source import SplitsWithWarnings

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
    """Inspect the first lines of some of the files, and warn of each whose only line is an array of objects.

    Args:
        refuse: Whether an array of objects on one line is an error, too.

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
    """Whether the array at the beginning of the text continues behind the first line, as valid JSON."""
    at = 1
    while True:
        at = _behind_space(text, at)
        if at >= len(text) or text[at] == "]":
            return line_end < at < len(text)
        try:
            _, at = _decode_from(text, at)
        except (ValueError, RecursionError):
            # The sample cuts an element, or an object itself is written over several lines.
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
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


_MARKER: Final = object()

_CONSTANTS: Final = {"-Infinity": _MARKER, "NaN": math.nan, "Infinity": math.inf}

_INFINITE: Final = frozenset((math.inf, -math.inf))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"it has two fields {twice!r}"
        raise ValueError(msg)
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if number in _INFINITE:
        msg = f"no float is {digits}"
        raise ValueError(msg)
    return number


_parse_flat: Final = json.JSONDecoder(parse_constant=_CONSTANTS.__getitem__).decode

_parse_marked: Final = json.JSONDecoder(
    parse_constant=_CONSTANTS.__getitem__, parse_float=_finite, object_pairs_hook=_distinct
).decode
#: Parses one JSON value; raises `ValueError` where Python's parser would lose a field or a number.
parse_one: Final = json.JSONDecoder(parse_float=_finite, object_pairs_hook=_distinct).decode


class JsonReader(LineReader):
    """Reads the values of one split; blank lines are no records."""

    def _all_of(self, lines: Sequence[str]) -> list[Any] | None:
        return parse_together(lines)

    def _read_line(self, line: str, index: int, records: list[Any], bad: BadRecords) -> None:
        if line and not line.isspace():
            try:
                records.append(parse_one(line))
            except (ValueError, RecursionError) as error:
                bad.report(line, f"the line is not a JSON value: {error}", self._cursor.origin(index))


class JsonFormat(LineFormat):
    """The JSON lines format; a line without a valid JSON value is bad."""

    __slots__ = ()

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        warnings = warnings_of_arrays(files, filesystem, self.encoding, self.stored_as, refuse=False)
        splits = line_splits(files, self.split_size, parallelism, self.stored_as)
        return SplitsWithWarnings(splits, warnings)

    reader: ClassVar[type[JsonReader]] = JsonReader


def parse_together(lines: Sequence[str]) -> list[Any] | None:
    """Parse lines of one JSON value each in one call; `None` when a line may be something else.

    Example:
        >>> parse_together(['{"a": 1}', "[2]"]), parse_together(["[1", "2]"]), parse_together(["1, 2", "3"])
        ([{'a': 1}, [2]], None, None)
    """
    inner = ",-Infinity,".join(lines)
    if inner.count("-Infinity") != len(lines) - 1:
        return None
    text = f"[{inner}]"
    try:
        parsed: list[Any] = _parse_flat(text)
        if _may_differ(parsed, text):
            parsed = _parse_marked(text)
    except (ValueError, RecursionError):
        return None
    if len(parsed) != 2 * len(lines) - 1 or parsed[1::2].count(_MARKER) != len(lines) - 1:
        return None
    return parsed[::2]


def _may_differ(parsed: Sequence[Any], text: str) -> bool:
    """Whether an object may have two fields with the same name, or a number may have become infinity."""
    fields = 0
    level: Sequence[Any] = parsed[::2]
    if set(map(type, level)) != {dict}:
        level = [level]  # as the records may be numbers
    while level:
        dicts = level if set(map(type, level)) == {dict} else [item for item in level if type(item) is dict]
        fields += sum(map(len, dicts))
        inner = [part for item in level if type(item) is list for part in item] if dicts is not level else []
        level = []
        try:
            is_finite = _INFINITE.isdisjoint(chain(inner, chain.from_iterable(map(dict.values, dicts))))
        except TypeError:  # there is a list or an object, which has no hash
            values = [*inner, *chain.from_iterable(map(dict.values, dicts))]
            level = [part for part in values if type(part) is dict or type(part) is list]
            is_finite = _INFINITE.isdisjoint([part for part in values if type(part) is float])
        if not is_finite:
            return True
    return text.count('":') + text.count(" :") + text.count("\t:") + text.count("\r:") != fields
