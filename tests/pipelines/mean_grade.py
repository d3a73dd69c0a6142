"""The mean grade of each pupil after every test, in an `AggregatingState`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random

from penstock import (
    AggregateFunction,
    AggregatingState,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
)

Grade = tuple[str, int]
Row = tuple[str, str]


class Mean(AggregateFunction[int, tuple[int, int], str]):
    """The accumulator is a sum and a number."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> str:
        return str(Fraction(*accumulator))


class Report(KeyedProcessFunction[str, Grade, Row]):
    """Emits the mean so far."""

    mean = AggregatingState(Mean())

    def process(self, value: Grade, ctx: RuntimeContext) -> Iterator[Row]:
        self.mean.add(value[1])
        yield ctx.current_key, str(self.mean.get())


def make_input(random: Random) -> list[Grade]:
    return [(random.choice(("ann", "bob", "cem", "dora")), random.randint(1, 6)) for _ in range(50)]


def build(env: StreamEnvironment, grades: list[Grade]) -> DataStream[Row]:
    keyed = env.from_collection("grades", grades, parallelism=1).key_by(lambda grade: grade[0])
    return keyed.process("report", Report())


def expected(grades: list[Grade]) -> list[Row]:
    of: dict[str, list[int]] = {}
    rows = []
    for pupil, grade in grades:
        of.setdefault(pupil, []).append(grade)
        rows.append((pupil, str(Fraction(sum(of[pupil]), len(of[pupil])))))
    return rows
