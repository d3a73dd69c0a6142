"""`JetStreamSource`: reads a stream of NATS JetStream, each message exactly once.

**Why it is exactly once.** A message has a sequence number in its stream. The position of a split is the next
number, and checkpoints hold it. Each attempt makes a consumer of its own, which begins at the position. So a
process that was wrongly considered dead takes no message from its successor. Messages come in order, and one
with a lower number than the position is a redelivery: it is dropped.

**What is acknowledged.** Messages that a completed checkpoint covers. A stream with the retention `interest`
or `workqueue` deletes them then. At most `max_unacknowledged` messages are open: the server sends no more
until the next checkpoint is complete. So the rate is at most this number per checkpoint interval.

**Gaps.** The server numbers its deliveries. If one is missing, such as after a lost connection, a new
consumer begins after the last covered message. If messages after the position are gone, the job fails: limits
have deleted them, or a later checkpoint than the restored one has acknowledged them. A split with a filter
does not notice deletions by limits. A stream with `limits` keeps acknowledged messages, so a job can read
them again from an older savepoint.

The source must never delete a consumer before its successor exists: without one, a stream with the retention
`interest` drops its messages. A `workqueue` is the exception. It allows one consumer, and keeps its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError, ConnectorError, LostInputError
from penstock.runtime.io.connectors.errors import OnError, checked_setting
from penstock.runtime.io.connectors.messages.deserializer import MessageDeserializer, MessageParts
from penstock.runtime.io.connectors.messages.fetcher import (
    GIVE_UP_AFTER,
    Inbox,
    MessageFetcher,
    Receiver,
    refused,
)
from penstock.runtime.io.connectors.messages.reader import AcknowledgingReader
from penstock.runtime.io.connectors.messages.settings import (
    check_declared_split,
    check_installed,
    check_learns_nothing,
    check_takes_checkpoints,
    checked_names,
)
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import redacted, without_secrets
from penstock.runtime.time.durations import Duration, micros_of, seconds_in

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo, StreamInfo

T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)

#: Fields of a message that a record may have in addition to those of its value.
JetStreamField: TypeAlias = Literal["subject", "sequence", "timestamp", "headers"]

#: The filter of a source that reads a whole stream.
_ALL: Final = ">"
#: Seconds of one wait for messages, and for an answer.
_WAIT: Final = 1.0
_ANSWER: Final = 5.0
#: Seconds until the server delivers a message again. Recovery does not wait for it.
_ACK_WAIT: Final = 86_400.0
#: Seconds until the server deletes the consumer of a job that no longer reads a stream with `limits`.
_INACTIVE: Final = 3600.0
#: The server's codes for a second consumer of a work queue: without and with a filter.
_NOT_UNIQUE: Final = (10_099, 10_100)
#: Maximum messages of one request.
_MOST: Final = 10_000


@dataclass(frozen=True)
class JetStreamSplit:
    """The messages of a stream that match a filter, with the next sequence number.

    Attributes:
        next_sequence: `None` before the first message, if `starting_at` decides.
        starting_at: Microseconds since the epoch.
        consumer: Name of the consumer that delivered the last message, and `delivery` the delivery's number.
        stopping_sequence: Number of the last message to read; `None` reads for ever.
    """

    subject: str
    next_sequence: int | None
    starting_at: int | None = None
    consumer: str | None = None
    delivery: int = 0
    stopping_sequence: int | None = None

    @property
    def name(self) -> str:
        return self.subject

    @property
    def is_finished(self) -> bool:
        return self.stopping_sequence is not None and (self.next_sequence or 0) > self.stopping_sequence

    def moved_to(self, position: tuple[int, str | None, int]) -> Self:
        sequence, consumer, delivery = position
        return replace(self, next_sequence=sequence, consumer=consumer, delivery=delivery)

    def delivered_by(self, consumer: str) -> int:
        """Return the number of a consumer's deliveries that the position includes."""
        return self.delivery if consumer == self.consumer else 0

    def lag(self, end: tuple[str, int]) -> int:
        consumer, deliveries = end
        return max(0, deliveries - self.delivered_by(consumer))


