"""Changes are not taken for additions: calls that would do so are refused when the graph is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import CollectSink, DataStream, FileSink, StreamEnvironment
from penstock.aggregates import Count, Sum
from penstock.delta import DeltaSink, DeltaSource
from penstock.iceberg import IcebergSink
from penstock.runtime.errors import GraphError
from penstock.sql import SqlSink

ROWS = [{"id": 1, "shop": "a", "price": 5}]


@pytest.fixture
def sales() -> DataStream[Any]:
    return StreamEnvironment("changes").from_collection("sales", ROWS)


def best(sales: DataStream[Any]) -> DataStream[Any]:
    return sales.top_n("best", "price", 1, "shop", change_kind="change")


def same(row: Any) -> Any:
    return row


def table(**settings: Any) -> DeltaSink:
    return DeltaSink("/data/best", **settings)


def test_a_table_takes_changes_with_their_kind(sales: DataStream[Any]) -> None:
    best(sales).sink("table", table(key=["shop"], change_kind="change"))


@pytest.mark.parametrize("settings", [{}, {"key": ["shop"]}, {"key": ["shop"], "change_kind": "kind"}])
def test_a_table_that_would_add_changes_is_refused(sales: DataStream[Any], settings: dict[str, Any]) -> None:
    with pytest.raises(
        GraphError,
        match=r"sink 'table': top_n 'best' \(.*test_changes\.py:\d+ in best\) emits changes, whose kinds are "
        r"in the column 'change', but this DeltaSink has change_kind=.*Set key= and change_kind='change'",
    ):
        best(sales).sink("table", table(**settings))


def test_a_table_of_a_database_that_would_add_changes_is_refused(sales: DataStream[Any]) -> None:
    with pytest.raises(GraphError, match=r"emits changes, .* this SqlSink has change_kind=None"):
        best(sales).sink("table", SqlSink("sqlite:///data/shop.db", "best"))


def test_a_table_of_iceberg_needs_the_key_and_the_kind_of_changes(sales: DataStream[Any]) -> None:
    with pytest.raises(GraphError, match=r"emits changes, .* this IcebergSink has change_kind=None"):
        best(sales).sink("table", IcebergSink("shop.best", catalog={}))
    keyed = IcebergSink("shop.best", catalog={}, key=["shop"], change_kind="change")
    best(StreamEnvironment("keyed").from_collection("sales", ROWS)).sink("table", keyed)


@pytest.mark.parametrize(
    "keep",
    [
        lambda changes: changes.filter(bool),
        lambda changes: changes.rate_limit(100),
        lambda changes: changes.key_by("shop").sorted_by_time("sorted"),
        lambda changes: changes.split({"large": same})["large"],
    ],
)
def test_an_operator_that_keeps_records_keeps_changes(sales: DataStream[Any], keep: Any) -> None:
    with pytest.raises(GraphError, match="top_n 'best'"):
        keep(best(sales)).sink("table", table())


def test_a_function_makes_other_records_than_changes(sales: DataStream[Any]) -> None:
    best(sales).map(same).sink("table", table())


@pytest.mark.parametrize(
    "kind",
    [
        lambda rows: rows.key_by("shop").aggregate("sums", total=Sum("price")),
        lambda rows: rows.latest_by("newest", "price", "shop"),
        lambda rows: rows.dedup("newest", "shop", keep="last"),
    ],
)
def test_updates_need_a_key(sales: DataStream[Any], kind: Any) -> None:
    kind(sales.map(same)).map(same).sink("mapped", table())
    results = kind(StreamEnvironment("again").from_collection("sales", ROWS))
    with pytest.raises(GraphError, match="emits a new record when the result of a key changes"):
        results.sink("table", table())
    results.sink("merged", table(key=["shop"]))


def test_the_first_record_of_a_key_is_a_row(sales: DataStream[Any]) -> None:
    sales.dedup("first", "shop").sink("table", table())


def test_sinks_without_keys_write_each_change_with_its_kind(sales: DataStream[Any], tmp_path: Path) -> None:
    changes = best(sales)
    changes.sink("files", FileSink.json(tmp_path))
    changes.sink("rows", CollectSink())


@pytest.mark.parametrize(
    "counted",
    [
        lambda changes: changes.key_by("shop").aggregate("sums", total=Sum("price")),
        lambda changes: changes.top_n("again", "price", 1, "shop"),
        lambda changes: changes.dedup("first", "shop"),
        lambda changes: changes.dedup("last", "shop", keep="last"),
        lambda changes: changes.latest_by("newest", "price", "shop"),
    ],
)
def test_deletions_are_not_taken_for_rows(sales: DataStream[Any], counted: Any) -> None:
    with pytest.raises(GraphError, match=r"top_n 'best' .*would treat a deletion as a row"):
        counted(best(sales))
    counted(best(StreamEnvironment("mapped").from_collection("sales", ROWS)).map(same))


JOINS = {
    "join": lambda left, right: left.join(right, on="shop", within=(-1, 1)),
    "join_asof": lambda left, right: left.join_asof(right, on="shop"),
    "join_temporal": lambda left, right: left.join_temporal(right, on="shop"),
}


@pytest.mark.parametrize("call", JOINS)
def test_a_join_takes_no_changes_on_either_side(call: str) -> None:
    for make in (lambda rows, changes: (rows, changes), lambda rows, changes: (changes, rows)):
        env = StreamEnvironment("joined")
        rows, others = env.from_collection("rows", ROWS), env.from_collection("sales", ROWS)
        with pytest.raises(GraphError, match=rf"{call}: top_n 'best' .*{call} would treat a deletion"):
            JOINS[call](*make(rows, best(others)))


def test_a_temporal_join_takes_changes_if_it_knows_which_of_them_delete() -> None:
    env = StreamEnvironment("joined")
    versions = best(env.from_collection("sales", ROWS))
    orders = env.from_collection("orders", ROWS)
    orders.join_temporal(versions, on="shop", deleted=lambda row: row["change"] == "delete")


def test_a_lookup_takes_changes(sales: DataStream[Any]) -> None:
    found = best(sales).lookup({"a": {"name": "Anna"}}, on="shop")
    found.sink("table", table(key=["shop"], change_kind="change"))


def test_changes_with_their_kind_in_the_key_are_kept_apart(sales: DataStream[Any]) -> None:
    best(sales).dedup("first", ["shop", "price", "change"])


def test_changes_are_counted_by_their_kind(sales: DataStream[Any]) -> None:
    best(sales).key_by(["shop", "change"]).aggregate("counts", changes=Count())


def test_a_change_data_feed_gives_changes() -> None:
    env = StreamEnvironment("feed")
    feed = env.from_source("feed", DeltaSource("/data/in", change_data_feed=True))
    with pytest.raises(GraphError, match=r"source 'feed' .*in the column '_change_type'"):
        feed.sink("table", table(key=["id"]))
    feed.sink("merged", table(key=["id"], change_kind="_change_type"))
    env.from_source("rows", DeltaSource("/data/in")).sink("added", table())
