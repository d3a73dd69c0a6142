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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

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

_STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES: Final = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend"),
    *("Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES: Final = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
    *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
)
_LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

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
        return numbers // group * group + numbers * 953 % group


def events(config: NexmarkConfig, numbers: Numbers) -> pa.RecordBatch:
    """The events with these numbers, in this order: `event_type`, a struct for each kind, and `dateTime`.

    Two of the three structs of a row are null.
    """
    ids = config.ids(numbers)
    moments = config.moments(ids)
    place = ids % config.cycle
    kinds = (place >= config.persons).astype(np.int32) + (place >= config.persons + config.auctions)
    columns: list[pa.Array] = [pa.array(kinds, pa.int32())]
    for kind, make in enumerate((_persons, _auctions, _bids)):
        wanted = kinds == kind
        if 2 * wanted.sum() > len(ids):
            # Making a few fields that no event has costs less than spreading all others.
            made = make(config, ids, moments)
            fields = list(made.schema)
            columns.append(pa.StructArray.from_arrays(made.columns, fields=fields, mask=pa.array(~wanted)))
        else:
            made = make(config, ids[wanted], moments[wanted])
            where = np.cumsum(wanted) - 1
            columns.append(made.to_struct_array().take(pa.array(where, mask=~wanted)))
    return pa.RecordBatch.from_arrays([*columns, _moments(moments)], schema=EVENT_SCHEMA)


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
    pools = ("email", "card", "item", "description", "channel", "url", *_EXTRA)
    fixed = {"first": _FIRST_NAMES, "last": _LAST_NAMES, "city": _CITIES, "state": _STATES}
    return {**fixed, **{name: _pool(name).to_pylist() for name in pools}}


def _persons(config: NexmarkConfig, ids: Numbers, moments: Numbers) -> pa.RecordBatch:
    draw = _Draws(config.seed, ids)
    first, last = draw.one_of(_FIRST_NAMES), draw.one_of(_LAST_NAMES)
    columns = {
        "id": pa.array(_last_person(config, ids) + FIRST_PERSON_ID),
        "name": _joined(first, last, " "),
        "emailAddress": draw.one_of(_pool("email")),
        "creditCard": draw.one_of(_pool("card")),
        "city": draw.one_of(_CITIES),
        "state": draw.one_of(_STATES),
        "dateTime": _moments(moments),
        "extra": draw.one_of(_pool("person")),
    }
    return pa.RecordBatch.from_pydict(columns, schema=PERSON_SCHEMA)


def _auctions(config: NexmarkConfig, ids: Numbers, moments: Numbers) -> pa.RecordBatch:
    draw = _Draws(config.seed, ids)
    hot = _last_person(config, ids) // _HOT_GROUP * _HOT_GROUP
    seller = np.where(draw.below(config.hot_seller_ratio) > 0, hot, _any_person(config, ids, draw))
    initial = draw.prices()
    ahead = config.in_flight_auctions * config.cycle // config.auctions
    horizon = config.moments(ids + ahead) - moments
    length = 1 + draw.below(np.maximum(2 * horizon, 1))
    columns = {
        "id": pa.array(_last_auction(config, ids) + config.first_auction_id),
        "itemName": draw.one_of(_pool("item")),
        "description": draw.one_of(_pool("description")),
        "initialBid": pa.array(initial),
        "reserve": pa.array(initial + draw.prices()),
        "dateTime": _moments(moments),
        "expires": _moments(moments + length),
        "seller": pa.array(seller + FIRST_PERSON_ID),
        "category": pa.array(FIRST_CATEGORY + draw.below(_CATEGORIES)),
        "extra": draw.one_of(_pool("auction")),
    }
    return pa.RecordBatch.from_pydict(columns, schema=AUCTION_SCHEMA)


