"""`RedisStreamSource`: reads streams of Redis, each entry exactly once.

**Why it is exactly once.** A stream is a log: its entries keep their order and their ids, and reading changes
nothing. So the position in a stream is the id of the last entry, and checkpoints hold it. A restored job
continues after that id. This also holds for an older savepoint, after a rescale, and while a process that
was wrongly considered dead still reads.

**Why it is not a consumer of a group.** `XREADGROUP` moves a position that all readers share and that no
checkpoint can move back. An older savepoint would miss the entries that were acknowledged since. Entries
that a dead consumer had received would have to be claimed, but not those of living consumers.

**What is acknowledged.** With `group`, the group's position is set to the last entry of each completed
checkpoint (`XGROUP SETID`). `XINFO GROUPS` then shows how far the job is, and programs that trim the stream
can keep unread entries. With `delete_covered` the source itself deletes entries that a completed checkpoint
covers.

**What must never happen** is a gap without an error. A stream with `MAXLEN` may lose entries that were not
read yet. Redis 7 counts all entries that were ever added, and trims the oldest first. The position includes
the number of entries up to it, deleted ones as well. Each read gets the stream's counters in the same
transaction. If more entries are gone than the position counts, one of them was not read. `XDEL` may delete
any entry; Redis 7 reports the highest deleted id. Redis 6 reports neither the count nor that id, so the
source does not notice deleted entries there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
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
from penstock.runtime.io.formats.format import Decoded, Decoder, Format
from penstock.runtime.io.formats.json_format import Json
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.elements import BatchFormat, RowBatch
from penstock.runtime.redaction import redacted, without_secrets
from penstock.runtime.time.durations import Duration, micros_of, seconds_in

if TYPE_CHECKING:
    import redis
    from redis.asyncio import Redis

T_co = TypeVar("T_co", covariant=True)

#: Fields of an entry that a record may have in addition to those of its value.
RedisField: TypeAlias = Literal["stream", "id", "timestamp", "fields"]

#: An entry: stream, id, and its fields.
_Entry: TypeAlias = tuple[str, str, Mapping[bytes, bytes]]

#: The position before the first entry.
_START: Final = "0-0"
#: Largest second part of an id.
_LAST: Final = (1 << 64) - 1
#: Seconds of one wait for entries, and for an answer.
_WAIT: Final = 1.0
_ANSWER: Final = 10.0


def _parsed(entry_id: str) -> tuple[int, int]:
    first, _, second = entry_id.partition("-")
    return int(first), int(second or 0)


@dataclass(frozen=True)
class RedisStreamSplit:
    """A stream, with the id of the last entry that was read.

    Attributes:
        passed: Number of entries that were ever added up to `last_id`; `None` if it is not known.
        stopping_id: Id of the last entry to read; `None` reads for ever.
    """

    stream: str
    last_id: str
    passed: int | None = None
    stopping_id: str | None = None

    @property
    def name(self) -> str:
        return self.stream

    @property
    def is_finished(self) -> bool:
        return self.stopping_id is not None and _parsed(self.last_id) >= _parsed(self.stopping_id)

    def moved_to(self, position: tuple[str, int | None]) -> Self:
        return replace(self, last_id=position[0], passed=position[1])

    def lag(self, end: int) -> int | None:
        return None if self.passed is None else max(0, end - self.passed)


@without_secrets
@dataclass(frozen=True)
class RedisStreamSource(Generic[T_co], metaclass=NearestNames):
    """Reads streams of Redis; a record is an entry. Each stream is read by one subtask.

    Attributes:
        url: The server: `redis://host:6379/0`, `rediss://` with TLS, or `unix://`. Messages and logs
            hide its password.
        streams: Key of a stream, or of several. A stream that does not exist yet counts as empty.
        value_field: The field that `value_format` decodes. `None`: a record is a dict of all fields, as text.
        value_format: Decodes the values of that field.
        metadata: Fields that are added to those of the value: `"stream"`, `"id"`, `"timestamp"`
            (microseconds, taken from the id), `"fields"` (all fields, as bytes). They replace fields of the
            value with these names.
        starting_position: Where a job without a snapshot starts: `"earliest"`, `"latest"`, or a time.
        bounded: Whether the source ends at the entry that was the last one when the job began.
        group: Group whose position is set to the last entry of each completed checkpoint. The job must take
            checkpoints.
        delete_covered: Whether entries are deleted when a completed checkpoint covers them. No other
            program may then need them, and no older savepoint can be restored. The job must take checkpoints.
        on_lost: What happens if entries after the position were deleted. `"error"` fails the job, and
            `"continue"` reads the next entry. Only Redis 7 and later report such entries.
        on_error: What happens to a value that can't be decoded: `"fail"`, `"skip"` or `"dead_letter"`.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches, which need `value_field`.
        give_up_after: Time without an answer of the server until the attempt fails.
        properties: Further settings of redis-py's client, such as `password`. No message or log shows them.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or redis-py is not installed.

    Example:
        >>> source = RedisStreamSource("redis://me:word@localhost", "orders", metadata=("id",))
        >>> source.streams, "word" in repr(source)
        (('orders',), False)
    """

    only_reads: ClassVar[bool] = True

    url: str
    streams: str | Sequence[str]
    _: KW_ONLY
    value_field: str | None = None
    value_format: Format = field(default_factory=Json)
    metadata: Sequence[RedisField] = ()
    starting_position: Literal["earliest", "latest"] | datetime = "earliest"
    bounded: bool = False
    group: str | None = None
    delete_covered: bool = False
    on_lost: Literal["error", "continue"] = "error"
    on_error: OnError = "fail"
    batch_format: BatchFormat = "rows"
    give_up_after: Duration = GIVE_UP_AFTER
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_installed("redis", "RedisStreamSource", "redis")
        object.__setattr__(self, "streams", checked_names("streams", self.streams))
        for name in self.metadata:
            checked_setting("metadata", name, tuple(_ENTRY.fields))
        if not isinstance(self.starting_position, datetime):
            checked_setting("starting_position", self.starting_position, ("earliest", "latest"))
        checked_setting("on_lost", self.on_lost, ("error", "continue"))
        checked_setting("on_error", self.on_error, ("fail", "skip", "dead_letter"))
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        check_learns_nothing("value_format", self.value_format)
        if self.batch_format == "arrow" and self.value_field is None:
            msg = "batch_format='arrow' needs value_field=: the fields of an entry have no types"
            raise ConfigurationError(msg)
        seconds = seconds_in("give_up_after", self.give_up_after, above=0.0)
        object.__setattr__(self, "give_up_after", seconds)

    @property
    def _acknowledges(self) -> bool:
        """Whether the server learns which entries a completed checkpoint covers."""
        return self.group is not None or self.delete_covered

    def check_job_config(self, config: JobConfig) -> None:
        """Refuse `group` and `delete_covered` in a job without checkpoints: they would do nothing."""
        if self._acknowledges:
            check_takes_checkpoints(config)

    def splits(self, parallelism: int) -> Sequence[RedisStreamSplit]:
        """Make a split of each stream, at the position where the job starts.

        Raises:
            ConnectorError: The server gives no answer, or a key is not a stream.
        """
        import redis

        if self.starting_position != "latest" and not self.bounded:
            return [RedisStreamSplit(stream, self._start("")) for stream in self.streams]
        try:
            with redis.Redis.from_url(self.url, **self._settings()) as client:
                with contextlib.suppress(redis.exceptions.NoPermissionError):
                    _check_no_cluster(client.info("cluster"), self._where())
                newest = {stream: _last_generated(client, stream) for stream in self.streams}
        except redis.RedisError as error:
            raise refused(self._where(), "be asked for its streams", error) from None
        return [
            RedisStreamSplit(stream, self._start(last), stopping_id=last if self.bounded else None)
            for stream, last in newest.items()
        ]

    def _start(self, newest: str) -> str:
        at = self.starting_position
        if isinstance(at, datetime):
            before = micros_of(at) // 1000 - 1
            return f"{before}-{_LAST}" if before >= 0 else _START
        return newest if at == "latest" else _START

    def reader(
        self, context: ConnectorContext, splits: Sequence[RedisStreamSplit]
    ) -> AcknowledgingReader[T_co]:
        """Make the reader of one subtask, with connections and a thread of its own."""
        decoder = _EntryDecoder(
            self.value_field,
            None if self.value_field is None else self.value_format.decoder(self.batch_format),
        )
        deserializer = MessageDeserializer(_ENTRY, decoder, tuple(self.metadata), self.on_error)
        for split in splits:
            check_declared_split("streams", split.stream, self.streams)
        left = [split for split in splits if not split.is_finished]
        receivers: dict[Hashable, Receiver] = {
            split.name: _RedisReceiver(self, split, deserializer) for split in left
        }
        fetcher = MessageFetcher(
            receivers, seconds_in("give_up_after", self.give_up_after), deserializer.close
        )
        return AcknowledgingReader(left, fetcher, is_arrow=self.batch_format == "arrow")

    def _where(self, stream: str | None = None) -> str:
        server = f"Redis at {redacted(self.url)}"
        return server if stream is None else f"stream {stream!r} of {server}"

    def _settings(self) -> dict[str, Any]:
        return {
            "socket_timeout": _ANSWER,
            "socket_connect_timeout": _ANSWER,
            **self.properties,
            "protocol": 2,
        }


def _check_no_cluster(info: Any, where: str) -> None:
    """Refuse a node of a cluster: it has only some of the streams, and after a failover none of them."""
    if info.get("cluster_enabled"):
        msg = (
            f"{where} is a node of a Redis Cluster, which RedisStreamSource does not support. Keep the "
            "streams on a server without cluster-enabled"
        )
        raise ConnectorError(msg)


def _last_generated(client: redis.Redis, stream: str) -> str:
    import redis

    try:
        return _id(client.xinfo_stream(stream)["last-generated-id"])
    except redis.ResponseError as error:
        if "no such key" not in str(error):
            raise
        return _START


def _id(found: Any) -> str:
    return found.decode() if isinstance(found, bytes) else str(found)


@dataclass(frozen=True)
class _Numbers:
    """Ids and counters of a stream; Redis 6 has neither `added` nor `gone`.

    Attributes:
        last_id: The highest id that was ever added.
        deleted_id: The highest id that `XDEL` deleted.
        added: Number of entries that were ever added.
        gone: Number of these that the stream no longer has.
    """

    last_id: str = _START
    deleted_id: str = _START
    added: int | None = None
    gone: int | None = None

    @classmethod
    def of(cls, info: Any) -> Self:
        """Read the answer of `XINFO STREAM`, which is an error if there is no stream."""
        if isinstance(info, Exception):
            return cls()
        added = info.get("entries-added")
        gone = None if added is None else added - info["length"]
        deleted = _id(info.get("max-deleted-entry-id", _START))
        return cls(_id(info["last-generated-id"]), deleted, added, gone)


class _RedisReceiver:
    """Reads one stream."""

    def __init__(
        self,
        source: RedisStreamSource[Any],
        split: RedisStreamSplit,
        deserializer: MessageDeserializer[_Entry],
    ) -> None:
        import redis
        from redis.asyncio import Redis

        self._source = source
        self._split = split
        self._deserializer = deserializer
        self._client: Redis = Redis.from_url(source.url, **source._settings())
        self.where = source._where(split.stream)
        self.transient: tuple[type[BaseException], ...] = (redis.ConnectionError, redis.TimeoutError, OSError)

    async def receive(self, inbox: Inbox) -> None:
        import redis

        try:
            with contextlib.suppress(redis.exceptions.NoPermissionError):
                _check_no_cluster(await self._client.info("cluster"), self._source._where())
            while not self._split.is_finished:
                await self._read(inbox)
        except (redis.AuthenticationError, redis.ResponseError) as error:
            raise refused(self.where, "be read", error) from None

    async def _read(self, inbox: Inbox) -> None:
        stream, last_id, most = self._split.stream, self._split.last_id, inbox.max_rows
        async with self._client.pipeline(transaction=True) as transaction:
            transaction.xinfo_stream(stream)
            transaction.xread({stream: last_id}, count=most)
            info, found = await transaction.execute(raise_on_error=False)
        inbox.answered()
        for answer in (info, found):
            if isinstance(answer, Exception) and "no such key" not in str(answer):
                raise answer
        numbers = _Numbers.of(info)
        self._check_nothing_lost(numbers)
        entries = [(stream, _id(name), fields) for name, fields in found[0][1]] if found else []
        is_at_end = len(entries) < most or entries[-1][1] == numbers.last_id
        passed = numbers.added if is_at_end else self._passed(numbers, len(entries))
        stop = self._split.stopping_id
        if stop is not None and (not entries or _parsed(entries[-1][1]) >= _parsed(stop)):
            entries = [entry for entry in entries if _parsed(entry[1]) <= _parsed(stop)]
            await self._move(inbox, (stop, None), entries)
        elif entries:
            await self._move(inbox, (entries[-1][1], passed), entries)
        else:
            # The last call below only waits for an entry; the next transaction reads it.
            if passed != self._split.passed:
                self._split = self._split.moved_to((last_id, passed))
                await inbox.put(Polled(), (last_id, passed))
            await self._client.xread({stream: last_id}, count=1, block=int(_WAIT * 1000))

    async def _move(self, inbox: Inbox, position: tuple[str, int | None], entries: list[_Entry]) -> None:
        polled = self._deserializer.polled(entries)
        self._split = self._split.moved_to(position)
        tokens = [position[0]] if self._source._acknowledges else []
        await inbox.put(polled, position, tokens, is_last=self._split.is_finished)

    def _passed(self, numbers: _Numbers, entries: int) -> int | None:
        before = self._split.passed
        if before is None and self._split.last_id == _START:
            before = numbers.gone
        return None if before is None else before + entries

    def _check_nothing_lost(self, numbers: _Numbers) -> None:
        last_id, passed = self._split.last_id, self._split.passed
        if self._source.on_lost == "continue" or last_id == _START:
            return
        if _parsed(numbers.last_id) < _parsed(last_id) or (passed or 0) > (numbers.added or passed or 0):
            what = "the stream was deleted or created again, or the server lost its last entries"
        elif _parsed(numbers.deleted_id) > _parsed(last_id) or (numbers.gone or 0) > (passed or math.inf):
            what = "later entries were deleted before they were read, for example by MAXLEN"
        else:
            return
        msg = (
            f"{self.where}: the job must continue after the entry {last_id}, but {what}. To continue without "
            "the lost entries, set on_lost='continue'"
        )
        raise LostInputError(msg)

    async def find_end(self) -> int | None:
        """Return the number of entries that were ever added.

        `None` for a bounded source, for Redis 6, and while there is no stream.
        """
        import redis

        if self._split.stopping_id is not None:
            return None
        try:
            info = await self._client.xinfo_stream(self._split.stream)
        except redis.ResponseError:  # there is no stream yet; `receive` reports other reasons
            return None
        return _Numbers.of(info).added

    async def acknowledge(self, tokens: Sequence[str]) -> None:
        import redis

        stream, group, position = self._split.stream, self._source.group, tokens[-1]
        try:
            if group is not None:
                await self._set_group(stream, group, position)
            if self._source.delete_covered:
                first, second = _parsed(position)
                kept = f"{first}-{second + 1}" if second < _LAST else f"{first + 1}-0"
                await self._client.xtrim(stream, minid=kept, approximate=False)
        except redis.ResponseError as error:
            raise refused(self.where, "be acknowledged or trimmed", error) from None

    async def _set_group(self, stream: str, group: str, position: str) -> None:
        import redis

        try:
            await self._client.xgroup_setid(stream, group, position)
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            await self._client.xgroup_create(stream, group, position)

    async def close(self) -> None:
        await self._client.aclose()


@dataclass(frozen=True)
class _EntryDecoder:
    """Decodes one field of entries, or makes a dict of all fields.

    Attributes:
        values: Decodes the field; `None` makes dicts.
    """

    field: str | None
    values: Decoder | None

    def decode(self, values: Sequence[Any]) -> Decoded:
        if self.values is None:
            return self._texts(values)
        name = str(self.field).encode()
        places = [index for index, fields in enumerate(values) if name in fields]
        decoded = self.values.decode([values[index][name] for index in places])
        bad = [(places[index], reason) for index, reason in decoded.bad]
        if len(places) < len(values):
            have = set(places)
            missing = f"the entry has no field {self.field!r}"
            bad += [(index, missing) for index in range(len(values)) if index not in have]
        return Decoded(decoded.batch, sorted(bad))

    def _texts(self, values: Sequence[Mapping[bytes, bytes]]) -> Decoded:
        rows, bad = [], []
        for index, fields in enumerate(values):
            try:
                rows.append({name.decode(): value.decode() for name, value in fields.items()})
            except UnicodeDecodeError as error:
                bad.append((index, f"a field is not UTF-8 text ({error.reason})"))
        return Decoded(RowBatch(rows), bad)

    def close(self) -> None:
        if self.values is not None:
            self.values.close()


def _fields(entry: _Entry) -> list[dict[str, Any]]:
    return [{"name": name.decode(errors="replace"), "value": value} for name, value in entry[2].items()]


_ENTRY: Final[MessageParts[_Entry]] = MessageParts(
    lambda entry: entry[2],
    lambda entry: f"{entry[0]}@{entry[1]}",
    {
        "stream": (lambda entry: entry[0], pa.string()),
        "id": (lambda entry: entry[1], pa.string()),
        "timestamp": (lambda entry: _parsed(entry[1])[0] * 1000, pa.timestamp("us", "UTC")),
        "fields": (_fields, pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    },
)
