"""The queries over Arrow columns: expressions, aggregates of columns and joins of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from nexmark_events import AUCTION, AUCTION_SCHEMA, BID, BID_SCHEMA, PERSON, PERSON_SCHEMA, NexmarkConfig
from nexmark_rows import BEST_BIDS, EVER, TEN_SECONDS, TWO_SECONDS
from nexmark_side_input import side_input

from penstock import DataStream
from penstock.aggregates import Count, CountDistinct, Max, Min, Sum
from penstock.windows import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

Columns = DataStream[Any]

_MICROSECOND: Final = timedelta(microseconds=1)
_EURO: Final = pc.scalar(Decimal("0.908"))


def persons(events: Columns) -> Columns:
    """The view `person` of the Nexmark suite."""
    return _view(events, PERSON, "person", PERSON_SCHEMA)


def auctions(events: Columns) -> Columns:
    """The view `auction` of the Nexmark suite."""
    return _view(events, AUCTION, "auction", AUCTION_SCHEMA)


def bids(events: Columns) -> Columns:
    """The view `bid` of the Nexmark suite."""
    return _view(events, BID, "bid", BID_SCHEMA)


def _view(events: Columns, kind: int, name: str, schema: pa.Schema) -> Columns:
    chosen = events.filter(pc.field("event_type") == kind)
    return chosen.select(columns={field: pc.field(name, field) for field in schema.names})


def q0(events: Columns, config: NexmarkConfig) -> Columns:
    """All bids: the cost of reading and writing."""
    return bids(events).select("auction", "bidder", "price", "dateTime", "extra")


def q1(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids with their prices in euros."""
    return q0(events, config).with_columns(price=_in_euros())


def _in_euros() -> pc.Expression:
    return pc.field("price").cast(pa.decimal128(19)) * _EURO


