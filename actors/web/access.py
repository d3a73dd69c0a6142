"""Access control of the server: the origin and the session of each request.

**Origin.** A page of another site can make a browser send requests to any address, even to this machine. It
can't choose their `Host` and `Origin`, and it can't read the answers. The site's host name may suddenly
resolve to 127.0.0.1 (DNS rebinding). Then the answers can be read, but `Host` is that name. So each request
must name a host for which the server was started. If a request has an `Origin`, it must be the server's own.
A request that changes something must also have the header `X-Penstock: 1`. A page can add this header to a
request to another origin only after a preflight request, which this server refuses.

**Session.** Other users of this machine reach loopback as well. So each request needs a session, except for
the files of the page and for the request that begins a session. The address that `penstock ui` prints has a
token after `#`, which browsers never send. The page exchanges it for a cookie, once: an address in a
browser's history is useless. Programs send the standing token, if the server was given one, as
`Authorization: Bearer`. A server that listens beyond loopback must have such a token.

Comparisons take constant time. Sessions end with the server.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from penstock.runtime.errors import ConfigurationError

#: Header of requests that change something.
CHANGE_HEADER: Final = "X-Penstock"
#: Headers of every answer, except of event streams.
SAFE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Minimum length of a standing token, in characters.
_SHORTEST: Final = 16


class Problem(Exception):
    """The answer to a request that fails, with its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Access:
    """The sessions of a server, and the hosts (without port) that it answers to.

    Example:
        >>> access = Access(8265, ["127.0.0.1"])
        >>> login = access.new_login()
        >>> session = access.begin_session(login)
        >>> access.check_session(session, None)
        >>> access.begin_session(login)
        Traceback (most recent call last):
        penstock.actors.web.access.Problem: this token is unknown or was used before; the address works once
    """

    def __init__(self, port: int, hosts: Iterable[str], token: str | None = None) -> None:
        if token is not None and len(token) < _SHORTEST:
            msg = f"the token is too short ({len(token)}): give at least {_SHORTEST} random characters"
            raise ConfigurationError(msg)
        self._hosts = frozenset(f"{_in_brackets(host.lower())}:{port}" for host in hosts)
        self._token = token
        self._logins: set[str] = set()
        self._sessions: set[str] = set()
        #: Cookies ignore ports, so two servers on one machine need two names.
        self.cookie = f"penstock-{port}"

    def new_login(self) -> str:
        login = secrets.token_urlsafe(32)
        self._logins.add(login)
        return login

    def begin_session(self, token: str) -> str:
        """Exchange a login token, or the standing token, for a session."""
        login = _same(token, self._logins)
        if login is not None:
            self._logins.discard(login)
        elif self._token is None or _same(token, [self._token]) is None:
            raise Problem(401, "this token is unknown or was used before; the address works once")
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        return session

    def check_session(self, cookie: str | None, authorization: str | None) -> None:
        """Refuse a request without a session and without the standing token."""
        if cookie is not None and _same(cookie, self._sessions) is not None:
            return
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and self._token is not None and _same(token, [self._token]) is not None:
            return
        raise Problem(
            401, "no session: open the address that `penstock ui` printed, or send the server's token"
        )

    def check_place(self, host: str | None, origin: str | None) -> None:
        """Refuse a request to an unknown host, or from an origin other than the server's own page."""
        if (host or "").lower() not in self._hosts:
            raise Problem(
                403, f"this server does not answer to {host!r:.200}; start it with --allow-host for this name"
            )
        if origin is not None:
            scheme, _, name = origin.lower().partition("://")
            if scheme not in ("http", "https") or name not in self._hosts:
                raise Problem(403, f"requests from {origin!r:.200} are not answered")

    def check_change(self, headers: Mapping[str, str]) -> None:
        """Refuse a request that may come from a page of another site."""
        if headers.get(CHANGE_HEADER) != "1":
            raise Problem(403, f"a request that changes something needs the header `{CHANGE_HEADER}: 1`")
        if "Authorization" not in headers and "Origin" not in headers:
            raise Problem(403, "a request that changes something needs an `Origin` or `Authorization` header")


def check_bind(host: str, token: str | None) -> None:
    """Refuse a host beyond loopback without a standing token."""
    if token is None and not is_loopback(host):
        msg = (
            f"--host {host} can be reached from other machines: give the server a token of your own first, "
            "with --token-file FILE or PENSTOCK_UI_TOKEN, and put TLS in front of it"
        )
        raise ConfigurationError(msg)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host.

    Example:
        >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "node-7")]
        [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _same(given: str, known: Iterable[str]) -> str | None:
    """Return the known secret that equals `given`; always compares with all of them."""
    found = None
    for secret in known:
        if hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode()):
            found = secret
    return found


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
