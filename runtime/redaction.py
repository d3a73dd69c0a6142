"""`redacted`: removes secrets of known forms from a text.

Errors, settings and reports go to logs, pages, metrics and tickets. Secrets are removed where a text is made,
so that no output has to remove them.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

_T = TypeVar("_T")

_HIDDEN: Final = "***"

# Each pattern repeats at most 100 characters, or consumes all that it has read. So the work grows with the
# length of a text, and not with its square: error texts may be hostile.

#: Candidate for one URL, or for several with no space between them.
_CHUNK: Final = re.compile(r"""(?:[^\s"']|'(?=\w))+""")
_SCHEME: Final = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://", re.IGNORECASE)
_NO_USER: Final = re.compile(r"[/\['\"]")
#: A port, or the next of several URLs: neither is a password.
_NO_PASSWORD: Final = re.compile(r"\d{1,5}(?:[/?#]|$)|(?<=[,;|]http:)//|(?<=[,;|]https:)//")
_END_OF_AUTHORITY: Final = re.compile(r"[/?#]|$")
#: Schemes in which a user alone is a token; in others it is a name (`abfss://container@account`).
_TOKEN_AS_USER: Final = ("http://", "https://", "ws://", "wss://")
#: A parameter of a URL. Signatures and tokens have many names, so each value counts as a secret.
_FIRST_VALUE: Final = re.compile(r"[^=&]{1,100}=")
_VALUE: Final = re.compile(r"=[^&#]*")
#: A parameter whose name marks its value as a secret: `X-Amz-Signature`, `sig`, `token`.
_SIGNED: Final = re.compile(
    r"[?&](?:sig|[\w.-]{0,40}(?:signature|credential|token|secret|passw(?:or)?d|api[_-]?key)[\w.-]{0,40})=[^&#]",
    re.IGNORECASE,
)

#: Signature of a URL, which may have lost its scheme; its name alone says nothing outside of a URL.
_SIGNATURE: Final = re.compile(r"""(?P<name>(?:[?&;]|\\u0026)sig=)[^&#;\\\s"']+""", re.IGNORECASE)

_QUOTED: Final = (
    r"""b?"(?:[^"\\\n]|\\+[^\\\n])*+(?:"|\\*(?=\n|\Z))|b?'(?:[^'\\\n]|\\+[^\\\n])*+(?:'|\\*(?=\n|\Z))"""
)
_WORD: Final = r"""[^\s"',;&)}\]]+"""
_SECRET: Final = (
    r"(?:secret|passw(?:or)?d|pwd|passphrase|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|account[_-]?key|"
    r"private[_-]?key|signature|credentials?)[\w.-]{0,40}"
)
#: A value after a name of a secret: `password=...`, `'secret_access_key': '...'`.
_NAMED: Final = re.compile(
    rf"""(?P<name>{_SECRET}["']?(?:[ \t]{{0,8}}=(?!=)[ \t]{{0,8}}|:\s{{0,8}}(?=b?["'])))"""
    rf"(?:{_QUOTED}|{_WORD})",
    re.IGNORECASE,
)
#: Words after a colon in sentences and in Python annotations; none of them is a secret.
_NO_VALUE: Final = (
    r"(?!(?:an?|any|are|bool|bytes|can|expected|has|int|invalid|is|it|missing|must|needs|no|none|not|null|"
    r"optional|or|and|required|secretstr|str|the|unexpected|unknown|was|\*\*\*)(?:[^\w]|\Z))"
)
#: `password: x` in headers, YAML and sentences. In `token: x`, which parsers print, x must have a digit.
_SAID: Final = re.compile(
    r"(?P<name>(?:(?:(?:secret|passw(?:or)?d|pwd|passphrase|api[_-]?key|access[_-]?key|account[_-]?key|"
    r"private[_-]?key|[_-]token)[\w.-]{0,40}"
    rf"""["']?:[ \t]{{1,8}}|passw(?:or)?d:){_NO_VALUE}|token["']?:[ \t]{{1,8}}(?=[^\s\d]{{0,40}}\d)))"""
    rf"(?:{_WORD})",
    re.IGNORECASE,
)
#: `--password x`, even in a list of arguments.
_OPTION: Final = re.compile(
    rf"""(?P<name>(?<![\w-])--?(?:\w[\w-]{{0,39}}?)?{_SECRET}(?:["'],\s{{0,8}}(?=b?["'])|[ \t]{{1,8}}))"""
    rf"(?!-){_NO_VALUE}(?:{_QUOTED}|{_WORD})",
    re.IGNORECASE,
)
#: Quick check: matches every text that a pattern of names may change.
_NAME: Final = re.compile(r"secret|passw|passphr|pwd|token|key|signature|credential|authoriz", re.IGNORECASE)
_KNOWN: Final = (
    r"(?:bearer|basic|token|digest|negotiate|ntlm|oauth|api-?key|key|aws4-[\w-]{1,40}|sharedkey(?:lite)?)"
)
#: The `Authorization` header, with or without the name of a scheme.
_AUTHORIZATION: Final = re.compile(
    rf"""(?P<name>authorization["']?(?:[ \t]{{0,8}}[:=][ \t]{{0,8}}|,[ \t]{{0,8}}(?=b?["'])))"""
    rf"(?:{_QUOTED}|\*\*\*|(?P<scheme>{_KNOWN}[ \t]{{1,8}}){_WORD}|{_WORD}(?:[ \t]{{1,8}}{_WORD})?)",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\b(bearer|Basic)(?:\s{1,8}|: ?|=|%20|\+)[\w.~+/=%-]{8,}", re.IGNORECASE)
#: Tokens that are recognised by their beginnings (web tokens, GitHub, GitLab, Slack, Google, Hugging Face,
#: npm, OpenAI).
_SHAPED: Final = re.compile(
    r"\b(?:eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*+)*+|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|"
    r"xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}|hf_\w{20,}|npm_\w{20,}|sk-[\w-]{20,})"
)
_PRIVATE_KEY: Final = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL)


def redacted(text: str) -> str:
    """Return the text with `***` for each secret, in time linear in its length.

    Example:
        >>> redacted("s3://me:word@host/path has no answer, password='a b'")
        's3://***@host/path has no answer, password=***'
        >>> redacted("https://host/file?X-Amz-Signature=12ab&sig=1")
        'https://host/file?X-Amz-Signature=***&sig=***'
    """
    if "://" in text:
        text = _CHUNK.sub(lambda found: _url_redacted(found[0]), text)
    text = _SIGNATURE.sub(rf"\g<name>{_HIDDEN}", text)
    if _NAME.search(text):
        text = _AUTHORIZATION.sub(lambda found: f"{found['name']}{found['scheme'] or ''}{_HIDDEN}", text)
        for pattern in (_NAMED, _SAID, _OPTION):
            text = pattern.sub(rf"\g<name>{_HIDDEN}", text)
    text = _BEARER.sub(rf"\1 {_HIDDEN}", text)
    text = _SHAPED.sub(_HIDDEN, text)
    return _PRIVATE_KEY.sub(rf"\1{_HIDDEN}", text)


def _url_redacted(chunk: str) -> str:
    if "://" not in chunk:
        return chunk
    chunk = _without_users(chunk)
    scheme = _SCHEME.search(chunk)
    mark = chunk.find("?", scheme.end()) if scheme else -1
    if mark < 0 or not _FIRST_VALUE.match(chunk, mark + 1):
        return chunk
    return chunk[:mark] + _VALUE.sub(f"={_HIDDEN}", chunk[mark:])


def _without_users(chunk: str) -> str:
    parts: list[str] = []
    done = 0
    last = chunk.rfind("@")
    for scheme in _SCHEME.finditer(chunk):
        start = scheme.end()
        if start < done:
            continue
        at = _end_of_user(chunk, scheme[0], start, last)
        if at >= 0:
            parts += (chunk[done:start], _HIDDEN)
            done = at
    return "".join((*parts, chunk[done:]))


def _end_of_user(chunk: str, scheme: str, start: int, last: int) -> int:
    """Position of the `@` after a secret, -1 for none; `last` is the position of the last `@`."""
    if last < start:
        return -1
    colon = chunk.find(":", start)
    if colon >= 0 and not _NO_PASSWORD.match(chunk, colon + 1) and not _NO_USER.search(chunk, start, colon):
        slash = chunk.find("/", colon)
        at = chunk.rfind("@", colon, slash if slash >= 0 else len(chunk))
        # Secret keys of object stores often contain a slash.
        if at >= 0 or last > colon:
            return at if at >= 0 else last
    if scheme.lower().endswith(_TOKEN_AS_USER):
        end = _END_OF_AUTHORITY.search(chunk, start)
        return chunk.rfind("@", start, end.start() if end else len(chunk))
    return -1


def without_secrets(cls: type[_T]) -> type[_T]:
    """Class decorator: the `repr` of instances is `redacted`. Place it above `@dataclass`."""
    shown = cls.__repr__

    def __repr__(self: _T) -> str:
        return redacted(shown(self))

    cls.__repr__ = __repr__  # type: ignore[assignment]
    return cls


def has_password(url: str) -> bool:
    """Return whether a URL has a password, a token instead of a user, or a secret as a parameter.

    Example:
        >>> [has_password(url) for url in ("s3://me:word@host", "https://host/a?sig=1", "s3://b/a?x=1")]
        [True, True, False]
    """
    has_user = any(_without_users(chunk) != chunk for chunk in _CHUNK.findall(url))
    return has_user or _SIGNED.search(url) is not None
