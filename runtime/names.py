"""The rule of names: what users may call their jobs, states, side outputs, groups and hooks.

A name is text of any alphabet. It goes to places with rules of their own: file names, labels of Prometheus,
spans of OpenTelemetry, JSON, terminals, pages. Each of them escapes what it must. So only those names are
refused that no place shows as they were written: characters in them can't be seen, or can't be encoded.

Two spellings of one name are one name: all names are in Unicode's normal form C. An editor or a file system
may change the form of a text, and the state under a name would be lost with it. Letters that only look alike
stay different, and so do upper and lower case.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from penstock.runtime.errors import ConfigurationError

#: Longest name, in characters of the normal form.
LONGEST_NAME: Final = 200

#: Control characters, halves of surrogate pairs, breaks of lines, and what reverses the text around it.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def problem_with_name(name: object) -> str | None:
    """Why this can't be a name; `None` when it can.

    Example:
        >>> problem_with_name("注文 – 2"), problem_with_name("")
        (None, 'a name must not be empty')
    """
    if not isinstance(name, str):
        return f"a name must be a string, not {type(name).__name__}"
    if not name:
        return "a name must not be empty"
    unseen = _UNSEEN.search(name)
    if unseen is not None:
        place, code = unseen.start() + 1, f"U+{ord(unseen[0]):04X}"
        return f"a name has no control characters, and character {place} is {code}: leave it out"
    if name != name.strip():
        return "a name must not begin or end with a space: leave it out"
    length = len(normal_name(name))
    if length > LONGEST_NAME:
        return f"a name has at most {LONGEST_NAME} characters, and this one has {length:,}: shorten it"
    return None


def normal_name(name: str) -> str:
    r"""The one spelling of a name, by which it is compared and stored.

    Example:
        >>> normal_name("U\N{COMBINING DIAERESIS}bung")
        'Übung'
    """
    return unicodedata.normalize("NFC", name)


def checked_name(what: str, name: object) -> str:
    """The name in its one spelling.

    Args:
        what: Begins the message: `OutputTag`.

    Raises:
        ConfigurationError: It can't be a name; the message says why, and what to do.

    Example:
        >>> checked_name("OutputTag", "zu spät")
        'zu spät'
        >>> checked_name("OutputTag", "late ")
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: OutputTag: a name must not begin or end with a space: \
leave it out ('late ')
    """
    problem = problem_with_name(name)
    if problem is not None:
        shown = f"{name!r:.43}"
        msg = f"{what}: {problem} ({shown[:40]}...)" if len(shown) > 42 else f"{what}: {problem} ({shown})"
        raise ConfigurationError(msg)
    assert isinstance(name, str)
    return normal_name(name)
