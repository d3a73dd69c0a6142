"""A client of Confluent's schema registry.

Each try of a request has a timeout, and a request is tried again until `give_up_after`. A schema with an id
never changes, so it is cached for ever. Secrets are sent in headers only.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import tenacity

from penstock.runtime.error_text import shown
from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.redaction import redacted, without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
#: Statuses of failures that may be temporary: too many requests, and errors of the server.
_PASSING: Final = frozenset((408, 429, 500, 502, 503, 504))
#: Error codes of the registry: no such subject, version or schema.
_NOT_FOUND: Final = frozenset((40401, 40402, 40403))
#: Maximum bytes of an answer that are read.
_MOST_BYTES: Final = 16 * 1024 * 1024


#: Name, subject and version of a schema that another one uses.
Reference: TypeAlias = Mapping[str, Any]


class UnknownSchemaError(ConnectorError):
    """The registry has no such schema, subject or version."""


class _PassingError(Exception):
    """A failure after which another try may succeed."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        kind: Type of the schema: AVRO, PROTOBUF or JSON.
        references: Name, subject and version of each schema that this one uses.
        parts: Name and text of each schema that this one uses, directly or not. A schema comes after those
            that it uses itself.
    """

    schema_id: int
    kind: str
    text: str
    references: Sequence[Reference] = ()
    parts: Sequence[tuple[str, str]] = ()

    @property
    def prefix(self) -> bytes:
        """The bytes before each record of this schema."""
        return b"\0" + self.schema_id.to_bytes(4, "big")

    def text_as(self, kind: str) -> str:
        """The text of a schema of this type.

        Raises:
            ConfigurationError: The schema has another type.
        """
        if self.kind != kind:
            msg = f"schema {self.schema_id} of the registry has the type {self.kind}, not {kind}"
            raise ConfigurationError(msg)
        return self.text


@without_secrets
@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry with Confluent's REST interface.

    Args:
        url: URL of the registry, such as `https://registry:8081`.
        auth: User and password for basic authentication. `repr` does not show them.
        token: A bearer token. `repr` does not show it.
        timeout: Time for one request.
        give_up_after: Time without success after which a call fails.
        ca_file: A file of trusted certificates; by default those of the system.

    Raises:
        ConfigurationError: The URL is invalid, or there are two ways of authentication.

    Example:
        >>> SchemaRegistry("http://localhost:8081", auth=("me", "secret"))
        SchemaRegistry(url='http://localhost:8081', timeout=10.0, give_up_after=60.0, ca_file=None)
    """

    url: str
    auth: tuple[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    timeout: Duration = 10.0
    give_up_after: Duration = 60.0
    ca_file: str | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "give_up_after"):
            object.__setattr__(self, name, seconds_in(name, getattr(self, name), above=0.0))
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"url={redacted(self.url)!r} is not the URL of a schema registry: give one such as 'http://host:8081'"
            raise ConfigurationError(msg)
        if sum((self.auth is not None, self.token is not None, parts.username is not None)) > 1:
            msg = "a schema registry takes only one of these: auth, a bearer token, a user in the URL"
            raise ConfigurationError(msg)

    def client(self) -> RegistryClient:
        """Create a client, which connects when it is first used."""
        return RegistryClient(self)


