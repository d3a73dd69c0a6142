"""`MqttSource`: subscribes to topics of an MQTT broker, and processes each message at least once.

**Why at least once.** The source has a session at the broker, under its client id. The broker keeps each
message with QoS 1 in the session until it is acknowledged. The source acknowledges it when a completed
checkpoint covers it. So a message whose checkpoint is not complete is delivered again: none is lost.

**Why not exactly once.** A message has no number and no id of its own. After a new connection the broker
sends unacknowledged messages again. Packet ids don't identify these messages: a broker may give them new
ids. The duplicate flag does not identify them, either: brokers set it for messages that were never read. So
a message that a checkpoint covers, and whose acknowledgement was lost, is processed again. If records have
an id of their own, `dedup` drops the repetition.

**Limits.** The broker sends a limited number of messages until one is acknowledged. So the rate is at most
this number per checkpoint interval. In version 5 `max_unacknowledged` sets the limit, if the broker follows
the standard. Brokers have limits of their own (Mosquitto: `max_inflight_messages`, 20 by default).
Messages that were published with QoS 0 are not kept, and may be lost.

An acknowledgement names a packet id, which is valid for one connection only. So each token includes its
connection. A token of an earlier connection is never sent, because it would acknowledge another message.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import OnError, checked_setting
from penstock.runtime.io.connectors.messages.deserializer import MessageDeserializer, MessageParts
from penstock.runtime.io.connectors.messages.fetcher import GIVE_UP_AFTER, Inbox, MessageFetcher, Receiver
from penstock.runtime.io.connectors.messages.reader import AcknowledgingReader
from penstock.runtime.io.connectors.messages.settings import (
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
from penstock.runtime.time.durations import Duration, seconds_in

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

T_co = TypeVar("T_co", covariant=True)

logger = logging.getLogger(__name__)

#: Fields of a message that a record may have in addition to those of its value.
MqttField: TypeAlias = Literal["topic", "qos", "retain"]

#: Seconds of one wait for messages, and for an answer.
_WAIT: Final = 1.0
_ANSWER: Final = 10.0
#: Maximum messages in memory; more wait in the connection. Only messages with QoS 0 can reach this number.
_MOST_WAITING: Final = 70_000
#: Temporary reasons to refuse a connection: the server is unavailable or busy, a quota, the rate.
_PASSING: Final = frozenset({136, 137, 151, 159})


@dataclass(frozen=True)
class MqttSplit:
    """The session at the broker; only the broker knows its position."""

    client_id: str

    @property
    def name(self) -> str:
        return self.client_id

    def moved_to(self, position: None) -> Self:
        return self


@dataclass(frozen=True)
class MqttSource(Generic[T_co], metaclass=NearestNames):
    """Subscribes to topics; a record is the decoded value of a message. One subtask reads.

    Attributes:
        host: The broker.
        topics: Filters of topics, such as `sensors/#`.
        client_id: Name of the session at the broker. A job that replaces another one continues the session
            of the same name. Two running jobs must not share a name.
        port: Port of the broker.
        username: Name of the user.
        password: Password of the user. No message or log shows it.
        tls: Whether the connection uses TLS.
        ca_file: File of certificates that are trusted instead of the system's, on every node.
        protocol: Version of the protocol: `"5"` or `"3.1.1"`.
        value_format: Decodes the values of messages.
        metadata: Fields that are added to those of the value: `"topic"`, `"qos"`, `"retain"`. They replace
            fields of the value with these names.
        max_unacknowledged: Maximum number of messages that no completed checkpoint covers (version 5 only).
        session_expiry: Time for which the broker keeps the session of a job that does not run (version 5
            only).
        on_error: What happens to a value that can't be decoded: `"fail"`, `"skip"` or `"dead_letter"`.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.
        give_up_after: Time without a connection until the attempt fails.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or paho-mqtt is not installed.

    Example:
        >>> MqttSource("localhost", "sensors/#", client_id="plant-1", password="word").topics
        ('sensors/#',)
    """

    only_reads: ClassVar[bool] = True

    host: str
    topics: str | Sequence[str]
    _: KW_ONLY
    client_id: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None
    protocol: Literal["5", "3.1.1"] = "5"
    value_format: Format = field(default_factory=Json)
    metadata: Sequence[MqttField] = ()
    max_unacknowledged: int = 10_000
    session_expiry: Duration = 86_400.0
    on_error: OnError = "fail"
    batch_format: BatchFormat = "rows"
    give_up_after: Duration = GIVE_UP_AFTER

    def __post_init__(self) -> None:
        check_installed("paho", "MqttSource", "mqtt")
        checked_names("host", self.host)
        checked_names("client_id", self.client_id)
        object.__setattr__(self, "topics", checked_names("topics", self.topics))
        for name in self.metadata:
            checked_setting("metadata", name, tuple(_MESSAGE.fields))
        checked_setting("protocol", self.protocol, ("5", "3.1.1"))
        checked_setting("on_error", self.on_error, ("fail", "skip", "dead_letter"))
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        check_learns_nothing("value_format", self.value_format)
        if not 0 < self.max_unacknowledged <= 65_535:
            msg = f"max_unacknowledged={self.max_unacknowledged} is not allowed: use 1 to 65535"
            raise ConfigurationError(msg)
        for duration in ("session_expiry", "give_up_after"):
            object.__setattr__(self, duration, seconds_in(duration, getattr(self, duration), above=0.0))

    def check_job_config(self, config: JobConfig) -> None:
        """Refuse a job without checkpoints: it would stop at the broker's limit."""
        check_takes_checkpoints(config)

    def splits(self, parallelism: int) -> Sequence[MqttSplit]:
        """Return the only split; one subtask subscribes."""
        return [MqttSplit(self.client_id)]

    def reader(self, context: ConnectorContext, splits: Sequence[MqttSplit]) -> AcknowledgingReader[T_co]:
        """Make the reader of one subtask, with a connection and a thread of its own."""
        mine = [MqttSplit(self.client_id) for _ in splits]
        deserializer = MessageDeserializer(
            _MESSAGE, self.value_format.decoder(self.batch_format), tuple(self.metadata), self.on_error
        )
        receivers: dict[Hashable, Receiver] = {
            split.name: _MqttReceiver(self, deserializer, is_first=context.attempt == 1) for split in mine
        }
        give_up_after = seconds_in("give_up_after", self.give_up_after)
        fetcher = MessageFetcher(receivers, give_up_after, deserializer.close)
        return AcknowledgingReader(mine, fetcher, is_arrow=self.batch_format == "arrow")


