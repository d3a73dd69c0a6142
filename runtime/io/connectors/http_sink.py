"""`HttpSink`: sends each record as an HTTP request, with an `Idempotency-Key`.

HTTP has no transactions. A request that got no answer may have been carried out, and must be sent again.
Only the receiver can detect the repetition. For this each request has an `Idempotency-Key`. Delivery is
exactly once if the receiver carries out each key once; otherwise it is at least once.

**Sent at commit** (`"exactly_once"`). Requests wait until a completed checkpoint covers them. The checkpoint
holds their bodies and keys, so a commit that is repeated after a failure sends the same keys. A record that
is made again after a failure may differ, for example if two inputs arrive in another order. A request that
was already sent could not be taken back, so no request is sent before its checkpoint is complete. This delays
a request by up to a checkpoint interval, and keeps the records of the interval in memory and state.

**Sent at once** (`"at_least_once"`). Requests are sent as records arrive, and a checkpoint waits for their
answers. After a failure the records since the last checkpoint are sent again. Their keys are the same only
if `idempotency_key` derives them from the record.

Without `idempotency_key` a key is unique: it has the job, the operator, the subtask, the attempt and a
number. A job that starts from an *older* savepoint makes new keys for records that were already sent. It
needs an `idempotency_key`.

Requests are sent concurrently, so they arrive in any order; `max_concurrent=1` keeps the order of a subtask.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import aiohttp
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import BadRecordError, ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.arrow_batches import rows_of
from penstock.runtime.io.connectors.errors import RefusedRecordError, checked_setting, shown
from penstock.runtime.io.formats.format import Encoder, Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.redaction import redacted, without_secrets
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.time.durations import Duration, seconds_in

T_contra = TypeVar("T_contra", contravariant=True)

logger = logging.getLogger(__name__)

HttpGuarantee: TypeAlias = Literal["exactly_once", "at_least_once"]

#: Statuses after which the same request may succeed; 409: an earlier try is still being carried out.
_PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 507})
#: Longest pause between two tries, in seconds; a `Retry-After` of the receiver may be longer.
_LONGEST_PAUSE: Final = 10.0
#: Requests of one committable.
_CHUNK: Final = 1_000
#: Requests per connection that may wait for their answers before `write` waits.
_AHEAD: Final = 4
#: Bytes of an answer that an error shows.
_MOST_SHOWN: Final = 500
#: Seconds for the thread to end.
_END: Final = 5.0

#: A request: its idempotency key and its body.
_Request: TypeAlias = tuple[str, bytes]


@without_secrets
@dataclass(frozen=True)
class HttpSink(Generic[T_contra], metaclass=NearestNames):
    """Sends each record as a request.

    Attributes:
        url: The receiver: `http://` or `https://`. Messages and logs hide secrets in it.
        method: Method of the requests.
        headers: Further headers, such as `Authorization`. No message or log shows them.
        value_format: Encodes the bodies.
        content_type: Type of the bodies.
        idempotency_key: Name of a field, or a function of the record, whose text identifies the record. By
            default the key is unique.
        delivery_guarantee: `"exactly_once"` sends requests when a completed checkpoint covers them, for a
            receiver that carries out each key once. `"at_least_once"` sends them at once.
        max_concurrent: Maximum number of requests at a time, in each subtask.
        timeout: Maximum time of one try.
        give_up_after: Time without success until the attempt fails; the pauses between tries grow.
        on_refused: Treatment of a request that is answered with a status such as 400. `"fail"` fails the
            job, and `"skip"` drops the record with a warning.

    Raises:
        ConfigurationError: A setting has a value that is not allowed.

    Example:
        >>> HttpSink("https://example.org/orders", idempotency_key="id").delivery_guarantee
        'exactly_once'
    """

    only_reads: ClassVar[bool] = True

    url: str
    _: KW_ONLY
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    value_format: Format = field(default_factory=Json)
    content_type: str = "application/json"
    idempotency_key: str | Callable[[Any], str] | None = None
    delivery_guarantee: HttpGuarantee = "exactly_once"
    max_concurrent: int = 16
    timeout: Duration = 30.0
    give_up_after: Duration = 120.0
    on_refused: Literal["fail", "skip"] = "fail"

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"url={redacted(self.url)!r} is not allowed: give http:// or https:// and a host"
            raise ConfigurationError(msg)
        checked_setting("method", self.method, ("POST", "PUT", "PATCH"))
        checked_setting("delivery_guarantee", self.delivery_guarantee, ("exactly_once", "at_least_once"))
        checked_setting("on_refused", self.on_refused, ("fail", "skip"))
        if self.max_concurrent < 1:
            msg = f"max_concurrent={self.max_concurrent} is not allowed: give at least 1"
            raise ConfigurationError(msg)
        for name in ("timeout", "give_up_after"):
            object.__setattr__(self, name, seconds_in(name, getattr(self, name), above=0.0))

    def check_job_config(self, config: JobConfig) -> None:
        """Warn about a job that keeps all its requests until its end."""
        if self.delivery_guarantee == "exactly_once" and config.checkpointing is None:
            logger.warning("without checkpoints all requests are kept in memory until the end of the input")

    def writer(self, context: SinkContext) -> HttpWriter:
        """Make the writer of one subtask."""
        return HttpWriter(self, context)


class HttpWriter:
    """Keeps the requests since the last checkpoint, or sends them."""

    def __init__(self, sink: HttpSink[Any], context: SinkContext) -> None:
        self._key = sink.idempotency_key
        self._encoder: Encoder = sink.value_format.encoder()
        self._is_direct = sink.delivery_guarantee == "at_least_once"
        place = f"{context.job_id}-{context.operator_id}-{context.subtask}-{context.attempt}"
        self._names = (f"{place}-{number}" for number in count())
        self._kept: list[_Request] = []
        self._client = _HttpClient(sink)

    def write(self, batch: Batch) -> None:
        bodies = [body or b"" for body in self._encoder.encode(batch)]
        requests = list(zip(self._keys(batch, len(bodies)), bodies, strict=True))
        if self._is_direct:
            self._client.send(requests)
        else:
            self._kept += requests

    def _keys(self, batch: Batch, rows: int) -> list[str]:
        key = self._key
        if key is None:
            return [next(self._names) for _ in range(rows)]
        keys = []
        for row in rows_of(batch):
            try:
                made = row[key] if isinstance(key, str) else key(row)
            except (KeyError, TypeError) as error:
                msg = f"idempotency_key={key!r} gives no key for the record {shown(row)}: {error!r}"
                raise BadRecordError(msg) from error
            keys.append(_checked_key(str(made), row))
        return keys

    def prepare_commit(self) -> Sequence[Any]:
        self._client.finish()
        kept, self._kept = self._kept, []
        return [tuple(kept[at : at + _CHUNK]) for at in range(0, len(kept), _CHUNK)]

    def commit(self, committables: Sequence[Sequence[_Request]], permit: CommitPermit) -> None:
        for requests in committables:
            self._client.send(requests)
        self._client.finish()

    def close(self) -> None:
        self._client.close()
        self._encoder.close()


def _checked_key(key: str, row: Any) -> str:
    if not key or not key.isascii() or not key.isprintable():
        msg = f"the idempotency key {shown(key)} of the record {shown(row)} is not printable ASCII text"
        raise BadRecordError(msg)
    return key


class _PassingError(Exception):
    """A try failed, but another may succeed.

    Attributes:
        retry_after: Pause that the receiver requests, in seconds; 0 for none.
    """

    def __init__(self, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class _HttpClient:
    """Sends requests in a thread with an event loop.

    The task's thread calls the public methods; the other methods run in the client's thread.
    """

    def __init__(self, sink: HttpSink[Any]) -> None:
        self._sink = sink
        self._where = f"{sink.method} {redacted(sink.url)}"
        self._give_up_after = seconds_in("give_up_after", sink.give_up_after)
        self._timeout = aiohttp.ClientTimeout(total=seconds_in("timeout", sink.timeout))
        self._pause = wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE)
        self._session: aiohttp.ClientSession | None = None
        self._room = threading.Semaphore(sink.max_concurrent * _AHEAD)
        self._turn = asyncio.Semaphore(sink.max_concurrent)
        self._running: list[Future[None]] = []
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http-sink", daemon=True)
        self._thread.start()

    def send(self, requests: Sequence[_Request]) -> None:
        """Begin to send requests; wait while many have no answer yet.

        Raises:
            ConnectorError: An earlier request of this writer did not succeed.
            RefusedRecordError: The receiver refused an earlier request.
        """
        for request in requests:
            self._room.acquire()
            if self._error is not None:  # else each of the other requests would also wait for its failure
                raise self._error
            self._running.append(asyncio.run_coroutine_threadsafe(self._send(request), self._loop))
            self._running[-1].add_done_callback(self._sent)
        running, self._running = self._running, []
        for future in running:
            if future.done():
                future.result()
            else:
                self._running.append(future)

    def finish(self) -> None:
        """Wait until all requests are accepted or dropped; a request fails after `give_up_after`.

        Raises:
            ConnectorError: A request did not succeed in time.
            RefusedRecordError: The receiver refuses a request.
        """
        running, self._running = self._running, []
        for future in running:
            future.result()

    def close(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(_END)
        if self._thread.is_alive():
            logger.warning("%s: the client does not end", self._where)
        else:
            self._loop.close()

    # -- the client's thread ------------------------------------------------------------------------------

    def _sent(self, future: Future[None]) -> None:
        if not future.cancelled():
            self._error = self._error or future.exception()
        self._room.release()

    async def _send(self, request: _Request) -> None:
        async with self._turn:
            begin = time.monotonic()
            try:
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(_PassingError),
                    wait=self._wait,
                    stop=lambda state: time.monotonic() - begin > self._give_up_after,
                    reraise=True,
                ):
                    with attempt:
                        await self._try(request)
            except _PassingError as error:
                msg = (
                    f"{self._where} did not succeed within {self._give_up_after:g} s: {error}. Check that "
                    "the receiver runs and can be reached from the workers"
                )
                raise ConnectorError(msg) from None

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after if isinstance(error, _PassingError) else 0.0
        return max(float(self._pause(state)), min(asked, self._give_up_after))

    async def _try(self, request: _Request) -> None:
        key, body = request
        headers = {"Content-Type": self._sink.content_type, **self._sink.headers, "Idempotency-Key": key}
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, connector=aiohttp.TCPConnector(limit=self._sink.max_concurrent)
            )
        try:
            async with self._session.request(
                self._sink.method, self._sink.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                text = await answer.content.read(_MOST_SHOWN)
                status, retry_after = answer.status, answer.headers.get("Retry-After", "")
        except (aiohttp.ClientError, OSError) as error:
            raise _PassingError(redacted(str(error) or type(error).__name__)) from None
        if 200 <= status < 300:
            return
        what = f"status {status}, {shown(redacted(text.decode(errors='replace')))}"
        if status in _PASSING:
            raise _PassingError(what, float(retry_after) if retry_after.isdecimal() else 0.0)
        msg = f"{self._where} refuses the record with the key {key!r}: {what}; the record is {shown(body)}"
        if self._sink.on_refused == "fail":
            msg += '. Correct the record or the receiver, or drop such records with on_refused="skip"'
            raise RefusedRecordError(msg)
        logger.warning("%s", msg)

    async def _end(self) -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        self._loop.stop()
