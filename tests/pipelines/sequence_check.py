"""Every sender's messages come complete and in order: a gap or a repetition would show at the side.

The job knows the order, so this is a pipeline that checks the runtime from inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from penstock import (
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
)

#: Sender and number, which each sender counts from 0.
Message = tuple[int, int]


class InOrder(KeyedProcessFunction[int, Message, Message]):
    """Passes on what comes when it should, and names everything else."""

    following = ValueState(int, default=0)
    wrong = OutputTag[str]()

    def process(self, value: Message, ctx: RuntimeContext) -> Iterator[Message]:
        wanted = self.following.value()
        if value[1] != wanted:
            ctx.output(self.wrong, f"{value} where {wanted} should be")
        self.following.update(value[1] + 1)
        yield value


def make_input(random: Random) -> list[Message]:
    numbers = [0] * 5
    messages = []
    for _ in range(60):
        sender = random.randrange(5)
        messages.append((sender, numbers[sender]))
        numbers[sender] += 1
    return messages


def build(env: StreamEnvironment, messages: list[Message]) -> Mapping[str, DataStream[object]]:
    once = env.from_collection("messages", messages, parallelism=1).key_by(lambda message: message[0])
    checked = once.process("in-order", InOrder())
    # By the same key once more: two exchanges keep the order, too.
    twice = checked.key_by(lambda message: message[0]).process("in-order-again", InOrder())
    wrong = checked.side_output(InOrder.wrong).union(twice.side_output(InOrder.wrong))
    return {"messages": twice, "wrong": wrong}


def expected(messages: list[Message]) -> Mapping[str, list[object]]:
    return {"messages": list(messages), "wrong": []}
