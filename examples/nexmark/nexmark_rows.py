"""The queries over rows: plain functions, windows and process functions; an event is a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

from nexmark_events import AUCTION, BID, PERSON, NexmarkConfig
from nexmark_side_input import side_input

from penstock import (
    AggregateFunction,
    DataStream,
    FileSink,
    KeyedProcessFunction,
    ListState,
    MapState,
    RuntimeContext,
    ValueState,
)
from penstock.connected import KeyedCoProcessFunction
from penstock.windows import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

Row = dict[str, Any]
Rows = DataStream[Row]

TEN_SECONDS: Final = timedelta(seconds=10)
TWO_SECONDS: Final = timedelta(seconds=2)
_MICROSECOND: Final = timedelta(microseconds=1)

#: A join within this time keeps every record, like a regular join in SQL.
EVER: Final = timedelta(days=36_500)

#: Order of bids from the best one: by price, and by time among equal prices.
BEST_BIDS: Final[list[str | tuple[str, Literal["asc", "desc"]]]] = [("price", "desc"), ("dateTime", "asc")]

_EURO: Final = Decimal("0.908")


def persons(events: Rows) -> Rows:
    """The view `person` of the Nexmark suite."""
    return events.filter(lambda event: event["event_type"] == PERSON).map(lambda event: event["person"])


def auctions(events: Rows) -> Rows:
    """The view `auction` of the Nexmark suite."""
    return events.filter(lambda event: event["event_type"] == AUCTION).map(lambda event: event["auction"])


def bids(events: Rows) -> Rows:
    """The view `bid` of the Nexmark suite."""
    return events.filter(lambda event: event["event_type"] == BID).map(lambda event: event["bid"])


def q0(events: Rows, config: NexmarkConfig) -> Rows:
    """All bids; measures the cost of reading and writing."""
    return bids(events).map(lambda bid: _only(bid, "auction", "bidder", "price", "dateTime", "extra"))


def q1(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids with their prices in euros."""
    return q0(events, config).map(lambda bid: {**bid, "price": bid["price"] * _EURO})