def _bids(config: NexmarkConfig, ids: Numbers, moments: Numbers) -> pa.RecordBatch:
    draw = _Draws(config.seed, ids)
    last_auction, last_person = _last_auction(config, ids), _last_person(config, ids)
    hot_auction = np.maximum(last_auction, 0) // _HOT_GROUP * _HOT_GROUP
    oldest = np.maximum(last_auction - config.in_flight_auctions, 0)
    auction = oldest + draw.below(np.maximum(last_auction - oldest, 0) + 1 + _LEAD)
    auction = np.where(draw.below(config.hot_auction_ratio) > 0, hot_auction, auction)
    # The second person of each group, so that hot bidders are not the hot sellers.
    hot_bidder = last_person // _HOT_GROUP * _HOT_GROUP + 1
    bidder = np.where(draw.below(config.hot_bidder_ratio) > 0, hot_bidder, _any_person(config, ids, draw))
    is_hot = draw.below(2) > 0
    channel = np.where(is_hot, _CHANNELS + draw.below(len(_HOT_CHANNELS)), draw.below(_CHANNELS))
    columns = {
        "auction": pa.array(auction + config.first_auction_id),
        "bidder": pa.array(bidder + FIRST_PERSON_ID),
        "price": pa.array(draw.prices()),
        "channel": _pool("channel").take(pa.array(channel)),
        "url": _pool("url").take(pa.array(channel)),
        "dateTime": _moments(moments),
        "extra": draw.one_of(_pool("bid")),
    }
    return pa.RecordBatch.from_pydict(columns, schema=BID_SCHEMA)


def _last_person(config: NexmarkConfig, ids: Numbers) -> Numbers:
    """Number of the newest person at an event, from 0."""
    return ids // config.cycle * config.persons + np.minimum(ids % config.cycle, config.persons - 1)


def _last_auction(config: NexmarkConfig, ids: Numbers) -> Numbers:
    """Number of the newest auction at an event, from 0; -1 before the first one."""
    place = np.clip(ids % config.cycle - config.persons, -1, config.auctions - 1)
    return ids // config.cycle * config.auctions + place


def _any_person(config: NexmarkConfig, ids: Numbers, draw: _Draws) -> Numbers:
    people = _last_person(config, ids) + 1
    active = np.minimum(people, config.active_people)
    return people - active + draw.below(active + _LEAD)


def _moments(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds).view(MOMENT)


def _joined(left: pa.Array, right: pa.Array, separator: str) -> pa.Array:
    return pc.binary_join_element_wise(left, right, separator)


class _Draws:
    """Random numbers for a batch of events; each call draws one for every event."""

    def __init__(self, seed: int, ids: Numbers) -> None:
        with np.errstate(over="ignore"):
            self._start = _mixed(ids.astype(np.uint64) + _mixed(np.array([seed], np.uint64)))
        self._drawn = 0

    def bits(self) -> npt.NDArray[np.uint64]:
        """64 random bits."""
        self._drawn += 1
        return _mixed(self._start + np.uint64(self._drawn * 0x9E3779B97F4A7C15 & (1 << 64) - 1))

    def below(self, bound: int | Numbers) -> Numbers:
        """A whole number from 0 up to, but not including, `bound`, which is at most 2**32."""
        bounds = np.asarray(bound, np.uint64)
        return ((self.bits() >> np.uint64(32)) * bounds >> np.uint64(32)).astype(np.int64)

    def prices(self) -> Numbers:
        """Cents from 100 to 100 million; all orders of magnitude are equally frequent."""
        share = (self.bits() >> np.uint64(11)) * 2.0**-53
        return np.rint(10.0 ** (share * 6.0) * 100.0).astype(np.int64)

    def one_of(self, values: tuple[str, ...] | pa.Array) -> pa.Array:
        """Draw one of the texts for each event."""
        array = pa.array(values) if isinstance(values, tuple) else values
        return array.take(pa.array(self.below(len(array))))


def _mixed(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


#: Mean length of `extra`, which fills an event up to its size in the suite.
_EXTRA: Final = {"person": 118, "auction": 390, "bid": 68}


@cache
def _pool(name: str) -> pa.Array:
    """Texts that a field is drawn from, the same for every seed."""
    if name in ("channel", "url"):
        return _channels()[name]
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
