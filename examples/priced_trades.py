"""Trades with quotes: give each trade the last price quoted up to its time, by an as-of join.

    python examples/priced_trades.py --output priced

Quotes and trades come out of order, and one stream may be far ahead of the other. A trade waits until event
time has passed it, so its quote is the right one whichever stream is faster. A quote older than a minute
does not count. The join works on columns. State is part of every checkpoint.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from penstock import (
    Checkpointing,
    FileSink,
    GeneratorSource,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)

SECOND = 1_000_000
SHARES = 40

#: Maximum age of a quote, in seconds.
MAX_AGE = 60

#: Maximum out-of-orderness of a stream, in seconds.
DELAY = 10


def trade(i: int) -> dict[str, Any]:
    """The i-th trade; ten trades a second."""
    return {"share": f"S{i * 7 % SHARES}", "second": i // 10 + i * 7919 % DELAY, "count": i % 90 + 1}


def quote(i: int) -> dict[str, Any]:
    """The i-th quote; four quotes a second. Nine of the shares are quoted, the others never."""
    share = i * i % SHARES
    return {"share": f"S{share}", "second": i // 4 + i * 104_729 % DELAY, "price": 100 + i % 17}


def rows_of(output: Path) -> list[dict[str, Any]]:
    """The rows in the committed files."""
    files = sorted(output.glob("part-*"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Run the job and print how many trades have a quote."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that trades are committed to")
    parser.add_argument("--trades", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "priced-trades",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    times: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(DELAY)
    times = times.with_timestamp_assigner(lambda row: row["second"] * SECOND)
    trades = env.from_source(
        "trades", GeneratorSource(trade, count=options.trades), watermarks=times, parallelism=1
    )
    quotes = env.from_source(
        "quotes", GeneratorSource(quote, count=options.trades * 4 // 10), watermarks=times, parallelism=1
    )
    (
        trades.join_asof(
            quotes, on="share", tolerance=MAX_AGE, suffix="_of_quote", batch_format="arrow", id="priced"
        ).sink("rows", FileSink.json(output))
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"priced_trades: {error}", file=sys.stderr)
        return 1
    rows = rows_of(output)
    print(f"{sum(row['price'] is not None for row in rows)} of {len(rows)} trades have a quote")
    return 0


if __name__ == "__main__":
    sys.exit(main())
