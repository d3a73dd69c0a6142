"""An event of Nexmark depends on the configuration and its number alone."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st
from nexmark_events import AUCTION, BID, EVENT_SCHEMA, PERSON, NexmarkConfig, events, tables

CONFIG = NexmarkConfig(seed=7, event_rate=100, out_of_order_group=5)

#: Paths of all columns and fields.
PATHS: list[tuple[str, ...]] = [
    *((column.name,) for column in EVENT_SCHEMA),
    *(
        (column.name, column.type.field(index).name)
        for column in EVENT_SCHEMA
        for index in range(column.type.num_fields)
    ),
]


@given(numbers=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20))
def test_event_is_the_same_in_any_batch(numbers: list[int]) -> None:
    together = events(CONFIG, np.array(numbers))
    alone = [events(CONFIG, np.array([number])).to_pylist()[0] for number in numbers]
    assert together.to_pylist() == alone


@given(
    chosen=st.sets(st.sampled_from(PATHS)), numbers=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=9)
)
def test_a_field_is_the_same_beside_any_others(chosen: set[tuple[str, ...]], numbers: list[int]) -> None:
    part, whole = (events(CONFIG, np.array(numbers), fields) for fields in (chosen, None))
    part.validate(full=True)
    assert part.num_rows == len(numbers)
    for path in chosen:
        assert pc.struct_field(part.to_struct_array(), list(path)) == pc.struct_field(
            whole.to_struct_array(), list(path)
        )
    left = {path[0] for path in chosen} or {"dateTime"}
    assert set(part.schema.names) == left


def test_seeds_give_different_events_with_the_same_ids_and_moments() -> None:
    one, other = (events(NexmarkConfig(seed=seed), np.arange(1000)) for seed in (1, 2))
    assert one["dateTime"] == other["dateTime"]
    assert one["auction"].field("id") == other["auction"].field("id")
    assert one["bid"].field("price") != other["bid"].field("price")


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    batch = events(NexmarkConfig(), np.arange(5000))
    assert batch.schema == EVENT_SCHEMA
    kinds = batch["event_type"].to_numpy()
    assert [int(np.sum(kinds == kind)) for kind in (PERSON, AUCTION, BID)] == [100, 300, 4600]
    for kind, name in ((PERSON, "person"), (AUCTION, "auction"), (BID, "bid")):
        assert (batch[name].is_valid().to_numpy(zero_copy_only=False) == (kinds == kind)).all()


def test_ids_of_people_and_auctions_follow_each_other() -> None:
    found = tables(NexmarkConfig(persons=2, auctions=6, bids=22), 600)
    assert found["person"]["id"].to_pylist() == list(range(1000, 1040))
    assert found["auction"]["id"].to_pylist() == list(range(1000, 1120))


def test_events_come_at_the_rate_and_within_groups_in_another_order() -> None:
    moments = events(CONFIG, np.arange(100))["dateTime"].cast("int64").to_numpy()
    assert sorted(moments - moments.min()) == list(range(0, 1000, 10))
    assert (np.diff(moments) < 0).any()
    assert (np.abs(moments - np.sort(moments)) < 50).all()


def test_half_of_the_bids_go_to_hot_auctions_and_most_come_from_hot_bidders() -> None:
    bid = tables(NexmarkConfig(), 50_000)["bid"]
    hot_auctions = np.mean(bid["auction"].to_numpy() % 100 == 0)
    hot_bidders = np.mean(bid["bidder"].to_numpy() % 100 == 1)
    assert 0.45 < hot_auctions < 0.55
    assert 0.70 < hot_bidders < 0.80


def test_prices_have_every_order_of_magnitude_as_often() -> None:
    prices = tables(NexmarkConfig(), 50_000)["bid"]["price"].to_numpy()
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    counts, _ = np.histogram(np.log10(prices), bins=6, range=(2, 8))
    assert (np.abs(counts / len(prices) - 1 / 6) < 0.02).all()


def test_auction_ends_within_the_longest_time() -> None:
    config = NexmarkConfig(event_rate=100)
    auction = tables(config, 20_000)["auction"]
    lengths = pc.subtract(auction["expires"].cast("int64"), auction["dateTime"].cast("int64")).to_numpy()
    assert lengths.min() > 0
    assert config.longest_auction_ms / 2 < lengths.max() <= config.longest_auction_ms


def test_nine_of_ten_ordinary_channels_have_an_id_in_the_url() -> None:
    bid = tables(NexmarkConfig(), 20_000)["bid"]
    ordinary = pc.starts_with(bid["channel"], "channel-")
    assert 0.45 < pc.mean(ordinary).as_py() < 0.55
    has_id = pc.match_substring(bid["url"].filter(ordinary), "&channel_id=")
    assert 0.87 < pc.mean(has_id).as_py() < 0.93
