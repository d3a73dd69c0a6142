"""Values of classes of the package itself, which snapshots may hold: by what is built in, or by users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from saved_jobs import Plain, letter

from penstock import CheckpointingMode, FixedDelay, JobStatus, KeepAfter
from penstock.bridge.ray_data import BlockSplit
from penstock.bridge.spark_source import BufferSplit
from penstock.cluster import JobStatistics
from penstock.connectors import DeadLetter
from penstock.operators import OperatorStatistics, RowBatch
from penstock.runtime.io.connectors.collect_sink import CollectedRows
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit, RowGroupSplit
from penstock.runtime.io.connectors.files.file_sink_writer import PendingFile
from penstock.runtime.io.connectors.generator_source import IndexRange
from penstock.windows import TimeWindow

#: One value of each class; made anew, as values may be changed.
VALUES: Final[dict[str, Callable[[], Any]]] = {
    "split of a file of lines": lambda: FileSplit("/a/b.txt", 100, 10, 60, 33),
    "split of a file that was not begun": lambda: FileSplit("/a/b.txt", 100, 0, 60),
    "split of a parquet file": lambda: RowGroupSplit("s3://bucket/b.parquet", 100, 2, 33),
    "split of numbers": lambda: IndexRange(3, None, 2),
    "split of a Ray dataset": lambda: BlockSplit(4, 17),
    "share of a Spark source": lambda: BufferSplit(
        1, 2, "stamp", frame=7, row=3, rows={0: 70, 4: 3}, epoch=5, is_whole=False
    ),
    "share of a Spark source that was not begun": lambda: BufferSplit(0, 2),
    "file that is pending": lambda: PendingFile("/out", "_inprogress-a-0", "part-a-0", 77),
    "rows that are pending": lambda: CollectedRows(("job", "out", 0, 1, 2), [{"n": 1}, (2, letter(2))]),
    "dead letter": lambda: letter(1),
    "window": lambda: TimeWindow(0, 60_000_000),
    "batch": lambda: RowBatch([1, "two"], [10, 20]),
    "member of an enum": lambda: JobStatus.FAILED,
    "members of enums": lambda: (CheckpointingMode.EXACTLY_ONCE, KeepAfter.ALWAYS),
    "statistics": lambda: JobStatistics(JobStatus.RUNNING, operators={"map": OperatorStatistics(1, 2)}),
    "settings": lambda: FixedDelay(attempts=3, delay=1.0),
}

#: How a value may stand in another one.
FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "alone": lambda value: value,
    "column": lambda value: [value, value, value],
    "nested": lambda value: {"values": (value, [value])},
    "pickled": lambda value: Plain(1, DeadLetter(value, "within", "here")),
}

#: Values that may be keys: their hash decides which subtask has their state, for ever.
KEYS: Final = (
    "split of a file of lines",
    "split of a parquet file",
    "split of numbers",
    "split of a Ray dataset",
    "file that is pending",
    "dead letter",
    "window",
    "member of an enum",
    "members of enums",
    "settings",
)
