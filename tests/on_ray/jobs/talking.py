"""Operators that print and log: user code in a module of its own."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from penstock.runtime import (
    Checkpointing,
    DiscardSink,
    FixedDelay,
    GeneratorSource,
    Sink,
    StreamEnvironment,
)

logger = logging.getLogger("users.own")


def number(i: int) -> int:
    return i


def talk(n: int) -> int:
    """Says something every 99th time, each time in another way."""
    if n % 297 == 0:
        print(f"printed {n}")
    elif n % 297 == 99:
        print(f"complained {n}", file=sys.stderr)
    elif n % 297 == 198:
        logger.info("informed %d", n)
    return n


def remainder(n: int) -> int:
    return n % 7


def larger(a: int, b: int) -> int:
    return max(a, b)


def tell_sum(n: int) -> int:
    if n % 500 == 0:
        print(f"summed {n}")
    return n


def talking_job(
    tmp_path: Path,
    count: int,
    rate: float,
    *,
    name: str = "talker",
    sink: Sink[int] | None = None,
    restarts: int = 3,
) -> StreamEnvironment:
    """numbers -> talk -> the largest of each remainder, told too -> sink, in two subtasks each."""
    env = StreamEnvironment(
        name,
        parallelism=2,
        checkpointing=Checkpointing(every=0.3, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=restarts, delay=0.1),
    )
    numbers = env.from_source("numbers", GeneratorSource(number, count=count, rate=rate))
    largest = numbers.map(talk, id="talk").key_by(remainder).reduce("largest", larger)
    largest.map(tell_sum, id="tell").sink("out", sink or DiscardSink())
    return env
