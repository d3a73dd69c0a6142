"""The jobs whose snapshots are kept as fixtures, and what each must have written when it has ended.

Every job reads and writes below `ROOT`, a folder that no machine has: `Placed` finds it wherever a copy of
the fixture is. So the paths in a snapshot are the same on every machine.

Snapshots name the classes of this module. Keep the names; a new field needs a default value.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import (
    AdvancedConfig,
    AggregateFunction,
    Checkpointing,
    CollectSink,
    FileSink,
    FileSource,
    GeneratorSource,
    HeapState,
    JobConfig,
    JobStatus,
    KeyedProcessFunction,
    RocksDB,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.connectors import ConnectorContext, DeadLetter, OnRequest, Polled, Source, SourceReader
from penstock.runtime.io.connectors.collect_sink import CollectedRows
from penstock.runtime.io.connectors.filesystem import FileInfo
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.windows import SlidingEventTimeWindows, TimeWindow, TumblingEventTimeWindows

#: Where the jobs believe their files to be.
ROOT: Final = "/kept-for-compatibility"

LINES: Final = 240
NUMBERS: Final = 400
MINUTE: Final = 60_000_000


class Placed(LocalFileSystem):
    """The local disk, in which `ROOT` is another folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = str(folder)

    def _real(self, path: str) -> str:
        assert path.startswith(ROOT), f"{path} is not below {ROOT}"
        return self.folder + path.removeprefix(ROOT)

    def find(self, pattern: str) -> Sequence[FileInfo]:
        found = super().find(self._real(pattern))
        return [FileInfo(ROOT + info.path.removeprefix(self.folder), info.size) for info in found]

    def size(self, path: str) -> int | None:
        return super().size(self._real(path))

    def open_input(self, path: str) -> Any:
        return super().open_input(self._real(path))

    def make_directory(self, directory: str, probe: str) -> None:
        super().make_directory(self._real(directory), probe)

    def names(self, directory: str, prefix: str) -> Sequence[str]:
        return super().names(self._real(directory), prefix)

    def partition_files(self, directory: str, most: int) -> Sequence[str]:
        return super().partition_files(self._real(directory), most)

    def create(self, directory: str, name: str) -> Any:
        return super().create(self._real(directory), name)

    def publish(self, directory: str, name: str, final: str) -> Any:
        return super().publish(self._real(directory), name, final)

    def delete(self, directory: str, names: Sequence[str]) -> None:
        super().delete(self._real(directory), names)


# -- what the jobs read --------------------------------------------------------------------------------------


def record(i: int) -> dict[str, Any]:
    return {"n": i, "word": f"word-{i * 7 % 31}", "price": i * 1.5}


def text_line(i: int) -> str:
    return f"line {i}: é {i * i}"


def is_bad(i: int) -> bool:
    return i % 8 == 5


def json_line(i: int) -> str:
    """JSON, and now and then what is none."""
    return f"no JSON {i}" if is_bad(i) else json.dumps(record(i))


