"""`redacted`: a text without the secrets that can be told from their form.

Errors, settings and reports go to logs, pages, metrics and tickets. A secret in them is one that many people
have read. It is taken out where a text is made, so that no place that shows it has to think of it.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

_T = TypeVar("_T")

_HIDDEN: Final = "***"
#: User and password in front of a host; a user alone is no secret (`abfss://container@account`). A user may
#: be an address of mail, and keys of stores often have a slash. A port in front of a path is no password.
_IN_URL: Final = re.compile(
    r"""\b([a-z][a-z0-9+.-]{0,20}://)[^\s/:'"\[]{0,200}:(?!\d{1,5}[/?#])"""
    r"""(?:(?:[^\s/'"]|'(?=\w)){0,2000}@|(?:[^\s'"]|'(?=\w)){0,2000}@)""",
    re.IGNORECASE,
)
#: A parameter of a URL: signatures and tokens have many names, so each value counts as one.
_IN_QUERY: Final = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s?'\"]{0,1000}\?)([^\s=&'\"]{1,100}=[^\s'\"]*)", re.IGNORECASE
)
_VALUE: Final = re.compile(r"=[^&#]*")
#: A value behind a name that says what it is: `password=...`, `'secret_access_key': '...'`.
_NAMED: Final = re.compile(
    r"""(?<![\w-])(?P<name>["']?[\w.-]{0,40}(?:secret|passw(?:or)?d|pwd|passphrase|token|"""
    r"""api[_-]?key|access[_-]?key(?:[_-]?id)?|account[_-]?key|private[_-]?key|signature|credentials?)[\w.-]{0,40}["']?(?:=|:\s?(?=b?["'])))"""
    r"""(?:b?"(?:[^"\\\n]|\\+[^\\\n])*"|b?'(?:[^'\\\n]|\\+[^\\\n])*'|[^\s"',;&)}\]]+)""",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")


def redacted(text: str) -> str:
    """The text with `***` for each secret.

    Example:
        >>> redacted("s3://me:word@host/path has no answer, password='a b'")
        's3://***@host/path has no answer, password=***'
        >>> redacted("https://host/file?X-Amz-Signature=12ab&sig=1")
        'https://host/file?X-Amz-Signature=***&sig=***'
    """
    if "://" in text:
        text = _IN_URL.sub(rf"\1{_HIDDEN}@", text)
        text = _IN_QUERY.sub(lambda found: found[1] + _VALUE.sub(f"={_HIDDEN}", found[2]), text)
    text = _NAMED.sub(rf"\g<name>{_HIDDEN}", text)
    return _AUTHORIZATION.sub(rf"\1 {_HIDDEN}", text)


def without_secrets(cls: type[_T]) -> type[_T]:
    """Class decorator: the `repr` of instances is `redacted`. It stands above `@dataclass`.

    Example:
        >>> from dataclasses import dataclass
        >>> @without_secrets
        ... @dataclass
        ... class Place:
        ...     url: str
        >>> Place("s3://me:word@bucket")
        Place(url='s3://***@bucket')
    """
    shown = cls.__repr__

    def __repr__(self: _T) -> str:
        return redacted(shown(self))

    cls.__repr__ = __repr__  # type: ignore[assignment]
    return cls


def has_password(url: str) -> bool:
    """Whether a URL has a user and a password, or one that is signed, in it.

    Example:
        >>> has_password("s3://key:secret@bucket/path"), has_password("abfss://container@account/path")
        (True, False)
    """
    return _IN_URL.search(url) is not None
