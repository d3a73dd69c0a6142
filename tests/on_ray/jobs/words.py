"""The word count that most tests run: its functions are user code in a module of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from jobs.lasting import Lasting

from penstock import (
    Checkpointing,
    DataStream,
    FileSink,
    FixedDelay,
    GeneratorSource,
    JobConfig,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
)
from penstock.connectors import Sink, Source
from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.config.restart import RestartConfig

#: What a job does after a failure unless a test says otherwise.
RESTART = FixedDelay(attempts=5, delay=0.1)

#: Seconds that a record may wait in a buffer. By default a slow stream sends a hundred frames a second on
#: each channel. That keeps the processes of a small job as busy as a fast one.
_BUFFER_TIMEOUT = 1.0

#: An attempt that no job of these tests begins: its source ends only when it is released.
NEVER = 1_000


def line(i: int) -> str:
    """The i-th line: a word that everybody has, a frequent one and a rare one."""
    return f"the w{i % 13} r{i * 7 % 997}"


def wide_line(i: int) -> str:
    """Long words, for state that is too large for a checkpoint's metadata."""
    return f"the {i % 499:0200d}"


def lines(count: int) -> list[str]:
    """The first lines."""
    return [line(i) for i in range(count)]


def with_one(word: str) -> tuple[str, int]:
    return word, 1


def word_of(pair: tuple[str, int]) -> str:
    return pair[0]


def add(total: tuple[str, int], one: tuple[str, int]) -> tuple[str, int]:
    return total[0], total[1] + one[1]


def as_update(pair: tuple[str, int]) -> dict[str, Any]:
    return {"word": pair[0], "count": pair[1]}


def last_word(text: str) -> str:
    return text.rpartition(" ")[2]


class LastLine(KeyedProcessFunction[str, str, str]):
    """Keeps the last line of each key in a state of a declared type."""

    def __init__(self, of_type: type) -> None:
        self.of_type = of_type

    def open(self, ctx: RuntimeContext) -> None:
        self.line = ctx.value_state("line", of_type=self.of_type)

    def process(self, value: str, ctx: RuntimeContext) -> list[str]:
        self.line.update(value)
        return [value]


def paced_lines(
    count: int,
    rate: float,
    attempt: int = 1,
    release: Path | None = None,
    line: Callable[[int], str] = line,
) -> Source[str]:
    """Lines at `rate` a second over all subtasks.

    They do not end before this attempt of the job, unless the file `release` exists.
    """
    return Lasting(
        GeneratorSource(line, count=count, rate=rate), attempt, None if release is None else str(release)
    )


def environment(
    tmp_path: Path,
    *,
    every: float | timedelta | None = 0.25,
    parallelism: int = 1,
    config: JobConfig | None = None,
    buffer_timeout: float = _BUFFER_TIMEOUT,
    restart: RestartConfig | None = RESTART,
    state_backend: StateBackend | None = None,
    **checkpointing: Any,
) -> StreamEnvironment:
    """An environment with checkpoints in the test's folder; `every=None` takes none and never restarts."""
    return StreamEnvironment(
        "words",
        parallelism=parallelism,
        checkpointing=None
        if every is None
        else Checkpointing(every=every, storage=str(tmp_path / "checkpoints"), **checkpointing),
        restart=restart if every is not None else None,
        state_backend=state_backend,
        config=replace(config or JobConfig(), buffer_timeout=buffer_timeout),
    )


def counted(
    stream: DataStream[str],
    sink: Sink[Any],
    *,
    update: Callable[[tuple[str, int]], dict[str, Any]] = as_update,
    sink_parallelism: int | None = None,
    sink_id: str = "updates",
) -> None:
    """lines -> words -> running count per word -> one record per update -> sink.

    With a parallelism of its own the sink is a vertex of its own, otherwise it is chained to the count.
    """
    updates = stream.flat_map(str.split).map(with_one).key_by(word_of).reduce("count", add).map(update)
    if sink_parallelism is None:
        updates.sink(sink_id, sink)
    else:
        updates.rebalance().sink(sink_id, sink, parallelism=sink_parallelism)


def word_count(
    tmp_path: Path,
    source: Source[str],
    *,
    sink: Sink[Any] | None = None,
    sink_parallelism: int | None = None,
    **options: Any,
) -> StreamEnvironment:
    """The whole job; it commits to the folder `out`."""
    env = environment(tmp_path, **options)
    stream = env.from_source("lines", source)
    counted(stream, sink or FileSink.json(tmp_path / "out"), sink_parallelism=sink_parallelism)
    return env