def q2(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids on some auctions."""
    chosen = bids(events).filter(lambda bid: bid["auction"] % 123 == 0)
    return chosen.map(lambda bid: _only(bid, "auction", "price"))


class AuctionsOfPerson(KeyedCoProcessFunction[int, Row, Row, Row]):
    """Joins a person with the auctions that the person sells, in any order of arrival."""

    person = ValueState(dict)
    waiting = ListState(int)

    def process_element1(self, value: Row, ctx: RuntimeContext) -> Iterator[Row]:
        """Emit an auction with its person, or keep it until the person comes."""
        person = self.person.value()
        if person is None:
            self.waiting.add(value["id"])
        else:
            yield {**person, "id": value["id"]}

    def process_element2(self, value: Row, ctx: RuntimeContext) -> Iterator[Row]:
        """Keep the person, and emit the auctions that have waited."""
        person = _only(value, "name", "city", "state")
        self.person.update(person)
        for auction in self.waiting.get():
            yield {**person, "id": auction}
        self.waiting.clear()


def q3(events: Rows, config: NexmarkConfig) -> Rows:
    """People of three states who sell in category 10."""
    sold = auctions(events).filter(lambda auction: auction["category"] == 10)
    sellers = persons(events).filter(lambda person: person["state"] in ("OR", "ID", "CA"))
    connected = sold.key_by(lambda auction: auction["seller"]).connect(
        sellers.key_by(lambda person: person["id"])
    )
    return connected.process("sellers", AuctionsOfPerson())


class WinningBid(KeyedCoProcessFunction[int, Row, Row, Row]):
    """Emits an auction with its highest bid when the auction ends; of equal bids the earliest wins.

    A bid may arrive before its auction. It waits until the watermark reaches the time of the bid. Auctions
    that arrive after that begin later than the bid.
    """

    auction = ValueState(dict)
    best = ValueState(dict)
    waiting = ListState(dict)

    def process_element1(self, value: Row, ctx: RuntimeContext) -> None:
        """Keep the auction until it ends, and offer it the bids that have waited."""
        self.auction.update(value)
        ctx.timer_service.register_event_time_timer(_micros(value["expires"]))
        for bid in self.waiting.get():
            self._offer(value, bid)
        self.waiting.clear()

    def process_element2(self, value: Row, ctx: RuntimeContext) -> None:
        """Offer a bid to its auction, or keep it until the auction comes."""
        auction = self.auction.value()
        if auction is None:
            self.waiting.add(value)
            ctx.timer_service.register_event_time_timer(_micros(value["dateTime"]))
        else:
            self._offer(auction, value)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        """Emit the winning bid if the auction ends now, or drop waiting bids that have no auction."""
        auction, best = self.auction.value(), self.best.value()
        if auction is None:
            self.waiting.update([bid for bid in self.waiting.get() if _micros(bid["dateTime"]) > at])
        elif at == _micros(auction["expires"]):
            if best is not None:
                renamed = {"bid_dateTime": best["dateTime"], "bid_extra": best["extra"]}
                yield {**auction, **_only(best, "auction", "bidder", "price"), **renamed}
            self.auction.clear()
            self.best.clear()

    def _offer(self, auction: Row, bid: Row) -> None:
        if auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
            best = self.best.value()
            if best is None or (bid["price"], best["dateTime"]) > (best["price"], bid["dateTime"]):
                self.best.update(bid)


def winning_bids(events: Rows) -> Rows:
    """Auctions with their winning bids; the timestamp of a result is the end of the auction."""
    keyed = auctions(events).key_by(lambda auction: auction["id"])
    return keyed.connect(bids(events).key_by(lambda bid: bid["auction"])).process("winning", WinningBid())


class RunningMean(KeyedProcessFunction[int, Row, Row]):
    """The mean of the winning prices of a category so far."""

    sums = ValueState(tuple, default=(0, 0))

    def process(self, value: Row, ctx: RuntimeContext) -> Iterator[Row]:
        """Emit the updated mean."""
        total, count = self.sums.value()
        total, count = total + value["price"], count + 1
        self.sums.update((total, count))
        yield {"id": ctx.current_key, "final": total // count, "changes": count}


def q4(events: Rows, config: NexmarkConfig) -> Rows:
    """The mean winning price of each category so far; `changes` numbers the results of a category."""
    return winning_bids(events).key_by(lambda won: won["category"]).process("means", RunningMean())


class BidCount(AggregateFunction[Row, int, int]):
    """The number of bids."""

    def create_accumulator(self) -> int:
        """Begin at 0."""
        return 0

    def add(self, value: Row, accumulator: int) -> int:
        """Count one bid."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """Return the number of bids."""
        return accumulator

    def merge(self, first: int, second: int) -> int:
        """Add the numbers of two sessions."""
        return first + second


def _hottest(window: TimeWindow, counts: list[Row]) -> list[Row]:
    most = max(count["num"] for count in counts)
    return [count for count in counts if count["num"] == most]


def q5(events: Rows, config: NexmarkConfig) -> Rows:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    windows = (
        bids(events)
        .key_by(lambda bid: bid["auction"])
        .window(SlidingEventTimeWindows(TEN_SECONDS, TWO_SECONDS))
    )
    counts = windows.aggregate(
        "counts", BidCount(), lambda auction, window, num: [{"auction": auction, "num": num}]
    )
    # Results of sliding windows with the same end fall into the same window of two seconds.
    return counts.window_all(TumblingEventTimeWindows(TWO_SECONDS)).apply("hottest", _hottest)


class MeanOfLast(KeyedProcessFunction[int, Row, Row]):
    """The mean price of a seller's last auctions, the current one and ten before it."""

    prices = ValueState(list)

    def process(self, value: Row, ctx: RuntimeContext) -> Iterator[Row]:
        """Emit the updated mean."""
        prices = [*(self.prices.value() or []), value["price"]][-11:]
        self.prices.update(prices)
        yield {"seller": ctx.current_key, "avg_price": sum(prices) // len(prices)}


def q6(events: Rows, config: NexmarkConfig) -> Rows:
    """The mean price of each seller's last auctions, in the order in which they end."""
    sold = winning_bids(events).key_by(lambda won: won["seller"])
    in_order = sold.sorted_by_time("in-order", order=lambda won: won["id"])
    return in_order.key_by(lambda won: won["seller"]).process("means", MeanOfLast())


def q7(events: Rows, config: NexmarkConfig) -> Rows:
    """The highest bids of each window of ten seconds."""
    all_bids = bids(events)
    highest = all_bids.window_all(TumblingEventTimeWindows(TEN_SECONDS)).reduce(
        "highest", lambda one, other: max(one, other, key=lambda bid: bid["price"])
    )
    return all_bids.key_by(lambda bid: bid["price"]).join(
        highest.key_by(lambda bid: bid["price"]),
        # The timestamp of a result is the window's last microsecond. Both ends belong to the window in SQL.
        within=(-_MICROSECOND, TEN_SECONDS - _MICROSECOND),
        select=lambda bid, _: _only(bid, "auction", "bidder", "price", "dateTime", "extra"),
        id="with-highest",
    )


def _new_sellers(key: int, window: TimeWindow, people: list[Row], sold: list[Row]) -> Iterator[Row]:
    if sold:
        for person in people:
            yield {"id": key, "name": person["name"], "stime": window.start}


def q8(events: Rows, config: NexmarkConfig) -> Rows:
    """People who registered and opened an auction within the same window of ten seconds."""
    return (
        persons(events)
        .key_by(lambda person: person["id"])
        .co_group(
            auctions(events).key_by(lambda auction: auction["seller"]),
            TumblingEventTimeWindows(TEN_SECONDS),
            _new_sellers,
            id="new-sellers",
        )
    )


def q9(events: Rows, config: NexmarkConfig) -> Rows:
    """Auctions with their winning bids."""
    return winning_bids(events)


def _bids_of(bidder: int, window: TimeWindow, bid_count: int) -> list[Row]:
    times = {"starttime": window.start, "endtime": window.end}
    return [{"bidder": bidder, "bid_count": bid_count, **times}]


def q10(events: Rows, config: NexmarkConfig) -> Rows:
    """All bids with day and minute, by which the sink partitions its files."""
    return q0(events, config).map(
        lambda bid: {**bid, "dt": f"{bid['dateTime']:%Y-%m-%d}", "hm": f"{bid['dateTime']:%H:%M}"}
    )


def bid_files(folder: Path) -> FileSink:
    """The sink of query 10: files in folders by day and minute."""
    return FileSink.parquet(folder, partition_by=["dt", "hm"])


def q11(events: Rows, config: NexmarkConfig) -> Rows:
    """The number of bids in each session of a bidder."""
    sessions = bids(events).key_by(lambda bid: bid["bidder"]).window(EventTimeSessionWindows(TEN_SECONDS))
    return sessions.aggregate("sessions", BidCount(), _bids_of)


def q12(events: Rows, config: NexmarkConfig) -> Rows:
    """The number of bids of each bidder in each window of ten seconds of processing time."""
    windows = (
        bids(events).key_by(lambda bid: bid["bidder"]).window(TumblingProcessingTimeWindows(TEN_SECONDS))
    )
    return windows.aggregate("counts", BidCount(), _bids_of)


class WithSideInput:
    """Adds the value of the side input to a bid; drops bids without one."""

    def __init__(self, values: Mapping[int, str]) -> None:
        self._values = values

    def __call__(self, bid: Row) -> Iterable[Row]:
        """The bid with its value."""
        value = self._values.get(bid["auction"] % 10_000)
        if value is None:
            return []
        return [{**_only(bid, "auction", "bidder", "price", "dateTime"), "value": value}]


def q13(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids with values from a bounded side input."""
    return bids(events).flat_map(WithSideInput, fn_constructor_args=(side_input(),), id="with-value")


def _kind_of(hour: int) -> str:
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def q14(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids of medium price, with their time of day (day, night or other) and the count of the letter c."""

    def computed(bid: Row) -> Iterator[Row]:
        price = bid["price"] * _EURO
        if 1_000_000 < price < 50_000_000:
            yield {
                **_only(bid, "auction", "bidder", "dateTime", "extra"),
                "price": price,
                "bidTimeType": _kind_of(bid["dateTime"].hour),
                "c_counts": bid["extra"].count("c"),
            }

    return bids(events).flat_map(computed)


def _rank(price: int) -> int:
    """The rank of a price, from 1 for low to 3 for high."""
    return 1 + (price >= 10_000) + (price >= 1_000_000)


#: Kinds of counts in `q15` and `q16`; each is counted in total and for each rank.
_COUNTED: Final = ("bids", "bidders", "auctions")


class DailyCounts(KeyedProcessFunction[Any, Row, Row]):
    """Counts bids, distinct bidders and distinct auctions of a key, in total and for each rank."""

    counts = ValueState(list, default=(0,) * 12)
    seen = MapState(tuple, bool)
    minute = ValueState(str, default="")

    def __init__(self, keys: tuple[str, ...], *, with_minute: bool = False) -> None:
        self._keys = keys
        self._with_minute = with_minute

    def process(self, value: Row, ctx: RuntimeContext) -> Iterator[Row]:
        """Emit the counts after another bid."""
        counts = list(self.counts.value())
        for rank in (0, _rank(value["price"])):
            counts[rank] += 1
            for kind, name in enumerate(("bidder", "auction"), 1):
                entry = (kind, rank, value[name])
                if entry not in self.seen:
                    self.seen.put(entry, True)
                    counts[4 * kind + rank] += 1
        self.counts.update(counts)
        key = ctx.current_key if isinstance(ctx.current_key, tuple) else (ctx.current_key,)
        row: Row = dict(zip(self._keys, key, strict=True))
        if self._with_minute:
            self.minute.update(max(self.minute.value(), f"{value['dateTime']:%H:%M}"))
            row["minute"] = self.minute.value()
        ranks = ("total", "rank1", "rank2", "rank3")
        names = [f"{rank}_{kind}" for kind in _COUNTED for rank in ranks]
        yield {**row, **dict(zip(names, counts, strict=True))}


def _day(bid: Row) -> str:
    return f"{bid['dateTime']:%Y-%m-%d}"


def q15(events: Rows, config: NexmarkConfig) -> Rows:
    """Numbers of bids, bidders and auctions of each day so far."""
    return bids(events).key_by(_day).process("counts", DailyCounts(("day",)))


def q16(events: Rows, config: NexmarkConfig) -> Rows:
    """Numbers of bids, bidders and auctions of each channel and day so far."""
    keyed = bids(events).key_by(lambda bid: (bid["channel"], _day(bid)))
    return keyed.process("counts", DailyCounts(("channel", "day"), with_minute=True))


class Prices(AggregateFunction[Row, Row, Row]):
    """Counts bids, and computes statistics of their prices."""

    def create_accumulator(self) -> Row:
        """Begin without bids."""
        return {}

    def add(self, value: Row, accumulator: Row) -> Row:
        """Add one bid."""
        price = value["price"]
        counts = [accumulator.get(f"rank{rank}_bids", 0) + (_rank(price) == rank) for rank in (1, 2, 3)]
        return {
            "auction": value["auction"],
            "day": _day(value),
            "total_bids": accumulator.get("total_bids", 0) + 1,
            **{f"rank{rank}_bids": count for rank, count in enumerate(counts, 1)},
            "min_price": min(price, accumulator.get("min_price", price)),
            "max_price": max(price, accumulator.get("max_price", price)),
            "sum_price": price + accumulator.get("sum_price", 0),
        }

    def get_result(self, accumulator: Row) -> Row:
        """Return the statistics with the mean price."""
        return {**accumulator, "avg_price": accumulator["sum_price"] // accumulator["total_bids"]}


def q17(events: Rows, config: NexmarkConfig) -> Rows:
    """Counts and price statistics of the bids on each auction and day so far."""
    return bids(events).key_by(lambda bid: (bid["auction"], _day(bid))).aggregate("prices", Prices())


def q18(events: Rows, config: NexmarkConfig) -> Rows:
    """The last bid of each bidder on each auction."""
    return bids(events).dedup("last", lambda bid: (bid["bidder"], bid["auction"]), keep="last")


def q19(events: Rows, config: NexmarkConfig) -> Rows:
    """The ten highest bids on each auction; `change` says whether a bid enters or leaves."""
    return bids(events).top_n("best", BEST_BIDS, 10, lambda bid: bid["auction"], change_kind="change")


def q20(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids on auctions of category 10, with the auctions."""
    chosen = auctions(events).filter(lambda auction: auction["category"] == 10)
    return (
        bids(events)
        .key_by(lambda bid: bid["auction"])
        .join(
            chosen.key_by(lambda auction: auction["id"]),
            within=EVER,
            select=lambda bid, auction: {
                **_prefixed(bid, "bid"),
                **_prefixed(_without(auction, "id"), "auction"),
            },
            id="with-auctions",
        )
    )


def q21(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids with the id of their channel: fixed for four channels, otherwise from the URL."""
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}

    def identified(bid: Row) -> Iterator[Row]:
        _, found, rest = bid["url"].partition("&channel_id=")
        channel_id = known.get(bid["channel"].lower(), rest.partition("&")[0] if found else None)
        if channel_id is not None:
            yield {**_only(bid, "auction", "bidder", "price", "channel"), "channel_id": channel_id}

    return bids(events).flat_map(identified)


def q22(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids with the first three path segments of their URLs."""

    def with_folders(bid: Row) -> Row:
        dir1, dir2, dir3 = bid["url"].split("/")[3:6]
        folders = {"dir1": dir1, "dir2": dir2, "dir3": dir3}
        return {**_only(bid, "auction", "bidder", "price", "channel"), **folders}

    return bids(events).map(with_folders)


def q23(events: Rows, config: NexmarkConfig) -> Rows:
    """Bids with their bidders, and with the auctions that the bidders sell."""
    chosen = bids(events).map(lambda bid: _only(bid, "bidder", "price", "channel", "url", "extra"))
    people = persons(events).map(lambda person: _without(person, "dateTime"))
    bidders = chosen.key_by(lambda bid: bid["bidder"]).join(
        people.key_by(lambda person: person["id"]),
        within=EVER,
        select=lambda bid, person: {
            **_prefixed(bid, "bid"),
            **_prefixed(_without(person, "id"), "person"),
            "person_id": person["id"],
        },
        id="with-people",
    )
    return bidders.key_by(lambda bid: bid["bidder"]).join(
        auctions(events).key_by(lambda auction: auction["seller"]),
        within=EVER,
        select=lambda bid, auction: {**bid, **_prefixed(_without(auction, "id"), "auction")},
        id="with-auctions",
    )


def _only(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def _without(row: Row, name: str) -> Row:
    return {other: value for other, value in row.items() if other != name}


def _prefixed(row: Row, prefix: str) -> Row:
    """Prefix the names of the fields that several kinds of events share."""
    return {f"{prefix}_{name}" if name in ("dateTime", "extra") else name: row[name] for name in row}


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


QUERIES: Final[Mapping[str, Callable[[Rows, NexmarkConfig], Rows]]] = {
    query.__name__: query
    for query in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12),
        *(q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
    )
}
