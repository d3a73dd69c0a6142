"""Count words, exactly once, while a process is killed.

    python examples/word_count.py --input 'texts/*.txt' --output counts --kill-after-checkpoints 2

Every occurrence of a word commits one JSON line `{"word": ..., "count": n}` to the output folder, so each
(word, 1..n) must stand there exactly once, whatever was killed in between. With a kill asked for, the text is
read slowly enough for the kill to fall into the middle of the job.
"""

from __future__ import annotations

import argparse
import glob
import os
import sys
import time
from pathlib import Path
from typing import Any

from paced_source import PacedText
from penstock.actors import RayJobHandle, kill_process
from penstock.runtime import Checkpointing, FileSink, FileSource, FixedDelay, StreamEnvironment


def with_one(word: str) -> tuple[str, int]:
    """The first count of a word."""
    return word, 1


def word_of(pair: tuple[str, int]) -> str:
    """The key."""
    return pair[0]


def add(total: tuple[str, int], one: tuple[str, int]) -> tuple[str, int]:
    """The next count of a word."""
    return total[0], total[1] + one[1]


def as_update(pair: tuple[str, int]) -> dict[str, Any]:
    """The line that is committed."""
    return {"word": pair[0], "count": pair[1]}


def word_count(
    source: FileSource | PacedText, output: str, parallelism: int, checkpoint_interval: float, storage: str
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


def paced(pattern: str, checkpoint_interval: float, checkpoints: int) -> PacedText:
    """The text, read so slowly that `checkpoints` checkpoints fall into the job, and some more after them."""
    size = sum(os.path.getsize(name) for name in glob.glob(pattern, recursive=True))
    seconds = checkpoint_interval * (checkpoints + 3) + 2
    return PacedText(FileSource.text(pattern, split_size=max(64 * 1024, size // 16)), max(1.0, size / seconds))


def kill_one_subtask(job: RayJobHandle, after_checkpoints: int) -> str | None:
    """SIGKILL the process of one subtask once so many checkpoints are complete; which one it was."""
    while not job.status().is_terminal:
        statistics = job.statistics()
        if statistics.completed_checkpoints >= after_checkpoints:
            process = next(p for p in job.processes() if p.subtask.vertex == "count")
            kill_process(process)
            return f"{process.subtask} (process {process.pid})"
        time.sleep(0.02)
    return None


def main() -> int:
    """Run the job as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--input", required=True, metavar="GLOB", help="text files to read")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that results are committed to")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--kill-after-checkpoints", type=int, default=0, metavar="K", help="0: no kill")
    parser.add_argument("--storage", metavar="URL", help="where checkpoints go (default: beside the output)")
    options = parser.parse_args()

    output = Path(options.output).resolve()
    storage = options.storage or str(output.with_name(f"{output.name}-checkpoints"))
    kills = options.kill_after_checkpoints
    source: FileSource | PacedText = FileSource.text(options.input)
    if kills > 0:
        source = paced(options.input, options.checkpoint_interval, kills)
    env = word_count(source, str(output), options.parallelism, options.checkpoint_interval, storage)
    if kills <= 0:
        env.run()
        return 0
    job = env.submit()
    killed = kill_one_subtask(job, kills)
    print(f"killed {killed}" if killed else "the job ended before the kill", flush=True)
    result = job.wait()
    print(f"{result.status.value} after {result.statistics.restarts} restart(s)")
    return 0 if killed else 1


if __name__ == "__main__":
    sys.exit(main())
