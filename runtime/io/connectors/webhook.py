"""`WebhookSource`: an HTTP server whose requests are records, answered when a checkpoint covers them.

**A request is answered with 200 only when a completed checkpoint covers its record.** Until then it waits. If
the process dies, the sender sees a lost connection and repeats the request. So no record is lost if the
sender repeats until it gets 200. An answer takes about one checkpoint interval.

**Once or at least once.** An answer may be lost on its way, and then the sender repeats a request whose
record was processed. With an idempotency key each record is processed once: the state of the job has the keys
of the latest `remembered_keys` requests. A request with a known key is answered, and makes no record. A
sender must repeat a request with the same key, and before `remembered_keys` other requests have come. Without
keys, a record may be repeated.

**Back-pressure.** At most `max_unacknowledged` requests wait. More are answered with 429, and a job that ends
answers with 503. Both have `Retry-After`.

A request can't be read again. So a job that starts from an older savepoint does not get the requests that a
later checkpoint covered. There is one listener, on the node of its subtask. It listens on loopback by
default; a `host` that is not loopback needs a token. For TLS put a proxy in front of it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa
from aiohttp import web

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.messages.deserializer import MessageDeserializer, MessageParts
from penstock.runtime.io.connectors.messages.fetcher import Inbox, MessageFetcher, Receiver
from penstock.runtime.io.connectors.messages.reader import AcknowledgingReader
from penstock.runtime.io.connectors.messages.settings import check_learns_nothing, check_takes_checkpoints
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.durations import Duration, seconds_in

T_co = TypeVar("T_co", covariant=True)

#: Fields of a request that a record may have in addition to those of its value.
WebhookField: TypeAlias = Literal["key", "headers", "timestamp"]
#: Treatment of a request whose body can't be decoded.
OnBadRequest: TypeAlias = Literal["reject", "skip", "dead_letter"]

#: Seconds until a port that is in use fails the attempt: the previous attempt may not have ended yet.
_GIVE_UP_AFTER: Final = 30.0
_FAILURE: Final = (
    "{where} could not listen for {seconds:g} s: {error}. Choose another port or host, or end the program "
    "that uses this port on the node"
)
#: Seconds that an ending listener waits for requests that are not complete.
_SHUTDOWN: Final = 0.5
#: Seconds after which a sender should try again.
_RETRY_AFTER: Final = "1"
#: The answer to a request that a completed checkpoint covers.
_COVERED: Final = "a completed checkpoint covers the request"
#: The answer to requests that no checkpoint covers when the listener ends.
_ENDED: Final = (503, "the job has ended or is restarting")
#: Rounds of the event loop until all connections that were accepted are handed to the server.
_ROUNDS_TO_HAND_OUT: Final = 5
#: Maximum bytes of an idempotency key.
_MOST_KEY_BYTES: Final = 255


@dataclass(frozen=True)
class WebhookSplit:
    """The listener, with the keys of its latest requests, oldest first.

    Attributes:
        most_keys: Number of keys that are remembered.
    """

    most_keys: int
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "webhook"

    def moved_to(self, position: Sequence[str]) -> Self:
        if not position:
            return self
        return replace(self, keys=(*self.keys, *position)[-self.most_keys :])


@dataclass(frozen=True)
class WebhookSource(Generic[T_co], metaclass=NearestNames):
    """Listens for POST requests; a record is the decoded body of one.

    Attributes:
        port: Port of the listener, on the node of its subtask.
        path: Path of the requests.
        host: Address on which it listens; one that is not loopback needs a token.
        token: Token that requests must have: `Authorization: Bearer TOKEN`. No message or
            log shows it.
        value_format: Decodes the bodies.
        metadata: Fields that are added to those of the value: `"key"`, `"headers"` (without
            `Authorization`), `"timestamp"` (microseconds, of the arrival). They replace fields of the value
            with these names.
        key_header: Header with the idempotency key of a request, such as `X-GitHub-Delivery`.
        remembered_keys: Number of latest keys in the state; a request with one of these makes no record.
        max_unacknowledged: Maximum number of requests that wait for a checkpoint.
        max_body_bytes: Maximum size of a body; a larger one is answered with 413.
        answer_within: Maximum time that a request waits for a checkpoint; then it is answered with 503, and
            must be repeated.
        on_error: What happens to a body that can't be decoded. `"reject"` answers 400 at once. `"skip"` and
            `"dead_letter"` accept the request.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.

    Raises:
        ConfigurationError: A setting has a value that is not allowed.

    Example:
        >>> source = WebhookSource(8085, path="/orders", token="open-sesame")
        >>> source.host, "open-sesame" in repr(source)
        ('127.0.0.1', False)
    """

    only_reads: ClassVar[bool] = True

    port: int
    _: KW_ONLY
    path: str = "/"
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    value_format: Format = field(default_factory=Json)
    metadata: Sequence[WebhookField] = ()
    key_header: str = "Idempotency-Key"
    remembered_keys: int = 10_000
    max_unacknowledged: int = 1_000
    max_body_bytes: int = 1024 * 1024
    answer_within: Duration = 60.0
    on_error: OnBadRequest = "reject"
    batch_format: BatchFormat = "rows"

    def __post_init__(self) -> None:
        if not 0 < self.port < 65_536:
            msg = f"port={self.port} is not allowed: use 1 to 65535"
            raise ConfigurationError(msg)
        if not self.path.startswith("/"):
            msg = f"path={self.path!r} is not allowed: it must begin with '/'"
            raise ConfigurationError(msg)
        for name in ("remembered_keys", "max_unacknowledged", "max_body_bytes"):
            if getattr(self, name) < 1:
                msg = f"{name}={getattr(self, name)} is not allowed: give at least 1"
                raise ConfigurationError(msg)
        for name in self.metadata:
            checked_setting("metadata", name, tuple(_REQUEST.fields))
        checked_setting("on_error", self.on_error, ("reject", "skip", "dead_letter"))
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        check_learns_nothing("value_format", self.value_format)
        if self.token == "":
            msg = "an empty token is not allowed: give token= at least one character, or leave it out"
            raise ConfigurationError(msg)
        if self.token is None and not _is_loopback(self.host):
            msg = f"host={self.host!r} can be reached from other machines: give a token="
            raise ConfigurationError(msg)
        seconds = seconds_in("answer_within", self.answer_within, above=0.0)
        object.__setattr__(self, "answer_within", seconds)

    def check_job_config(self, config: JobConfig) -> None:
        """Refuse a job without checkpoints: no request would be answered."""
        check_takes_checkpoints(config)

    def splits(self, parallelism: int) -> Sequence[WebhookSplit]:
        """Return the only split; one subtask listens."""
        return [WebhookSplit(self.remembered_keys)]

    def reader(self, context: ConnectorContext, splits: Sequence[WebhookSplit]) -> AcknowledgingReader[T_co]:
        """Make the reader of one subtask, with a server and a thread of its own."""
        mine = [replace(split, most_keys=self.remembered_keys) for split in splits]
        deserializer = MessageDeserializer(
            _REQUEST,
            self.value_format.decoder(self.batch_format),
            tuple(self.metadata),
            "skip" if self.on_error == "skip" else "dead_letter",
        )
        receivers: dict[Hashable, Receiver] = {
            split.name: _WebhookReceiver(self, split, deserializer) for split in mine
        }
        fetcher = MessageFetcher(receivers, _GIVE_UP_AFTER, deserializer.close, failure=_FAILURE)
        return AcknowledgingReader(mine, fetcher, is_arrow=self.batch_format == "arrow")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, eq=False)
class _Request:
    """A request that waits.

    Attributes:
        origin: Path, sender and number of the request, for dead letters.
        answer: Status and text, when they are known.
    """

    body: bytes
    key: str | None
    headers: Mapping[str, str]
    timestamp: int
    origin: str
    answer: asyncio.Future[tuple[int, str]]


class _WebhookReceiver:
    """Listens, and answers requests when they are acknowledged."""

    def __init__(
        self, source: WebhookSource[Any], split: WebhookSplit, deserializer: MessageDeserializer[_Request]
    ) -> None:
        self._source = source
        self._deserializer = deserializer
        #: The request of each remembered key while it waits; `None` once a checkpoint covers it.
        self._keys: dict[str, _Request | None] = dict.fromkeys(split.keys)
        self._waiting: deque[_Request] = deque()
        self._arrived = asyncio.Event()
        #: Accepted requests that no checkpoint covers yet.
        self._uncovered: set[_Request] = set()
        self._reading = 0
        self._requests = 0
        self._has_ended = False
        self._runner: web.AppRunner | None = None
        self._starting: asyncio.Future[asyncio.Server] | None = None
        self.where = f"the webhook at {source.host}:{source.port}"
        self.transient: tuple[type[BaseException], ...] = (OSError,)

    async def receive(self, inbox: Inbox) -> None:
        await self._listen()
        while True:
            await self._arrived.wait()
            requests = [self._waiting.popleft() for _ in range(min(len(self._waiting), inbox.max_rows))]
            if not self._waiting:
                self._arrived.clear()
            await self._put(inbox, requests)

    async def _listen(self) -> None:
        if self._runner is None:
            application = web.Application(client_max_size=self._source.max_body_bytes)
            application.router.add_post(self._source.path, self._handle)
            self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN)
            await self._runner.setup()
        server = self._runner.server
        assert server is not None, "the runner is set up"
        starting = asyncio.get_running_loop().create_server(
            server, self._source.host, self._source.port, reuse_address=True
        )
        # A start that is cancelled halfway would leave a socket that listens.
        self._starting = asyncio.ensure_future(starting)
        await asyncio.shield(self._starting)

    async def _put(self, inbox: Inbox, requests: list[_Request]) -> None:
        polled = self._deserializer.polled(requests)
        if self._source.on_error == "reject" and polled.dead_letters:
            refused = {letter.origin: letter.error for letter in polled.dead_letters}
            for request in requests:
                if request.origin in refused:
                    self._answer(request, 400, f"the body can't be decoded: {refused[request.origin]}")
                    if request.key is not None:
                        self._keys.pop(request.key, None)
            requests = [request for request in requests if request.origin not in refused]
            polled = replace(polled, dead_letters=())
        keys = tuple(request.key for request in requests if request.key is not None)
        await inbox.put(polled, keys, requests)

    async def acknowledge(self, tokens: Sequence[_Request]) -> None:
        for request in tokens:
            self._answer(request, 200, _COVERED)
            if request.key is not None:
                self._keys.pop(request.key, None)
                self._keys[request.key] = None
        self._forget()

    def _forget(self) -> None:
        """Forget the oldest keys that are not waiting."""
        surplus = len(self._keys) - self._source.remembered_keys
        if surplus > 0:
            covered = (key for key, request in self._keys.items() if request is None)
            for key in [*islice(covered, surplus)]:
                del self._keys[key]

    def _answer(self, request: _Request, status: int, text: str) -> None:
        self._uncovered.discard(request)
        if not request.answer.done():
            request.answer.set_result((status, text))

    async def close(self) -> None:
        self._has_ended = True
        for request in tuple(self._uncovered):
            self._answer(request, *_ENDED)
        if self._starting is not None:
            with suppress(OSError):  # a start that failed has left no server
                await self._end(await self._starting)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _end(self, server: asyncio.Server) -> None:
        """Stop listening.

        A server that closes forgets connections that it has accepted in the same round of the event loop
        (CPython 3.11). Their senders would wait. So it accepts no more, hands out what it has, and closes.
        """
        loop = asyncio.get_running_loop()
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(_ROUNDS_TO_HAND_OUT):
            await asyncio.sleep(0)
        server.close()

    # -- one request --------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.Response:
        token = self._source.token
        if token is not None:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(_bytes_of(given), f"Bearer {token}".encode()):
                return _response(401, "the request has no valid token")
        if self._has_ended:
            return _response(*_ENDED)
        key = request.headers.get(self._source.key_header)
        if key is not None and not _is_text(key):
            return _response(400, "the idempotency key is not UTF-8")
        if key is not None and len(key.encode()) > _MOST_KEY_BYTES:
            return _response(400, f"the idempotency key has more than {_MOST_KEY_BYTES} bytes")
        if key is not None and key in self._keys:
            return await self._repeated(key)
        if len(self._uncovered) + self._reading >= self._source.max_unacknowledged:
            return _response(429, "too many requests wait for a checkpoint")
        self._reading += 1
        try:
            async with asyncio.timeout(seconds_in("answer_within", self._source.answer_within)):
                body = await request.read()
        except TimeoutError:
            return _response(408, "the request is not complete")
        finally:
            self._reading -= 1
        if key is not None and key in self._keys:  # the same request came meanwhile
            return await self._repeated(key)
        return await self._wait(self._accepted(request, key, body))

    def _accepted(self, request: web.Request, key: str | None, body: bytes) -> _Request:
        self._requests += 1
        accepted = _Request(
            body,
            key,
            {
                name: _bytes_of(value).decode(errors="replace")
                for name, value in request.headers.items()
                if name.lower() != "authorization"
            },
            time.time_ns() // 1000,
            f"POST {self._source.path} of {request.remote}, request {self._requests}",
            asyncio.get_running_loop().create_future(),
        )
        if key is not None:
            self._keys[key] = accepted
        self._uncovered.add(accepted)
        self._waiting.append(accepted)
        self._arrived.set()
        return accepted

    async def _repeated(self, key: str) -> web.Response:
        earlier = self._keys[key]
        return _response(200, _COVERED) if earlier is None else await self._wait(earlier)

    async def _wait(self, request: _Request) -> web.Response:
        try:
            async with asyncio.timeout(seconds_in("answer_within", self._source.answer_within)):
                return _response(*await asyncio.shield(request.answer))
        except TimeoutError:
            return _response(503, "no checkpoint covers the request yet")


def _bytes_of(header: str) -> bytes:
    """The bytes of a header, whose text has surrogates in place of bytes that are not UTF-8."""
    return header.encode(errors="surrogateescape")


def _is_text(header: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in header)


def _response(status: int, text: str) -> web.Response:
    headers = {"Retry-After": _RETRY_AFTER} if status in (429, 503) else {}
    return web.json_response({"message": text}, status=status, headers=headers)


_REQUEST: Final[MessageParts[_Request]] = MessageParts(
    lambda request: request.body,
    lambda request: request.origin,
    {
        "key": (lambda request: request.key, pa.string()),
        "headers": (
            lambda request: [{"name": name, "value": value} for name, value in request.headers.items()],
            pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())])),
        ),
        "timestamp": (lambda request: request.timestamp, pa.timestamp("us", "UTC")),
    },
)
