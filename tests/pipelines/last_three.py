"""The last three pages of each visitor, in a `ListState`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, ListState, RuntimeContext, StreamEnvironment

Click = tuple[int, str]
Row = tuple[int, list[str]]


class LastThree(KeyedProcessFunction[int, Click, Row]):
    """Emits the newest pages with each click; `exit` forgets them."""

    pages = ListState(str)

    def process(self, value: Click, ctx: RuntimeContext) -> Iterator[Row]:
        if value[1] == "exit":
            self.pages.clear()
            return
        self.pages.add(value[1])
        if len(self.pages) > 3:
            self.pages.update(self.pages.get()[1:])
        yield ctx.current_key, self.pages.get()


def make_input(random: Random) -> list[Click]:
    pages = ("home", "search", "item", "basket", "exit")
    return [(random.randrange(6), random.choice(pages)) for _ in range(60)]


def build(env: StreamEnvironment, clicks: list[Click]) -> DataStream[Row]:
    keyed = env.from_collection("clicks", clicks, parallelism=1).key_by(lambda click: click[0])
    return keyed.process("last-three", LastThree())


def expected(clicks: list[Click]) -> list[Row]:
    pages: dict[int, list[str]] = {}
    rows = []
    for visitor, page in clicks:
        if page == "exit":
            pages.pop(visitor, None)
        else:
            pages[visitor] = [*pages.get(visitor, []), page][-3:]
            rows.append((visitor, pages[visitor]))
    return rows