@without_secrets
@dataclass(frozen=True)
class JetStreamSource(Generic[T_co], metaclass=NearestNames):
    """Reads a stream; a record is the decoded value of a message.

    Attributes:
        servers: URL of a server, or of several: `nats://host:4222`. Messages and logs hide passwords.
        stream: Name of the stream, which must exist.
        subjects: Filters of subjects, which must not overlap. Each is a split that one subtask reads in
            order. Without any, the whole stream is one split.
        value_format: Decodes the values of messages.
        metadata: Fields that are added to those of the value: `"subject"`, `"sequence"`, `"timestamp"`
            (microseconds), `"headers"`. They replace fields of the value with these names.
        starting_position: Where a job without a snapshot starts: `"earliest"`, `"latest"`, or a time.
        bounded: Whether the source ends at the message that was the last one when the job began.
        consumer: Beginning of the names of consumers; by default it contains the job's id. A job that
            replaces another one takes over its consumers if both have this name. For a stream without
            `limits` retention, a replacing job needs it. Two running jobs must not share it.
        max_unacknowledged: Maximum number of messages that are read before a checkpoint covers them.
        on_lost: What happens if messages after the position are gone. `"error"` fails the job, and
            `"continue"` reads what is left. If the stream ends before the position, that is the whole stream.
        on_error: What happens to a value that can't be decoded: `"fail"`, `"skip"` or `"dead_letter"`.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.
        give_up_after: Time without an answer of the server until the attempt fails.
        properties: Further settings of `nats.connect`, such as `user_credentials`. No message or log
            shows them.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or nats-py is not installed.

    Example:
        >>> JetStreamSource("nats://localhost", "orders", subjects=("orders.0", "orders.1")).subjects
        ('orders.0', 'orders.1')
    """

    only_reads: ClassVar[bool] = True

    servers: str | Sequence[str]
    stream: str
    _: KW_ONLY
    subjects: str | Sequence[str] = (_ALL,)
    value_format: Format = field(default_factory=Json)
    metadata: Sequence[JetStreamField] = ()
    starting_position: Literal["earliest", "latest"] | datetime = "earliest"
    bounded: bool = False
    consumer: str | None = None
    max_unacknowledged: int = 100_000
    on_lost: Literal["error", "continue"] = "error"
    on_error: OnError = "fail"
    batch_format: BatchFormat = "rows"
    give_up_after: Duration = GIVE_UP_AFTER
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_installed("nats", "JetStreamSource", "nats")
        object.__setattr__(self, "servers", checked_names("servers", self.servers))
        object.__setattr__(self, "subjects", checked_names("subjects", self.subjects))
        checked_names("stream", self.stream)
        for name in self.metadata:
            checked_setting("metadata", name, tuple(_MESSAGE.fields))
        if not isinstance(self.starting_position, datetime):
            checked_setting("starting_position", self.starting_position, ("earliest", "latest"))
        checked_setting("on_lost", self.on_lost, ("error", "continue"))
        checked_setting("on_error", self.on_error, ("fail", "skip", "dead_letter"))
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        check_learns_nothing("value_format", self.value_format)
        if self.max_unacknowledged < 1:
            msg = f"max_unacknowledged={self.max_unacknowledged} is not allowed: give at least 1"
            raise ConfigurationError(msg)
        seconds = seconds_in("give_up_after", self.give_up_after, above=0.0)
        object.__setattr__(self, "give_up_after", seconds)

    def check_job_config(self, config: JobConfig) -> None:
        """Refuse a job without checkpoints: it would stop after `max_unacknowledged` messages."""
        check_takes_checkpoints(config)

    def splits(self, parallelism: int) -> Sequence[JetStreamSplit]:
        """Make a split of each filter, at the position where the job starts.

        Raises:
            ConnectorError: The stream does not exist, or the server gives no answer.
        """
        found: Sequence[JetStreamSplit] = _run(self._find_splits())
        return found

    async def _find_splits(self) -> Sequence[JetStreamSplit]:
        import nats.errors

        at = self.starting_position
        starting_at = micros_of(at) if isinstance(at, datetime) else None
        try:
            async with await self._connect() as client:
                jetstream = client.jetstream(timeout=_ANSWER)
                newest = (await jetstream.stream_info(self.stream)).state.last_seq
                if at == "latest":
                    start: int | None = newest + 1
                else:
                    start = 1 if starting_at is None else None
                return [
                    JetStreamSplit(
                        subject,
                        start,
                        starting_at,
                        stopping_sequence=await self._last(jetstream, subject) if self.bounded else None,
                    )
                    for subject in self.subjects
                ]
        except (nats.errors.Error, OSError) as error:
            raise refused(self._where(), "be read", error) from None

    async def _last(self, jetstream: JetStreamContext, subject: str) -> int:
        """Return the number of the last message that matches a filter; 0 for none."""
        import nats.js.errors

        try:
            return (await jetstream.get_last_msg(self.stream, subject)).seq or 0
        except nats.js.errors.NotFoundError:
            return 0

    def reader(
        self, context: ConnectorContext, splits: Sequence[JetStreamSplit]
    ) -> AcknowledgingReader[T_co]:
        """Make the reader of one subtask, with connections and a thread of its own."""
        for split in splits:
            check_declared_split("subjects", split.subject, self.subjects)
        deserializer = MessageDeserializer(
            _MESSAGE, self.value_format.decoder(self.batch_format), tuple(self.metadata), self.on_error
        )
        left = [split for split in splits if not split.is_finished]
        prefix = self.consumer or f"penstock-{context.job_id}-{context.operator_id}"
        receivers: dict[Hashable, Receiver] = {
            split.name: _JetStreamReceiver(self, split, _consumer_name(prefix, split.subject), deserializer)
            for split in left
        }
        give_up_after = seconds_in("give_up_after", self.give_up_after)
        fetcher = MessageFetcher(receivers, give_up_after, deserializer.close)
        return AcknowledgingReader(left, fetcher, is_arrow=self.batch_format == "arrow")

    def _where(self, subject: str = _ALL) -> str:
        server = f"stream {self.stream!r} of NATS at {redacted(', '.join(self.servers))}"
        return server if subject == _ALL else f"subject {subject!r} of {server}"

    async def _connect(self) -> Client:
        import nats

        # The fetcher connects again: the client would not notice that deliveries are missing.
        settings = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
        timing = {"connect_timeout": int(_ANSWER), "ping_interval": 10, "error_cb": _log}
        return await nats.connect(list(self.servers), **{**timing, **self.properties, **settings})


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also from a thread that has an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _log(error: Exception) -> None:
    """Log errors of the client's background work; a lasting failure makes the next request fail."""
    logger.info("NATS: %s", redacted(str(error)))


