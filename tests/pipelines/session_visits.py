"""Session windows: the visits of each user, which end when nothing came for ten seconds.

The clicks are a little out of order, so some windows begin apart and become one.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import EventTimeSessionWindows, TimeWindow

SECOND = 1_000_000
GAP = 10

#: Second and user.
Click = tuple[int, str]
#: User, first and last second, and the number of clicks.
Visit = tuple[str, int, int, int]


def visit(user: str, window: TimeWindow, clicks: list[Click]) -> Iterator[Visit]:
    yield user, window.start_timestamp // SECOND, window.end_timestamp // SECOND - GAP, len(clicks)


def make_input(random: Random) -> list[Click]:
    return [(max(0, 2 * n - random.randrange(8)), random.choice("abcd")) for n in range(60)]


def build(env: StreamEnvironment, clicks: list[Click]) -> DataStream[Visit]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(8).with_timestamp_assigner(
        lambda click: click[0] * SECOND
    )
    timed = env.from_source("clicks", CollectionSource(clicks), watermarks=strategy, parallelism=1)
    return timed.key_by(lambda click: click[1]).window(EventTimeSessionWindows(GAP)).apply("visits", visit)


def expected(clicks: list[Click]) -> list[Visit]:
    visits: list[Visit] = []
    for user in {user for _, user in clicks}:
        of: list[int] = []
        for second in [*sorted(second for second, each in clicks if each == user), 10**6]:
            if of and second - of[-1] >= GAP:
                visits.append((user, of[0], of[-1], len(of)))
                of = []
            of.append(second)
    return visits


#: A drain ends the visits of the moment.
whole = None
