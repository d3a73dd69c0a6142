"""Every subtask gets every record: each of three subtasks keeps the numbers that are its own."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, FunctionContext, ProcessFunction, StreamEnvironment

SUBTASKS = 3


class Own(ProcessFunction[int, tuple[int, int]]):
    """Emits the numbers whose remainder is the subtask's index."""

    def process(self, value: int, ctx: FunctionContext) -> Iterator[tuple[int, int]]:
        if value % ctx.parallelism == ctx.subtask:
            yield ctx.subtask, value


def make_input(random: Random) -> list[int]:
    return [random.randrange(1000) for _ in range(40)]


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[tuple[int, int]]:
    return env.from_collection("numbers", numbers).broadcast().process("own", Own(), parallelism=SUBTASKS)


def expected(numbers: list[int]) -> list[tuple[int, int]]:
    return [(number % SUBTASKS, number) for number in numbers]
