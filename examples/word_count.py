"""Count words, exactly once, while a process is killed.

    python examples/word_count.py --input 'texts/*.txt' --output counts --kill-after-checkpoints 2

Every occurrence of a word commits one JSON line `{"word": ..., "count": n}` to the output folder. So the
folder must hold each (word, 1..n) exactly once, whatever was killed. If a kill is requested, the job reads
the text in parts, with checkpoints in between. So the kill comes in the middle of the job.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from paced_source import PacedSource

from penstock import (
    Checkpointing,
    FileSink,
    FileSource,
    FixedDelay,
    JobHandle,
    PenstockError,
    StreamEnvironment,
)
from penstock.cluster import RayJobHandle
from penstock.connectors import Source
from penstock.testing import kill_process


def with_one(word: str) -> tuple[str, int]:
    """The first count of a word."""
    return word, 1


def word_of(pair: tuple[str, int]) -> str:
    """Return the word of a pair, which is its key."""
    return pair[0]


def add(total: tuple[str, int], one: tuple[str, int]) -> tuple[str, int]:
    """The next count of a word."""
    return total[0], total[1] + one[1]


def as_update(pair: tuple[str, int]) -> dict[str, Any]:
    """The record that the sink commits as one line."""
    return {"word": pair[0], "count": pair[1]}


def word_count(
    source: Source[str], output: str, parallelism: int, checkpoint_interval: float, storage: str
) -> StreamEnvironment:
    """The job: lines -> words -> (word, 1) -> running count per word -> one JSON line per update."""
    env = StreamEnvironment(
        "word-count",
        parallelism=parallelism,
        checkpointing=Checkpointing(every=checkpoint_interval, storage=storage),
        restart=FixedDelay(attempts=5, delay=0.2),
    )
    (
        env.from_source("lines", source)
        .flat_map(str.split)
        .map(with_one)
        .key_by(word_of)
        .reduce("count", add)
        .map(as_update)
        .sink("updates", FileSink.json(output))
    )
    return env


def paced(pattern: str, checkpoints: int) -> PacedSource[str]:
    """The text in enough parts for `checkpoints` checkpoints and a few more."""
    sizes = {split.path: split.size for split in FileSource.text(pattern).splits(1)}
    files = FileSource.text(pattern, split_size=max(1, sum(sizes.values()) // 32))
    lines = sum(len(Path(path).read_bytes().splitlines()) for path in sizes)
    return PacedSource(files, max(1.0, lines / (checkpoints + 3)))


def kill_one_subtask(job: JobHandle, vertex: str, after_checkpoints: int) -> str | None:
    """Kill the process of one subtask once this many checkpoints are complete; return its name."""
    assert isinstance(job, RayJobHandle)
    while not job.status().is_terminal:
        if job.statistics().completed_checkpoints >= after_checkpoints:
            for process in job.processes():
                if process.subtask.vertex == vertex:
                    kill_process(process)
                    return f"{process.subtask} (process {process.pid})"
        time.sleep(0.02)
    return None


def main() -> int:
    """Run the job with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", required=True, metavar="GLOB", help="text files to read")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that results are committed to")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--kill-after-checkpoints", type=int, default=0, metavar="K", help="0: no kill")
    parser.add_argument("--storage", metavar="URL", help="checkpoint storage (default: next to the output)")
    options = parser.parse_args()

    try:
        run(options)
    except PenstockError as error:
        print(f"word_count: {error}", file=sys.stderr)
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Run the job to its end; kill a process on the way if that is requested."""
    output = Path(options.output).resolve()
    storage = options.storage or str(output.with_name(f"{output.name}-checkpoints"))
    kills = options.kill_after_checkpoints
    source = paced(options.input, kills) if kills > 0 else FileSource.text(options.input)
    env = word_count(source, str(output), options.parallelism, options.checkpoint_interval, storage)
    if kills <= 0:
        env.run()
        return
    job = env.submit()
    killed = kill_one_subtask(job, "count", kills)
    print(f"killed {killed}" if killed else "the job ended before the kill", flush=True)
    result = job.wait()
    print(f"{result.status.value} after {result.statistics.restarts} restart(s)")


if __name__ == "__main__":
    sys.exit(main())
