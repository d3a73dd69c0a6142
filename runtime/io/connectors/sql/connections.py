"""`open_database`: connects to the database of a URL."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.sql.database import SqlDatabase
from penstock.runtime.redaction import redacted

#: User and password, as PostgreSQL looks for them.
_CREDENTIALS: Final = re.compile(r"\A[^@/]*@")
_BAD_CODE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")


def check_url(url: str) -> str:
    """Return the URL if it names a supported database whose library is installed.

    Raises:
        ConfigurationError: The URL names no supported database or can't be read, or a library is missing.
    """
    scheme = _scheme(url) if isinstance(url, str) else ""
    if scheme in ("postgresql", "postgres"):
        if importlib.util.find_spec("psycopg") is None:
            msg = "PostgreSQL needs the library psycopg: pip install 'penstock[sql]'"
            raise ConfigurationError(msg)
        _check_parts(url)
    elif scheme != "sqlite" or not Path(sqlite_path(url)).is_absolute():
        msg = (
            f"url={redacted(str(url))!r} is not allowed: give postgresql://user:password@host/database, or "
            "sqlite:// followed by the absolute path of a file, such as sqlite:///data/orders.db"
        )
        raise ConfigurationError(msg)
    return url


def _check_parts(url: str) -> None:
    """Refuse a URL that PostgreSQL would misread; the error shows no part, as each may be the password."""
    rest = url.partition("://")[2]
    place = _CREDENTIALS.sub("", rest, count=1).partition("?")[0]
    if "@" in place or _BAD_CODE.search(rest):
        msg = (
            "PostgreSQL can't read url=. The URL is not shown, because it may contain a password. Encode "
            "special characters of user and password, such as %40 for @, %2F for / and %25 for %"
        )
        raise ConfigurationError(msg)


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower() if "://" in url else ""


def sqlite_path(url: str) -> str:
    return unquote(urlsplit(url).path)


def open_database(url: str, timeout: float, name: str = "penstock") -> SqlDatabase:
    """Connect to a database.

    Args:
        timeout: Seconds that a call may take.
        name: Name of the connection in the database.

    Raises:
        ConnectorError: There is no answer, or the database refuses the connection.
    """
    if _scheme(url) == "sqlite":
        from penstock.runtime.io.connectors.sql.sqlite import Sqlite

        return Sqlite(sqlite_path(url), timeout)
    from penstock.runtime.io.connectors.sql.postgres import Postgres

    return Postgres(url, timeout, name)