def _consumer_name(prefix: str, subject: str) -> str:
    """The beginning of the names of a split's consumers; names must not contain dots or spaces."""
    readable = re.sub(r"[^\w-]", "_", f"{prefix}-{'all' if subject == _ALL else subject}")
    return f"{readable}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{prefix} {subject}').hex[:8]}-"


class _JetStreamReceiver:
    """Reads one split; each connection has a consumer of its own.

    Args:
        prefix: Beginning of the names of the split's consumers, also of earlier attempts.
    """

    def __init__(
        self,
        source: JetStreamSource[Any],
        split: JetStreamSplit,
        prefix: str,
        deserializer: MessageDeserializer[Msg],
    ) -> None:
        import nats.errors

        self._source = source
        self._split = split
        self._prefix = prefix
        self._deserializer = deserializer
        #: Number of the last message that a completed checkpoint covers; `None` if it is not known.
        self._covered = None if split.next_sequence is None else split.next_sequence - 1
        self._client: Client | None = None
        self._pull: JetStreamContext.PullSubscription | None = None
        self._consumer: str | None = None
        self._acks_all = False
        self._next_delivery = 1
        #: Numbers of the delivered messages that are not acknowledged.
        self._open_messages: deque[int] = deque()
        self.where = source._where(split.subject)
        self.transient: tuple[type[BaseException], ...] = (nats.errors.Error, OSError)

    async def receive(self, inbox: Inbox) -> None:
        import nats.errors
        import nats.js.errors

        await self._disconnect()
        try:
            await self._open()
            inbox.answered()
            while not self._split.is_finished:
                await self._fetch(inbox)
        except (nats.js.errors.ServiceUnavailableError, nats.js.errors.ServerError):
            raise  # the server is starting, or elects a leader
        except (nats.js.errors.APIError, nats.errors.AuthorizationError) as error:
            raise refused(self.where, "be read", error) from None

    # -- the consumer -------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._client = await self._source._connect()
        jetstream = self._client.jetstream(timeout=_ANSWER)
        stream = await jetstream.stream_info(self._source.stream)
        before = [each async for each in self._consumers(jetstream)]
        if self._consumer is not None and self._consumer not in {each.name for each in before}:
            msg = f"{self.where}: the consumer {self._consumer!r} was deleted, perhaps by a newer attempt"
            raise ConnectorError(msg)
        if self._source.on_lost == "error":
            self._check_nothing_lost(stream, [each for each in before if each.name != self._consumer])
        elif stream.state.last_seq + 1 < (self._split.next_sequence or 0):
            # Numbers begin anew, and a message below the position would be dropped as a redelivery.
            self._split, self._covered = self._split.moved_to((1, None, 0)), 0
        if stream.config.retention == "workqueue":
            self._consumer = await self._create_alone(jetstream, stream, before)
        else:
            self._consumer = await self._create(jetstream, stream)
            await self._delete(jetstream, before)
        self._pull = await jetstream.pull_subscribe_bind(self._consumer, self._source.stream)
        self._next_delivery = 1
        self._open_messages.clear()

    async def _consumers(self, jetstream: JetStreamContext) -> AsyncIterator[ConsumerInfo]:
        """Yield the consumers of this split that earlier attempts or connections have left."""
        offset = 0
        while found := await jetstream.consumers_info(self._source.stream, offset):
            offset += len(found)
            for each in found:
                if each.name.startswith(self._prefix):
                    yield each

    async def _create_alone(
        self, jetstream: JetStreamContext, stream: StreamInfo, before: Sequence[ConsumerInfo]
    ) -> str:
        """Create the consumer of a work queue, which allows one only and keeps its messages without one.

        An earlier attempt that still lives may create its consumer at the same time. It does so only once.
        """
        from nats.js.errors import BadRequestError

        while True:
            await self._delete(jetstream, before)
            try:
                return await self._create(jetstream, stream)
            except BadRequestError as error:
                before = [each async for each in self._consumers(jetstream)]
                if error.err_code not in _NOT_UNIQUE or not before:
                    raise

    async def _create(self, jetstream: JetStreamContext, stream: StreamInfo) -> str:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        name = f"{self._prefix}{uuid.uuid4().hex[:8]}"
        retention = stream.config.retention
        self._acks_all = retention != "workqueue"
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            ack_policy=AckPolicy.ALL if self._acks_all else AckPolicy.EXPLICIT,
            ack_wait=_ACK_WAIT,
            max_ack_pending=self._source.max_unacknowledged,
            filter_subject=None if self._split.subject == _ALL else self._split.subject,
            inactive_threshold=_INACTIVE if retention == "limits" else None,
        )
        if retention == "workqueue":
            config.deliver_policy = DeliverPolicy.ALL
        elif self._covered is not None:
            config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = self._covered + 1
        else:
            config.deliver_policy = DeliverPolicy.BY_START_TIME
            config.opt_start_time = datetime.fromtimestamp((self._split.starting_at or 0) / 1_000_000, UTC)
        await jetstream.add_consumer(self._source.stream, config)
        return name

    async def _delete(self, jetstream: JetStreamContext, consumers: Sequence[ConsumerInfo]) -> None:
        from nats.js.errors import NotFoundError

        for each in consumers:
            with contextlib.suppress(NotFoundError):
                await jetstream.delete_consumer(self._source.stream, each.name)

    def _check_nothing_lost(self, stream: StreamInfo, others: Sequence[ConsumerInfo]) -> None:
        position, state = self._split.next_sequence or 0, stream.state
        if position <= 1:
            return
        if state.last_seq + 1 < position:
            what = "the stream ends before it: the stream was created again, or the server lost its end"
        elif stream.config.retention != "limits" and any(map(self._has_acknowledged_more, others)):
            what = "later messages were acknowledged: a later checkpoint had covered them"
        elif state.first_seq > position and self._split.subject == _ALL:
            what = _begins_later(stream)
        else:
            return
        raise self._lost(position, what)

    def _lost(self, position: int, what: str) -> LostInputError:
        return LostInputError(
            f"{self.where}: the job must continue at message {position}, but {what}. To continue without the "
            "lost messages, set on_lost='continue'"
        )

    def _has_acknowledged_more(self, other: ConsumerInfo) -> bool:
        """Return whether a consumer acknowledged deliveries that the position does not include.

        Stream sequences can't decide: the floor of a consumer passes messages that don't match its filter.
        """
        return (
            self._split.consumer is not None
            and other.ack_floor is not None
            and other.ack_floor.consumer_seq > self._split.delivered_by(other.name)
        )

    async def _disconnect(self) -> None:
        client, self._client, self._pull = self._client, None, None
        if client is not None:
            await client.close()

    # -- messages -----------------------------------------------------------------------------------------

    async def _fetch(self, inbox: Inbox) -> None:
        assert self._pull is not None
        # A request for more than the server may send would wait for its whole time.
        room = max(1, self._source.max_unacknowledged - len(self._open_messages))
        try:
            messages = await self._pull.fetch(min(inbox.max_rows, _MOST, room), _WAIT)
        except TimeoutError:
            await self._wait(inbox, await self._pull.consumer_info())
        else:
            await self._received(inbox, messages)

    async def _wait(self, inbox: Inbox, consumer: ConsumerInfo) -> None:
        """Note that the server answers; end the split if no message is left."""
        inbox.answered()
        stop, delivered = self._split.stopping_sequence, consumer.delivered
        has_all = delivered is None or delivered.consumer_seq < self._next_delivery
        if stop is not None and not consumer.num_pending and has_all:
            await self._move(inbox, stop + 1, [], [])

    async def _received(self, inbox: Inbox, messages: Sequence[Msg]) -> None:
        stop, position = self._split.stopping_sequence, self._split.next_sequence or 0
        new: list[Msg] = []
        tokens: list[tuple[int, str]] = []
        first_missing: int | None = None
        is_gap = False
        for message in messages:
            number = message.metadata.sequence
            is_gap = number.consumer != self._next_delivery
            if is_gap:
                break
            self._next_delivery += 1
            self._open_messages.append(number.stream)
            if stop is not None and number.stream > stop:
                continue
            if number.stream >= position:
                if first_missing is None and 1 < position < number.stream:
                    first_missing = position
                position = number.stream + 1
                new.append(message)
            tokens.append((number.stream, message.reply))
        if stop is not None and messages and messages[-1].metadata.sequence.stream >= stop and not is_gap:
            position = stop + 1
        if first_missing is not None and self._split.subject == _ALL and self._source.on_lost == "error":
            await self._check_not_deleted(first_missing)
        await self._move(inbox, position, new, tokens)
        if is_gap:
            msg = "a delivery is missing; the messages are requested again"
            raise ConnectionResetError(msg)

    async def _check_not_deleted(self, position: int) -> None:
        """Check that limits did not delete a message before its delivery; single messages may be missing."""
        assert self._client is not None
        stream = await self._client.jetstream(timeout=_ANSWER).stream_info(self._source.stream)
        if stream.state.first_seq > position:
            raise self._lost(position, _begins_later(stream))

    async def _move(self, inbox: Inbox, position: int, new: list[Msg], tokens: list[tuple[int, str]]) -> None:
        polled: Polled[Any] = self._deserializer.polled(new)
        place = (position, self._consumer, self._next_delivery - 1)
        self._split = self._split.moved_to(place)
        kept = tokens[-1:] if self._acks_all else tokens
        await inbox.put(polled, place, kept, is_last=self._split.is_finished)

    async def find_end(self) -> tuple[str, int] | None:
        """Return the consumer and the number of its last delivery when all messages are delivered."""
        if self._pull is None or self._split.stopping_sequence is not None:
            return None
        consumer = await self._pull.consumer_info()
        delivered = 0 if consumer.delivered is None else consumer.delivered.consumer_seq
        return consumer.name, delivered + (consumer.num_pending or 0)

    async def acknowledge(self, tokens: Sequence[tuple[int, str]]) -> None:
        """Acknowledge messages; those of an earlier connection are delivered again and acknowledged then."""
        self._covered = max(self._covered or 0, max(number for number, _ in tokens))
        while self._open_messages and self._open_messages[0] <= self._covered:
            self._open_messages.popleft()
        if self._client is None:
            msg = "there is no connection"
            raise ConnectionResetError(msg)
        for _, reply in tokens:
            await self._client.publish(reply, b"+ACK")
        await self._client.flush(int(_ANSWER))

    async def close(self) -> None:
        await self._disconnect()


def _begins_later(stream: StreamInfo) -> str:
    return f"the stream begins at {stream.state.first_seq}: earlier messages were deleted"


def _micros(message: Msg) -> int:
    moment = message.metadata.timestamp
    return micros_of(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _headers(message: Msg) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in (message.headers or {}).items()]


_MESSAGE: Final[MessageParts[Any]] = MessageParts(
    lambda message: message.data,
    lambda message: f"{message.metadata.stream}@{message.metadata.sequence.stream}",
    {
        "subject": (lambda message: message.subject, pa.string()),
        "sequence": (lambda message: message.metadata.sequence.stream, pa.int64()),
        "timestamp": (_micros, pa.timestamp("us", "UTC")),
        "headers": (_headers, pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
    },
)