class _MqttReceiver:
    """Subscribes, and acknowledges messages that a checkpoint covers.

    Args:
        is_first: Whether the session may be a new one.
    """

    def __init__(
        self, source: MqttSource[Any], deserializer: MessageDeserializer[MQTTMessage], *, is_first: bool
    ) -> None:
        self._source = source
        self._deserializer = deserializer
        self._may_be_new = is_first
        self._connection: _Connection | None = None
        self.where = f"MQTT broker at {source.host}:{source.port}"
        self.transient: tuple[type[BaseException], ...] = (OSError,)

    async def receive(self, inbox: Inbox) -> None:
        await self.close()
        connection = self._connection = _Connection(self._source, self.where)
        is_kept = await connection.open()
        if not (is_kept or self._may_be_new):
            logger.warning(
                "%s has no session of %r any more: messages since the last connection may be lost",
                self.where,
                self._source.client_id,
            )
        self._may_be_new = False
        inbox.answered()
        while True:
            messages = await connection.take(inbox.max_rows)
            inbox.answered()
            if messages:
                tokens = [(connection, message.mid) for message in messages if message.qos]
                await inbox.put(self._deserializer.polled(messages), None, tokens)

    async def acknowledge(self, tokens: Sequence[tuple[_Connection, int]]) -> None:
        for connection, packet_id in tokens:  # a connection that was closed sends nothing
            connection.acknowledge(packet_id)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class _Connection:
    """One connection of paho's client, whose callbacks run in a thread of the client."""

    def __init__(self, source: MqttSource[Any], where: str) -> None:
        self._source = source
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._client = self._made_client()
        #: Whether the broker had the session.
        self._connected: asyncio.Future[bool] = self._loop.create_future()
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self._lost: BaseException | None = None
        self._messages: deque[MQTTMessage] = deque()
        self._changed = asyncio.Event()
        self._room = threading.Semaphore(_MOST_WAITING)

    def _made_client(self) -> Client:
        from paho.mqtt.client import Client, MQTTv5, MQTTv311
        from paho.mqtt.enums import CallbackAPIVersion

        is_5 = self._source.protocol == "5"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._source.client_id,
            clean_session=None if is_5 else False,
            protocol=MQTTv5 if is_5 else MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = _ANSWER
        if self._source.username is not None:
            client.username_pw_set(self._source.username, self._source.password)
        if self._source.tls:
            try:
                client.tls_set(ca_certs=self._source.ca_file)
            except OSError as error:  # which would pass for a broker that gives no answer
                msg = (
                    f"{self._where}: the certificates in {self._source.ca_file!r} can't be loaded: {error}. "
                    "Give ca_file= a file in PEM format that exists on every node"
                )
                raise ConnectorError(msg) from None
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        return client

    async def open(self) -> bool:
        """Connect and subscribe; return whether the broker had the session.

        Raises:
            OSError: The broker gives no answer.
            ConnectorError: The broker refuses the client.
        """
        await asyncio.to_thread(self._connect)
        self._client.loop_start()
        async with asyncio.timeout(_ANSWER):
            is_kept = await self._connected
            self._client.subscribe([(topic, 1) for topic in self._source.topics])
            await self._subscribed
        return is_kept

    def _connect(self) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        if self._source.protocol == "3.1.1":
            self._client.connect(self._source.host, self._source.port)
            return
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = int(seconds_in("session_expiry", self._source.session_expiry))
        properties.ReceiveMaximum = self._source.max_unacknowledged
        self._client.connect(self._source.host, self._source.port, clean_start=False, properties=properties)

    async def take(self, most: int) -> list[MQTTMessage]:
        """Wait for messages; empty if none arrive within a second and the connection is not lost."""
        if not self._messages and self._lost is None:
            try:
                await asyncio.wait_for(self._changed.wait(), _WAIT)
            except TimeoutError:
                return []
        if not self._messages and self._lost is not None:
            raise self._lost
        found = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
        for _ in found:
            self._room.release()
        if not self._messages and self._lost is None:
            self._changed.clear()
        return found

    def acknowledge(self, packet_id: int) -> None:
        self._client.ack(packet_id, 1)

    async def close(self) -> None:
        self._lost = ConnectionAbortedError("closed")
        self._room.release(_MOST_WAITING)
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)

    # -- the client's thread ------------------------------------------------------------------------------

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._call(self._fail, self._refused("connection", reason, reason.value in _PASSING))
        else:
            self._call(_set, self._connected, flags.session_present)

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reasons: Any, properties: Any) -> None:
        for topic, reason in zip(self._source.topics, reasons, strict=True):
            if reason.is_failure:
                self._call(self._fail, self._refused(f"subscription to {topic!r}", reason, is_passing=False))
                return
        self._call(_set, self._subscribed, None)

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._call(self._fail, ConnectionResetError(f"the connection ended: {reason}"))

    def _on_message(self, client: Any, userdata: Any, message: MQTTMessage) -> None:
        self._room.acquire()
        self._call(self._arrived, message)

    # -- the event loop -----------------------------------------------------------------------------------

    def _refused(self, what: str, reason: Any, is_passing: bool) -> Exception:
        text = f"{self._where} refuses the {what}: {reason}"
        return ConnectionRefusedError(text) if is_passing else ConnectorError(text)

    def _arrived(self, message: MQTTMessage) -> None:
        self._messages.append(message)
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        """Note why the connection ended; the first reason counts."""
        self._lost = self._lost or error
        self._changed.set()
        for future in (self._connected, self._subscribed):
            if not future.done():
                future.set_exception(self._lost)
                future.exception()  # it may have no reader


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


_MESSAGE: Final[MessageParts[Any]] = MessageParts(
    lambda message: message.payload,
    lambda message: f"topic {message.topic!r}",
    {
        "topic": (lambda message: message.topic, pa.string()),
        "qos": (lambda message: message.qos, pa.int32()),
        "retain": (lambda message: message.retain, pa.bool_()),
    },
)
