"""The same interval join in Penstock, Flink SQL and Structured Streaming.

Row `n` of a side has the time `base_time` plus `n / event_rate` seconds. Its key is `n * factor % keys`; each
side has its own factor. There are as many keys as rows in the band, so each row matches one row of the other
side. The band is ten seconds in both directions. Penstock and Spark read Parquet files; Flink generates rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import Checkpointing, DataStream, DiscardSink, FileSource, StreamEnvironment, WatermarkStrategy

from .own_job import run_to_end
from .programs import ROWS_OF_FILE, Job, run_flink, run_spark, write_file
from .report import Ended

#: Seconds by which a row's match may be earlier or later.
BAND: Final = 10.0

#: Name of each side, of its payload, and its factor.
_SIDES: Final = (("lefts", "v", 7919), ("rights", "w", 104_729))

_MOMENT: Final = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True)
class Band:
    """The data of the join.

    Attributes:
        event_rate: Rows of each side in a second of event time.
        keys: Number of keys.
        base_time: Time of row 0, in milliseconds since the epoch.
    """

    event_rate: int
    keys: int
    base_time: int = 1_714_521_600_000

    @classmethod
    def one_match(cls, event_rate: int) -> Band:
        """Data in which each row matches one row of the other side."""
        return cls(event_rate, round(2 * BAND * event_rate))

    def side(self, name: str, start: int, end: int) -> pa.RecordBatch:
        """Rows `start` to `end - 1` of a side."""
        _, payload, factor = next(side for side in _SIDES if side[0] == name)
        numbers = np.arange(start, end, dtype=np.int64)
        moments = pa.array(self.base_time + numbers * 1000 // self.event_rate).view(_MOMENT)
        return pa.record_batch({"key": numbers * factor % self.keys, payload: numbers, "ts": moments})

    def own(self, count: int, batch_format: Literal["rows", "arrow"], folder: Path) -> Ended:
        """Run the join in Penstock over `count` rows, half of them on each side."""
        storage = str(folder / f"checkpoints-{batch_format}-{count}")
        env = StreamEnvironment("interval-join", checkpointing=Checkpointing(every=1.0, storage=storage))
        sides = []
        for name, _, _ in _SIDES:
            path = folder / f"{name}-{count}.parquet"
            if not path.exists():
                table = pa.Table.from_batches([self.side(name, 0, count // 2)])
                pq.write_table(table, path, row_group_size=1 << 16)
            source = FileSource.parquet(str(path), batch_format=batch_format)
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ts")
            sides.append(env.from_source(name, source, watermarks=strategy))
        joined(sides[0], sides[1], batch_format).sink("discard", DiscardSink())
        return run_to_end(env, f"join, {batch_format}", count)

    def flink(self, jobs: Sequence[Job], folder: Path, *, collect: bool = False) -> list[Ended]:
        """Run the join in Flink SQL."""
        return run_flink({"join": asdict(self), "jobs": jobs, "collect": collect}, folder, 1.0)

    def spark(self, jobs: Sequence[Job], folder: Path, *, collect: bool = False) -> list[Ended]:
        """Run the join in Structured Streaming."""
        folders = {}
        for count in {count for _, count in jobs}:
            folders[count] = folder / f"spark-{count}"
            for name, _, _ in _SIDES:
                side = folders[count] / name
                side.mkdir(parents=True, exist_ok=True)
                for start in range(0, count // 2, ROWS_OF_FILE):
                    end = min(count // 2, start + ROWS_OF_FILE)
                    write_file(side, start // ROWS_OF_FILE, self.side(name, start, end))
        return run_spark({"join": asdict(self), "jobs": jobs, "collect": collect}, folders)


def joined(
    left: DataStream[Any], right: DataStream[Any], batch_format: Literal["rows", "arrow"]
) -> DataStream[Any]:
    """Join two streams; the results have the key and both payloads."""
    both = left.join(right, on="key", within=BAND, batch_format=batch_format)
    if batch_format == "arrow":
        return both.select("key", "v", "w")
    return both.map(lambda row: {"key": row["key"], "v": row["v"], "w": row["w"]})
