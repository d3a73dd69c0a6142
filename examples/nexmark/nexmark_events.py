"""`NexmarkConfig` and `events`: people, auctions and bids of an auction house, from a seed and event numbers.

An event depends on the configuration and its number alone. So any part of the stream can be made anywhere, in
any order, and again after a failure. Kinds, fields and skews are those of the public Nexmark suite: of 50
events one is a person, 3 are auctions and 46 are bids. Half of the bids go to hot auctions, and three out of
four bids come from hot bidders. Some bids name auctions and people that come later.

All fields of a batch are drawn together. Random number `i` of event `n` is a hash of the seed, `n` and `i`
(SplitMix64), so no generator has state.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Values of the column `event_type`.
PERSON: Final = 0
AUCTION: Final = 1
BID: Final = 2

MOMENT: Final = pa.timestamp("ms", tz="UTC")

PERSON_SCHEMA: Final = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "emailAddress": pa.string(),
        "creditCard": pa.string(),
        "city": pa.string(),
        "state": pa.string(),
        "dateTime": MOMENT,
        "extra": pa.string(),
    }
)
AUCTION_SCHEMA: Final = pa.schema(
    {
        "id": pa.int64(),
        "itemName": pa.string(),
        "description": pa.string(),
        "initialBid": pa.int64(),
        "reserve": pa.int64(),
        "dateTime": MOMENT,
        "expires": MOMENT,
        "seller": pa.int64(),
        "category": pa.int64(),
        "extra": pa.string(),
    }
)
BID_SCHEMA: Final = pa.schema(
    {
        "auction": pa.int64(),
        "bidder": pa.int64(),
        "price": pa.int64(),
        "channel": pa.string(),
        "url": pa.string(),
        "dateTime": MOMENT,
        "extra": pa.string(),
    }
)
EVENT_SCHEMA: Final = pa.schema(
    {
        "event_type": pa.int32(),
        "person": pa.struct(PERSON_SCHEMA),
        "auction": pa.struct(AUCTION_SCHEMA),
        "bid": pa.struct(BID_SCHEMA),
        "dateTime": MOMENT,
    }
)

#: Ids and ratios that are constants of the suite.
FIRST_PERSON_ID: Final = 1000
FIRST_CATEGORY: Final = 10
_CATEGORIES: Final = 5
_HOT_GROUP: Final = 100
_LEAD: Final = 10
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS: Final = 10_000
_POOL: Final = 1_000

#: The texts of some fields.
_FIXED: Final = {
    "state": ("AZ", "CA", "ID", "OR", "WA", "WY"),
    "city": (
        *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend"),
        *("Redmond", "Seattle", "Kent", "Cheyenne"),
    ),
    "first": (
        *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
        *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
    ),
    "last": ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"),
}

#: Names from a column down to a field.
FieldPath: TypeAlias = tuple[str, ...]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NexmarkConfig:
    """Settings of the events; the defaults, except those of `seed` and `base_time`, are the suite's.

    Attributes:
        event_rate: Events per second of event time. It does not limit how fast events are generated.
        persons: People among `persons + auctions + bids` successive events.
        auctions: Auctions among that many events.
        bids: Bids among that many events.
        in_flight_auctions: Number of open auctions. With `event_rate` it decides how long an auction lasts.
        active_people: Number of people who bid and sell.
        hot_auction_ratio: One in this many bids goes to an auction that is not hot.
        hot_bidder_ratio: One in this many bids comes from a bidder who is not hot.
        hot_seller_ratio: One in this many auctions has a seller who is not hot.
        out_of_order_group: Events change places within groups of this size.
        base_time: Moment of event 0.
    """

    seed: int = 0
    event_rate: float = 10_000
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    in_flight_auctions: int = 100
    active_people: int = 1_000
    hot_auction_ratio: int = 2
    hot_bidder_ratio: int = 4
    hot_seller_ratio: int = 4
    out_of_order_group: int = 1
    first_auction_id: int = 1000
    base_time: datetime = field(default=datetime(2024, 5, 1, tzinfo=UTC))

    @property
    def cycle(self) -> int:
        """Number of events after which the kinds repeat."""
        return self.persons + self.auctions + self.bids

    @property
    def longest_auction_ms(self) -> int:
        """Maximum length of an auction, in milliseconds of event time."""
        ahead = self.in_flight_auctions * self.cycle // self.auctions
        return 2 * int(ahead * 1000 / self.event_rate) + 2

    def moments(self, numbers: Numbers) -> Numbers:
        """Event time of event numbers, in milliseconds since the epoch."""
        base = round(self.base_time.timestamp() * 1000)
        return base + (numbers * (1000 / self.event_rate)).astype(np.int64)

    def ids(self, numbers: Numbers) -> Numbers:
        """Permute event numbers within their out-of-order groups."""
        group = self.out_of_order_group
        if group == 1:
            return numbers
        return numbers // group * group + numbers * 953 % group


def events(
    config: NexmarkConfig, numbers: Numbers, fields: Collection[FieldPath] | None = None
) -> pa.RecordBatch:
    """The events with these numbers, in this order: `event_type`, a struct for each kind, and `dateTime`.

    Two of the three structs of a row are null.

    Args:
        fields: Paths of wanted columns and fields, such as `("bid", "price")`; by default all of them. The
            batch has no others.
    """
    block = _Block(config, config.ids(numbers))
    columns: dict[str, pa.Array] = {}
    for column in _chosen(EVENT_SCHEMA, (), fields):
        if column.name == "event_type":
            columns[column.name] = pa.array(block.kinds, column.type)
        elif column.name == "dateTime":
            columns[column.name] = block.moments
        else:
            columns[column.name] = _struct(block, column.name, fields)
    return pa.RecordBatch.from_pydict(columns)


def _chosen(schema: pa.Schema, above: FieldPath, fields: Collection[FieldPath] | None) -> Sequence[pa.Field]:
    """The fields of a schema that are wanted in whole or in part; at least one."""
    if fields is None or above in fields:
        return list(schema)
    depth = len(above)
    names = {path[depth] for path in fields if len(path) > depth and path[:depth] == above}
    return [each for each in schema if each.name in names] or [schema.field("dateTime")]


def _struct(block: _Block, name: str, fields: Collection[FieldPath] | None) -> pa.StructArray:
    """The events of one kind in a block; null for events of other kinds."""
    schema, makers = _KINDS[name]
    chosen = _chosen(schema, (name,), fields)
    wanted = block.kinds == list(_KINDS).index(name)
    if 2 * np.count_nonzero(wanted) > len(wanted):
        # Making values for the few events of other kinds, too, costs less than spreading the wanted ones.
        columns = [makers[each.name](block) for each in chosen]
    else:
        part = block.part(wanted)
        before = np.concatenate(([0], np.cumsum(wanted)))
        columns = [_spread(makers[each.name](part), before, wanted) for each in chosen]
    return pa.StructArray.from_arrays(columns, fields=chosen, mask=pa.array(~wanted))


def _spread(values: pa.Array, before: Numbers, wanted: npt.NDArray[np.bool_]) -> pa.Array:
    """Put the values of the wanted events in their places; `before` counts those before each event."""
    _, data, *texts = values.buffers()
    if texts:  # all texts stay where they are
        offsets = np.frombuffer(data, np.int32)[before]
        return pa.Array.from_buffers(values.type, len(wanted), [None, pa.py_buffer(offsets), *texts])
    spread = np.zeros(len(wanted), np.int64)
    spread[wanted] = np.frombuffer(data, np.int64, len(values))
    return pa.Array.from_buffers(values.type, len(wanted), [None, pa.py_buffer(spread)])


def tables(config: NexmarkConfig, count: int) -> Mapping[str, pa.Table]:
    """The first `count` events as three tables: `person`, `auction` and `bid`."""
    batch = events(config, np.arange(count, dtype=np.int64))
    names = ("person", "auction", "bid")
    return {name: pa.Table.from_struct_array(batch[name].filter(batch[name].is_valid())) for name in names}


def as_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert each event to a dict; three times as fast as `to_pylist`."""
    rows: list[dict[str, Any]] = [
        {"event_type": kind, "person": None, "auction": None, "bid": None, "dateTime": None}
        for kind in batch["event_type"].to_pylist()
    ]
    for name in ("person", "auction", "bid"):
        where = np.flatnonzero(batch[name].is_valid())
        structs = batch[name].take(pa.array(where))
        fields = [structs.type.field(index) for index in range(structs.type.num_fields)]
        columns = [_values(column) for column in structs.flatten()]
        names = [field.name for field in fields]
        for index, values in zip(where.tolist(), zip(*columns, strict=True), strict=True):
            row = rows[index]
            row[name] = event = dict(zip(names, values, strict=True))
            row["dateTime"] = event["dateTime"]
    return rows