def halves() -> Iterable[tuple[int, range]]:
    return enumerate((range(LINES // 2), range(LINES // 2, LINES)))


def write_text(folder: Path) -> None:
    for part, numbers in halves():
        (folder / f"text-{part}.txt").write_text("".join(f"{text_line(i)}\n" for i in numbers))


def write_packed(folder: Path) -> None:
    for part, numbers in halves():
        lines = "".join(f"{text_line(i)}\r\n" for i in numbers).encode()
        (folder / f"packed-{part}.gz").write_bytes(gzip.compress(lines, mtime=0))


def write_json_lines(folder: Path) -> None:
    for part, numbers in halves():
        (folder / f"lines-{part}.jsonl").write_text("".join(f"{json_line(i)}\n" for i in numbers))


def write_small_files(folder: Path) -> None:
    for part in range(12):
        lines = [json.dumps(record(i)) + "\n" for i in range(part * 20, part * 20 + 20)]
        (folder / f"small-{part:02}.jsonl").write_text("".join(lines))


def write_csv(folder: Path) -> None:
    for part, numbers in halves():
        with (folder / f"rows-{part}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["n", "word", "note"])
            writer.writerows([i, record(i)["word"], f'two\nlines, "{i}"'] for i in numbers)


def write_parquet(folder: Path) -> None:
    for part, numbers in halves():
        table = pa.Table.from_pylist([record(i) for i in numbers])
        pq.write_table(table, folder / f"rows-{part}.parquet", row_group_size=70)


class Slowly:
    """Reads a few records of a source at a time, so that a small job is in the middle for a while."""

    def __init__(self, source: Source[Any]) -> None:
        self._source = source

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self._source.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SlowReader:
        return SlowReader(self._source.reader(context, splits))


class SlowReader:
    def __init__(self, reader: SourceReader[Any]) -> None:
        self._reader = reader
        self.snapshot, self.close = reader.snapshot, reader.close

    def poll(self, max_rows: int) -> Polled[Any]:
        return self._reader.poll(min(max_rows, 4))


# -- values of state -----------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "r"
    BLUE = "b"


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Order:
    number: int
    price: Decimal
    tags: tuple[str, ...] = ()


class Plain:
    """Neither a dataclass nor a named tuple: it is pickled, with a value of the package within."""

    def __init__(self, number: int, letter: DeadLetter) -> None:
        self.number = number
        self.letter = letter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Plain({self.number}, {self.letter})"


def letter(i: int) -> DeadLetter:
    return DeadLetter(f"record {i}", "bad", f"file:{i}")


KEYS: Final[tuple[Any, ...]] = (
    7,
    -3.5,
    "word",
    b"bytes",
    None,
    (1, "two", None),
    frozenset({1, 2}),
    date(2024, 2, 29),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    timedelta(seconds=1),
    Decimal("1.50"),
    Fraction(1, 3),
    UUID(int=5),
    Colour.RED,
    Point(1, 2.0),
    Order(1, Decimal("2.5"), ("a",)),
    letter(0),
    JobStatus.FINISHED,
    TimeWindow(0, MINUTE),
)


def values_of(i: int) -> dict[str, tuple[Any, type | None]]:
    """The states of a key after number `i`, each with its declared type."""
    return {
        "integer": (i, int),
        "large": (1 << 70 | i, None),
        "real": (i / 7 if i % 2 else math.inf, float),
        "text": (f"né {i}", str),
        "raw": (bytes([i % 256]), bytes),
        "pair": ((i, (str(i), None)), tuple),
        "several": ([i, [True, i / 2], {"a": i}], list),
        "mapping": ({1: "one", (2, i): {"deep": i}}, dict),
        "set": ({i % 5}, set),
        "decimal": (Decimal(i).scaleb(-2), Decimal),
        "fraction": (Fraction(i, 7), Fraction),
        "moment": (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=i), datetime),
        "day": (date(2024, 1, 1) + timedelta(days=i), date),
        "span": (timedelta(milliseconds=i), timedelta),
        "id": (UUID(int=i), UUID),
        "complex": (complex(i, -i), complex),
        "array": (np.arange(i % 4, dtype=np.int16), np.ndarray),
        "scalar": (np.float32(i), np.float32),
        "colour": (Colour.RED if i % 2 else Colour.BLUE, Colour),
        "point": (Point(i, i / 2), Point),
        "order": (Order(i, Decimal(i), (str(i),)), Order),
        "orders": ([Order(n, Decimal(n)) for n in range(i % 5)], list),
        "pickled": (Plain(i, letter(i)), Plain),
        "slice": (slice(i, None, 2), slice),
        "letter": (letter(i), DeadLetter),
        "letters": ([letter(n) for n in range(i % 5)], list),
        "window": (TimeWindow(i, i + MINUTE), TimeWindow),
        "windows": ([TimeWindow(n, n + 1) for n in range(i % 4)], None),
        "status": (JobStatus.RUNNING if i % 2 else JobStatus.FAILED, JobStatus),
        "statuses": (list(JobStatus)[: i % 4], None),
        "collected": (CollectedRows(("job", "out", 0, 1, i), [i]), CollectedRows),
    }


def key_of(i: int) -> Any:
    return KEYS[i % len(KEYS)]


class Remembers(KeyedProcessFunction[Any, int, str]):
    """Tells what values a key had before each number, in short, then sets them by that."""

    def open(self, ctx: RuntimeContext) -> None:
        self.states = {
            name: ctx.value_state(name, of_type=of_type) for name, (_, of_type) in values_of(0).items()
        }

    def process(self, value: int, ctx: RuntimeContext) -> Iterable[str]:
        before = {name: state.value() for name, state in self.states.items()}
        for name, (new, _) in values_of(value).items():
            self.states[name].update(new)
        return [remembered(value, before)]


def remembered(i: int, before: dict[str, Any]) -> str:
    return f"{i} {text_of(key_of(i))} {hashlib.sha256(text_of(before).encode()).hexdigest()}"


def text_of(value: Any) -> str:
    """The `repr` of the fixtures' version, in which a window showed its microseconds."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {text_of(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    return "TimeWindow(start={}, end={})".format(*value) if isinstance(value, TimeWindow) else repr(value)


class Mean(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> Any:
        return Point(0, 0.0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return Point(accumulator.x + 1, accumulator.y + value)

    def get_result(self, accumulator: Any) -> Any:
        return ["mean", accumulator.x, accumulator.y]


# -- the jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedJob:
    """A job whose snapshot is kept.

    Attributes:
        build: Adds the operators; `world` serves the files.
        expected: What all rows of the sinks must be in the end.
        write_input: Writes what it reads, into a folder.
        parallelism: Of the whole job.
        moves: How many moves a checkpoint is taken after, and after that one the snapshot.
        unaligned: The snapshot holds data in flight.
        savepoint: The snapshot is a savepoint in a folder of its own.
        state_backend: Where the keyed state is while the job runs.
    """

    build: Callable[[StreamEnvironment, Placed], None]
    expected: Callable[[], Iterable[Any]]
    write_input: Callable[[Path], None] | None = None
    parallelism: int = 2
    moves: tuple[int, int] = (8, 5)
    unaligned: bool = False
    savepoint: bool = False
    state_backend: HeapState | RocksDB = field(default_factory=HeapState)


CONFIG: Final = JobConfig(
    checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=7, credits=3)
)


def config_of(job: SavedJob) -> JobConfig:
    if not job.unaligned:
        return replace(CONFIG, state_backend=job.state_backend)
    return replace(
        CONFIG,
        checkpointing=Checkpointing(every=1, unaligned=True),
        advanced=AdvancedConfig(buffer_rows=5, credits=2),
    )


def environment(name: str, world: Placed, **options: Any) -> StreamEnvironment:
    job = JOBS[name]
    settings = {"parallelism": job.parallelism, "max_parallelism": 8, "config": config_of(job), **options}
    env = StreamEnvironment(name, **settings)
    job.build(env, world)
    return env


def out(world: Placed, folder: str = "out") -> FileSink:
    return FileSink.json(f"{ROOT}/{folder}", filesystem=world)


def text(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.text(f"{ROOT}/in/text-*.txt", filesystem=world)
    env.from_source("files", Slowly(source)).sink("out", out(world))


def json_lines(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.json(f"{ROOT}/in/lines-*.jsonl", on_error="dead_letter", filesystem=world)
    stream = env.from_source("files", Slowly(source))
    stream.sink("out", FileSink.csv(f"{ROOT}/out", columns=["n", "word", "price"], filesystem=world))
    stream.dead_letters().map(lambda dead: [dead.record, dead.origin]).sink("dead", out(world, "out/dead"))


def csv_rows(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.csv(f"{ROOT}/in/rows-*.csv", schema={"n": int}, filesystem=world)
    env.from_source("files", Slowly(source)).sink("out", out(world))


def packed(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.text(f"{ROOT}/in/packed-*.gz", filesystem=world)
    env.from_source("files", Slowly(source)).sink("out", out(world))


def parquet_rows(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.parquet(f"{ROOT}/in/rows-*.parquet", filesystem=world)
    env.from_source("files", Slowly(source)).sink("out", out(world))


def parquet_arrow(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.parquet(f"{ROOT}/in/rows-*.parquet", ["n", "word"], "arrow", filesystem=world)
    env.from_source("files", Slowly(source)).sink("out", FileSink.parquet(f"{ROOT}/out", filesystem=world))


def requested(env: StreamEnvironment, world: Placed) -> None:
    source = FileSource.json(f"{ROOT}/in/small-*.jsonl", filesystem=world)
    env.from_source("files", OnRequest(Slowly(source))).sink("out", out(world))


class Files:
    """A collector that keeps each transaction in a file."""

    def __init__(self, world: Placed) -> None:
        self.folder = Path(world.folder, "out")

    def add(self, key: Any, rows: Sequence[Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        name = "-".join(map(str, key))
        (self.folder / f"part-{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def collected(env: StreamEnvironment, world: Placed) -> None:
    env.from_source("numbers", Slowly(GeneratorSource(int, count=NUMBERS))).sink(
        "out", CollectSink(Files(world))
    )


def states(env: StreamEnvironment, world: Placed) -> None:
    numbers = env.from_source("numbers", Slowly(GeneratorSource(int, count=NUMBERS)), parallelism=1)
    numbers.key_by(key_of).process("remembers", Remembers()).sink("out", out(world))


def windows(env: StreamEnvironment, world: Placed) -> None:
    late = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=30))
    numbers = env.from_source("numbers", Slowly(GeneratorSource(int, count=NUMBERS)), parallelism=1)
    stamped = numbers.assign_timestamps_and_watermarks(late.with_timestamp_assigner(stamp), parallelism=1)
    keyed = stamped.key_by(lambda i: i % 5)
    tumbling = keyed.window(TumblingEventTimeWindows(timedelta(minutes=1)))
    tumbling.reduce("reduced", lambda a, b: a + b).sink("out-reduced", out(world, "out/reduced"))
    tumbling.aggregate("means", Mean()).sink("out-means", out(world, "out/means"))
    sliding = keyed.window(SlidingEventTimeWindows(timedelta(minutes=2), timedelta(minutes=1)))
    sliding.apply("listed", listed).sink("out-listed", out(world, "out/listed"))
    keyed.reduce("total", lambda a, b: a + b).sink("out-total", out(world, "out/total"))


def stamp(i: int) -> int:
    """Event time of a number: four a minute, in which neighbours change places."""
    return (i ^ 1) * 15_000_000


def listed(key: int, window: TimeWindow, numbers: list[int]) -> Iterable[Any]:
    return [["listed", key, window.start_timestamp, sorted(numbers)]]


class Counted(KeyedProcessFunction[Any, Any, Any]):
    """Emits each record and how many its key has had: the same rows in whatever order records come."""

    def __init__(self, tell: Callable[[Any], Any]) -> None:
        self.tell = tell

    def open(self, ctx: RuntimeContext) -> None:
        self.count = ctx.value_state("count", default=0)

    def process(self, value: Any, ctx: RuntimeContext) -> Iterable[Any]:
        self.count.update(self.count.value() + 1)
        return [["record", self.tell(value)], ["count", self.count.value()]]


def in_flight_rows(env: StreamEnvironment, world: Placed) -> None:
    """Rows of many kinds on keyed exchanges; dead letters go by one of their own."""
    source = FileSource.json(f"{ROOT}/in/lines-*.jsonl", on_error="dead_letter", filesystem=world)
    stream = env.from_source("files", Slowly(source))
    stamps = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda order: order.number)
    orders = stream.map(order_of, id="order").assign_timestamps_and_watermarks(stamps)
    orders.key_by(lambda order: order.tags[0]).process("orders", Counted(told)).sink("out", out(world))
    dead = stream.dead_letters().key_by(lambda dead: dead)
    dead.process("dead", Counted(told_dead)).sink("out-dead", out(world, "out/dead"))


def order_of(row: dict[str, Any]) -> Order:
    return Order(row["n"], Decimal(row["price"]), (row["word"],))


def told(order: Order) -> Any:
    return [order.number, float(order.price), list(order.tags)]


def told_dead(dead: DeadLetter) -> Any:
    return [dead.record, dead.origin]


def in_flight_arrow(env: StreamEnvironment, world: Placed) -> None:
    """Arrow batches on a keyed exchange: they stay whole where one subtask receives all of them."""
    source = FileSource.parquet(f"{ROOT}/in/rows-*.parquet", ["n", "word"], "arrow", filesystem=world)
    keyed = env.from_source("files", Slowly(source)).key_by(lambda row: row["word"])
    keyed.process("counted", Counted(dict), parallelism=1).sink("out", out(world), parallelism=1)


# -- what they must write ------------------------------------------------------------------------------------


def readable() -> list[int]:
    return [i for i in range(LINES) if not is_bad(i)]


def dead_lines() -> Iterable[Any]:
    for part, numbers in halves():
        offset = 0
        for i in numbers:
            if is_bad(i):
                yield [json_line(i), f"{ROOT}/in/lines-{part}.jsonl:{offset}"]
            offset += len(json_line(i).encode()) + 1


def csv_dicts() -> Iterable[Any]:
    return ({"n": i, "word": record(i)["word"], "note": f'two\nlines, "{i}"'} for i in range(LINES))


def arrow_rows() -> Iterable[Any]:
    return ({"n": i, "word": record(i)["word"]} for i in range(LINES))


def csv_texts() -> Iterable[Any]:
    for i in readable():
        yield {name: str(value) for name, value in record(i).items()}
    yield from dead_lines()


def remembered_rows() -> Iterable[str]:
    known: dict[Any, dict[str, Any]] = {}
    for i in range(NUMBERS):
        yield remembered(i, known.get(key_of(i), dict.fromkeys(values_of(0))))
        known[key_of(i)] = {name: value for name, (value, _) in values_of(i).items()}


def window_rows() -> Iterable[Any]:
    totals: Counter[int] = Counter()
    for i in range(NUMBERS):
        totals[i % 5] += i
        yield totals[i % 5]
    for start in range(-MINUTE, stamp(NUMBERS) + MINUTE, MINUTE):
        for key in range(5):
            numbers = [i for i in range(NUMBERS) if i % 5 == key]
            one = [i for i in numbers if start <= stamp(i) < start + MINUTE]
            two = [i for i in numbers if start <= stamp(i) < start + 2 * MINUTE]
            if one:
                yield sum(one)
                yield ["mean", len(one), float(sum(one))]
            if two:
                yield ["listed", key, start, two]


def counted(records: Iterable[Any], key: Callable[[Any], Any]) -> Iterable[Any]:
    counts: Counter[Any] = Counter()
    for each in records:
        counts[key(each)] += 1
        yield ["record", each]
        yield ["count", counts[key(each)]]


def in_flight_texts() -> Iterable[Any]:
    orders = [record(i) for i in readable()]
    yield from counted([[r["n"], r["price"], [r["word"]]] for r in orders], lambda order: order[2][0])
    yield from counted(dead_lines(), lambda dead: dead[1])


JOBS: Final[dict[str, SavedJob]] = {
    "text": SavedJob(text, lambda: map(text_line, range(LINES)), write_text),
    "json-lines": SavedJob(json_lines, csv_texts, write_json_lines),
    "csv": SavedJob(csv_rows, csv_dicts, write_csv),
    "packed": SavedJob(packed, lambda: map(text_line, range(LINES)), write_packed),
    "parquet-rows": SavedJob(parquet_rows, lambda: map(record, range(LINES)), write_parquet),
    "parquet-arrow": SavedJob(parquet_arrow, arrow_rows, write_parquet, moves=(4, 2)),
    "requested": SavedJob(requested, lambda: map(record, range(240)), write_small_files, moves=(30, 21)),
    "collected": SavedJob(collected, lambda: range(NUMBERS), moves=(30, 20)),
    "states": SavedJob(states, remembered_rows, moves=(60, 40)),
    "states-rocksdb": SavedJob(states, remembered_rows, moves=(60, 40), state_backend=RocksDB()),
    "savepoint-rocksdb": SavedJob(
        states, remembered_rows, moves=(60, 40), savepoint=True, state_backend=RocksDB()
    ),
    "windows": SavedJob(windows, window_rows, moves=(300, 200)),
    "savepoint": SavedJob(windows, window_rows, moves=(300, 200), savepoint=True),
    "in-flight-rows": SavedJob(
        in_flight_rows, in_flight_texts, write_json_lines, moves=(40, 30), unaligned=True
    ),
    "in-flight-arrow": SavedJob(
        in_flight_arrow,
        lambda: counted(arrow_rows(), lambda row: row["word"]),
        write_parquet,
        moves=(15, 8),
        unaligned=True,
    ),
}


def in_json(rows: Iterable[Any]) -> Counter[str]:
    """Rows as JSON, each with how often it is there."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def committed(folder: Path) -> Counter[str]:
    """All rows that stand in committed files below a folder."""
    rows: list[Any] = []
    for path in sorted(folder.rglob("part-*")):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
        elif path.suffix == ".csv":
            with path.open(newline="") as file:
                rows += list(csv.DictReader(file))
        else:
            rows += map(json.loads, path.read_text().splitlines())
    return in_json(rows)


def expected_of(name: str) -> Counter[str]:
    """All rows that a job must have written in the end."""
    return in_json(JOBS[name].expected())