def q2(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids on some auctions."""
    return bids(events).filter(_remainder(pc.field("auction"), 123) == 0).select("auction", "price")


def _remainder(number: pc.Expression, divisor: int) -> pc.Expression:
    """The remainder, which Arrow lacks; its division of integers truncates."""
    return number - number / divisor * divisor


def q3(events: Columns, config: NexmarkConfig) -> Columns:
    """People of three states who sell in category 10."""
    sold = auctions(events).filter(pc.field("category") == 10).select("id", "seller")
    sellers = persons(events).filter(pc.field("state").isin(["OR", "ID", "CA"]))
    people = sellers.select("name", "city", "state", seller=pc.field("id"))
    joined = sold.join(people, on="seller", within=EVER, batch_format="arrow", id="sellers")
    return joined.select("name", "city", "state", "id")


def winning_bids(events: Columns, config: NexmarkConfig) -> Columns:
    """Changes of the auctions' winning bids: `change` is `"insert"` or `"delete"`."""
    return _winning(auctions(events), _offered(events), config)


def _offered(events: Columns) -> Columns:
    """Bids whose columns have other names than the columns of auctions."""
    return bids(events).select(
        "auction",
        "bidder",
        "price",
        columns={"id": pc.field("auction")},
        bid_dateTime=pc.field("dateTime"),
        bid_extra=pc.field("extra"),
    )


def _winning(opened: Columns, offered: Columns, config: NexmarkConfig) -> Columns:
    joined = opened.join(
        offered,
        on="id",
        within=(timedelta(0), timedelta(milliseconds=config.longest_auction_ms)),
        where=pc.field("bid_dateTime") <= pc.field("expires"),
        batch_format="arrow",
        id="offers",
    )
    best = [("price", "desc"), ("bid_dateTime", "asc")]
    return joined.top_n("winning", best, 1, "id", change_kind="change")


def q4(events: Columns, config: NexmarkConfig) -> Columns:
    """The mean winning price of each category so far; `changes` numbers the results of a category."""
    is_new = pc.field("change") == "insert"
    price = pc.field("price")
    # Joins and rankings keep all columns in their state.
    opened = auctions(events).select("id", "category", "expires")
    winning = _winning(opened, _offered(events).select("id", "price", "bid_dateTime"), config)
    signed = winning.select(
        "category",
        price=pc.if_else(is_new, price, pc.negate(price)),
        auction=pc.if_else(is_new, pc.scalar(1), pc.scalar(-1)),
    )
    sums = signed.key_by("category").aggregate(
        "sums", total=Sum("price"), auctions=Sum("auction"), changes=Count()
    )
    means = sums.filter(pc.field("auctions") > 0)
    final = pc.field("total") / pc.field("auctions")
    return means.select("changes", columns={"id": pc.field("category")}, final=final)


def q5(events: Columns, config: NexmarkConfig) -> Columns:
    """The auctions with the most bids in the last ten seconds, every two seconds."""
    windows = bids(events).key_by("auction").window(SlidingEventTimeWindows(TEN_SECONDS, TWO_SECONDS))
    counts = windows.aggregate("counts", num=Count())
    # Results of sliding windows with the same end fall into the same window of two seconds.
    most = counts.window_all(TumblingEventTimeWindows(TWO_SECONDS)).aggregate("most", most=Max("num"))
    hottest = counts.join(
        most,
        on="window_end",
        within=timedelta(0),
        where=pc.field("num") == pc.field("most"),
        batch_format="arrow",
        id="hottest",
    )
    return hottest.select("auction", "num")


def q7(events: Columns, config: NexmarkConfig) -> Columns:
    """The highest bids of each window of ten seconds."""
    all_bids = q0(events, config)
    windows = all_bids.window_all(TumblingEventTimeWindows(TEN_SECONDS))
    highest = windows.aggregate("highest", price=Max("price"))
    # The timestamp of a result is the window's last microsecond. Both ends belong to the window in SQL.
    within = (-_MICROSECOND, TEN_SECONDS - _MICROSECOND)
    joined = all_bids.join(highest, on="price", within=within, batch_format="arrow", id="with-highest")
    return joined.select("auction", "bidder", "price", "dateTime", "extra")


def q8(events: Columns, config: NexmarkConfig) -> Columns:
    """People who registered and opened an auction within the same window of ten seconds."""
    windows = TumblingEventTimeWindows(TEN_SECONDS)
    people = persons(events).key_by(["id", "name"]).window(windows).aggregate("people", persons=Count())
    sellers = auctions(events).key_by("seller").window(windows).aggregate("sellers", auctions=Count())
    joined = people.join(
        sellers,
        left_on=["id", "window_start"],
        right_on=["seller", "window_start"],
        within=timedelta(0),
        batch_format="arrow",
        id="new-sellers",
    )
    return joined.select("id", "name", stime=pc.field("window_start"))


def q9(events: Columns, config: NexmarkConfig) -> Columns:
    """Auctions with their winning bids so far; `change` says whether a result is added or retracted."""
    return winning_bids(events, config)


def q10(events: Columns, config: NexmarkConfig) -> Columns:
    """All bids with day and minute, by which the sink partitions its files."""
    at = pc.field("dateTime")
    return q0(events, config).with_columns(dt=pc.strftime(at, "%Y-%m-%d"), hm=pc.strftime(at, "%H:%M"))


def q11(events: Columns, config: NexmarkConfig) -> Columns:
    """The number of bids in each session of a bidder."""
    sessions = bids(events).key_by("bidder").window(EventTimeSessionWindows(TEN_SECONDS))
    counts = sessions.aggregate("sessions", bid_count=Count())
    return counts.select(
        "bidder", "bid_count", starttime=pc.field("window_start"), endtime=pc.field("window_end")
    )


class WithSideInput:
    """Adds the values of the side input to bids; null for bids without one."""

    def __init__(self, values: Mapping[int, str]) -> None:
        self._keys = pa.array(list(values), pa.int64())
        self._values = pa.array(list(values.values()))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the bids with their values."""
        auction = batch["auction"].to_numpy()
        found = pc.index_in(pa.array(auction % 10_000), self._keys)
        return batch.append_column("value", self._values.take(found))


def q13(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids with values from a bounded side input."""
    chosen = bids(events).select("auction", "bidder", "price", "dateTime")
    found = chosen.map_batches(WithSideInput, "arrow", fn_constructor_args=(side_input(),), id="with-value")
    return found.filter(pc.field("value").is_valid())


def q14(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids of medium price, with their time of day (day, night or other) and the count of the letter c."""
    hour = pc.hour(pc.field("dateTime"))
    is_day = (hour >= 8) & (hour <= 18)
    is_night = (hour <= 6) | (hour >= 20)
    in_euros = q1(events, config).filter(_is_middling())
    return in_euros.with_columns(
        bidTimeType=pc.if_else(is_day, "dayTime", pc.if_else(is_night, "nightTime", "otherTime")),
        c_counts=pc.count_substring(pc.field("extra"), "c").cast(pa.int64()),
    )


def _is_middling() -> pc.Expression:
    # Arrow compares decimals with whole numbers only if these fit into the decimal's digits.
    price = pc.field("price")
    return (price > pc.scalar(Decimal(1_000_000))) & (price < pc.scalar(Decimal(50_000_000)))


def _ranks() -> Mapping[str, pc.Expression]:
    price = pc.field("price")
    return {
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }


def _of_ranks(*names: str) -> Mapping[str, pc.Expression]:
    """A copy of each column for each rank; null where a bid has another rank."""
    return {
        f"{rank}_{name}": pc.if_else(condition, pc.field(name), pc.scalar(None).cast(pa.int64()))
        for rank, condition in _ranks().items()
        for name in names
    }


def _day() -> pc.Expression:
    return pc.strftime(pc.field("dateTime"), "%Y-%m-%d")


def _daily_counts() -> Mapping[str, Any]:
    counts: dict[str, Any] = {"total_bids": Count()}
    counts |= {f"{rank}_bids": Count(f"{rank}_bidder") for rank in _ranks()}
    for name in ("bidder", "auction"):
        counts[f"total_{name}s"] = CountDistinct(name)
        counts |= {f"{rank}_{name}s": CountDistinct(f"{rank}_{name}") for rank in _ranks()}
    return counts


def q15(events: Columns, config: NexmarkConfig) -> Columns:
    """Numbers of bids, bidders and auctions of each day so far."""
    ranked = bids(events).select("bidder", "auction", day=_day(), **_of_ranks("bidder", "auction"))
    return ranked.key_by("day").aggregate("counts", **_daily_counts())


def q16(events: Columns, config: NexmarkConfig) -> Columns:
    """Numbers of bids, bidders and auctions of each channel and day so far."""
    minute = pc.strftime(pc.field("dateTime"), "%H:%M")
    ranked = bids(events).select(
        "channel", "bidder", "auction", day=_day(), at=minute, **_of_ranks("bidder", "auction")
    )
    keyed = ranked.key_by(["channel", "day"])
    return keyed.aggregate("counts", minute=Max("at"), **_daily_counts())


def q17(events: Columns, config: NexmarkConfig) -> Columns:
    """Counts and price statistics of the bids on each auction and day so far."""
    ranked = bids(events).select("auction", "price", day=_day(), **_of_ranks("price"))
    sums = ranked.key_by(["auction", "day"]).aggregate(
        "prices",
        total_bids=Count(),
        **{f"{rank}_bids": Count(f"{rank}_price") for rank in _ranks()},
        min_price=Min("price"),
        max_price=Max("price"),
        sum_price=Sum("price"),
    )
    return sums.with_columns(avg_price=pc.field("sum_price") / pc.field("total_bids"))


def q18(events: Columns, config: NexmarkConfig) -> Columns:
    """The last bid of each bidder on each auction."""
    return bids(events).dedup("last", ["bidder", "auction"], keep="last")


def q19(events: Columns, config: NexmarkConfig) -> Columns:
    """The ten highest bids on each auction; `change` says whether a bid enters or leaves."""
    return bids(events).top_n("best", BEST_BIDS, 10, "auction", change_kind="change")


def _renamed(columns: Columns, schema: pa.Schema, **names: str) -> Columns:
    """All columns of a view, with the given columns renamed."""
    return columns.select(columns={names.get(name, name): pc.field(name) for name in schema.names})


def q20(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids on auctions of category 10, with the auctions."""
    chosen = auctions(events).filter(pc.field("category") == 10)
    return _renamed(bids(events), BID_SCHEMA, dateTime="bid_dateTime", extra="bid_extra").join(
        _renamed(chosen, AUCTION_SCHEMA, id="auction", dateTime="auction_dateTime", extra="auction_extra"),
        on="auction",
        within=EVER,
        batch_format="arrow",
        id="with-auctions",
    )


def q21(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids with the id of their channel: fixed for four channels, otherwise from the URL."""
    channel = pc.utf8_lower(pc.field("channel"))
    in_url = pc.struct_field(pc.extract_regex(pc.field("url"), "&channel_id=(?P<id>[^&]*)"), "id")
    channel_id = in_url
    for number, name in enumerate(("apple", "google", "facebook", "baidu")):
        channel_id = pc.if_else(channel == name, str(number), channel_id)
    identified = bids(events).select("auction", "bidder", "price", "channel", channel_id=channel_id)
    return identified.filter(pc.field("channel_id").is_valid())


def q22(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids with the first three path segments of their URLs."""
    divided = bids(events).select(
        "auction", "bidder", "price", "channel", parts=pc.split_pattern(pc.field("url"), "/", max_splits=6)
    )
    folders = {f"dir{number}": pc.list_element(pc.field("parts"), number + 2) for number in (1, 2, 3)}
    return divided.select("auction", "bidder", "price", "channel", **folders)


def q23(events: Columns, config: NexmarkConfig) -> Columns:
    """Bids with their bidders, and with the auctions that the bidders sell."""
    chosen = bids(events).select("bidder", "price", "channel", "url", bid_extra=pc.field("extra"))
    fields = PERSON_SCHEMA.remove(PERSON_SCHEMA.get_field_index("dateTime"))
    people = _renamed(persons(events), fields, id="person_id", extra="person_extra")
    fields = AUCTION_SCHEMA.remove(AUCTION_SCHEMA.get_field_index("id"))
    sold = _renamed(auctions(events), fields, dateTime="auction_dateTime", extra="auction_extra")
    bidders = chosen.join(
        people,
        left_on="bidder",
        right_on="person_id",
        within=EVER,
        batch_format="arrow",
        id="with-people",
    )
    return bidders.join(
        sold, left_on="bidder", right_on="seller", within=EVER, batch_format="arrow", id="with-auctions"
    )


QUERIES: Final[Mapping[str, Callable[[Columns, NexmarkConfig], Columns]]] = {
    query.__name__: query
    for query in (
        *(q0, q1, q2, q3, q4, q5, q7, q8, q9, q10, q11),
        *(q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
    )
}
