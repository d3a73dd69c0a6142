"""`nexmark_pipeline`: a query as a pipeline for the harness of `tests/pipelines`, in the simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final, Literal

import nexmark_columns as columns
import nexmark_patterns as patterns
import nexmark_rows as rows
import pyarrow as pa
from batch_results import results
from nexmark_events import NexmarkConfig
from nexmark_source import NexmarkSource, add_events
from pipelines.harness.pipeline import Pipeline
from pyarrow.dataset import dataset, partitioning

from penstock import DataStream, StreamEnvironment

Row = dict[str, Any]
Format = Literal["rows", "arrow"]

QUERIES: Final[Mapping[str, Mapping[str, Callable[..., DataStream[Any]]]]] = {
    "rows": {**rows.QUERIES, **patterns.QUERIES},
    "arrow": {**columns.QUERIES, **patterns.COLUMN_QUERIES},
}

PROGRAM: Final = "python tests/examples/nexmark"

#: The names of all pipelines.
NAMES: Final = tuple(f"{query}-{form}" for form, queries in QUERIES.items() for query in queries)

#: Events of a run, and events of a block: a run reads in small steps, with checkpoints in between.
COUNT: Final = 180
_BLOCK: Final = 4

#: Moments before the ends of a day and of spans of the day.
_STARTS: Final = (
    datetime(2024, 5, 1, 23, 59, 50, tzinfo=UTC),
    datetime(2024, 5, 1, 7, 59, 50, tzinfo=UTC),
    datetime(2024, 5, 1, 19, 59, 50, tzinfo=UTC),
)

#: Fields of results that no query of SQL has: they number results.
_BESIDE: Final = ("changes", "change")

#: The key of running results, of which the last one counts, and the field that grows with each result.
_RUNNING: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "q4": (("id",), "changes"),
    "q15": (("day",), "total_bids"),
    "q16": (("channel", "day"), "total_bids"),
    "q17": (("auction", "day"), "total_bids"),
    "q18": (("bidder", "auction"), "dateTime"),
}


def nexmark_pipeline(query: str, batch_format: Format) -> Pipeline:
    """A query over rows or over Arrow batches."""

    def build(env: StreamEnvironment, config: NexmarkConfig) -> DataStream[Any]:
        events = add_events(env, NexmarkSource(config, COUNT, batch_format=batch_format, block=_BLOCK))
        return QUERIES[batch_format][query](events, config)

    def build_files(env: StreamEnvironment, config: NexmarkConfig, folder: Path) -> None:
        build(env, config).sink("files", rows.bid_files(folder / "bids"))

    def expected(config: NexmarkConfig) -> list[Hashable]:
        return [comparable_row(row) for row in results(query, config, COUNT)]

    module = SimpleNamespace(
        make_input=make_config,
        build=build_files if query == "q10" else build,
        expected=expected,
        comparable=lambda found: [comparable_row(row) for row in final_rows(query, found)],
        whole=None,  # a drain ends auctions early
        IN_COLUMNS=batch_format == "arrow",
    )
    if query == "q10":
        module.read = read_bids
    return Pipeline(f"{query}-{batch_format}", module, PROGRAM)


def read_bids(folder: Path) -> list[Row]:
    """The bids of all committed files, with the columns of their folders."""
    texts = pa.schema({"dt": pa.string(), "hm": pa.string()})
    files = dataset(folder / "bids", format="parquet", partitioning=partitioning(texts, flavor="hive"))
    found: list[Row] = files.to_table().to_pylist()
    return found


def load(name: str) -> Pipeline:
    """A pipeline by its name, such as `q5-arrow`."""
    query, batch_format = name.split("-")
    return nexmark_pipeline(query, "arrow" if batch_format == "arrow" else "rows")


def make_config(random: Random) -> NexmarkConfig:
    """Settings with which a few events give every query something to do."""
    return NexmarkConfig(
        seed=random.randrange(1 << 32),
        event_rate=8,
        persons=2,
        auctions=6,
        bids=22,
        in_flight_auctions=8,
        active_people=10,
        hot_bidder_ratio=2,
        out_of_order_group=random.choice((1, 7)),
        first_auction_id=1107,
        base_time=random.choice(_STARTS),
    )


def final_rows(query: str, found: Iterable[Row]) -> list[Row]:
    """The rows that a receiver of all results has in the end."""
    if query in _RUNNING:
        key, version = _RUNNING[query]
        newest: dict[Hashable, Row] = {}
        for row in found:
            at = tuple(row[name] for name in key)
            if at not in newest or newest[at][version] < row[version]:
                newest[at] = row
        return list(newest.values())
    if query == "q12":
        counts: Counter[int] = Counter()
        for row in found:
            counts[row["bidder"]] += row["bid_count"]
        return [{"bidder": bidder, "bid_count": count} for bidder, count in counts.items()]
    rows = list(found)
    left: Counter[Hashable] = Counter(comparable_row(row) for row in rows if row.get("change") == "delete")
    kept = []
    for row in rows:
        if row.get("change", "insert") == "insert":
            if left[comparable_row(row)]:
                left[comparable_row(row)] -= 1
            else:
                kept.append(row)
    assert not left.total(), f"deleted and never inserted: {left}"
    return kept


def comparable_row(row: Row) -> Hashable:
    """A row without what only streams have; a moment in any zone is itself."""
    return tuple(sorted((name, _plain(value)) for name, value in row.items() if name not in _BESIDE))


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