class RegistryClient:
    """Asks the registry; one thread at a time may use it."""

    def __init__(self, registry: SchemaRegistry) -> None:
        parts = urlsplit(registry.url)
        assert parts.hostname is not None
        self._registry = registry
        self._host, self._port = parts.hostname, parts.port
        self._is_secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        self._where = f"the schema registry at {parts.scheme}://{parts.hostname}:{parts.port or ''}".rstrip(
            ":"
        )
        self._headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        user = registry.auth
        if parts.username is not None:
            user = (unquote(parts.username), unquote(parts.password or ""))
        if user is not None:
            encoded = base64.b64encode(":".join(user).encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        elif registry.token is not None:
            self._headers["Authorization"] = f"Bearer {registry.token}"
        self._connection: http.client.HTTPConnection | None = None
        self._known: dict[int, RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """The schema with an id.

        Raises:
            UnknownSchemaError: The registry has no such schema.
            ConnectorError: The registry gives no answer.
        """
        known = self._known.get(schema_id)
        if known is None:
            known = self._with_parts(_schema_of(self._ask("GET", f"/schemas/ids/{schema_id}"), schema_id))
            self._known[schema_id] = known
        return known

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject; errors as for `by_id`."""
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return self._with_parts(_schema_of(answer, int(answer["id"])))

    def id_of(
        self, subject: str, kind: str, text: str, *, register: bool, references: Sequence[Reference] = ()
    ) -> RegisteredSchema:
        """The registered schema of a subject with this text; errors as for `by_id`.

        Args:
            register: Whether to register the schema.
            references: The schemas that this one uses.
        """
        body = _body(kind, text, references)
        path = f"/subjects/{quote(subject, safe='')}"
        try:
            answer = self._ask("POST", f"{path}/versions" if register else path, body)
        except UnknownSchemaError as error:
            msg = (
                f"{error}. Register the schema for the subject {subject!r}, or give the format register=True"
            )
            raise UnknownSchemaError(msg) from error
        return RegisteredSchema(int(answer["id"]), kind, text)

    def version_of(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> int:
        """The version of a schema that `id_of` has found in a subject; errors as for `by_id`."""
        path = f"/subjects/{quote(subject, safe='')}"
        return int(self._ask("POST", path, _body(kind, text, references))["version"])

    def _with_parts(self, schema: RegisteredSchema) -> RegisteredSchema:
        parts: dict[str, str] = {}
        seen: set[tuple[str, int]] = set()

        def collect(references: Sequence[Reference]) -> None:
            for reference in references:
                place = str(reference["subject"]), int(reference["version"])
                if place not in seen:
                    seen.add(place)
                    found = self._at_version(*place)
                    collect(found.references)
                    parts.setdefault(str(reference["name"]), found.text)

        collect(schema.references)
        return replace(schema, parts=tuple(parts.items()))

    def _at_version(self, subject: str, version: int) -> RegisteredSchema:
        known = self._versions.get((subject, version))
        if known is None:
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
            known = self._versions[subject, version] = _schema_of(answer, int(answer["id"]))
        return known

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_PassingError),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
            stop=tenacity.stop_after_delay(as_seconds(self._registry.give_up_after)),
            reraise=True,
        )
        try:
            return tries(self._ask_once, method, path, body)
        except _PassingError as error:
            seconds = as_seconds(self._registry.give_up_after)
            msg = (
                f"{self._where} gives no answer to {method} {path} within {seconds:g} seconds: {error}. "
                "Check that it runs and that this node reaches it"
            )
            raise ConnectorError(msg) from error

    def _ask_once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            connection = self._connected()
            connection.request(method, self._path + path, data, self._headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read(_MOST_BYTES)
        except ssl.SSLCertVerificationError as error:
            self.close()
            what = f"has a certificate that is not trusted: {error}"
            msg = f"{self._where} {what}. Give SchemaRegistry a ca_file="
            raise ConnectorError(msg) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            msg = f"{type(error).__name__}: {error}"
            raise _PassingError(msg) from error
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if status == 200 and isinstance(found, dict):
            return found
        self.close()
        self._refuse(status, found if isinstance(found, dict) else {"message": shown(text)}, method, path)

    def _refuse(self, status: int, found: Mapping[str, Any], method: str, path: str) -> None:
        what = f"status {status}, {found.get('message')}"
        if status in _PASSING:
            raise _PassingError(what)
        if status == 404 and found.get("error_code") in _NOT_FOUND:
            msg = f"{self._where} answers {method} {path} with {what}"
            raise UnknownSchemaError(msg)
        advice = (
            "Give SchemaRegistry the right auth= or token="
            if status in (401, 403)
            else "Check the URL and schema"
        )
        msg = f"{self._where} refuses {method} {path} with {what}. {advice}"
        raise ConnectorError(msg)

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._is_secure:
                context = ssl.create_default_context(cafile=self._registry.ca_file)
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=as_seconds(self._registry.timeout), context=context
                )
            else:
                self._connection = http.client.HTTPConnection(
                    self._host, self._port, timeout=as_seconds(self._registry.timeout)
                )
        return self._connection


def _body(kind: str, text: str, references: Sequence[Reference]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = list(references)
    return body


def _schema_of(answer: Mapping[str, Any], schema_id: int) -> RegisteredSchema:
    return RegisteredSchema(
        schema_id, answer.get("schemaType") or "AVRO", answer["schema"], tuple(answer.get("references") or ())
    )