def _values(column: pa.Array) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    naive = column.cast(pa.timestamp("ms")).to_numpy(zero_copy_only=False).astype(object)
    return [moment.replace(tzinfo=UTC) for moment in naive]


def texts() -> Mapping[str, Sequence[str]]:
    """Texts that fields are drawn from, by field name; `extra` has an entry for each kind of event."""
    pools = ("email", "card", "item", "description", "channel", "url", *_EXTRA, *_FIXED)
    return {name: _pool(name).to_pylist() for name in pools}


class _Block:
    """Events whose fields are made together; values that several fields need are computed once."""

    def __init__(self, config: NexmarkConfig, ids: Numbers) -> None:
        self.config = config
        self.ids = ids

    def part(self, wanted: npt.NDArray[np.bool_]) -> _Block:
        """Some of the events."""
        return _Block(self.config, self.ids[wanted])

    @cached_property
    def _cycles(self) -> Numbers:
        return self.ids // self.config.cycle

    @cached_property
    def _places(self) -> Numbers:
        """Number of each event in its cycle."""
        return self.ids - self._cycles * self.config.cycle

    @cached_property
    def kinds(self) -> npt.NDArray[np.int32]:
        """Kind of each event."""
        config, places = self.config, self._places
        return (places >= config.persons).astype(np.int32) + (places >= config.persons + config.auctions)

    @cached_property
    def milliseconds(self) -> Numbers:
        """Event time in milliseconds since the epoch."""
        return self.config.moments(self.ids)

    @property
    def moments(self) -> pa.Array:
        """Event time."""
        return _moments(self.milliseconds)

    @cached_property
    def last_person(self) -> Numbers:
        """Number of the newest person at an event, from 0."""
        persons = self.config.persons
        return self._cycles * persons + np.minimum(self._places, persons - 1)

    @cached_property
    def last_auction(self) -> Numbers:
        """Number of the newest auction at an event, from 0; -1 before the first one."""
        auctions = self.config.auctions
        place = np.clip(self._places - self.config.persons, -1, auctions - 1)
        return self._cycles * auctions + place

    @cached_property
    def _start(self) -> npt.NDArray[np.uint64]:
        with np.errstate(over="ignore"):
            return _mixed(self.ids.view(np.uint64) + _mixed(np.array([self.config.seed], np.uint64)))

    def bits(self, number: int) -> npt.NDArray[np.uint64]:
        """64 random bits for each event: those of its random number `number`, from 1."""
        return _mixed(self._start + np.uint64(number * 0x9E3779B97F4A7C15 & (1 << 64) - 1))

    def below(self, number: int, bound: int | Numbers) -> Numbers:
        """A whole number from 0 up to, but not including, `bound`, which is at most 2**32."""
        drawn = self.bits(number)
        drawn >>= np.uint64(32)
        drawn *= np.uint64(bound) if isinstance(bound, int) else bound.view(np.uint64)
        drawn >>= np.uint64(32)
        return drawn.view(np.int64)

    def prices(self, number: int) -> Numbers:
        """Cents from 100 to 100 million; all orders of magnitude are equally frequent."""
        share = (self.bits(number) >> np.uint64(11)) * 2.0**-53
        share *= 6.0
        cents = np.power(10.0, share, out=share)
        cents *= 100.0
        return np.rint(cents, out=cents).astype(np.int64)

    def one_of(self, number: int, pool: str) -> pa.Array:
        """Draw one of the texts of a pool for each event."""
        texts = _pool(pool)
        return texts.take(pa.array(self.below(number, len(texts))))

    def any_person(self, number: int) -> Numbers:
        """Number of an active person, or of one who comes soon."""
        people = self.last_person + 1
        active = np.minimum(people, self.config.active_people)
        people -= active
        active += _LEAD
        people += self.below(number, active)
        return people

    # Fields of a person. Random numbers are counted from 1 for each kind of event.

    @property
    def person_id(self) -> pa.Array:
        return pa.array(self.last_person + FIRST_PERSON_ID)

    @property
    def name(self) -> pa.Array:
        first, last = self.one_of(1, "first"), self.one_of(2, "last")
        return pc.binary_join_element_wise(first, last, " ")

    # Fields of an auction.

    @property
    def auction_id(self) -> pa.Array:
        return pa.array(self.last_auction + self.config.first_auction_id)

    @property
    def seller(self) -> pa.Array:
        hot = self.last_person // _HOT_GROUP * _HOT_GROUP
        is_hot = self.below(1, self.config.hot_seller_ratio) > 0
        return pa.array(np.where(is_hot, hot, self.any_person(2)) + FIRST_PERSON_ID)

    @cached_property
    def _initial(self) -> Numbers:
        return self.prices(3)

    @property
    def initial_bid(self) -> pa.Array:
        return pa.array(self._initial)

    @property
    def expires(self) -> pa.Array:
        config = self.config
        ahead = config.in_flight_auctions * config.cycle // config.auctions
        horizon = config.moments(self.ids + ahead) - self.milliseconds
        return _moments(self.milliseconds + 1 + self.below(4, np.maximum(2 * horizon, 1)))

    @property
    def reserve(self) -> pa.Array:
        return pa.array(self._initial + self.prices(7))

    @property
    def category(self) -> pa.Array:
        return pa.array(FIRST_CATEGORY + self.below(8, _CATEGORIES))

    # Fields of a bid.

    @property
    def auction(self) -> pa.Array:
        config, last = self.config, self.last_auction
        oldest = np.maximum(last - config.in_flight_auctions, 0)
        choices = np.maximum(last - oldest, 0)
        choices += 1 + _LEAD
        oldest += self.below(1, choices)
        hot = np.maximum(last, 0) // _HOT_GROUP
        hot *= _HOT_GROUP
        auction = np.where(self.below(2, config.hot_auction_ratio) > 0, hot, oldest)
        auction += config.first_auction_id
        return pa.array(auction)

    @property
    def bidder(self) -> pa.Array:
        # The second person of each group, so that hot bidders are not the hot sellers.
        hot = self.last_person // _HOT_GROUP
        hot *= _HOT_GROUP
        hot += 1
        is_hot = self.below(3, self.config.hot_bidder_ratio) > 0
        bidder = np.where(is_hot, hot, self.any_person(4))
        bidder += FIRST_PERSON_ID
        return pa.array(bidder)

    @cached_property
    def _channel(self) -> pa.Array:
        hot = self.below(6, len(_HOT_CHANNELS))
        hot += _CHANNELS
        return pa.array(np.where(self.below(5, 2) > 0, hot, self.below(7, _CHANNELS)))

    @property
    def channel(self) -> pa.Array:
        return _pool("channel").take(self._channel)

    @property
    def url(self) -> pa.Array:
        return _pool("url").take(self._channel)


