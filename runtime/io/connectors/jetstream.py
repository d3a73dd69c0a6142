"""`JetStreamSource`: reads a stream of NATS JetStream, each message exactly once.

**Why it is exactly once.** A message has a sequence number in its stream. The position of a split is the next
number, and checkpoints hold it. Each attempt makes a consumer of its own, which begins at the position. So a
process that was wrongly considered dead takes no message from its successor. Messages come in order, and one
with a lower number than the position is a redelivery: it is dropped.

**What is acknowledged.** Messages that a completed checkpoint covers. A stream with the retention `interest`
or `workqueue` deletes them then. At most `max_unacknowledged` messages of a split are open: the server sends
no more until the next checkpoint is complete. So the rate of a split is at most this number per checkpoint
interval.

**Gaps.** The server numbers its deliveries. If one is missing, such as after a lost connection, a new
consumer begins after the last message that a completed checkpoint covers. If messages after the position are
gone, the job fails: limits have deleted them, or a later checkpoint than the restored one has acknowledged
them. A split with a filter does not notice deletions by limits. A stream with `limits` keeps acknowledged
messages, so a job can read them again from an older savepoint.

The source must never delete a consumer before its successor exists: without one, a stream with the retention
`interest` drops its messages. A `workqueue` is the exception: it allows one consumer per filter, and keeps
its messages without one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import OnError, checked_setting
from penstock.runtime.io.connectors.jetstream_receiver import ALL, ANSWER, JetStreamReceiver
from penstock.runtime.io.connectors.messages.deserializer import MessageDeserializer, MessageParts
from penstock.runtime.io.connectors.messages.fetcher import (
    GIVE_UP_AFTER,
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
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import redacted, without_secrets
from penstock.runtime.time.durations import Duration, micros_of, seconds_in

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)

#: Fields of a message that a record may have in addition to those of its value.
JetStreamField: TypeAlias = Literal["subject", "sequence", "timestamp", "headers"]


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
        max_unacknowledged: Maximum number of messages that each split reads before a checkpoint covers them.
        on_lost: What happens if messages after the position are gone. `"error"` fails the job, and
            `"continue"` reads what is left. If the stream ends before the position, it is read from its first
            message.
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
    subjects: str | Sequence[str] = (ALL,)
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
        """Refuse a job without checkpoints: each split would stop after `max_unacknowledged` messages."""
        check_takes_checkpoints(config)

    def splits(self, parallelism: int) -> Sequence[JetStreamSplit]:
        """Make a split for each filter, at the position where the job starts.

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
                jetstream = client.jetstream(timeout=ANSWER)
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
            split.name: JetStreamReceiver(
                self,
                split,
                self._where(split.subject),
                _consumer_name(prefix, split.subject),
                deserializer,
                self._connect,
            )
            for split in left
        }
        give_up_after = seconds_in("give_up_after", self.give_up_after)
        fetcher = MessageFetcher(receivers, give_up_after, deserializer.close)
        return AcknowledgingReader(left, fetcher, is_arrow=self.batch_format == "arrow")

    def _where(self, subject: str = ALL) -> str:
        server = f"stream {self.stream!r} of NATS at {redacted(', '.join(self.servers))}"
        return server if subject == ALL else f"subject {subject!r} of {server}"

    async def _connect(self) -> Client:
        import nats

        # The fetcher connects again: the client would not notice that deliveries are missing.
        settings = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
        timing = {"connect_timeout": int(ANSWER), "ping_interval": 10, "error_cb": _log}
        return await nats.connect(list(self.servers), **{**timing, **self.properties, **settings})


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, even from a thread that has an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _log(error: Exception) -> None:
    """Log errors of the client's background work; a lasting failure makes the next request fail."""
    logger.info("NATS: %s", redacted(str(error)))


def _consumer_name(prefix: str, subject: str) -> str:
    """The beginning of the names of a split's consumers; names must not contain dots or spaces."""
    readable = re.sub(r"[^\w-]", "_", f"{prefix}-{'all' if subject == ALL else subject}")
    return f"{readable}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{prefix} {subject}').hex[:8]}-"


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
