"""Messages that come several times are passed on once: the first one of each id."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, RuntimeContext, StreamEnvironment, ValueState

Message = dict[str, object]


class First(KeyedProcessFunction[object, Message, Message]):
    """Remembers which ids it has seen."""

    seen = ValueState(bool, default=False)

    def process(self, value: Message, ctx: RuntimeContext) -> Iterator[Message]:
        if not self.seen.value():
            self.seen.update(True)
            yield value


def make_input(random: Random) -> list[Message]:
    ids = [random.randrange(25) for _ in range(60)]
    return [{"id": f"m-{number}", "text": f"text of {number}"} for number in ids]


def build(env: StreamEnvironment, messages: list[Message]) -> DataStream[Message]:
    return env.from_collection("messages", messages).key_by("id").process("first", First())


def expected(messages: list[Message]) -> list[Message]:
    return list({message["id"]: message for message in messages}.values())