def _drawn(number: int, pool: str) -> Callable[[_Block], pa.Array]:
    return lambda block: block.one_of(number, pool)


#: The schema of each kind of event and the functions that make its fields, in the order of `event_type`.
_KINDS: Final[Mapping[str, tuple[pa.Schema, Mapping[str, Callable[[_Block], pa.Array]]]]] = {
    "person": (
        PERSON_SCHEMA,
        {
            "id": attrgetter("person_id"),
            "name": attrgetter("name"),
            "emailAddress": _drawn(3, "email"),
            "creditCard": _drawn(4, "card"),
            "city": _drawn(5, "city"),
            "state": _drawn(6, "state"),
            "dateTime": attrgetter("moments"),
            "extra": _drawn(7, "person"),
        },
    ),
    "auction": (
        AUCTION_SCHEMA,
        {
            "id": attrgetter("auction_id"),
            "itemName": _drawn(5, "item"),
            "description": _drawn(6, "description"),
            "initialBid": attrgetter("initial_bid"),
            "reserve": attrgetter("reserve"),
            "dateTime": attrgetter("moments"),
            "expires": attrgetter("expires"),
            "seller": attrgetter("seller"),
            "category": attrgetter("category"),
            "extra": _drawn(9, "auction"),
        },
    ),
    "bid": (
        BID_SCHEMA,
        {
            "auction": attrgetter("auction"),
            "bidder": attrgetter("bidder"),
            "price": lambda block: pa.array(block.prices(8)),
            "channel": attrgetter("channel"),
            "url": attrgetter("url"),
            "dateTime": attrgetter("moments"),
            "extra": _drawn(9, "bid"),
        },
    ),
}


