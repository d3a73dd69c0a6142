"""Operators that print and log: user code in a module of its own."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from jobs.lasting import Lasting

from penstock import Checkpointing, DiscardSink, FixedDelay, GeneratorSource, StreamEnvironment
from penstock.connectors import Sink

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


def tell_largest(n: int) -> int:
    """Tells the last seven numbers of every 500.

    They arrive in any order: the last number of a remainder is the largest of it whenever it comes.
    """
    if n % 500 > 492:
        print(f"largest {n}")
    return n


def talking_job(
    tmp_path: Path,
    count: int,
    rate: float,
    *,
    name: str = "talker",
    sink: Sink[int] | None = None,
    restarts: int = 3,
    attempt: int = 1,
) -> StreamEnvironment:
    """numbers -> talk -> the largest of each remainder, told too -> sink, in two subtasks each.

    It does not end before this attempt.
    """
    env = StreamEnvironment(
        name,
        parallelism=2,
        buffer_timeout=1.0,  # few frames: see `words`
        # Tests look at files of a checkpoint when newer ones are long complete.
        checkpointing=Checkpointing(every=0.3, storage=str(tmp_path / "checkpoints"), retain=1_000),
        restart=FixedDelay(attempts=restarts, delay=0.1),
    )
    source = Lasting(GeneratorSource(number, count=count, rate=rate), attempt)
    numbers = env.from_source("numbers", source)
    largest = numbers.map(talk, id="talk").key_by(remainder).reduce("largest", larger)
    largest.map(tell_largest, id="tell").sink("out", sink or DiscardSink())
    return env
