"""`JetStreamReceiver`: the consumer of one split of a NATS JetStream stream, and its messages.

The essay of `jetstream.py` says why it reads each message once.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.errors import ConnectorError, LostInputError
from penstock.runtime.io.connectors.messages.deserializer import MessageDeserializer
from penstock.runtime.io.connectors.messages.fetcher import Inbox, refused
from penstock.runtime.operators.source import Polled

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo, StreamInfo

    from penstock.runtime.io.connectors.jetstream import JetStreamSource, JetStreamSplit

#: The filter of a source that reads a whole stream.
ALL: Final = ">"
#: Maximum seconds of one wait: for an answer, and for messages.
ANSWER: Final = 5.0
_WAIT: Final = 1.0
#: Seconds until the server delivers a message again. Recovery does not wait for it.
_ACK_WAIT: Final = 86_400.0
#: Seconds until the server deletes the consumer of a job that no longer reads a stream with `limits`.
_INACTIVE: Final = 3600.0
#: The server's codes for a second consumer of a work queue: without and with a filter.
_NOT_UNIQUE: Final = (10_099, 10_100)
#: Maximum messages of one request.
_MOST: Final = 10_000


class JetStreamReceiver:
    """Reads one split; each connection has a consumer of its own.

    Args:
        where: The split, for errors.
        prefix: Prefix of the names of the split's consumers, including those of earlier attempts.
        connect: Connects to a server.
    """

    def __init__(
        self,
        source: JetStreamSource[Any],
        split: JetStreamSplit,
        where: str,
        prefix: str,
        deserializer: MessageDeserializer[Msg],
        connect: Callable[[], Awaitable[Client]],
    ) -> None:
        import nats.errors

        self._source = source
        self._split = split
        self._prefix = prefix
        self._deserializer = deserializer
        self._connect = connect
        #: Number of the last message that a completed checkpoint covers; `None` if it is not known.
        self._covered = None if split.next_sequence is None else split.next_sequence - 1
        self._client: Client | None = None
        self._pull: JetStreamContext.PullSubscription | None = None
        self._consumer: str | None = None
        self._acks_all = False
        self._next_delivery = 1
        #: Numbers of the delivered messages that are not acknowledged.
        self._open_messages: deque[int] = deque()
        self.where = where
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
        self._client = await self._connect()
        jetstream = self._client.jetstream(timeout=ANSWER)
        stream = await jetstream.stream_info(self._source.stream)
        before = [each async for each in self._consumers(jetstream)]
        if self._consumer is not None and self._consumer not in {each.name for each in before}:
            msg = f"{self.where}: the consumer {self._consumer!r} was deleted, perhaps by a newer attempt"
            raise ConnectorError(msg)
        if self._source.on_lost == "error":
            self._check_nothing_lost(stream, [each for each in before if each.name != self._consumer])
        elif stream.state.last_seq + 1 < (self._split.next_sequence or 0):
            # Numbers start again, and a message below the position would be dropped as a redelivery.
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
        """Create the consumer of a work queue.

        A work queue allows one consumer per filter, and keeps its messages while it has none. An earlier
        attempt that still lives may create its consumer at the same time. It does so only once, so this loop
        ends.
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
            filter_subject=None if self._split.subject == ALL else self._split.subject,
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
        elif state.first_seq > position and self._split.subject == ALL:
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
        # A request for more messages than the server may send would always last until its timeout.
        room = max(1, self._source.max_unacknowledged - len(self._open_messages))
        try:
            messages = await self._pull.fetch(min(inbox.max_rows, _MOST, room), _WAIT)
        except TimeoutError:
            await self._wait(inbox, await self._pull.consumer_info())
        else:
            await self._received(inbox, messages)

    async def _wait(self, inbox: Inbox, consumer: ConsumerInfo) -> None:
        """Record that the server answers; end the split if no message is left."""
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
        if first_missing is not None and self._split.subject == ALL and self._source.on_lost == "error":
            await self._check_not_deleted(first_missing)
        await self._move(inbox, position, new, tokens)
        if is_gap:
            msg = "a delivery is missing; the messages are requested again"
            raise ConnectionResetError(msg)

    async def _check_not_deleted(self, position: int) -> None:
        """Check that limits did not delete a message before its delivery; single messages may be missing."""
        assert self._client is not None
        stream = await self._client.jetstream(timeout=ANSWER).stream_info(self._source.stream)
        if stream.state.first_seq > position:
            raise self._lost(position, _begins_later(stream))

    async def _move(self, inbox: Inbox, position: int, new: list[Msg], tokens: list[tuple[int, str]]) -> None:
        polled: Polled[Any] = self._deserializer.polled(new)
        place = (position, self._consumer, self._next_delivery - 1)
        self._split = self._split.moved_to(place)
        kept = tokens[-1:] if self._acks_all else tokens
        await inbox.put(polled, place, kept, is_last=self._split.is_finished)

    async def find_end(self) -> tuple[str, int] | None:
        """Return the consumer, and the number that the delivery of the stream's last message will have."""
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
        await self._client.flush(int(ANSWER))

    async def close(self) -> None:
        await self._disconnect()


def _begins_later(stream: StreamInfo) -> str:
    return f"the stream begins at {stream.state.first_seq}: earlier messages were deleted"
