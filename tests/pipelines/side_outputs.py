"""A process function sorts records: numbers, at the side what is none, and at another side what is large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from penstock import DataStream, FunctionContext, OutputTag, ProcessFunction, StreamEnvironment


class Parse(ProcessFunction[str, int]):
    """A large number is emitted twice, as a number and at the side."""

    broken = OutputTag[str]()
    large = OutputTag[int]()

    def process(self, value: str, ctx: FunctionContext) -> Iterator[int]:
        if not value.isdigit():
            ctx.output(self.broken, value)
            return
        number = int(value)
        if number > 90:
            ctx.output(self.large, number)
        yield number


def make_input(random: Random) -> list[str]:
    return [
        random.choice((str(random.randrange(100)), str(random.randrange(80, 100)), "x", ""))
        for _ in range(50)
    ]


def build(env: StreamEnvironment, texts: list[str]) -> Mapping[str, DataStream[object]]:
    parsed = env.from_collection("texts", texts).process("parse", Parse())
    largest = parsed.side_output(Parse.large).key_by(lambda number: number % 3).reduce("largest", max)
    return {
        "numbers": parsed,
        "broken": parsed.side_output(Parse.broken),
        "largest": largest.map(lambda n: n % 3),
    }


def expected(texts: list[str]) -> Mapping[str, list[object]]:
    numbers = [int(text) for text in texts if text.isdigit()]
    return {
        "numbers": list(numbers),
        "broken": [text for text in texts if not text.isdigit()],
        "largest": [number % 3 for number in numbers if number > 90],
    }