def _moments(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds).view(MOMENT)


def _mixed(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64; the values are changed in place."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits


#: Mean length of `extra`, which fills an event up to its size in the suite.
_EXTRA: Final = {"person": 118, "auction": 390, "bid": 68}


@cache
def _pool(name: str) -> pa.Array:
    """Texts that a field is drawn from, the same for every seed."""
    if name in ("channel", "url"):
        return _channels()[name]
    if name in _FIXED:
        return pa.array(_FIXED[name])
    draws = random.Random(name)
    if name in _EXTRA:
        mean = _EXTRA[name]
        lengths = (draws.randrange(mean * 4 // 5, mean * 6 // 5) for _ in range(_POOL))
        return pa.array(["".join(draws.choices(string.ascii_lowercase, k=length)) for length in lengths])
    if name == "email":
        return pa.array([f"{_word(draws, 7)}@{_word(draws, 5)}.com" for _ in range(_POOL)])
    if name == "card":
        return pa.array([" ".join(f"{draws.randrange(10_000):04}" for _ in range(4)) for _ in range(_POOL)])
    longest = {"item": 20, "description": 100}[name]
    return pa.array([_word(draws, longest, " ").strip() for _ in range(_POOL)])


@cache
def _channels() -> Mapping[str, pa.Array]:
    """Channels and the URLs of their bids: ordinary ones, then the hot ones."""
    draws = random.Random("channels")
    names, urls = [], []
    for number in range(_CHANNELS):
        names.append(f"channel-{number}")
        known = f"&channel_id={draws.randrange(1 << 31)}" if draws.randrange(10) > 0 else ""
        urls.append(_url(draws) + known)
    names += _HOT_CHANNELS
    urls += [_url(draws) for _ in _HOT_CHANNELS]
    return {"channel": pa.array(names), "url": pa.array(urls)}


def _url(draws: random.Random) -> str:
    folders = "/".join(_word(draws, 5, "_") for _ in range(3))
    return f"https://www.nexmark.com/{folders}/item.htm?query=1"


def _word(draws: random.Random, longest: int, special: str = "") -> str:
    letters = string.ascii_lowercase + 2 * special
    return "".join(draws.choices(letters, k=draws.randrange(3, longest)))
